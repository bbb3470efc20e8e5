//! The shim: the single-threaded process between Hob and an agent.
//!
//! It leads its own session, is the subreaper of everything the agent starts (including processes that call
//! `setsid` and outlive their parent), and reaps all of them. It has no state worth saving: in doubt it ends
//! the tree.

use std::io::{self, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hob_files::owned;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::sys::stat::{Mode, umask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout, getpid, getppid, setsid};

use crate::confine::{Confinement, Rules, STRICT_LANDLOCK_VERSION, landlock_version};
use crate::limits::{limit_processes, max_agent_processes, prefer_for_the_out_of_memory_killer};
use crate::namespace_processes::{self, Role};
use crate::tree;
use crate::wire::{Launch, ShimCommand, ShimEvent, own};

/// The time between TERM and KILL if Hob does not set one: the agent has exited by itself, or Hob is gone.
const DEFAULT_GRACE: Duration = Duration::from_millis(500);
/// How often a tree that is being killed is checked and signalled again.
const KILL_INTERVAL: Duration = Duration::from_millis(20);
/// Longer launch messages are rejected.
const MAX_LAUNCH_BYTES: usize = 64 << 20;

/// Runs as the shim and never returns. The control socket is standard input.
///
/// Call it first in `main`, before any thread exists, when the process was started with
/// [`ARGUMENT`].
pub fn run() -> ! {
    let code = match run_to_the_end() {
        Ok(()) => 0,
        Err(_) => 1,
    };
    std::process::exit(code)
}

/// The hidden first argument that makes an executable a shim.
pub const ARGUMENT: &str = "__shim";

fn run_to_the_end() -> io::Result<()> {
    leave_what_was_inherited();
    let control: UnixStream = io::stdin().as_fd().try_clone_to_owned()?.into();
    // This fails, harmlessly, if the process leads a session already.
    let _ = setsid();
    prctl::set_child_subreaper(true)?;
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block()?;
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let null = owned::open_or_create("/dev/null", 0o666)?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    drop(null);

    let (launch, mut streams) = receive_launch(&control)?;
    // A process namespace of its own has numbers of its own, so the machine's are counted here.
    let max_processes = max_agent_processes();
    if let Some(confinement) = &launch.confinement {
        prefer_for_the_out_of_memory_killer();
        match namespace_processes::run(confinement, &signals, &control, &mut streams) {
            Ok(Role::Guard) => return Ok(()),
            Ok(Role::Init(report, granted)) => {
                let rules = Rules::in_view(confinement, &granted)
                    .and_then(|rules| strictly(confinement, rules));
                let start = |rules| start_under(&launch, streams, rules, Some(max_processes));
                return keep(start, rules, control, &signals, |agent| report.started(agent));
            }
            Err(error) if confinement.strict || confinement.view_required => {
                let errno = error.raw_os_error().unwrap_or(Errno::EPERM as i32);
                let event = ShimEvent::NotConfined { errno };
                return (&control).write_all(event.encode().as_bytes());
            }
            Err(_) => {}
        }
    }
    let rules = launch.confinement.as_ref().map_or(Ok(None), Rules::new);
    let start = |rules| start_under(&launch, streams, rules, None);
    keep(start, rules, control, &signals, |agent| {
        let start = tree::start_time(agent.as_raw()).unwrap_or(0);
        Some(ShimEvent::Started { pid: agent.as_raw(), start })
    })
}

/// Closes descriptors and leaves the keyring that the server inherited from the program that started it. Through them an
/// agent would reach what its view does not show.
fn leave_what_was_inherited() {
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    let (first, last, none) = (3 as libc::c_long, libc::c_long::from(u32::MAX), 0 as libc::c_long);
    // SAFETY: the process has one thread and uses no descriptor but its standard ones yet. A new anonymous keyring needs no
    // name.
    unsafe {
        libc::syscall(libc::SYS_close_range, first, last, none);
        libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, none);
    }
}

/// Refuses rules that are weaker than a strict confinement demands.
fn strictly(confinement: &Confinement, rules: Option<Rules>) -> io::Result<Option<Rules>> {
    let version = landlock_version().unwrap_or_default();
    if confinement.strict && (rules.is_none() || version < STRICT_LANDLOCK_VERSION) {
        return Err(Errno::EOPNOTSUPP.into());
    }
    Ok(rules)
}

