//! The handle of one child and of the whole tree below it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::limits::Limit;
use crate::pty::{self, Size};
use crate::ring::Ring;
use crate::wire::ShimCommand;

/// A running child. Dropping the handle ends the whole tree: TERM, then KILL half a second later.
#[derive(Debug)]
pub struct Child {
    pid: i32,
    /// Standard input, for children on pipes that asked for it. Dropping it is end of file.
    pub stdin: Option<pipe::Sender>,
    /// Standard output of a child on pipes; the caller reads it.
    pub stdout: Option<pipe::Receiver>,
    pub(crate) output: Output,
    pub(crate) terminal: Option<Arc<AsyncFd<OwnedFd>>>,
    pub(crate) state: watch::Receiver<ChildState>,
    /// Closing this channel ends the tree.
    pub(crate) orders: mpsc::UnboundedSender<ShimCommand>,
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// Hob, or the kernel for it, ended the tree because it used more than a limit.
    OverLimit(Limit),
    /// The shim was killed from outside, so the status is unknown. The tree was swept.
    Unknown,
}

impl Exit {
    pub(crate) fn from_wait_status(status: i32) -> Exit {
        match status & 0x7f {
            0 => Exit::Code((status >> 8) & 0xff),
            signal => Exit::Signal(signal),
        }
    }

    /// Returns whether the child exited with code 0.
    pub fn success(self) -> bool {
        self == Exit::Code(0)
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit code {code}"),
            Exit::Signal(signal) => write!(f, "signal {signal}"),
            Exit::OverLimit(limit) => write!(f, "signal 9: {limit}"),
            Exit::Unknown => f.write_str("an unknown status"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildState {
    Running,
    /// The agent itself has exited; the rest of its tree is being ended.
    Exited(Exit),
    /// No process of the tree is left and the shim is reaped.
    Gone(Exit),
}

/// How to stop a child: close its input, then TERM to the whole tree, then KILL.
#[derive(Debug, Clone, Copy)]
pub struct StopLadder {
    /// How long to wait after closing standard input (pipes) for the child to end by itself.
    pub polite: Duration,
    /// How long to wait after TERM before KILL.
    pub term: Duration,
}

impl Default for StopLadder {
    fn default() -> StopLadder {
        StopLadder { polite: Duration::from_millis(500), term: Duration::from_millis(1000) }
    }
}

impl StopLadder {
    /// TERM at once, KILL soon after.
    pub const AT_ONCE: StopLadder =
        StopLadder { polite: Duration::ZERO, term: Duration::from_millis(300) };
}

impl Child {
    pub(crate) fn new(
        pid: i32,
        output: Output,
        state: watch::Receiver<ChildState>,
        orders: mpsc::UnboundedSender<ShimCommand>,
    ) -> Child {
        Child { pid, stdin: None, stdout: None, output, terminal: None, state, orders }
    }

    /// Returns the agent's own pid. Its parent is the shim.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns what the child wrote to its terminal or, on pipes, to standard error.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Waits until the agent itself has ended.
    pub async fn exited(&self) -> Exit {
        let mut state = self.state.clone();
        let seen = state.wait_for(|state| *state != ChildState::Running).await;
        match seen.map(|state| *state) {
            Ok(ChildState::Exited(exit) | ChildState::Gone(exit)) => exit,
            _ => Exit::Unknown,
        }
    }

    /// Waits until no process of the tree is left and everything is reaped.
    pub async fn gone(&self) -> Exit {
        let mut state = self.state.clone();
        let seen = state.wait_for(|state| matches!(state, ChildState::Gone(_))).await;
        match seen.map(|state| *state) {
            Ok(ChildState::Gone(exit)) => exit,
            _ => Exit::Unknown,
        }
    }

    /// Returns whether the agent itself still runs.
    pub fn is_running(&self) -> bool {
        *self.state.borrow() == ChildState::Running
    }

    /// Sends a signal to the agent itself, not to its tree.
    pub fn signal(&self, number: i32) {
        let _ = self.orders.send(ShimCommand::Signal(number));
    }

    /// Ends the tree by the ladder and returns once it is gone.
    pub async fn stop(&mut self, ladder: StopLadder) -> Exit {
        if !ladder.polite.is_zero() && self.stdin.take().is_some() {
            let _ = timeout(ladder.polite, self.exited()).await;
        }
        let grace_ms = ladder.term.as_millis() as u64;
        let _ = self.orders.send(ShimCommand::End { grace_ms });
        self.gone().await
    }

    /// Writes all bytes to the child's terminal.
    pub async fn write_terminal(&self, bytes: &[u8]) -> io::Result<()> {
        self.terminal().write(bytes).await
    }

    /// Resizes the child's terminal.
    pub fn resize(&self, size: Size) -> io::Result<()> {
        self.terminal().resize(size)
    }

    /// Returns the owner's end of the child's terminal, for other writers.
    pub fn terminal(&self) -> ChildTerminal {
        ChildTerminal(self.terminal.as_ref().map(Arc::downgrade).unwrap_or_default())
    }
}

/// The owner's end of a child's terminal. It keeps nothing alive: once the child's handle is gone, so is
/// the terminal.
#[derive(Debug, Clone)]
pub struct ChildTerminal(Weak<AsyncFd<OwnedFd>>);

impl ChildTerminal {
    /// Writes all bytes. Waits while the child reads nothing.
    pub async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut left = bytes;
        while !left.is_empty() {
            let terminal = self.open()?;
            let mut ready = terminal.writable().await?;
            let written = ready.try_io(|fd| Ok(nix::unistd::write(fd.get_ref(), left)?));
            match written {
                Ok(Ok(count)) => left = &left[count..],
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => {}
            }
        }
        Ok(())
    }

    /// Resizes the terminal and notifies the child.
    pub fn resize(&self, size: Size) -> io::Result<()> {
        pty::resize(self.open()?.get_ref(), size)
    }

    fn open(&self) -> io::Result<Arc<AsyncFd<OwnedFd>>> {
        self.0.upgrade().ok_or_else(|| io::Error::other("the child has no terminal"))
    }
}

/// A stream that is drained continuously; its bounded tail can be read at any time.
#[derive(Debug, Clone)]
pub struct Output {
    ring: Arc<Mutex<Ring>>,
    position: watch::Receiver<Position>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Position {
    written: u64,
    ended: bool,
}

pub(crate) struct OutputWriter {
    ring: Arc<Mutex<Ring>>,
    position: watch::Sender<Position>,
}

impl Output {
    pub(crate) fn new(capacity: usize) -> (OutputWriter, Output) {
        let ring = Arc::new(Mutex::new(Ring::new(capacity)));
        let (sender, position) = watch::channel(Position::default());
        (OutputWriter { ring: ring.clone(), position: sender }, Output { ring, position })
    }

    /// Returns the bytes that are kept, oldest first.
    pub fn tail(&self) -> Vec<u8> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).to_vec()
    }

    /// Returns the bytes that are kept, as text.
    pub fn tail_text(&self) -> String {
        String::from_utf8_lossy(&self.tail()).into_owned()
    }

    /// Returns the bytes that are kept from stream position `from` on, and the position they start at.
    pub fn since(&self, from: u64) -> (u64, Vec<u8>) {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).since(from)
    }

