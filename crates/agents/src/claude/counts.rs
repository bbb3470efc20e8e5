//! How processes are come by, and what the backend does in figures.

use std::sync::atomic::{AtomicU64, Ordering};

use super::list::LiveInfo;

/// How a turn's process was come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A live process that had just said the last word of this history.
    Warm,
    /// A new process that was given the history.
    Seeded,
    /// A new process without a history.
    Fresh,
}

impl Origin {
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Warm => "warm",
            Origin::Seeded => "seeded",
            Origin::Fresh => "fresh",
        }
    }
}

/// Turns by how their process was come by.
#[derive(Debug, Default)]
pub(super) struct Counts {
    warm: AtomicU64,
    seeded: AtomicU64,
    fresh: AtomicU64,
}

/// What the backend does, in figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackendFigures {
    /// Processes in a turn.
    pub busy: usize,
    /// Processes that wait for their conversation to go on.
    pub idle: usize,
    /// Turns since the start, by their origin.
    pub warm: u64,
    pub seeded: u64,
    pub fresh: u64,
}

impl Counts {
    pub fn add(&self, origin: Origin) {
        let count = match origin {
            Origin::Warm => &self.warm,
            Origin::Seeded => &self.seeded,
            Origin::Fresh => &self.fresh,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// With what is live right now.
    pub fn with(&self, live: &[LiveInfo]) -> BackendFigures {
        let busy = live.iter().filter(|info| info.busy).count();
        BackendFigures {
            busy,
            idle: live.len() - busy,
            warm: self.warm.load(Ordering::Relaxed),
            seeded: self.seeded.load(Ordering::Relaxed),
            fresh: self.fresh.load(Ordering::Relaxed),
        }
    }
}
