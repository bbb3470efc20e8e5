//! The limits of one app: turns per minute, and usage per session and day.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hob_domain::AppName;
use hob_domain::session::TurnUsage;

use super::error::SessionError;
use super::options::SessionLimits;

/// The time over which turns are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// A sliding-window rate limiter for the turns of each app.
#[derive(Debug, Default)]
pub(super) struct RateLimiter {
    turns: Mutex<HashMap<AppName, VecDeque<Instant>>>,
}

impl RateLimiter {
    /// Counts a turn, or returns how long to wait first. `max_per_minute` of zero is no limit.
    pub fn count(
        &self,
        app: &AppName,
        max_per_minute: usize,
        now: Instant,
    ) -> Result<(), Duration> {
        if max_per_minute == 0 {
            return Ok(());
        }
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = turns.entry(app.clone()).or_default();
        while recent.front().is_some_and(|at| now.saturating_duration_since(*at) >= WINDOW) {
            recent.pop_front();
        }
        if recent.len() >= max_per_minute {
            let oldest = recent.front().copied().unwrap_or(now);
            return Err(WINDOW.saturating_sub(now.saturating_duration_since(oldest)));
        }
        recent.push_back(now);
        Ok(())
    }
}

/// Checks whether a session, or an app today, has used up its budget. An app's budget is renewed
/// after `until_tomorrow`; a session's never is.
pub(super) fn check_budgets(
    limits: &SessionLimits,
    session: &TurnUsage,
    app_today: Option<&TurnUsage>,
    until_tomorrow: Duration,
) -> Result<(), SessionError> {
    let is_used_up = |usage: &TurnUsage, tokens: u64, cost: f64| {
        (tokens > 0 && usage.tokens() >= tokens) || (cost > 0.0 && usage.cost_usd >= cost)
    };
    if is_used_up(session, limits.session_tokens, limits.session_cost) {
        return Err(SessionError::Limited {
            code: "session_budget",
            message: "the session has used up its quota (limits.session_tokens, \
                      limits.session_cost_usd)"
                .to_owned(),
            retry_after: until_tomorrow,
        });
    }
    if app_today
        .is_some_and(|usage| is_used_up(usage, limits.app_tokens_per_day, limits.app_cost_per_day))
    {
        return Err(SessionError::Limited {
            code: "app_budget",
            message: "the app has used up its quota for today (limits.app_tokens_per_day, \
                      limits.app_cost_usd_per_day)"
                .to_owned(),
            retry_after: until_tomorrow,
        });
    }
    Ok(())
}

impl SessionLimits {
    /// Returns whether an app's usage of today counts.
    pub(super) fn has_daily_budget(&self) -> bool {
        self.app_tokens_per_day > 0 || self.app_cost_per_day > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_limit_counts_turns_per_app_and_minute() {
        let limiter = RateLimiter::default();
        let (a, b) = (AppName::new("a").unwrap(), AppName::new("b").unwrap());
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(limiter.count(&a, 2, at(0)), Ok(()));
        assert_eq!(limiter.count(&a, 2, at(10)), Ok(()));
        assert_eq!(limiter.count(&a, 2, at(20)), Err(Duration::from_secs(40)));
        assert_eq!(limiter.count(&b, 2, at(20)), Ok(()), "another app has its own count");
        assert_eq!(limiter.count(&a, 2, at(60)), Ok(()));
        assert_eq!(limiter.count(&a, 2, at(61)), Err(Duration::from_secs(9)));
        assert!((0..1000).all(|_| limiter.count(&a, 0, at(61)).is_ok()));
    }
}