    /// Waits for bytes past stream position `from` and returns them with the position they start
    /// at; `None` once the stream has ended and there are none.
    pub async fn read_from(&self, from: u64) -> Option<(u64, Vec<u8>)> {
        let mut position = self.position.clone();
        let _ = position.wait_for(|p| p.written > from || p.ended).await;
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        (ring.written() > from).then(|| ring.since(from))
    }

    /// Waits for bytes past stream position `from`; `false` once the stream has ended and there are
    /// none.
    pub async fn grows_past(&self, from: u64) -> bool {
        let mut position = self.position.clone();
        let seen = position.wait_for(|p| p.written > from || p.ended).await;
        seen.is_ok_and(|position| position.written > from)
    }

    /// Waits until the stream has ended.
    pub async fn ended(&self) {
        let _ = self.position.clone().wait_for(|p| p.ended).await;
    }
}

impl OutputWriter {
    /// Reads the descriptor to its end. A terminal whose other end is closed reads as EIO.
    pub(crate) async fn drain(self, source: &AsyncFd<OwnedFd>) {
        let mut buffer = vec![0u8; 16 << 10];
        loop {
            let Ok(mut ready) = source.readable().await else { break };
            let read = ready.try_io(|fd| Ok(nix::unistd::read(fd.get_ref(), &mut buffer)?));
            match read {
                Ok(Ok(0)) => break,
                Ok(Ok(count)) => self.push(&buffer[..count]),
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(_)) => break,
                Err(_would_block) => {}
            }
        }
    }

    fn push(&self, bytes: &[u8]) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        ring.push(bytes);
        let written = ring.written();
        drop(ring);
        self.position.send_modify(|position| position.written = written);
    }
}

impl Drop for OutputWriter {
    fn drop(&mut self) {
        self.position.send_modify(|position| position.ended = true);
    }
}
