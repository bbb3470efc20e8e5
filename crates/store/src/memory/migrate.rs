//! Migrations of a memory.

use crate::memory::postgres::{MemoryOnServer, PostgresMemory};
use crate::memory::sqlite::{Memory, MemoryInFile};
use crate::migrate::{Analyse, Migration, PARTS};

/// Migrates a memory from its file to a database.
pub fn memory_to_postgres(
    from: &Memory,
    to: &PostgresMemory,
    analyse: Analyse,
) -> Migration<'static> {
    let from = MemoryInFile { memory: from.clone(), analyse: analyse.clone() };
    Migration::new(from, MemoryOnServer { memory: to.clone(), analyse }, PARTS)
}

/// Migrates a memory from a database to a file, which must be empty or partially migrated.
pub fn memory_to_sqlite(
    from: &PostgresMemory,
    to: &Memory,
    analyse: Analyse,
) -> Migration<'static> {
    let from = MemoryOnServer { memory: from.clone(), analyse: analyse.clone() };
    Migration::new(from, MemoryInFile { memory: to.clone(), analyse }, PARTS)
}
