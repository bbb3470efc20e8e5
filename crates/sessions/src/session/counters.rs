//! Counters since the start, and the figures made of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hob_domain::NodeId;
use hob_domain::session::TurnState;

/// Counters that only grow.
#[derive(Debug, Default)]
pub(super) struct Counters {
    turns: [AtomicU64; TurnState::ALL.len()],
    messages: AtomicU64,
}

impl Counters {
    /// Counts a turn that ended in this state.
    pub fn count_turn(&self, state: TurnState) {
        self.turns[state as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one message of an agent.
    pub fn count_message(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many turns ended in this state.
    pub fn turns(&self, state: TurnState) -> u64 {
        self.turns[state as usize].load(Ordering::Relaxed)
    }

    /// Returns how many messages agents have sent.
    pub fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }
}

/// The current numbers of sessions, turns and messages.
#[derive(Debug, Clone)]
pub struct SessionFigures {
    /// Open sessions.
    pub open: usize,
    /// Open sessions in which a turn runs or waits.
    pub busy: usize,
    /// Open sessions and runs together.
    pub live: usize,
    /// The most sessions and runs that may be live.
    pub live_limit: usize,
    /// Process trees of agents.
    pub agents: usize,
    /// Turns that ended since the start, by final state.
    pub turns: [(TurnState, u64); TurnState::ALL.len()],
    /// Messages that agents sent in turns since the start.
    pub messages: u64,
    /// The node's own figures, in a cluster only.
    pub node: Option<NodeFigures>,
}

/// A node's view of its place in the cluster.
#[derive(Debug, Clone)]
pub struct NodeFigures {
    pub id: NodeId,
    /// Time since the last heartbeat that reached the ledger.
    pub silence: Duration,
    /// Sessions taken over since the start because they had no lease holder.
    pub taken: u64,
    pub ready: bool,
}
