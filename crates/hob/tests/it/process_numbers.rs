//! Gives a process the number of one that has ended.

use std::ffi::CStr;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, clone};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

const NEXT: &str = "/proc/sys/kernel/ns_last_pid";
/// Going through more numbers takes too long for a test.
const MAX_NUMBERS: i32 = 40_000;
const MAX_ROUND: Duration = Duration::from_secs(60);

/// How a test can have a process with a certain number.
#[derive(Debug, Clone, Copy)]
pub enum NumberChoice {
    /// Root names the next number.
    Named,
    /// Anybody can start processes until it is the number's turn.
    InTurn,
}

impl NumberChoice {
    /// Returns how this test can choose a number, if it can.
    pub fn available() -> Option<NumberChoice> {
        if nix::unistd::geteuid().is_root() && fs::OpenOptions::new().write(true).open(NEXT).is_ok()
        {
            return Some(NumberChoice::Named);
        }
        let most =
            fs::read_to_string("/proc/sys/kernel/pid_max").ok()?.trim().parse::<i32>().ok()?;
        (most <= MAX_NUMBERS).then_some(NumberChoice::InTurn)
    }

    /// Returns a process with this number, which must be free.
    pub fn process(self, number: i32) -> Option<NumberedProcess> {
        match self {
            NumberChoice::Named => named(number),
            NumberChoice::InTurn => in_turn(number),
        }
    }
}

/// A process that ends with this value.
pub enum NumberedProcess {
    Own(Child),
    Cloned(Pid),
    /// Another program of this machine was first.
    Other,
}

impl Drop for NumberedProcess {
    fn drop(&mut self) {
        match self {
            NumberedProcess::Own(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            NumberedProcess::Cloned(pid) => {
                let _ = kill(*pid, Signal::SIGKILL);
                let _ = waitpid(*pid, None);
            }
            NumberedProcess::Other => {}
        }
    }
}

fn named(number: i32) -> Option<NumberedProcess> {
    for _ in 0..200 {
        fs::write(NEXT, (number - 1).to_string()).unwrap();
        let sleeper = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
        let is_it = sleeper.id() as i32 == number;
        let process = NumberedProcess::Own(sleeper);
        if is_it {
            return Some(process);
        }
    }
    None
}

fn in_turn(number: i32) -> Option<NumberedProcess> {
    const SLEEP: [&CStr; 2] = [c"/bin/sleep", c"60"];
    let started = Instant::now();
    let mut stack = vec![0; 64 << 10];
    while started.elapsed() < MAX_ROUND {
        if Path::new(&format!("/proc/{number}")).exists() {
            return Some(NumberedProcess::Other);
        }
        let work = Box::new(|| {
            if nix::unistd::getpid().as_raw() == number {
                let arguments = SLEEP.map(CStr::as_ptr);
                let arguments = [arguments[0], arguments[1], std::ptr::null()];
                // SAFETY: the texts and the array live until the call, which replaces the program.
                unsafe { nix::libc::execv(arguments[0], arguments.as_ptr()) };
            }
            0
        });
        let flags = CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK;
        // SAFETY: this thread waits until the process has ended or has become another program. The process allocates
        // nothing and takes no lock.
        let pid = unsafe { clone(work, &mut stack, flags, Some(Signal::SIGCHLD as i32)) }.ok()?;
        if pid.as_raw() == number {
            return Some(NumberedProcess::Cloned(pid));
        }
        let _ = waitpid(pid, None);
    }
    None
}
