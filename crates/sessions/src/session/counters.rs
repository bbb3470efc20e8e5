//! What has happened since the start, counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hob_domain::NodeId;
use hob_domain::session::TurnState;

/// Counters that only grow.
#[derive(Debug, Default)]
pub(super) struct Counts {
    turns: [AtomicU64; TurnState::ALL.len()],
    messages: AtomicU64,
}

impl Counts {
    pub fn turn_ended(&self, state: TurnState) {
        self.turns[state as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn message(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    pub fn turns(&self, state: TurnState) -> u64 {
        self.turns[state as usize].load(Ordering::Relaxed)
    }

    pub fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }
}

/// How sessions stand.
#[derive(Debug, Clone)]
pub struct Figures {
    /// Open sessions.
    pub open: usize,
    /// Those in which a turn runs or waits.
    pub busy: usize,
    /// Open sessions and runs, and how many there may be.
    pub live: usize,
    pub live_limit: usize,
    /// Process trees of agents.
    pub agents: usize,
    /// Turns that ended since the start, by how.
    pub turns: [(TurnState, u64); TurnState::ALL.len()],
    /// Messages of agents in turns since the start.
    pub messages: u64,
    /// Where there may be other nodes.
    pub node: Option<NodeFigures>,
}

/// How a node stands among the others.
#[derive(Debug, Clone)]
pub struct NodeFigures {
    pub id: NodeId,
    /// How long ago the ledger last heard of it.
    pub silence: Duration,
    /// Sessions it has taken that nobody had, since the start.
    pub taken: u64,
    pub ready: bool,
}
