//! Values as both databases keep them.

use hob_domain::session::{SessionId, TurnUsage};
use hob_domain::{AppName, StoreError, Timestamp};

/// What was used, as it is stored. The numbers are what an agent says, so they may be anything, and
/// still a turn must be able to end: they are kept small enough that sums do not overflow.
pub(crate) struct Tally {
    pub(crate) input: i64,
    pub(crate) output: i64,
    pub(crate) cached_read: i64,
    pub(crate) cached_write: i64,
    pub(crate) cost: f64,
}

impl Tally {
    const MOST_TOKENS: u64 = 1 << 40;
    const MOST_COST: f64 = 1e9;

    pub(crate) fn of(usage: &TurnUsage) -> Tally {
        let count = |tokens: u64| tokens.min(Tally::MOST_TOKENS) as i64;
        Tally {
            input: count(usage.input_tokens),
            output: count(usage.output_tokens),
            cached_read: count(usage.cached_read_tokens),
            cached_write: count(usage.cached_write_tokens),
            // SQLite has no number that is none.
            cost: match usage.cost_usd.is_nan() {
                true => 0.0,
                false => usage.cost_usd.clamp(0.0, Tally::MOST_COST),
            },
        }
    }
}

/// What stands before the digest of an idempotency key that came from PostgreSQL, which keeps no more of it.
const BY_HASH: &str = "sha256:";

/// An idempotency key as PostgreSQL keeps it, from one as SQLite does.
pub(crate) fn hashed_key(key: &str) -> String {
    match key.strip_prefix(BY_HASH) {
        Some(hash) => hash.to_owned(),
        None => hob_domain::secret::hex(&openssl::sha::sha256(key.as_bytes())),
    }
}

/// The other way.
pub(crate) fn key_by_hash(hash: &str) -> String {
    format!("{BY_HASH}{hash}")
}

pub(crate) fn session_id(text: &str) -> Result<SessionId, StoreError> {
    SessionId::presented(text).ok_or_else(|| damaged("a session's id"))
}

pub(crate) fn app_name(text: String) -> Result<AppName, StoreError> {
    AppName::stored(text).map_err(|_| damaged("an app's name"))
}

pub(crate) fn damaged(what: &str) -> StoreError {
    StoreError::Failed(format!("{what} is damaged"))
}

pub(crate) fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}

/// The day in UTC, counted from 1970.
pub(crate) fn day(at: Timestamp) -> i64 {
    at.as_second().div_euclid(24 * 60 * 60)
}

pub(crate) fn time(microseconds: i64) -> Timestamp {
    Timestamp::from_microsecond(microseconds).unwrap_or_default()
}
