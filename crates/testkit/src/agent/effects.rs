//! The effects of steps on the process, in every protocol.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal, raise, signal};
use serde_json::Value;

use super::mcp;
use crate::script::Step;

/// Whether a turn was interrupted, and a way to wait for it.
#[derive(Default)]
pub struct Interrupt {
    set: Mutex<bool>,
    changed: Condvar,
}

impl Interrupt {
    pub fn raise(&self) {
        *self.set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    pub fn clear(&self) {
        *self.set.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }

    pub fn is_raised(&self) -> bool {
        *self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for this time or until interrupted. Returns `true` when interrupted.
    pub fn wait(&self, time: Duration) -> bool {
        let set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let (set, _) = self
            .changed
            .wait_timeout_while(set, time, |set| !*set)
            .unwrap_or_else(PoisonError::into_inner);
        *set
    }
}

/// Standard output, one whole line at a time.
#[derive(Default)]
pub struct Lines(Mutex<()>);

impl Lines {
    pub fn send(&self, message: &Value) {
        self.send_raw(&message.to_string());
    }

    pub fn send_raw(&self, line: &str) {
        let _one = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stdout = std::io::stdout();
        let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    }
}

/// Whether the process ignores end of file, since `[[stubborn]]`.
static STUBBORN: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Waits forever after `[[stubborn]]`.
pub fn linger_if_stubborn() {
    while STUBBORN.load(std::sync::atomic::Ordering::Relaxed) {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Carries out a step outside the protocol. Returns `false` when the step was interrupted.
pub fn perform(step: &Step, interrupt: &Interrupt) -> bool {
    match step {
        Step::Sleep(ms) | Step::Retry(ms) => !interrupt.wait(Duration::from_millis(*ms)),
        Step::Hang => !interrupt.wait(Duration::from_secs(1_000_000)),
        Step::Until(file) => loop {
            if std::path::Path::new(file).exists() {
                break true;
            }
            if interrupt.wait(Duration::from_millis(5)) {
                break false;
            }
        },
        Step::Note(text) => {
            let notes = std::fs::OpenOptions::new().create(true).append(true).open("notes");
            // In one piece, since another agent may be writing at the same time.
            let _ = notes.and_then(|mut notes| notes.write_all(format!("{text}\n").as_bytes()));
            true
        }
        Step::Crash => {
            let _ = raise(Signal::SIGKILL);
            true
        }
        Step::Exit(code) => std::process::exit(*code),
        Step::Stderr(text) => {
            eprintln!("{text}");
            true
        }
        Step::Daemon => {
            start_detached("exec sleep 100000");
            true
        }
        Step::Stubborn => {
            STUBBORN.store(true, std::sync::atomic::Ordering::Relaxed);
            for number in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
                // SAFETY: SIG_IGN installs no handler.
                let _ = unsafe { signal(number, SigHandler::SigIgn) };
            }
            true
        }
        _ => true,
    }
}

/// Runs a tool. `Bash` runs for real, in a session of its own as Claude Code does it; the output is
/// what a tool result would hold. `None` when interrupted, and then its tree is killed. A tool of an MCP server is called
/// there.
pub fn tool(id: &str, name: &str, input: &Value, interrupt: &Interrupt) -> Option<(String, bool)> {
    if let Some(result) = mcp::call(id, name, input) {
        return Some(result);
    }
    let Some(command) = input["command"].as_str().filter(|_| name == "Bash") else {
        return Some((format!("{name} done"), false));
    };
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    own_session(&mut shell);
    let mut child = shell.spawn().expect("sh starts");
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            let mut text = String::new();
            use std::io::Read;
            let _ = child.stdout.take().expect("stdout").read_to_string(&mut text);
            return Some((text.trim_end().to_owned(), !status.success()));
        }
        if interrupt.wait(Duration::from_millis(if started.elapsed().as_millis() < 100 {
            2
        } else {
            20
        })) {
            let group = nix::unistd::Pid::from_raw(-(child.id() as i32));
            let _ = nix::sys::signal::kill(group, Signal::SIGKILL);
            let _ = child.wait();
            return None;
        }
    }
}

/// Starts a shell command in a session of its own and forgets it.
fn start_detached(command: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]);
    shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    own_session(&mut shell);
    drop(shell.spawn().expect("sh starts"));
}

fn own_session(command: &mut Command) {
    // SAFETY: setsid is async-signal-safe and the closure does nothing else.
    unsafe {
        command.pre_exec(|| {
            nix::unistd::setsid()?;
            Ok(())
        });
    }
}
