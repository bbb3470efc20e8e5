//! A clock for whatever deletes.

use std::time::{Duration, Instant};

use hob_domain::Timestamp;

/// A clock that does not follow a sudden jump ahead of the system's clock: what it says decides what is deleted.
#[derive(Debug)]
pub struct SteadyClock {
    /// What the clock said last, and when.
    said: Timestamp,
    at: Instant,
    /// Since when the system's clock has been ahead.
    ahead_since: Option<Instant>,
}

impl SteadyClock {
    /// How far the system's clock may be ahead of the time that has passed.
    const TOLERANCE: Duration = Duration::from_secs(60);
    /// A jump that has lasted for this long is real: the machine was suspended, or its clock was set right.
    const ACCEPTED_AFTER: Duration = Duration::from_secs(3600);

    pub fn new(system: Timestamp, at: Instant) -> SteadyClock {
        SteadyClock { said: system, at, ahead_since: None }
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
}
