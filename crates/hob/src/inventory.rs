//! What this home has had: which databases, how much was in the memory, and the generation of each file. A database that
//! is missing, or older than it was, is an error instead of an empty start.
//!
//! A copy of the home has the same key, and its databases may be newer by every number. It is recognised by the random name that
//! every start of a server writes into both databases and into a file of the home.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use hob_domain::DataKey;
use hob_files::owned;
use hob_store::Access;
use serde::{Deserialize, Serialize};

use crate::home::Home;

/// The content of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Known {
    ledger: bool,
    /// The number of turns that the memory has ever stored; `None` if there was no memory.
    memory: Option<u64>,
    ledger_generation: u32,
    memory_generation: u32,
    /// Whether the next server tries again what was set aside: a database was replaced since.
    retries_set_aside: bool,
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

    /// Reads the file. Returns `None` if there is none, and an error if a restore was interrupted. A crash of the machine may leave it empty.
    fn known(&self) -> anyhow::Result<Option<Known>> {
        if let Ok(file) = owned::read_to_string(self.home.unfinished_restore()) {
            anyhow::bail!(
                "restoring {} was interrupted, so the databases may be inconsistent: run `hob restore {file}` again",
                self.home.root().display()
            );
        }
        let text = owned::read(self.path()).unwrap_or_default();
        if text.is_empty() {
            return Ok(None);
        }
        serde_json::from_slice(&text).map(Some).ok().with_context(|| {
            format!(
                "{} is damaged: it says which databases this home has had. Restore a backup with `hob restore FILE`, or \
                 go on with the databases that are there with `hob store accept-loss`",
                self.path().display()
            )
        })
    }

    fn write(&self, known: &Known) -> anyhow::Result<()> {
        if self.known()?.as_ref() != Some(known) {
            let path = self.path();
            hob_files::write_over_unsynced(&path, &serde_json::to_vec(known)?, 0o600)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// Fails if the ledger was there and is not any more, or is older than it was. Call it before the ledger is opened.
    pub fn check_ledger(&self, key: &DataKey) -> anyhow::Result<()> {
        let (known, path) = (self.known()?, self.home.ledger());
        self.check_missing(known.as_ref(), key)?;
        match known {
            Some(known) if !is_empty(&path) => {
                self.check_generation(&path, key, known.ledger_generation)?;
                self.check_run(&path, key)
            }
            _ => Ok(()),
        }
    }

    pub fn note_ledger(&self) -> anyhow::Result<()> {
        self.write(&Known { ledger: true, ..self.known()?.unwrap_or_default() })
    }

    /// Fails if the memory was there and is not any more, has lost turns, or is older than it was. Returns the number of turns
    /// that it has ever stored; `None` if nothing is known of it yet. Call it before the memory is opened.
    pub fn check_memory(&self, key: &DataKey) -> anyhow::Result<Option<u64>> {
        let (known, path) = (self.known()?, self.home.memory());
        self.check_missing(known.as_ref(), key)?;
        let Some(known) = known.filter(|_| !is_empty(&path)) else { return Ok(None) };
        // Before the database is read: a server that is running commits meanwhile.
        let noted = hob_store::noted_commit(&path);
        let found = hob_store::memory_mark(&path, key, self.access())?;
        match known.memory {
            Some(turns) if found.turns < turns => {
                let log = format!("{}-wal", path.display());
                anyhow::bail!(
                    "{} has lost turns: it should hold {turns}, but holds only {}; perhaps {log} was removed or \
                     damaged. Restore a backup with `hob restore FILE`, or go on without them with `hob store accept-loss`",
                    path.display(),
                    found.turns
                )
            }
            _ if is_behind(found.generation, known.memory_generation, noted) => Err(older(&path)),
            _ => {
                self.check_run(&path, key)?;
                Ok(Some(found.turns))
            }
        }
    }

    /// Notes how many turns the memory has ever stored; the memory itself says it if [`Inventory::check_memory`] did not.
    /// Call it once the memory is open.
    pub fn note_memory(&self, key: &DataKey, turns: Option<u64>) -> anyhow::Result<()> {
        let turns = match turns {
            Some(turns) => turns,
            None => hob_store::memory_mark(&self.home.memory(), key, self.access())?.turns,
        };
        let known = self.known()?.unwrap_or_default();
        self.write(&Known { memory: Some(turns.max(known.memory.unwrap_or(0))), ..known })
    }

    /// Begins a run of the server and a new generation of both databases: from now on, a database of a copy of this home
    /// that is used by itself is recognised.
    pub fn begin_run(&self, key: &DataKey) -> anyhow::Result<()> {
        if let Err(error) = self.retry_set_aside(key) {
            // The next start tries it again.
            tracing::warn!(%error, "cannot try again to store the turns that were set aside");
        }
        let run = uuid::Uuid::new_v4().simple().to_string();
        // A crash may come before both databases have the new name, so until then the earlier ones count as well.
        let mut runs = self.runs();
        if runs.is_empty() {
            // Nothing is known after a restore, although the databases have names.
            for path in [self.home.ledger(), self.home.memory()] {
                runs.extend(hob_store::latest_run(&path, key, self.access())?);
            }
        }
        runs.push(run.clone());
        if let Err(error) = self.write_runs(&runs) {
            // The databases keep the name that they have, which the file knows.
            tracing::warn!(%error, "cannot note that a server has started");
            return self.advance(key);
        }
        let ledger = hob_store::begin_run(&self.home.ledger(), key, &run)?;
        let memory = hob_store::begin_run(&self.home.memory(), key, &run)?;
        self.write_runs(&[run])?;
        self.note_generations(key, ledger, memory)
    }

    /// Gives the turns that were set aside their attempts back if a database was replaced, which may have been at fault.
    fn retry_set_aside(&self, key: &DataKey) -> anyhow::Result<()> {
        let known = self.known()?.unwrap_or_default();
        if known.retries_set_aside {
            hob_store::retry_set_aside(&self.home.ledger(), key)?;
            self.write(&Known { retries_set_aside: false, ..known })?;
        }
        Ok(())
    }

    /// Begins a new generation of both databases, by which an older copy is recognised from now on.
    pub fn advance(&self, key: &DataKey) -> anyhow::Result<()> {
        let ledger = hob_store::advance_generation(&self.home.ledger(), key)?;
        let memory = hob_store::advance_generation(&self.home.memory(), key)?;
        self.note_generations(key, ledger, memory)
    }

    fn note_generations(
        &self,
        key: &DataKey,
        ledger_generation: u32,
        memory_generation: u32,
    ) -> anyhow::Result<()> {
        let known = self.known()?.unwrap_or_default();
        self.write(&Known { ledger_generation, memory_generation, ..known })?;
        self.note_memory(key, None)
    }

    /// Forgets what was there: the databases are replaced, or the owner goes on without them.
    pub fn reset(&self) -> anyhow::Result<()> {
        hob_store::forget_commits(&self.home.ledger())?;
        hob_store::forget_commits(&self.home.memory())?;
        // Without names the databases may have any.
        self.write_runs(&[])?;
        let path = self.path();
        let known = Known { retries_set_aside: true, ..Known::default() };
        hob_files::write_over(&path, &serde_json::to_vec(&known)?, 0o600)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Forgets what the ledger was, which is replaced by what could be salvaged of it.
    pub fn reset_ledger(&self) -> anyhow::Result<()> {
        hob_store::forget_commits(&self.home.ledger())?;
        let known = self.known()?.unwrap_or_default();
        self.write(&Known { ledger_generation: 0, retries_set_aside: true, ..known })
    }

    /// Forgets what was in the memory, which is replaced by what could be salvaged of it. A crash may come before the new file
    /// is in place; that there was a memory stays known, so that a missing file is an error.
    pub fn reset_memory(&self) -> anyhow::Result<()> {
        hob_store::forget_commits(&self.home.memory())?;
        let known = self.known()?.unwrap_or_default();
        self.write(&Known {
            memory: Some(0),
            memory_generation: 0,
            retries_set_aside: true,
            ..known
        })
    }

    /// Fails if one of the databases was there and is not any more. Without an inventory, the other one knows it: a server
    /// that has used it had both.
    fn check_missing(&self, known: Option<&Known>, key: &DataKey) -> anyhow::Result<()> {
        let (ledger, memory) = (self.home.ledger(), self.home.memory());
        let (had_ledger, had_memory) = match known {
            Some(known) => (known.ledger, known.memory),
            None => (
                is_empty(&ledger) && self.is_of_a_server(&memory, key),
                (is_empty(&memory) && self.is_of_a_server(&ledger, key)).then_some(0),
            ),
        };
        if had_ledger && is_empty(&ledger) {
            return Err(lost(&ledger, "it held this home's apps and sessions"));
        }
        match had_memory {
            Some(0) if is_empty(&memory) => Err(lost(&memory, "a server has used it")),
            Some(turns) if is_empty(&memory) => {
                Err(lost(&memory, &format!("it had stored {turns} turns")))
            }
            _ => Ok(()),
        }
    }

    fn check_generation(&self, path: &Path, key: &DataKey, known: u32) -> anyhow::Result<()> {
        // The inventory was read before: a server that is running may have begun a new generation since.
        let noted = hob_store::noted_commit(path);
        if known == 0 && noted.is_none() {
            return Ok(());
        }
        match is_behind(hob_store::generation(path, key, self.access())?, known, noted) {
            true => Err(older(path)),
            false => Ok(()),
        }
    }

    /// Fails if the latest server on a database was not one of this home.
    fn check_run(&self, path: &Path, key: &DataKey) -> anyhow::Result<()> {
        let runs = self.runs();
        if runs.is_empty() {
            return Ok(());
        }
        let Some(run) = hob_store::latest_run(path, key, self.access())? else { return Ok(()) };
        // A server that started in between has written its name into the file before the database.
        if runs.contains(&run) || self.runs().contains(&run) {
            return Ok(());
        }
        let shown = path.display();
        Err(anyhow::anyhow!(
            "{shown} belongs to another copy of this home: a server has used that copy by itself. Put this home's own file \
             back, restore a backup with `hob restore FILE`, or go on with this file with `hob store accept-loss`"
        ))
    }

    /// Returns the names of the runs that the databases may have; none if nothing is known.
    fn runs(&self) -> Vec<String> {
        let text = owned::read_to_string(self.runs_path()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Only a process with the lock of the home writes the names.
    fn write_runs(&self, runs: &[String]) -> anyhow::Result<()> {
        let path = self.runs_path();
        hob_files::write_over(&path, runs.join("\n").as_bytes(), 0o600)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn runs_path(&self) -> PathBuf {
        self.home.root().join("stores.runs")
    }

    /// Returns whether a server has used this database. It then had the other one, too.
    fn is_of_a_server(&self, path: &Path, key: &DataKey) -> bool {
        !is_empty(path)
            && hob_store::generation(path, key, self.access())
                .is_ok_and(|generation| generation > 0)
    }

    fn access(&self) -> Access {
        match self.home.is_read_only() {
            true => Access::ReadOnly,
            false => Access::ReadWrite,
        }
    }
}

/// Returns whether a database is behind what the inventory knows of it, or behind the commit that was noted next to it.
fn is_behind(found: u32, known: u32, noted: Option<u32>) -> bool {
    let known = Some(known).filter(|known| *known > 0);
    known.into_iter().chain(noted).any(|noted| hob_store::is_behind(found, noted))
}

/// Returns whether there is no database. SQLite creates an empty file before it writes the first page.
fn is_empty(path: &Path) -> bool {
    fs::metadata(path).map_or(true, |metadata| metadata.len() == 0)
}

fn older(path: &Path) -> anyhow::Error {
    let shown = path.display();
    anyhow::anyhow!(
        "{shown} lacks the most recent changes that Hob wrote to it; perhaps {shown}-wal was removed or damaged, or {shown} was \
         replaced by an older copy. Restore a backup with `hob restore FILE`, or go on without the changes with \
         `hob store accept-loss`"
    )
}

fn lost(path: &Path, held: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "{} is missing or empty, but {held}. Restore a backup with `hob restore FILE`, or start over with `hob store \
         accept-loss`",
        path.display()
    )
}
