//! A turn while it runs, and how it went.

use std::collections::HashMap;
use std::time::Duration;

use hob_domain::session::{NewEvent, TurnState};
use tokio::time::{Instant, sleep_until};

use super::messages::TurnReading;

/// How a turn went.
pub(super) struct Outcome {
    pub state: TurnState,
    pub stop_reason: Option<String>,
    pub error: Option<String>,
    pub reading: TurnReading,
    /// Events that are stored with the end.
    pub last: Vec<NewEvent>,
    /// Whether the prompt reached the agent, so that there is something to remember.
    pub asked: bool,
}

impl Outcome {
    pub fn failed(state: TurnState, error: impl Into<String>) -> Outcome {
        Outcome {
            state,
            stop_reason: None,
            error: Some(error.into()),
            reading: TurnReading::default(),
            last: Vec::new(),
            asked: false,
        }
    }

    pub fn unasked(end: End) -> Outcome {
        let mut outcome = Outcome::failed(end.state(), end.error());
        if end == End::Cancelled {
            (outcome.stop_reason, outcome.error) = (Some("cancelled".to_owned()), None);
        }
        outcome
    }
}

/// Why a turn is to end before the agent says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Cancelled,
    TimedOut,
    Stopping,
}

impl End {
    pub fn state(self) -> TurnState {
        match self {
            End::Cancelled => TurnState::Cancelled,
            End::TimedOut => TurnState::TimedOut,
            End::Stopping => TurnState::Interrupted,
        }
    }

    pub fn error(self) -> &'static str {
        match self {
            End::Cancelled => "the turn was cancelled",
            End::TimedOut => "the turn took longer than it may (sessions.turn_timeout_secs)",
            End::Stopping => "hob stopped while the turn was under way",
        }
    }
}

/// A turn while it runs.
pub(super) struct Talk {
    pub turn: u32,
    pub reading: TurnReading,
    pub last: Vec<NewEvent>,
    /// Questions the caller may still answer, and until when.
    pub asks: HashMap<String, Instant>,
    pub end: Option<End>,
    /// Until when an agent that was told to break off may take.
    pub patience: Instant,
    pub stall_after: Duration,
    pub stalls_at: Instant,
    pub stalled: bool,
    /// Whether the agent has said anything in this turn.
    pub answered: bool,
}

/// The agent was gone before it got to see the prompt, so nothing has happened yet.
pub(super) struct Unasked;

impl Talk {
    pub fn new(turn: u32, stall_after: Duration) -> Talk {
        let now = Instant::now();
        Talk {
            turn,
            reading: TurnReading::default(),
            last: Vec::new(),
            asks: HashMap::new(),
            end: None,
            patience: now,
            stall_after,
            stalls_at: now + stall_after,
            stalled: false,
            answered: false,
        }
    }

    pub fn heard(&mut self) {
        self.stalls_at = Instant::now() + self.stall_after;
        self.stalled = false;
    }

    /// An agent that waits for an answer does not stall, and stalling is said once.
    pub fn may_stall(&self) -> bool {
        !self.stalled && !self.stall_after.is_zero() && self.asks.is_empty()
    }

    /// Returns the question whose time is up; never while there is none.
    pub async fn next_expiry(&self) -> String {
        match self.asks.iter().min_by_key(|(_, until)| **until) {
            Some((ask, until)) => {
                sleep_until(*until).await;
                ask.clone()
            }
            None => std::future::pending().await,
        }
    }

    pub fn take_outcome(
        &mut self,
        state: TurnState,
        stop_reason: Option<String>,
        error: Option<String>,
    ) -> Outcome {
        Outcome {
            state,
            stop_reason,
            error,
            reading: std::mem::take(&mut self.reading),
            last: std::mem::take(&mut self.last),
            asked: true,
        }
    }
}
