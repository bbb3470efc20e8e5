//! What was done with an admin's rights, kept for the owner to read.

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;

use crate::store_error::StoreError;

/// One thing that was done. It never holds a token or the words of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    /// Grows with every entry; gaps mean nothing.
    pub id: u64,
    pub at: Timestamp,
    /// What was done, such as `attach`.
    pub action: String,
    /// To what: a session, an app, a record; empty where there is nothing to name.
    pub target: String,
    /// An object with what else is worth knowing.
    pub detail: Value,
}

/// Storage of the audit log.
///
/// Contract: an entry that was appended is durable and does not change. Only the oldest ones go,
/// when there are very many.
#[async_trait]
pub trait AuditStore: Send + Sync {
    /// Adds an entry and returns its number.
    async fn append_audit(
        &self,
        at: Timestamp,
        action: &str,
        target: &str,
        detail: &Value,
    ) -> Result<u64, StoreError>;

    /// The newest entries first, at most `limit`, only those before `before` where that is given.
    async fn list_audit(
        &self,
        limit: usize,
        before: Option<u64>,
    ) -> Result<Vec<AuditEntry>, StoreError>;
}
