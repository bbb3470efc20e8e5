//! The ledger as a whole.

use crate::app::AppStore;
use crate::audit::AuditStore;
use crate::node::NodeStore;
use crate::session::SessionStore;

/// Everything the ledger keeps, whatever it is made of.
pub trait LedgerStore: AppStore + SessionStore + AuditStore + NodeStore {}

impl<T: AppStore + SessionStore + AuditStore + NodeStore> LedgerStore for T {}
