//! The limits of one app: open sessions, turns per minute, usage per session and day, and what is read at a time.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hob_domain::AppName;
use hob_domain::session::TurnUsage;
use serde_json::Value;

use super::error::SessionError;
use super::options::{NewSession, SessionLimits};

/// The most bytes of each part of a session's description.
const MAX_META_BYTES: usize = 64 << 10;
const MAX_MODEL_BYTES: usize = 1 << 10;
const MAX_SYSTEM_BYTES: usize = 512 << 10;
const MAX_SERVERS_BYTES: usize = 512 << 10;

/// How many ends of long turns, of all apps, are stored at a time.
pub(super) const MAX_LONG_TURN_ENDS: usize = 2;
/// How many pages of events are read for an app at a time.
pub(super) const MAX_PAGE_READS: usize = 8;
/// How many lists of sessions are read for an app at a time.
pub(super) const MAX_LIST_READS: usize = 1;
/// How many long pages of events may wait for an app's clients to read them.
pub(super) const MAX_LONG_PAGES: usize = 4;
/// How many long answers of turns may wait for an app's clients to read them.
pub(super) const MAX_LONG_ANSWERS: usize = 4;

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

/// Checks the size of what a session stores about itself. Every list of sessions reads it, and every lookup of a session
/// reads the rows that it passes.
pub(super) fn check_setup_size(
    request: &NewSession,
    mcp_servers: &Value,
) -> Result<(), SessionError> {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    for (field, bytes, most) in [
        ("meta", request.meta.to_string().len(), MAX_META_BYTES),
        ("model", length(&request.model), MAX_MODEL_BYTES),
        ("system", length(&request.system), MAX_SYSTEM_BYTES),
        ("mcp_servers and tools", mcp_servers.to_string().len(), MAX_SERVERS_BYTES),
    ] {
        if bytes > most {
            let text = format!("{field}: {bytes} bytes are more than the {most} that are allowed");
            return Err(SessionError::Invalid(text));
        }
    }
    Ok(())
}

/// Returns the error for an app that has as many open sessions as it may.
pub(super) fn too_many_sessions(open: usize) -> SessionError {
    SessionError::Limited {
        code: "app_sessions",
        message: format!(
            "the app has {open} open sessions, which is the limit; close one or raise limits.app_sessions"
        ),
        retry_after: Duration::from_secs(1),
    }
}

/// Returns the error for an app that has started as many turns within a minute as it may.
pub(super) fn too_many_turns(max: usize, retry_after: Duration) -> SessionError {
    SessionError::Limited {
        code: "app_pace",
        message: format!(
            "the app has started {max} turns within a minute, which is the limit; try again later or raise limits.app_turns_per_minute"
        ),
        retry_after,
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
