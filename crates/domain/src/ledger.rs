//! The ledger as a whole.

use crate::app::AppStore;
use crate::audit::AuditStore;
use crate::node::NodeStore;
use crate::response::ResponseStore;
use crate::session::SessionStore;

/// All storage ports of a ledger.
pub trait LedgerStore: AppStore + SessionStore + ResponseStore + AuditStore + NodeStore {}

impl<T: AppStore + SessionStore + ResponseStore + AuditStore + NodeStore> LedgerStore for T {}
