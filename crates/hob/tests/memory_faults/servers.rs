//! Servers that are dead, hung, saturated, older, or no Hob at all delay no hook and lose no turn.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hob_testkit::leak::descriptors;
use hob_testkit::{TestHome, wait_until};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::hooks::{
    Watch, assert_no_process, assert_whole, hook_input, serve, set_aside, wait_drained,
};
use crate::transcript::{ASSISTANT, Shape, Transcript, USER, assert_stored};

/// One session for each kind of capture.
struct Ways {
    deferring: Transcript,
    storing: Transcript,
    following: Transcript,
}

impl Ways {
    fn new(home: &TestHome, name: &str) -> Ways {
        let make = |way: &str| Transcript::new(home, &format!("{name}-{way}"), Shape::Claude);
        Ways {
            deferring: make("deferring"),
            storing: make("storing"),
            following: make("following"),
        }
    }

    fn all(&self) -> [&Transcript; 3] {
        [&self.deferring, &self.storing, &self.following]
    }

    /// Captures by all of them while no server can be reached. `locked`: nor can the store be had.
    #[track_caller]
    fn capture_unreachable(&mut self, home: &TestHome, watch: &Watch, locked: bool) {
        self.deferring.talk(2);
        let turns = self.deferring.said.len();
        let done = watch.capture(home, &["--no-spawn"], self.deferring.path()).json();
        assert_eq!(
            (&done["status"], &done["events"]),
            (&json!("deferred"), &json!(turns)),
            "{done}"
        );
        let path = done["path"].as_str().unwrap();
        assert!(fs::exists(path).unwrap(), "{path}");

        self.storing.talk(2);
        let done = watch.capture(home, &[], self.storing.path()).json();
        match locked {
            true => assert_eq!(done["status"], "deferred", "{done}"),
            false => {
                assert_eq!((&done["status"], &done["errors"]), (&json!("captured"), &json!(0)));
                let known =
                    done["inserted"].as_u64().unwrap() + done["duplicates"].as_u64().unwrap();
                assert_eq!(known as usize, self.storing.said.len(), "{done}");
            }
        }

        self.following.say(USER, "What now?");
        let input = hook_input(&self.following, "UserPromptSubmit", None);
        assert_eq!(watch.turn(home, &input).stderr, "");
        // The answer is known to the hook before it is in the file.
        self.following.say_later(ASSISTANT, "Done.");
        let input = hook_input(&self.following, "Stop", Some("Done."));
        assert_eq!(watch.turn(home, &input).stderr, "");
        self.following.flush();

        watch.session_start(home, &self.storing.cwd);
        assert_whole(home);
    }
}

#[test]
fn dead_server_does_not_stop_captures() {
    let (home, watch) = (TestHome::new(), Watch::new());
    let mut ways = Ways::new(&home, "dead");
    // Never started, then killed: the socket's file is left.
    ways.capture_unreachable(&home, &watch, false);
    serve(&home).kill();
    assert!(home.hob_home().join("hob.sock").exists());
    ways.capture_unreachable(&home, &watch, false);
    assert_no_process(&home);
    let server = serve(&home);
    wait_drained(&home);
    assert_stored(&home, &ways.all());
    assert!(server.stop().success());
    watch.print("dead");
}

#[test]
fn hung_server_does_not_stop_captures() {
    let (home, watch) = (TestHome::new(), Watch::new());
    let mut ways = Ways::new(&home, "hung");
    let server = serve(&home);
    let descriptors_before = descriptors(server.pid());
    for _ in 0..2 {
        server.signal(Signal::SIGSTOP);
        ways.capture_unreachable(&home, &watch, false);
        server.signal(Signal::SIGCONT);
        wait_drained(&home);
        assert_stored(&home, &ways.all());
    }
    wait_until("the connections of hooks that left are closed", || {
        (descriptors(server.pid()) <= descriptors_before + 16).then_some(())
    });
    assert!(server.stop().success());
    watch.print("hung");
}

/// Connections that never send delay nobody while the server runs. While it is suspended, they fill its
/// queue, and connecting fails at once.
#[test]
fn saturated_server_does_not_stop_captures() {
    let (home, watch) = (TestHome::new(), Watch::new());
    let mut ways = Ways::new(&home, "saturated");
    let server = serve(&home);
    let before = descriptors(server.pid());
    let socket = home.hob_home().join("hob.sock");
    let mut silent: Vec<UnixStream> = Vec::new();
    for number in 0..300 {
        let mut stream = UnixStream::connect(&socket).unwrap();
        // Some begin a frame and never end it.
        if number % 3 == 0 {
            let _ = stream.write_all(&[0, 16, 0, 0, b'{']);
        }
        silent.push(stream);
    }
    let mut busy: Vec<Transcript> = (0..16)
        .map(|number| Transcript::new(&home, &format!("busy-{number}"), Shape::Claude))
        .collect();
    std::thread::scope(|scope| {
        for transcript in &mut busy {
            let (home, watch) = (&home, &watch);
            scope.spawn(move || {
                transcript.talk(5);
                let status = watch.capture(home, &["--no-spawn"], transcript.path()).status();
                assert!(["captured", "deferred"].contains(&status.as_str()), "{status}");
            });
        }
    });
    server.signal(Signal::SIGSTOP);
    // The queue's length is the system's affair.
    let full = fill(&socket, &mut silent);
    ways.capture_unreachable(&home, &watch, false);
    server.signal(Signal::SIGCONT);
    drop(silent);
    wait_drained(&home);
    let busy: Vec<&Transcript> = busy.iter().chain(ways.all()).collect();
    assert_stored(&home, &busy);
    wait_until("all connections are closed", || {
        (descriptors(server.pid()) <= before + 16).then_some(())
    });
    println!("saturated: the queue was full after {full} connections");
    watch.print("saturated");
    assert!(server.stop().success());
}