/// Starts the agent under its rules and looks after its tree until it is gone. `started` reports the start, or returns
/// the event that does.
fn keep(
    start: impl FnOnce(Option<Rules>) -> io::Result<Pid>,
    rules: io::Result<Option<Rules>>,
    control: UnixStream,
    signals: &SignalFd,
    started: impl FnOnce(Pid) -> Option<ShimEvent>,
) -> io::Result<()> {
    let number = |error: io::Error| error.raw_os_error().unwrap_or(Errno::EINVAL as i32);
    let agent = rules
        .map_err(|error| ShimEvent::NotConfined { errno: number(error) })
        .and_then(|rules| start(rules).map_err(|error| ShimEvent::Failed { errno: number(error) }));
    let mut keeper = match agent {
        Ok(agent) => Keeper { control, listening: true, agent, ending: None },
        Err(note) => return (&control).write_all(note.encode().as_bytes()),
    };
    if let Some(event) = started(keeper.agent) {
        keeper.tell(&event);
    }
    keeper.run(signals)
}

/// Reads the launch message and the descriptors that come with its first byte.
fn receive_launch(control: &UnixStream) -> io::Result<(Launch, Vec<OwnedFd>)> {
    let mut length = [0u8; 4];
    let mut streams = Vec::new();
    let mut have = 0;
    while have < 4 {
        let mut space = cmsg_space!([std::os::fd::RawFd; 3]);
        let mut buffer = [IoSliceMut::new(&mut length[have..])];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = recvmsg::<()>(control.as_raw_fd(), &mut buffer, Some(&mut space), flags)?;
        for part in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(fds) = part {
                streams.extend(fds.into_iter().map(own));
            }
        }
        if message.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        have += message.bytes;
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > MAX_LAUNCH_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    (&*control).read_exact(&mut body)?;
    let launch = Launch::decode(&body).ok_or(io::ErrorKind::InvalidData)?;
    Ok((launch, streams))
}

/// Starts the agent. Processes are counted per user namespace, so `max_processes` is given only for a view of its own.
fn start_under(
    launch: &Launch,
    streams: Vec<OwnedFd>,
    mut rules: Option<Rules>,
    max_processes: Option<u64>,
) -> io::Result<Pid> {
    let mut command = Command::new(&launch.program);
    command.args(&launch.args).env_clear().current_dir(&launch.cwd);
    command.envs(launch.env.iter().map(|(name, value)| (name, value)));
    let mut streams = streams.into_iter();
    let mut next = || streams.next().ok_or(io::Error::from(io::ErrorKind::InvalidData));
    let input = next()?;
    let (output, error) =
        if launch.terminal { (input.try_clone()?, input.try_clone()?) } else { (next()?, next()?) };
    command.stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::from(error));

    let terminal = launch.terminal;
    let confined = launch.confinement.is_some();
    let mode = Mode::from_bits_truncate(launch.umask);
    let shim = getpid();
    // SAFETY: between fork and exec the closure makes only async-signal-safe system calls (setsid, ioctl,
    // prctl, getppid, umask, getrlimit, setrlimit, sigprocmask, landlock_restrict_self, seccomp, close) on values copied before the fork,
    // and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            setsid()?;
            if terminal {
                set_controlling_terminal(0, 0)?;
            }
            // This parent is single-threaded, so the signal means the shim itself has died.
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            if getppid() != shim {
                return Err(Errno::ESRCH.into());
            }
            umask(mode);
            if confined {
                limit_processes(max_processes)?;
            }
            // The shim blocks signals; an agent that inherited this would never receive TERM.
            SigSet::empty().thread_set_mask()?;
            // Not earlier: the shim itself must stay able to signal the tree.
            rules.take().map_or(Ok(()), Rules::enforce)
        });
    }
    // This handle is never waited on: the shim waits for all of its children.
    #[allow(clippy::disallowed_methods, reason = "this is the one place that starts a program")]
    let child = command.spawn()?;
    Ok(Pid::from_raw(child.id() as i32))
}

nix::ioctl_write_int_bad!(set_controlling_terminal, nix::libc::TIOCSCTTY);

