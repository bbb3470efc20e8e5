//! Somebody who watches a terminal, and may type into it.

use std::sync::Arc;

use hob_child::Size;
use tokio::sync::watch;

use super::filter::{Filter, Policy};
use super::live::{Refused, Terminal};
use super::model::Place;

/// Who types, as one viewer sees it.
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

/// What a viewer is told, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// The screen has another size; a drawing of it follows.
    Size(Size),
    /// Bytes that draw: the whole screen first, and then what comes.
    Bytes(Vec<u8>),
    Writer(Writer),
    /// The agent has ended; nothing follows.
    End(String),
}

/// One viewer. It has no queue: only a position in what the terminal keeps, so one that is slow costs
/// nothing and gets a drawing of the screen instead of all that it has missed. Dropping it leaves.
pub struct Viewer {
    terminal: Arc<Terminal>,
    number: u64,
    scrollback: usize,
    changed: watch::Receiver<u64>,
    /// How far it has been told; `None` when it needs a drawing.
    place: Option<Place>,
    size: Size,
    writer: Writer,
    typed: Filter,
    over: bool,
}

impl Viewer {
    pub(super) fn new(terminal: Arc<Terminal>, scrollback: usize) -> Viewer {
        let mut inner = terminal.lock();
        inner.viewers += 1;
        inner.last_viewer += 1;
        let (number, size) = (inner.last_viewer, inner.model.size());
        let writer = if inner.writer.is_some() { Writer::Other } else { Writer::Nobody };
        drop(inner);
        let changed = terminal.changed.subscribe();
        let typed = Filter::new(Policy::Input);
        let place = None;
        Viewer { terminal, number, scrollback, changed, place, size, writer, typed, over: false }
    }

    pub fn size(&self) -> Size {
        self.size
    }

    pub fn writer(&self) -> Writer {
        self.writer
    }

    /// What comes next; `None` after the end. Nothing is lost when the caller stops waiting.
    pub async fn next(&mut self) -> Option<Update> {
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

    fn update(&mut self) -> Option<Update> {
        let inner = self.terminal.lock();
        let size = inner.model.size();
        if size != self.size {
            self.size = size;
            self.place = None;
            return Some(Update::Size(size));
        }
        let bytes = match self.place.map(|place| inner.model.since(place)) {
            Some(Some(bytes)) => bytes,
            _ => inner.model.redraw(self.scrollback),
        };
        self.place = Some(inner.model.place());
        if !bytes.is_empty() {
            return Some(Update::Bytes(bytes));
        }
        let writer = self.seen(inner.writer);
        if writer != self.writer {
            self.writer = writer;
            return Some(Update::Writer(writer));
        }
        let end = inner.ended.clone().filter(|_| !self.over)?;
        drop(inner);
        self.over = true;
        Some(Update::End(end))
    }

    fn seen(&self, writer: Option<u64>) -> Writer {
        match writer {
            Some(number) if number == self.number => Writer::You,
            Some(_) => Writer::Other,
            None => Writer::Nobody,
        }
    }

    /// Types. Who types first, while nobody does, has the writing from then on; `true` when that is now.
    /// What a terminal says by itself is not typed by anybody and goes nowhere.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<bool, Refused> {
        let bytes = self.typed.pass_all(bytes);
        if bytes.is_empty() {
            return Ok(false);
        }
        let begun = {
            let mut inner = self.terminal.lock();
            match self.seen(inner.writer) {
                _ if inner.ended.is_some() => return Err(Refused::Ended),
                Writer::Other => return Err(Refused::OtherWriter),
                Writer::You => false,
                Writer::Nobody => {
                    inner.writer = Some(self.number);
                    true
                }
            }
        };
        if begun {
            self.terminal.announce();
        }
        self.terminal.type_for_viewer(&bytes).await.map(|()| begun)
    }

    /// Takes the writing over, from whoever has it; returns who had it.
    pub fn take(&mut self) -> Writer {
        let mut inner = self.terminal.lock();
        let before = self.seen(inner.writer);
        inner.writer = Some(self.number);
        drop(inner);
        self.terminal.announce();
        before
    }

    /// Gives the writing back.
    pub fn release(&mut self) {
        self.terminal.release(self.number);
    }

    /// Changes the size.
    pub fn resize(&mut self, size: Size) -> Result<(), Refused> {
        let inner = self.terminal.lock();
        let may = match self.seen(inner.writer) {
            Writer::You => true,
            Writer::Nobody => inner.viewers == 1,
            Writer::Other => false,
        };
        drop(inner);
        if !may {
            return Err(Refused::NotAlone);
        }
        self.terminal.resize(size);
        Ok(())
    }
}

impl Terminal {
    fn release(&self, viewer: u64) {
        let mut inner = self.lock();
        if inner.writer == Some(viewer) {
            inner.writer = None;
        }
        drop(inner);
        self.announce();
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.terminal.lock().viewers -= 1;
        self.terminal.release(self.number);
    }
}
