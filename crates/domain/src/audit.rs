//! The audit log: actions with admin rights, for the owner to read.

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;

use crate::store_error::StoreError;

/// The most entries that are kept; the oldest are removed. A person makes a few dozen a day, but a program that never stops
/// must not fill the disk.
pub const MAX_AUDIT_ENTRIES: i64 = 100_000;

/// An entry of the audit log. It never contains a token or the text of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    /// Increases with every entry; gaps have no meaning.
    pub id: u64,
    pub at: Timestamp,
    /// The action, such as `attach`.
    pub action: String,
    /// The session, app or record concerned; empty if there is none.
    pub target: String,
    /// A JSON object with further details.
    pub detail: Value,
}

/// Storage of the audit log.
///
/// Contract: an appended entry is durable and does not change. Only the oldest entries are removed, when there are very
/// many.
#[async_trait]
pub trait AuditStore: Send + Sync {
    /// Appends an entry and returns its number.
    async fn append_audit(
        &self,
        at: Timestamp,
        action: &str,
        target: &str,
        detail: &Value,
    ) -> Result<u64, StoreError>;

    /// Returns at most `limit` entries, newest first; only those before `before` if it is given.
    async fn list_audit(
        &self,
        limit: usize,
        before: Option<u64>,
    ) -> Result<Vec<AuditEntry>, StoreError>;
}
