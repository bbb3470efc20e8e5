//! What this home has had: which databases, and how much was in the memory. A database that is missing, or has less in
//! it than before, is an error instead of an empty start.

use std::fs;
use std::path::{Path, PathBuf};

use hob_domain::DataKey;
use serde::{Deserialize, Serialize};

use crate::home::Home;

/// The content of the file.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Known {
    ledger: bool,
    /// The number of turns that the memory has ever stored; `None` if there was no memory.
    memory: Option<u64>,
}

/// The inventory of a home.
pub struct Inventory<'a> {
    home: &'a Home,
}

impl Inventory<'_> {
    pub fn new(home: &Home) -> Inventory<'_> {
        Inventory { home }
    }

    fn path(&self) -> PathBuf {
        self.home.root().join("stores.json")
    }

    fn known(&self) -> Known {
        let text = fs::read(self.path()).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    fn write(&self, known: &Known) -> anyhow::Result<()> {
        if *known != self.known() {
            hob_files::write_over_unsynced(&self.path(), &serde_json::to_vec(known)?, 0o600)?;
        }
        Ok(())
    }

    /// Fails if the ledger was there and is not any more. Call it before the ledger is opened.
    pub fn check_ledger(&self) -> anyhow::Result<()> {
        if self.known().ledger && is_empty(&self.home.ledger()) {
            return Err(lost(&self.home.ledger(), "it held this home's apps and sessions"));
        }
        Ok(())
    }

    pub fn note_ledger(&self) -> anyhow::Result<()> {
        self.write(&Known { ledger: true, ..self.known() })
    }

    /// Fails if the memory was there and is not any more. Call it before the memory is opened.
    pub fn check_memory(&self) -> anyhow::Result<()> {
        match self.known().memory {
            Some(turns) if is_empty(&self.home.memory()) => {
                let held = format!("it had stored {turns} turns");
                Err(lost(&self.home.memory(), &held))
            }
            _ => Ok(()),
        }
    }

    /// Fails if the memory has lost turns. Call it once the memory is open.
    pub fn note_memory(&self, key: &DataKey) -> anyhow::Result<()> {
        let known = self.known();
        let found = hob_store::memory_mark(&self.home.memory(), key)?;
        match known.memory {
            Some(turns) if found < turns => {
                let path = self.home.memory();
                let log = format!("{}-wal", path.display());
                anyhow::bail!(
                    "{} has lost turns: it had stored {turns}, now it knows of {found}; perhaps {log} was removed or \
                     damaged. Restore a backup with `hob restore FILE`, or go on without them with `hob store accept-loss`",
                    path.display()
                )
            }
            _ => self.write(&Known { memory: Some(found), ..known }),
        }
    }

    /// Forgets what was there: the databases are replaced.
    pub fn reset(&self) -> anyhow::Result<()> {
        match fs::remove_file(self.path()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Returns whether there is no database. SQLite creates an empty file before it writes the first page.
fn is_empty(path: &Path) -> bool {
    fs::metadata(path).map_or(true, |metadata| metadata.len() == 0)
}

fn lost(path: &Path, held: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "{} is missing or empty, but {held}. Restore a backup with `hob restore FILE`, or start over with `hob store \
         accept-loss`",
        path.display()
    )
}