struct Keeper {
    control: UnixStream,
    /// `false` once Hob has closed its end for writing, or is gone. It may still read.
    listening: bool,
    agent: Pid,
    /// Set once the tree is being ended: when to kill, and again after every interval.
    ending: Option<Instant>,
}

impl Keeper {
    fn run(&mut self, signals: &SignalFd) -> io::Result<()> {
        let mut orders = Vec::new();
        loop {
            let mut watched = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
            if self.listening {
                watched.push(PollFd::new(self.control.as_fd(), PollFlags::POLLIN));
            }
            match poll(&mut watched, self.timeout()) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            let readable = |fd: Option<&PollFd>| {
                fd.and_then(PollFd::revents).is_some_and(|events| !events.is_empty())
            };
            let (signalled, ordered) = (readable(watched.first()), readable(watched.get(1)));
            drop(watched);
            if signalled {
                while let Ok(Some(signal)) = signals.read_signal() {
                    if signal.ssi_signo != Signal::SIGCHLD as u32 {
                        self.end(DEFAULT_GRACE);
                    }
                }
                if self.reap() == Tree::Gone {
                    return Ok(());
                }
            }
            if ordered {
                self.listen(&mut orders);
            }
            if self.ending.is_some_and(|at| at <= Instant::now()) {
                signal_tree(Signal::SIGKILL);
                self.ending = Some(Instant::now() + KILL_INTERVAL);
                if self.reap() == Tree::Gone {
                    return Ok(());
                }
            }
        }
    }

    fn timeout(&self) -> PollTimeout {
        let Some(at) = self.ending else { return PollTimeout::NONE };
        let left = at.saturating_duration_since(Instant::now()).as_millis() as u64 + 1;
        PollTimeout::try_from(left.min(60_000) as i32).unwrap_or(PollTimeout::MAX)
    }

    /// Reaps every process that has ended: the agent, or an orphan of its tree.
    fn reap(&mut self) -> Tree {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => self.ended(pid, code << 8),
                Ok(WaitStatus::Signaled(pid, signal, _)) => self.ended(pid, signal as i32),
                Ok(WaitStatus::StillAlive) => return Tree::Alive,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return Tree::Gone,
            }
        }
    }

    fn ended(&mut self, pid: Pid, status: i32) {
        if pid == self.agent {
            self.tell(&ShimEvent::Exited { status });
            self.end(DEFAULT_GRACE);
        }
    }

    fn listen(&mut self, pending: &mut Vec<u8>) {
        let mut chunk = [0u8; 256];
        match self.control.read(&mut chunk) {
            Ok(count @ 1..) => pending.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => {
                self.listening = false;
                self.end(DEFAULT_GRACE);
            }
        }
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            match ShimCommand::decode(&String::from_utf8_lossy(&line)) {
                Some(ShimCommand::Signal(number)) => {
                    if let Ok(signal) = Signal::try_from(number) {
                        let _ = kill(self.agent, signal);
                    }
                }
                Some(ShimCommand::End { grace_ms }) => self.end(Duration::from_millis(grace_ms)),
                None => {}
            }
        }
    }

    /// Sends TERM now and KILL after the grace. A repeated call can only shorten the grace.
    fn end(&mut self, grace: Duration) {
        let at = Instant::now() + grace;
        match self.ending {
            None => {
                if !grace.is_zero() {
                    signal_tree(Signal::SIGTERM);
                    // A stopped process would not see TERM.
                    signal_tree(Signal::SIGCONT);
                }
                self.ending = Some(at);
            }
            Some(earlier) => self.ending = Some(earlier.min(at)),
        }
    }

    fn tell(&mut self, note: &ShimEvent) {
        // If Hob is gone, the control socket reaches end of file soon.
        let _ = self.control.write_all(note.encode().as_bytes());
    }
}

#[derive(PartialEq, Eq)]
enum Tree {
    Alive,
    Gone,
}

/// Signals every live descendant. Their pids cannot be reused meanwhile: only the shim or a process of the
/// tree reaps them. A process that appears later is found by the next check.
fn signal_tree(signal: Signal) {
    for process in tree::descendants(getpid().as_raw()) {
        if !process.zombie {
            let _ = kill(Pid::from_raw(process.pid), signal);
        }
    }
}
