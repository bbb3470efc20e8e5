//! The two processes between Hob and an agent that has a view of its own.
//!
//! The shim forks into new namespaces. The *init* there builds the view, starts the agent and looks after its tree; when
//! it ends, the kernel ends everything in the namespaces. The *guard* stays outside. It tells Hob the agent's process
//! number as Hob sees it, waits for the init and passes signals on to it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::signalfd::SignalFd;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::confine::{Confinement, GrantedPaths};
use crate::namespaces::{self, User};
use crate::tree;
use crate::wire::ShimEvent;

/// What the init tells the guard once its view is built. Otherwise it tells the number of the error.
const VIEW_LINE: &str = "view\n";

/// What the calling process has become.
pub(crate) enum Role {
    /// The guard, whose work is done: the init has ended.
    Guard,
    /// The init, in the new view.
    Init(Report, GrantedPaths),
}

/// The init's connection to the guard.
pub(crate) struct Report(UnixStream);

impl Report {
    /// Lets the guard tell Hob that the agent has started. Returns `None`: the event is not the init's to send.
    pub fn started(mut self, agent: Pid) -> Option<ShimEvent> {
        // Until the guard has read the process table, no child may be reaped.
        let _ = writeln!(self.0, "{agent}");
        let _ = self.0.read(&mut [0]);
        None
    }
}

/// Forks into new namespaces. Returns twice: in the init once the view is built, and in the guard at the end. The guard
/// drops the agent's streams. An error means that the kernel does not allow a view; then nothing has happened.
pub(crate) fn run(
    confinement: &Confinement,
    signals: &SignalFd,
    control: &UnixStream,
    streams: &mut Vec<OwnedFd>,
) -> io::Result<Role> {
    let (user, granted) = (User::current(), confinement.granted()?);
    let (guard, mut init) = UnixStream::pair()?;
    let Some(pid) = namespaces::fork()? else {
        drop(guard);
        // If the guard has ended already, the first write fails.
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        if let Err(error) = namespaces::enter(user, confinement, &granted) {
            let errno = error.raw_os_error().unwrap_or(Errno::EPERM as i32);
            let _ = writeln!(init, "{errno}");
            std::process::exit(1);
        }
        if init.write_all(VIEW_LINE.as_bytes()).is_err() {
            std::process::exit(1);
        }
        return Ok(Role::Init(Report(init), granted));
    };
    drop(init);
    let pid = Pid::from_raw(pid);
    let mut lines = BufReader::new(guard);
    let mut line = String::new();
    lines.read_line(&mut line)?;
    if line != VIEW_LINE {
        let _ = kill(pid, Signal::SIGKILL);
        let _ = waitpid(pid, None);
        let errno = line.trim().parse().unwrap_or(Errno::EPERM as i32);
        return Err(io::Error::from_raw_os_error(errno));
    }
    // Only the agent may hold its streams, so that Hob notices when it closes them.
    streams.clear();
    line.clear();
    lines.read_line(&mut line)?;
    // Without a line the agent did not start, and the init has told Hob why.
    if let Ok(agent) = line.trim().parse() {
        if let Some(event) = started(pid.as_raw(), agent) {
            let mut control = control;
            let _ = control.write_all(event.encode().as_bytes());
        }
        lines.get_mut().write_all(b"\n")?;
    }
    guard_until_the_end(pid, signals)?;
    Ok(Role::Guard)
}

/// Finds the agent among the init's children, by the process number that it has inside of the namespace.
fn started(init: i32, agent: i32) -> Option<ShimEvent> {
    let mut children = tree::all().into_iter().filter(|process| process.parent == init);
    let found = children.find(|process| tree::numbers(process.pid).last() == Some(&agent))?;
    Some(ShimEvent::Started { pid: found.pid, start: found.start })
}

/// Waits for the init, and passes signals on to it.
fn guard_until_the_end(init: Pid, signals: &SignalFd) -> io::Result<()> {
    loop {
        match waitpid(init, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => {}
            _ => return Ok(()),
        }
        let mut watched = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut watched, PollTimeout::NONE);
        while let Ok(Some(signal)) = signals.read_signal() {
            if let Ok(signal) = Signal::try_from(signal.ssi_signo as i32)
                && signal != Signal::SIGCHLD
            {
                let _ = kill(init, signal);
            }
        }
    }
}

/// The hidden first argument that makes an executable try whether the kernel allows a view.
pub const PROBE_ARGUMENT: &str = "__view";

/// Tries to build a view, and never returns. Exits with 0 if the kernel allows it. The process must have one thread.
pub fn run_probe() -> ! {
    let confinement = Confinement { temporary: std::env::temp_dir(), ..Confinement::default() };
    let user = User::current();
    let code = match (namespaces::fork(), confinement.granted()) {
        (Ok(None), Ok(granted)) => match namespaces::enter(user, &confinement, &granted) {
            Ok(()) => 0,
            Err(_) => 1,
        },
        (Ok(Some(pid)), _) => match waitpid(Pid::from_raw(pid), None) {
            Ok(WaitStatus::Exited(_, code)) => code,
            _ => 1,
        },
        _ => 1,
    };
    std::process::exit(code)
}

/// Returns whether the kernel allows views. `executable` must answer to [`PROBE_ARGUMENT`].
pub fn is_available(executable: &Path) -> bool {
    let mut command = Command::new(executable);
    command.arg(PROBE_ARGUMENT).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    #[allow(clippy::disallowed_methods, reason = "it ends at once")]
    let status = command.status();
    status.is_ok_and(|status| status.success())
}
