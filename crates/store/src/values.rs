//! Conversions of values that both databases store.

use hob_domain::session::{SessionId, TurnUsage};
use hob_domain::{AppName, StoreError, Timestamp};
use sha2::{Digest, Sha256};

/// The usage of a turn as both databases store it, within the bounds of [`TurnUsage::bounded`].
pub(crate) struct UsageColumns {
    pub(crate) input: i64,
    pub(crate) output: i64,
    pub(crate) cached_read: i64,
    pub(crate) cached_write: i64,
    pub(crate) cost: f64,
}

impl UsageColumns {
    pub(crate) fn of(usage: &TurnUsage) -> UsageColumns {
        let usage = usage.bounded();
        UsageColumns {
            input: usage.input_tokens as i64,
            output: usage.output_tokens as i64,
            cached_read: usage.cached_read_tokens as i64,
            cached_write: usage.cached_write_tokens as i64,
            cost: usage.cost_usd,
        }
    }
}

/// The prefix of an idempotency key that was migrated from PostgreSQL, which stores only its digest.
const HASHED_KEY_PREFIX: &str = "sha256:";

/// Returns PostgreSQL's form of an idempotency key: the digest of the text that SQLite stores.
pub(crate) fn hashed_key(key: &str) -> String {
    match key.strip_prefix(HASHED_KEY_PREFIX) {
        Some(hash) => hash.to_owned(),
        None => hob_domain::secret::hex(&Sha256::digest(key.as_bytes())),
    }
}

/// Returns SQLite's form of an idempotency key of which only the digest is known.
pub(crate) fn key_by_hash(hash: &str) -> String {
    format!("{HASHED_KEY_PREFIX}{hash}")
}

/// Returns the paths of a turn's files as they are stored: a JSON array.
pub(crate) fn files_to_json(files: &[String]) -> String {
    serde_json::Value::from(files).to_string()
}

/// Reads the stored paths of a turn's files.
pub(crate) fn files_from_json(text: &str) -> Result<Vec<String>, StoreError> {
    serde_json::from_str(text).map_err(|_| damaged("a turn's files"))
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

/// Returns the day in UTC as days since 1970.
pub(crate) fn day(at: Timestamp) -> i64 {
    at.as_second().div_euclid(24 * 60 * 60)
}

pub(crate) fn time(microseconds: i64) -> Timestamp {
    Timestamp::from_microsecond(microseconds).unwrap_or_default()
}
