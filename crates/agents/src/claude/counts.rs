//! Where the processes of turns come from, and the backend's figures.

use std::sync::atomic::{AtomicU64, Ordering};

use super::process_list::ProcessInfo;

/// The origin of a turn's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A live process that had just finished this history.
    Warm,
    /// A new process, seeded with the history.
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

/// Turns by the origin of their process.
#[derive(Debug, Default)]
pub(super) struct OriginCounts {
    warm: AtomicU64,
    seeded: AtomicU64,
    fresh: AtomicU64,
}

/// The backend's figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackendFigures {
    /// Processes in a turn.
    pub busy: usize,
    /// Processes that wait for the next turn of their conversation.
    pub idle: usize,
    /// Turns since the start, by their origin.
    pub warm: u64,
    pub seeded: u64,
    pub fresh: u64,
}

impl OriginCounts {
    pub fn add(&self, origin: Origin) {
        let count = match origin {
            Origin::Warm => &self.warm,
            Origin::Seeded => &self.seeded,
            Origin::Fresh => &self.fresh,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Combines the counts with the live processes.
    pub fn with(&self, live: &[ProcessInfo]) -> BackendFigures {
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
