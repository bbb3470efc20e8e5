//! The states of a turn, and the changes between them.

use serde::Serialize;

/// The state of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnState {
    Queued,
    Running,
    /// The agent ended the turn and gave a stop reason.
    Finished,
    Cancelled,
    /// The agent's process ended during the turn.
    Died,
    /// The turn exceeded its time limit.
    TimedOut,
    /// Hob ended while the turn ran.
    Interrupted,
    /// The agent could not resume its conversation. It did not receive the prompt.
    ResumeFailed,
    /// The agent answered with an error.
    Failed,
    /// The agent's program is not installed.
    NotInstalled,
}

impl TurnState {
    pub const ALL: [TurnState; 10] = [
        TurnState::Queued,
        TurnState::Running,
        TurnState::Finished,
        TurnState::Cancelled,
        TurnState::Died,
        TurnState::TimedOut,
        TurnState::Interrupted,
        TurnState::ResumeFailed,
        TurnState::Failed,
        TurnState::NotInstalled,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            TurnState::Queued => "queued",
            TurnState::Running => "running",
            TurnState::Finished => "finished",
            TurnState::Cancelled => "cancelled",
            TurnState::Died => "died",
            TurnState::TimedOut => "timed_out",
            TurnState::Interrupted => "interrupted",
            TurnState::ResumeFailed => "resume_failed",
            TurnState::Failed => "failed",
            TurnState::NotInstalled => "not_installed",
        }
    }

    pub fn parse(text: &str) -> Option<TurnState> {
        TurnState::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Returns whether the turn is over.
    pub fn is_over(self) -> bool {
        !matches!(self, TurnState::Queued | TurnState::Running)
    }

    /// Returns whether the turn is over without an answer, except by a cancel.
    pub fn is_failure(self) -> bool {
        self.is_over() && !matches!(self, TurnState::Finished | TurnState::Cancelled)
    }

    /// Returns whether a turn in this state may change to another. A turn that is over never
    /// changes.
    pub fn may_become(self, next: TurnState) -> bool {
        match (self, next) {
            (TurnState::Queued, TurnState::Running) => true,
            // A turn may end before it starts, but only in a state that needs no agent.
            (TurnState::Queued, TurnState::Cancelled | TurnState::Interrupted) => true,
            (TurnState::Running, next) => next.is_over(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every way through the states ends, and what is over never changes.
    #[test]
    fn a_turn_ends_once() {
        for from in TurnState::ALL {
            assert_eq!(TurnState::parse(from.as_str()), Some(from));
            for to in TurnState::ALL {
                let may = from.may_become(to);
                assert!(!(from.is_over() && may), "{from:?} is over");
                assert!(!(may && to == TurnState::Queued), "nothing is queued again");
            }
        }
        assert!(TurnState::Queued.may_become(TurnState::Cancelled));
        assert!(!TurnState::Queued.may_become(TurnState::Finished));
        assert!(TurnState::Running.may_become(TurnState::Died));
    }
}
