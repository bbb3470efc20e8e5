//! One live terminal: its screen, its viewers and its writer.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hob_child::{ChildTerminal, Output, Size};
use hob_domain::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::model::{Cursor, ScreenModel, StreamPosition};

/// Bounds of a screen size that a viewer may choose.
pub const MIN_SIZE: Size = Size { rows: 5, cols: 20 };
pub const MAX_SIZE: Size = Size { rows: 200, cols: 500 };
/// How long an agent may take to read typed input.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The owner of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminalKind {
    /// An agent of a session. The terminal has the session's id.
    Session,
    /// A process of the Claude backend. The terminal has the process's own id.
    Backend,
}

/// The facts about a terminal that never change.
#[derive(Debug, Clone)]
pub struct TerminalInfo {
    pub id: String,
    pub kind: TerminalKind,
    pub app: String,
    pub agent: String,
    pub cwd: PathBuf,
    pub pid: i32,
    pub since: Timestamp,
}

/// The current state of a terminal.
#[derive(Debug, Clone)]
pub struct TerminalStatus {
    pub size: Size,
    /// Whether a turn runs.
    pub busy: bool,
    pub turns: u32,
    pub last_at: Option<Timestamp>,
    pub viewers: usize,
    pub has_writer: bool,
    /// A position that differs whenever the screen may have changed.
    pub position: StreamPosition,
}

/// Why a viewer's request was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TerminalError {
    #[error(
        "another viewer has the input; take it over first (in a terminal: `hob attach --take`)"
    )]
    OtherWriter,
    #[error("with several viewers, only the writer can resize the terminal")]
    NotSoleViewer,
    #[error("the agent is not reading its input; cancel the turn or close the session")]
    NotRead,
    #[error("the agent has ended")]
    Ended,
}

/// The terminal of a live agent, or of one that has just ended.
pub struct Terminal {
    pub info: TerminalInfo,
    output: Output,
    input: ChildTerminal,
    /// Locked while input is written, so that two texts never mix: neither those of two people nor a
    /// person's and Hob's own.
    typing: tokio::sync::Mutex<()>,
    inner: Mutex<TerminalState>,
    pub(crate) changed: watch::Sender<u64>,
}

pub(crate) struct TerminalState {
    pub model: ScreenModel,
    /// The position up to which the output has been read.
    read: u64,
    pub viewers: usize,
    pub last_viewer: u64,
    pub writer: Option<u64>,
    pub ended: Option<String>,
    /// The time of a viewer's last input.
    last_input_at: Option<Instant>,
    busy: bool,
    turns: u32,
    last_at: Option<Timestamp>,
}

/// An exclusive lock on a terminal's input.
pub struct InputLock<'a> {
    input: &'a ChildTerminal,
    _guard: tokio::sync::MutexGuard<'a, ()>,
}

impl InputLock<'_> {
    pub async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.input.write(bytes).await
    }
}

impl Terminal {
    pub(crate) fn new(
        info: TerminalInfo,
        output: Output,
        input: ChildTerminal,
        size: Size,
    ) -> Terminal {
        let inner = TerminalState {
            model: ScreenModel::new(size),
            read: 0,
            viewers: 0,
            last_viewer: 0,
            writer: None,
            ended: None,
            last_input_at: None,
            busy: false,
            turns: 0,
            last_at: None,
        };
        let typing = tokio::sync::Mutex::default();
        let (inner, changed) = (Mutex::new(inner), watch::channel(0).0);
        Terminal { info, output, input, typing, inner, changed }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, TerminalState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn announce(&self) {
        self.changed.send_modify(|version| *version += 1);
    }

    /// Feeds the agent's new output to the model. It is cheap if there is none.
    pub(crate) fn advance(&self) {
        let mut inner = self.lock();
        let (start, bytes) = self.output.since(inner.read);
        if start > inner.read {
            inner.model.gap();
        }
        inner.read = start + bytes.len() as u64;
        if bytes.is_empty() {
            return;
        }
        inner.model.feed(&bytes);
        drop(inner);
        self.announce();
    }

    /// Feeds output to the model until the agent ends. It sleeps while there is no output.
    pub(crate) async fn keep_reading(self: Arc<Terminal>, stop: CancellationToken) {
        loop {
            let read = self.lock().read;
            let more = tokio::select! {
                more = self.output.grows_past(read) => more,
                () = stop.cancelled() => false,
            };
            self.advance();
            if !more {
                break;
            }
        }
        self.lock().ended = Some("the agent has ended".to_owned());
        self.announce();
    }

    /// Returns the output position and the text that the screen shows at that position.
    pub fn screen_text(&self) -> (u64, String) {
        self.advance();
        let inner = self.lock();
        (inner.read, inner.model.text())
    }

    pub fn status(&self) -> TerminalStatus {
        let inner = self.lock();
        TerminalStatus {
            size: inner.model.size(),
            busy: inner.busy,
            turns: inner.turns,
            last_at: inner.last_at,
            viewers: inner.viewers,
            has_writer: inner.writer.is_some(),
            position: inner.model.position(),
        }
    }

    /// Calls `make` with the current screen.
    pub fn with_screen<T>(&self, make: impl FnOnce(&ScreenModel) -> T) -> T {
        self.advance();
        make(&self.lock().model)
    }

    pub fn cursor(&self) -> Cursor {
        self.lock().model.cursor()
    }

    /// Locks the input for Hob itself. Viewers who type meanwhile wait.
    pub async fn lock_input(&self) -> InputLock<'_> {
        InputLock { _guard: self.typing.lock().await, input: &self.input }
    }

    /// Writes a viewer's input.
    pub(crate) async fn type_for_viewer(&self, bytes: &[u8]) -> Result<(), TerminalError> {
        self.lock().last_input_at = Some(Instant::now());
        let write = async { self.lock_input().await.write(bytes).await };
        match tokio::time::timeout(WRITE_TIMEOUT, write).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(TerminalError::Ended),
            Err(_) => Err(TerminalError::NotRead),
        }
    }

    /// Resizes the terminal, within [`MIN_SIZE`] and [`MAX_SIZE`], and notifies the agent.
    pub fn resize(&self, size: Size) {
        let size = Size {
            rows: size.rows.clamp(MIN_SIZE.rows, MAX_SIZE.rows),
            cols: size.cols.clamp(MIN_SIZE.cols, MAX_SIZE.cols),
        };
        // Output that was written for the old size must be parsed with the old size.
        self.advance();
        let mut inner = self.lock();
        if inner.model.size() == size {
            return;
        }
        inner.model.resize(size);
        drop(inner);
        // The terminal of an agent that has just ended cannot be resized.
        let _ = self.input.resize(size);
        self.announce();
    }

    /// Resizes a screen that is smaller than `min` to `size`.
    pub fn ensure_size(&self, min: Size, size: Size) {
        let now = self.lock().model.size();
        if now.cols < min.cols || now.rows < min.rows {
            self.resize(size);
        }
    }

    /// Returns the time of a viewer's last input.
    pub fn last_input_at(&self) -> Option<Instant> {
        self.lock().last_input_at
    }

    /// Records that a turn has started.
    pub fn turn_started(&self) {
        let mut inner = self.lock();
        inner.busy = true;
        inner.last_at = Some(Timestamp::now());
    }

    /// Records that a turn has ended, and how many turns the agent has finished so far.
    pub fn turn_ended(&self, turns: u32) {
        let mut inner = self.lock();
        (inner.busy, inner.turns) = (false, turns);
        inner.last_at = Some(Timestamp::now());
    }
}
