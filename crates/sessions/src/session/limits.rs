//! What one app may do: so many turns a minute, so much a day.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hob_domain::AppName;
use hob_domain::session::TurnUsage;

use super::error::SessionError;
use super::options::SessionLimits;

const MINUTE: Duration = Duration::from_secs(60);

/// The turns of the last minute, by app.
#[derive(Debug, Default)]
pub(super) struct Pace {
    turns: Mutex<HashMap<AppName, VecDeque<Instant>>>,
}

impl Pace {
    /// Counts a turn, or says how long to wait. `most` of zero is no limit.
    pub fn take(&self, app: &AppName, most: usize, now: Instant) -> Result<(), Duration> {
        if most == 0 {
            return Ok(());
        }
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = turns.entry(app.clone()).or_default();
        while recent.front().is_some_and(|at| now.saturating_duration_since(*at) >= MINUTE) {
            recent.pop_front();
        }
        if recent.len() >= most {
            let oldest = recent.front().copied().unwrap_or(now);
            return Err(MINUTE.saturating_sub(now.saturating_duration_since(oldest)));
        }
        recent.push_back(now);
        Ok(())
    }
}

/// Whether a session, or an app today, has used up what it may. `until_tomorrow` is when an app may go
/// on; a session never.
pub(super) fn check_budgets(
    limits: &SessionLimits,
    session: &TurnUsage,
    app_today: Option<&TurnUsage>,
    until_tomorrow: Duration,
) -> Result<(), SessionError> {
    let over = |usage: &TurnUsage, tokens: u64, cost: f64| {
        (tokens > 0 && usage.tokens() >= tokens) || (cost > 0.0 && usage.cost_usd >= cost)
    };
    if over(session, limits.session_tokens, limits.session_cost) {
        return Err(SessionError::Limited {
            code: "session_budget",
            message: "the session has used what a session may (limits.session_tokens, \
                      limits.session_cost_usd)"
                .to_owned(),
            retry_after: until_tomorrow,
        });
    }
    if app_today
        .is_some_and(|usage| over(usage, limits.app_tokens_per_day, limits.app_cost_per_day))
    {
        return Err(SessionError::Limited {
            code: "app_budget",
            message: "the app has used what an app may in a day (limits.app_tokens_per_day, \
                      limits.app_cost_usd_per_day)"
                .to_owned(),
            retry_after: until_tomorrow,
        });
    }
    Ok(())
}

impl SessionLimits {
    /// Whether what an app used today matters.
    pub(super) fn has_daily_budget(&self) -> bool {
        self.app_tokens_per_day > 0 || self.app_cost_per_day > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_turns_a_minute() {
        let pace = Pace::default();
        let (a, b) = (AppName::new("a").unwrap(), AppName::new("b").unwrap());
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(pace.take(&a, 2, at(0)), Ok(()));
        assert_eq!(pace.take(&a, 2, at(10)), Ok(()));
        assert_eq!(pace.take(&a, 2, at(20)), Err(Duration::from_secs(40)));
        assert_eq!(pace.take(&b, 2, at(20)), Ok(()), "another app has its own");
        assert_eq!(pace.take(&a, 2, at(60)), Ok(()));
        assert_eq!(pace.take(&a, 2, at(61)), Err(Duration::from_secs(9)));
        assert!((0..1000).all(|_| pace.take(&a, 0, at(61)).is_ok()));
    }
}