/// Connects until no more connections are accepted and returns their number.
fn fill(socket: &std::path::Path, held: &mut Vec<UnixStream>) -> usize {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect};
    use std::os::fd::AsRawFd;
    let address = UnixAddr::new(socket).unwrap();
    for number in 0..20_000 {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let made = nix::sys::socket::socket(AddressFamily::Unix, SockType::Stream, flags, None);
        // A test may not have as many descriptors.
        let Ok(descriptor) = made else { return number };
        if connect(descriptor.as_raw_fd(), &address).is_err() {
            return number;
        }
        held.push(UnixStream::from(descriptor));
    }
    panic!("the queue has no end");
}

/// The behaviour of a stranger on the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stranger {
    /// An older Hob: it does not know this protocol.
    Refuses,
    Closes,
    Garbage,
    /// A frame of a size that no frame has.
    Huge,
    /// A frame that is announced and does not come.
    HalfAFrame,
    /// Says hello, and nothing more.
    Hello,
    /// Says hello and refuses to capture.
    NoCapture,
    Silent,
    /// One byte at a time, each in time, for ever.
    Trickles,
}

fn converse(mut stream: UnixStream, stranger: Stranger, over: &AtomicBool) {
    let hello = br#"{"hello":{"protocol":2,"version":"0.0.1","pid":1,"http":null}}"#;
    let error = br#"{"error":"unknown call"}"#;
    let frame = |body: &[u8]| [&(body.len() as u32).to_be_bytes(), body].concat();
    let mut heard = [0; 4096];
    let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
    let mut answers = match stranger {
        Stranger::Refuses => vec![frame(error); 4],
        Stranger::Closes => return,
        Stranger::Garbage => vec![b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(); 4],
        Stranger::Huge => vec![vec![0xff; 64]],
        Stranger::HalfAFrame => vec![vec![0, 0, 16, 0, b'{']],
        Stranger::Hello => vec![frame(hello)],
        Stranger::NoCapture => vec![frame(error), frame(hello)],
        Stranger::Silent => vec![],
        Stranger::Trickles => vec![vec![0], vec![1], vec![0], vec![0]],
    };
    while !over.load(Ordering::Relaxed) {
        match stream.read(&mut heard) {
            Ok(0) => return,
            Ok(_) => {
                if let Some(answer) = answers.pop() {
                    let _ = stream.write_all(&answer);
                }
            }
            Err(_) if stranger == Stranger::Trickles => {
                let _ = stream.write_all(&answers.pop().unwrap_or_else(|| vec![b' ']));
            }
            Err(_) => {}
        }
    }
}

#[track_caller]
fn with_a_stranger(stranger: Stranger) {
    let (home, watch) = (TestHome::new(), Watch::new());
    let mut ways = Ways::new(&home, "stranger");
    fs::create_dir_all(home.hob_home()).unwrap();
    let socket = home.hob_home().join("hob.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let accepting = over.clone();
    let thread = std::thread::spawn(move || {
        let mut talking = Vec::new();
        for stream in listener.incoming().flatten() {
            if accepting.load(Ordering::Relaxed) {
                break;
            }
            let over = accepting.clone();
            talking.push(std::thread::spawn(move || converse(stream, stranger, &over)));
        }
        talking.into_iter().for_each(|thread| thread.join().unwrap());
    });
    ways.capture_unreachable(&home, &watch, false);
    over.store(true, Ordering::Relaxed);
    UnixStream::connect(&socket).unwrap();
    thread.join().unwrap();
    assert_no_process(&home);
    let server = serve(&home);
    wait_drained(&home);
    assert_eq!(set_aside(&home), [""; 0]);
    assert_stored(&home, &ways.all());
    assert!(server.stop().success());
    watch.print(&format!("{stranger:?}"));
}

#[test]
fn older_server_does_not_stop_captures() {
    for stranger in [Stranger::Refuses, Stranger::Closes, Stranger::NoCapture] {
        with_a_stranger(stranger);
    }
}

#[test]
fn stranger_on_the_socket_does_not_stop_captures() {
    for stranger in [Stranger::Garbage, Stranger::Huge, Stranger::HalfAFrame, Stranger::Silent] {
        with_a_stranger(stranger);
    }
}

#[test]
fn server_silent_after_hello_does_not_stop_captures() {
    with_a_stranger(Stranger::Hello);
}

#[test]
fn server_with_an_endless_answer_does_not_stop_captures() {
    with_a_stranger(Stranger::Trickles);
}
