//! A clock for whatever deletes.

use std::time::{Duration, Instant};

use hob_domain::Timestamp;

/// A clock that does not follow a sudden jump ahead of the system's clock: what it says decides what is deleted.
#[derive(Debug, Clone)]
pub struct SteadyClock {
    /// What the clock said last, and when.
    said: Timestamp,
    at: Instant,
    /// Since when the system's clock has been ahead.
    ahead_since: Option<Instant>,
}

/// What a clock says, to go on from in another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockState {
    pub time: Timestamp,
    /// For how long the system's clock has been ahead.
    pub ahead_for: Option<Duration>,
}

impl SteadyClock {
    /// How far the system's clock may be ahead of the time that has passed.
    const TOLERANCE: Duration = Duration::from_secs(60);
    /// A jump that has lasted for this long is real: the machine was suspended, or its clock was set right.
    const ACCEPTED_AFTER: Duration = Duration::from_secs(3600);

    pub fn new(system: Timestamp, at: Instant) -> SteadyClock {
        SteadyClock { said: system, at, ahead_since: None }
    }

    /// Goes on from an earlier clock. If the system's clock is ahead of it, the jump has to last as any other.
    pub fn resume(state: ClockState, at: Instant) -> SteadyClock {
        let since = |ahead| at.checked_sub(ahead).unwrap_or(at);
        SteadyClock { said: state.time, at, ahead_since: state.ahead_for.map(since) }
    }

    /// Returns what the clock says at a time that only moves on.
    pub fn state(&self, at: Instant) -> ClockState {
        let passed = at.duration_since(self.at);
        let time = self.said.saturating_add(passed).unwrap_or(self.said);
        ClockState { time, ahead_for: self.ahead_since.map(|since| at.duration_since(since)) }
    }

    /// Returns the time, given what the system's clock says and a time that only moves on.
    pub fn now(&mut self, system: Timestamp, at: Instant) -> Timestamp {
        let passed = self.said.saturating_add(at.duration_since(self.at)).unwrap_or(self.said);
        let tolerated = passed.saturating_add(SteadyClock::TOLERANCE).unwrap_or(passed);
        if system > tolerated {
            let since = *self.ahead_since.get_or_insert(at);
            if at.duration_since(since) < SteadyClock::ACCEPTED_AFTER {
                return passed;
            }
        }
        *self = SteadyClock::new(system, at);
        system
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_that_jumps_ahead_is_not_followed_at_once() {
        let (start, at) = (Timestamp::from_second(1_000_000).unwrap(), Instant::now());
        let seconds = |n: u64| Duration::from_secs(n);
        let later = |n: i64| Timestamp::from_second(1_000_000 + n).unwrap();
        let mut clock = SteadyClock::new(start, at);
        assert_eq!(clock.now(later(30), at + seconds(30)), later(30));
        let week = 7 * 24 * 3600;
        assert_eq!(clock.now(later(week + 60), at + seconds(60)), later(60), "it jumps by a week");
        assert_eq!(clock.now(later(90), at + seconds(90)), later(90), "and back");
        assert_eq!(clock.now(later(week), at + seconds(120)), later(120));
        let much_later = at + seconds(120 + 3600);
        assert_eq!(clock.now(later(week), much_later), later(week), "the jump was real");
        assert_eq!(clock.now(later(0), much_later), later(0), "the clock is set back");
    }

    #[test]
    fn wrong_clock_at_the_start_is_not_followed_at_once() {
        let (at, week) = (Instant::now(), 7 * 24 * 3600);
        let later = |n: i64| Timestamp::from_second(1_000_000 + n).unwrap();
        let state = ClockState { time: later(0), ahead_for: None };
        let mut clock = SteadyClock::resume(state, at);
        assert_eq!(clock.now(later(week), at), later(0));
        let later_at = at + Duration::from_secs(1800);
        assert_eq!(clock.now(later(week), later_at), later(1800));
        let state = clock.state(later_at);
        assert_eq!((state.time, state.ahead_for), (later(1800), Some(Duration::from_secs(1800))));
        // Half of the hour has passed before the next start.
        let mut clock = SteadyClock::resume(state, later_at);
        assert_eq!(clock.now(later(week), later_at), later(1800));
        assert_eq!(clock.now(later(week), later_at + Duration::from_secs(1800)), later(week));
        let mut clock = SteadyClock::resume(state, later_at);
        assert_eq!(clock.now(later(1801), later_at), later(1801), "the clock is right");
    }
}
