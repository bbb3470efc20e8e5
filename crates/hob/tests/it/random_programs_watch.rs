//! Notices what random programs do to a server: how long it does not answer, and how much memory it takes.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hob_testkit::agent::greedy_calls::frame;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::attacks::MAX_SERVER_MB;

/// How long the server may leave others without an answer, in addition to what the machine itself takes.
const MAX_PAUSE: Duration = Duration::from_millis(250);
/// A request passes several threads, each of which may have to wait for a processor as long as the control does.
const HOPS: u32 = 4;
/// A server that does not answer for this long has stopped. It is killed, so that the test can go on.
const STOPPED: Duration = Duration::from_secs(10);
/// A server that has taken this much memory is killed, so that the machine does not suffer.
const RUNAWAY_MB: u64 = 1500;
/// A promise that a program has broken.
#[derive(Debug)]
pub struct Breach {
    pub kind: String,
    pub detail: String,
}

impl Breach {
    pub fn new(kind: &str, detail: impl ToString) -> Breach {
        Breach { kind: kind.to_owned(), detail: detail.to_string() }
    }
}

/// Echoes single bytes: a control that shows how long the machine itself takes.
pub fn serve_echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut byte = [0];
                while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
            });
        }
    });
    address
}

/// Sets a flag even if the test panics, so that its threads end.
pub struct SetAtEnd<'f>(pub &'f AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Kills a server that takes too much memory, at any time of its life: it may do so long after a program has ended.
pub struct Watchdog {
    most_mb: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Watchdog {
    pub fn new(server: i32) -> Watchdog {
        let watchdog = Watchdog { most_mb: Arc::default(), is_over: Arc::default() };
        let (most_mb, is_over) = (watchdog.most_mb.clone(), watchdog.is_over.clone());
        std::thread::spawn(move || {
            while let Some(now) = resident_mb(server).filter(|_| !is_over.load(Ordering::Acquire)) {
                most_mb.fetch_max(now, Ordering::AcqRel);
                if now > RUNAWAY_MB {
                    let _ = kill(Pid::from_raw(server), Signal::SIGKILL);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        watchdog
    }

    /// Returns the most memory since the last call, in MB.
    pub fn take_most_mb(&self) -> u64 {
        self.most_mb.swap(0, Ordering::AcqRel)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
    }
}

/// The longest delays while a program ran, and the most memory of the server.
#[derive(Default)]
pub struct Delays {
    pub server: Duration,
    pub owner: Duration,
    pub machine: Duration,
    pub resident_mb: u64,
}

impl Delays {
    pub fn add(&mut self, other: &Delays) {
        self.server = self.server.max(other.server);
        self.owner = self.owner.max(other.owner);
        self.machine = self.machine.max(other.machine);
        self.resident_mb = self.resident_mb.max(other.resident_mb);
    }

    pub fn breaches(&self) -> Vec<Breach> {
        let Delays { server, owner, machine, resident_mb } = self;
        let allowed = MAX_PAUSE + *machine * HOPS;
        let mut found = Vec::new();
        if *server >= allowed {
            let detail = format!("no answer for {server:?}; the machine took {machine:?}");
            found.push(Breach::new("stops the server for others", detail));
        }
        if *owner >= allowed {
            let detail = format!("no answer for {owner:?}; the machine took {machine:?}");
            found.push(Breach::new("stops the calls of the owner", detail));
        }
        if *resident_mb >= MAX_SERVER_MB {
            found.push(Breach::new("fills the server's memory", format!("{resident_mb} MB")));
        }
        found
    }
}

/// Returns the resident memory of a process in MB, or `None` if it has ended.
pub fn resident_mb(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()? / 1024)
}

/// Asks the server whether it lives, without a token.
pub fn stranger_is_answered(address: &str) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(STOPPED))?;
        write!(stream, "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut answer = [0; 15];
        stream.read_exact(&mut answer)?;
        Ok(answer == *b"HTTP/1.1 200 OK")
    };
    ask().unwrap_or(false)
}

/// Asks for the owner's memory, as a command of the owner does.
pub fn owner_is_answered(socket: &Path) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(STOPPED))?;
        stream.set_write_timeout(Some(STOPPED))?;
        let call = r#"{"call":"tool","name":"memory_stats","cwd":"/","arguments":{}}"#;
        stream.write_all(&frame(call))?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer)?;
        Ok(true)
    };
    ask().unwrap_or(false)
}

pub fn echo_is_answered(address: &str) -> bool {
    let mut byte = [0];
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&byte).unwrap();
    stream.read_exact(&mut byte).unwrap();
    true
}
