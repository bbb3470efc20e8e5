//! A viewer of a terminal, who may also type.

use std::sync::Arc;

use hob_child::Size;
use tokio::sync::watch;

use super::filter::{Filter, FilterPolicy};
use super::model::StreamPosition;
use super::terminal::{Terminal, TerminalError};

/// The current writer, as one viewer sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    You,
    Other,
    Nobody,
}

impl Writer {
    pub fn as_str(self) -> &'static str {
        match self {
            Writer::You => "you",
            Writer::Other => "other",
            Writer::Nobody => "nobody",
        }
    }
}

/// An update for a viewer. Updates arrive in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewerUpdate {
    /// The screen was resized. A full redraw follows.
    Size(Size),
    /// Bytes that draw: a full redraw first, then increments.
    Bytes(Vec<u8>),
    Writer(Writer),
    /// The agent has ended. No update follows.
    End(String),
}

/// A viewer of a terminal. It has no queue, only a position in the terminal's ring buffer, so a slow
/// viewer costs nothing: one that falls behind the buffer gets a full redraw instead of every byte it
/// missed. Dropping it detaches from the terminal.
pub struct Viewer {
    terminal: Arc<Terminal>,
    number: u64,
    scrollback: usize,
    changed: watch::Receiver<u64>,
    /// The position of the last update; `None` if a full redraw is due.
    position: Option<StreamPosition>,
    size: Size,
    writer: Writer,
    typed: Filter,
    over: bool,
}

impl Terminal {
    /// Attaches a viewer. Its first update draws the screen, after at most `scrollback` lines that have
    /// scrolled off.
    pub fn watch(self: &Arc<Terminal>, scrollback: usize) -> Viewer {
        self.advance();
        Viewer::new(self.clone(), scrollback)
    }

    fn release(&self, viewer: u64) {
        let mut inner = self.lock();
        if inner.writer == Some(viewer) {
            inner.writer = None;
        }
        drop(inner);
        self.announce();
    }
}

impl Viewer {
    fn new(terminal: Arc<Terminal>, scrollback: usize) -> Viewer {
        let mut inner = terminal.lock();
        inner.viewers += 1;
        inner.last_viewer += 1;
        let (number, size) = (inner.last_viewer, inner.model.size());
        let writer = if inner.writer.is_some() { Writer::Other } else { Writer::Nobody };
        drop(inner);
        let changed = terminal.changed.subscribe();
        let typed = Filter::new(FilterPolicy::Input);
        let position = None;
        Viewer { terminal, number, scrollback, changed, position, size, writer, typed, over: false }
    }

    pub fn size(&self) -> Size {
        self.size
    }

    pub fn writer(&self) -> Writer {
        self.writer
    }

    /// Returns the next update, or `None` after the end. It is cancel safe: no update is lost if the
    /// caller stops waiting.
    pub async fn next(&mut self) -> Option<ViewerUpdate> {
        loop {
            self.changed.borrow_and_update();
            if let Some(update) = self.update() {
                return Some(update);
            }
            if self.over || self.changed.changed().await.is_err() {
                return None;
            }
        }
    }

    fn update(&mut self) -> Option<ViewerUpdate> {
        let inner = self.terminal.lock();
        let size = inner.model.size();
        if size != self.size {
            self.size = size;
            self.position = None;
            return Some(ViewerUpdate::Size(size));
        }
        let bytes = match self.position.map(|position| inner.model.since(position)) {
            Some(Some(bytes)) => bytes,
            _ => inner.model.redraw(self.scrollback),
        };
        self.position = Some(inner.model.position());
        if !bytes.is_empty() {
            return Some(ViewerUpdate::Bytes(bytes));
        }
        let writer = self.seen(inner.writer);
        if writer != self.writer {
            self.writer = writer;
            return Some(ViewerUpdate::Writer(writer));
        }
        let end = inner.ended.clone().filter(|_| !self.over)?;
        drop(inner);
        self.over = true;
        Some(ViewerUpdate::End(end))
    }

    fn seen(&self, writer: Option<u64>) -> Writer {
        match writer {
            Some(number) if number == self.number => Writer::You,
            Some(_) => Writer::Other,
            None => Writer::Nobody,
        }
    }

    /// Writes input to the agent. The first viewer to type becomes the writer; returns whether this call
    /// made this viewer the writer. Replies that a terminal sends by itself are dropped.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<bool, TerminalError> {
        let bytes = self.typed.pass_all(bytes);
        if bytes.is_empty() {
            return Ok(false);
        }
        let became_writer = {
            let mut inner = self.terminal.lock();
            match self.seen(inner.writer) {
                _ if inner.ended.is_some() => return Err(TerminalError::Ended),
                Writer::Other => return Err(TerminalError::OtherWriter),
                Writer::You => false,
                Writer::Nobody => {
                    inner.writer = Some(self.number);
                    true
                }
            }
        };
        if became_writer {
            self.terminal.announce();
        }
        self.terminal.type_for_viewer(&bytes).await.map(|()| became_writer)
    }

    /// Makes this viewer the writer. Returns the previous writer.
    pub fn take(&mut self) -> Writer {
        let mut inner = self.terminal.lock();
        let before = self.seen(inner.writer);
        inner.writer = Some(self.number);
        drop(inner);
        self.terminal.announce();
        before
    }

    /// Stops being the writer.
    pub fn release(&mut self) {
        self.terminal.release(self.number);
    }

    /// Resizes the terminal. Only the current writer, or a sole viewer, may do so.
    pub fn resize(&mut self, size: Size) -> Result<(), TerminalError> {
        let inner = self.terminal.lock();
        let is_allowed = match self.seen(inner.writer) {
            Writer::You => true,
            Writer::Nobody => inner.viewers == 1,
            Writer::Other => false,
        };
        drop(inner);
        if !is_allowed {
            return Err(TerminalError::NotSoleViewer);
        }
        self.terminal.resize(size);
        Ok(())
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.terminal.lock().viewers -= 1;
        self.terminal.release(self.number);
    }
}
