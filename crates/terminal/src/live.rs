//! One live terminal: its screen, who watches it, and who types.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hob_child::{ChildTerminal, Output, Size};
use hob_domain::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::model::{Cursor, Model, Place};
use super::viewer::Viewer;

/// The smallest and the largest screen.
pub const SMALLEST: Size = Size { rows: 5, cols: 20 };
pub const LARGEST: Size = Size { rows: 200, cols: 500 };
/// On anything smaller a program may not show what Hob looks for.
const ROOM: Size = Size { rows: 16, cols: 60 };
/// An agent that has not read what was typed by then does not read.
const WRITING: Duration = Duration::from_secs(5);

/// Whose terminal it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An agent of a session; the terminal has the session's name.
    Session,
    /// A process of the Claude backend; it has the process's own name.
    Backend,
}

/// What is known about a terminal from its start on.
#[derive(Debug, Clone)]
pub struct About {
    pub id: String,
    pub kind: Kind,
    pub app: String,
    pub agent: String,
    pub cwd: PathBuf,
    pub pid: i32,
    pub since: Timestamp,
}

/// A terminal as it is now.
#[derive(Debug, Clone)]
pub struct Glance {
    pub size: Size,
    /// Whether a turn runs.
    pub busy: bool,
    pub turns: u32,
    pub last_at: Option<Timestamp>,
    pub viewers: usize,
    pub has_writer: bool,
    /// Another one whenever the picture may have changed.
    pub place: Place,
}

/// Why something that a viewer wanted was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("somebody else is typing; take the writing over first")]
    OtherWriter,
    #[error("only who types, or who watches alone, may change the size")]
    NotAlone,
    #[error("the agent does not read what is typed")]
    NotRead,
    #[error("the agent has ended")]
    Ended,
}

/// A terminal that is alive, or was a moment ago.
pub struct Terminal {
    pub about: About,
    output: Output,
    input: ChildTerminal,
    /// Whoever types holds it, so that no two texts are mixed: neither two people's nor a person's and
    /// Hob's own.
    typing: tokio::sync::Mutex<()>,
    inner: Mutex<Inner>,
    pub(super) changed: watch::Sender<u64>,
}

pub(super) struct Inner {
    pub model: Model,
    /// How far the output has been read.
    read: u64,
    pub viewers: usize,
    pub last_viewer: u64,
    pub writer: Option<u64>,
    pub ended: Option<String>,
    /// When somebody last typed.
    touched: Option<Instant>,
    busy: bool,
    turns: u32,
    last_at: Option<Timestamp>,
}

/// The right to type, for as long as it is held.
pub struct Typing<'a> {
    input: &'a ChildTerminal,
    _alone: tokio::sync::MutexGuard<'a, ()>,
}

impl Typing<'_> {
    pub async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.input.write(bytes).await
    }
}

impl Terminal {
    pub(super) fn new(about: About, output: Output, input: ChildTerminal, size: Size) -> Terminal {
        let inner = Inner {
            model: Model::new(size),
            read: 0,
            viewers: 0,
            last_viewer: 0,
            writer: None,
            ended: None,
            touched: None,
            busy: false,
            turns: 0,
            last_at: None,
        };
        let typing = tokio::sync::Mutex::default();
        let (inner, changed) = (Mutex::new(inner), watch::channel(0).0);
        Terminal { about, output, input, typing, inner, changed }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn announce(&self) {
        self.changed.send_modify(|version| *version += 1);
    }

    /// Takes what the agent has written so far into the model. Cheap when there is nothing.
    pub(super) fn advance(&self) {
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

    /// Reads until the agent's end. It sleeps while nothing is written.
    pub(super) async fn keep_reading(self: Arc<Terminal>, stop: CancellationToken) {
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

    /// The text on the screen now, and how far the agent's output was read for it.
    pub fn look(&self) -> (u64, String) {
        self.advance();
        let inner = self.lock();
        (inner.read, inner.model.text())
    }

    pub fn glance(&self) -> Glance {
        let inner = self.lock();
        Glance {
            size: inner.model.size(),
            busy: inner.busy,
            turns: inner.turns,
            last_at: inner.last_at,
            viewers: inner.viewers,
            has_writer: inner.writer.is_some(),
            place: inner.model.place(),
        }
    }

    /// Something made from the screen as it is now.
    pub fn with_screen<T>(&self, make: impl FnOnce(&Model) -> T) -> T {
        self.advance();
        make(&self.lock().model)
    }

    pub fn cursor(&self) -> Cursor {
        self.lock().model.cursor()
    }

    /// Begins to watch. The first update draws the screen, with at most so many lines that have scrolled
    /// off it.
    pub fn watch(self: &Arc<Terminal>, scrollback: usize) -> Viewer {
        self.advance();
        Viewer::new(self.clone(), scrollback)
    }

    /// The right to type for Hob itself; whoever types meanwhile waits.
    pub async fn typing(&self) -> Typing<'_> {
        Typing { _alone: self.typing.lock().await, input: &self.input }
    }

    /// Types for a viewer.
    pub(super) async fn type_for_viewer(&self, bytes: &[u8]) -> Result<(), Refused> {
        self.lock().touched = Some(Instant::now());
        let write = async { self.typing().await.write(bytes).await };
        match tokio::time::timeout(WRITING, write).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Refused::Ended),
            Err(_) => Err(Refused::NotRead),
        }
    }

    /// Changes the size, within bounds, and tells the agent.
    pub fn resize(&self, size: Size) {
        let size = Size {
            rows: size.rows.clamp(SMALLEST.rows, LARGEST.rows),
            cols: size.cols.clamp(SMALLEST.cols, LARGEST.cols),
        };
        // What was written for the old size is read before the new one counts.
        self.advance();
        let mut inner = self.lock();
        if inner.model.size() == size {
            return;
        }
        inner.model.resize(size);
        drop(inner);
        // One that has just ended has no size.
        let _ = self.input.resize(size);
        self.announce();
    }

    /// Gives the screen this size where it is too small to tell what is on it.
    pub fn make_room(&self, size: Size) {
        let now = self.lock().model.size();
        if now.cols < ROOM.cols || now.rows < ROOM.rows {
            self.resize(size);
        }
    }

    /// When somebody last typed.
    pub fn touched(&self) -> Option<Instant> {
        self.lock().touched
    }

    /// A turn has begun, or is over and was the so-many-th.
    pub fn set_busy(&self, busy: bool, turns: u32) {
        let mut inner = self.lock();
        (inner.busy, inner.turns) = (busy, turns);
        inner.last_at = Some(Timestamp::now());
    }
}
