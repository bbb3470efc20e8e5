//! The ledger as a whole.

use crate::app::AppStore;
use crate::audit::AuditStore;
use crate::session::SessionStore;

/// Everything the ledger keeps, whatever it is made of.
pub trait LedgerStore: AppStore + SessionStore + AuditStore {}

impl<T: AppStore + SessionStore + AuditStore> LedgerStore for T {}
