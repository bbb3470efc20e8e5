//! The ledger as a whole.

use crate::app::AppStore;
use crate::audit::AuditStore;
use crate::document::DocumentStore;
use crate::node::NodeStore;
use crate::session::SessionStore;

/// All storage ports of a ledger.
pub trait LedgerStore: AppStore + SessionStore + DocumentStore + AuditStore + NodeStore {}

impl<T: AppStore + SessionStore + DocumentStore + AuditStore + NodeStore> LedgerStore for T {}
