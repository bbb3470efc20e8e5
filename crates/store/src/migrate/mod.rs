//! Migrating a ledger or a memory from one database to the other, in either direction.
//!
//! Every part is read in the order of its key, in pages, and written a page at a time; rows that already exist are left
//! unchanged. So an interrupted migration continues after the greatest key that arrived. At the end both stores are read
//! once more and their digests are compared.

mod cells;
mod endpoint;
mod error;
mod ledger_tables;
mod memory_parts;
mod migration;
mod part;

pub(crate) use cells::{Cell, Cells, Row};
pub(crate) use endpoint::{Endpoint, TargetState};
pub use error::MigrateError;
pub(crate) use ledger_tables::{ColumnType, TABLES, Table};
pub use memory_parts::{Analyse, Analysed};
pub(crate) use memory_parts::{MemoryPart, MigratedTurn, PARTS};
pub use migration::{MigratedTable, Migration, MigrationProgress, ReportProgress};
pub(crate) use part::Part;
