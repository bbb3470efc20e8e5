//! Decisions about turns that every ledger makes in the same way. A ledger loads the facts and applies the decision
//! in one transaction.

use crate::session::{Accepted, NewEvent, TurnState, turn_event};

/// The facts on which [`decide_turn`] depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnFacts<'a> {
    /// The turn that used the request's idempotency key, and the digest of its request.
    pub same_key: Option<(u32, &'a str)>,
    pub is_closed: bool,
    /// The number of turns of the session so far.
    pub turn_count: u32,
    /// How many of them are queued.
    pub queued: usize,
}

/// Decides whether a session accepts a turn.
///
/// A repeated request is recognised first, whatever became of the session since: its answer never changes. Only then
/// does it matter whether the session is closed, and last whether its queue has room for another turn.
pub fn decide_turn(facts: TurnFacts<'_>, digest: Option<&str>, max_queued: usize) -> Accepted {
    match facts.same_key {
        Some((number, known)) if Some(known) == digest => Accepted::Repeated(number),
        Some(_) => Accepted::OtherBody,
        None if facts.is_closed => Accepted::Closed,
        None if facts.queued >= max_queued => Accepted::QueueFull,
        None => Accepted::Queued(facts.turn_count + 1),
    }
}

/// The end of a turn to which no agent gave an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnansweredEnd {
    /// The state of the turns that end this way.
    pub from: TurnState,
    pub state: TurnState,
    pub stop_reason: Option<&'static str>,
    pub error: &'static str,
}

impl UnansweredEnd {
    /// The end of a turn that was queued when its session was closed.
    pub const SESSION_CLOSED: UnansweredEnd = UnansweredEnd {
        from: TurnState::Queued,
        state: TurnState::Cancelled,
        stop_reason: Some("cancelled"),
        error: "the session was closed",
    };

    /// The end of a turn that ran when its lease holder stopped.
    pub const INTERRUPTED: UnansweredEnd = UnansweredEnd {
        from: TurnState::Running,
        state: TurnState::Interrupted,
        stop_reason: None,
        error: "hob stopped while the turn was running",
    };

    /// Returns the `turn` event of a turn that ends this way.
    pub fn event(&self, index: u32) -> NewEvent {
        turn_event(index, self.state, self.stop_reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: TurnFacts<'_> =
        TurnFacts { same_key: None, is_closed: false, turn_count: 4, queued: 1 };

    #[test]
    fn open_session_queues_the_next_turn_until_its_queue_is_full() {
        assert_eq!(decide_turn(OPEN, None, 2), Accepted::Queued(5));
        assert_eq!(decide_turn(OPEN, None, 1), Accepted::QueueFull);
        assert_eq!(decide_turn(TurnFacts { is_closed: true, ..OPEN }, None, 2), Accepted::Closed);
    }

    #[test]
    fn repeated_request_is_recognised_before_anything_else() {
        let facts = TurnFacts { same_key: Some((3, "digest")), is_closed: true, ..OPEN };
        assert_eq!(decide_turn(facts, Some("digest"), 0), Accepted::Repeated(3));
        assert_eq!(decide_turn(facts, Some("other"), 2), Accepted::OtherBody);
    }

    #[test]
    fn unanswered_ends_are_allowed_by_the_states() {
        for end in [UnansweredEnd::SESSION_CLOSED, UnansweredEnd::INTERRUPTED] {
            assert!(end.from.may_become(end.state), "{end:?}");
        }
    }
}
