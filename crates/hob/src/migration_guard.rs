//! Keeps commands from migrating a database that a running server uses: a server of an earlier build reads only its own
//! schema.

use std::path::PathBuf;
use std::time::Duration;

use hob_domain::DataKey;
use hob_store::{Ledger, Memory, OpenError};

use crate::build_id::RESTART;
use crate::home::Home;

/// Who opens a database of the home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opener {
    /// The server, which has the serve lock.
    Server,
    /// Any other command, which may run next to a server.
    Command,
}

/// A command needs a database migrated that a server uses.
#[derive(Debug, thiserror::Error)]
#[error(
    "a server{} uses {}, which an earlier hob wrote, so this command leaves it unchanged; {RESTART}, and try again",
    .pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default(), .path.display()
)]
pub struct UsedByServer {
    pid: Option<u32>,
    path: PathBuf,
}

/// Opens the memory's file, and creates or migrates it if needed.
pub fn open_memory(
    home: &Home,
    key: &DataKey,
    busy: Duration,
    opener: Opener,
) -> anyhow::Result<Memory> {
    let path = home.memory();
    let open_current = || Memory::open_current(&path, key, busy);
    open_guarded(home, opener, open_current, || Memory::open(&path, key, busy))
}

/// Opens the memory's file like [`open_memory`], with the second key if it does not have the first.
pub fn open_memory_with_either(
    home: &Home,
    [first, second]: [&DataKey; 2],
    busy: Duration,
    opener: Opener,
) -> anyhow::Result<Memory> {
    match open_memory(home, first, busy, opener) {
        Err(error) if matches!(error.downcast_ref(), Some(OpenError::WrongKey(_))) => {
            open_memory(home, second, busy, opener)
        }
        opened => opened,
    }
}

/// Opens the ledger's file, and creates or migrates it if needed.
pub fn open_ledger(home: &Home, key: &DataKey, opener: Opener) -> anyhow::Result<Ledger> {
    let path = home.ledger();
    let open_current = || Ledger::open_current(&path, key);
    open_guarded(home, opener, open_current, || Ledger::open(&path, key))
}

/// Opens a database. `open_current` fails if the database has an earlier schema, and `open` migrates it. A command migrates
/// only while it holds the serve lock, so while no server runs.
fn open_guarded<T>(
    home: &Home,
    opener: Opener,
    open_current: impl FnOnce() -> Result<T, OpenError>,
    open: impl FnOnce() -> Result<T, OpenError>,
) -> anyhow::Result<T> {
    if opener == Opener::Server {
        return Ok(open()?);
    }
    match open_current() {
        Err(OpenError::Earlier { path, .. }) => {
            let Some(_lock) = home.lock_for_migration()? else {
                return Err(UsedByServer { pid: home.serving_pid(), path }.into());
            };
            Ok(open()?)
        }
        opened => Ok(opened?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn earlier() -> Result<(), OpenError> {
        Err(OpenError::Earlier { path: PathBuf::from("memory.db"), found: 4, known: 6 })
    }

    #[test]
    fn command_migrates_only_without_a_server() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::new(folder.path().to_owned());
        open_guarded(&home, Opener::Command, earlier, || Ok(())).unwrap();
        let lock = home.take_lock().unwrap().expect("nobody serves this home");
        let migrate = || -> Result<(), OpenError> { panic!("a server runs") };
        let refused = open_guarded(&home, Opener::Command, earlier, migrate).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains(&std::process::id().to_string()), "{text}");
        assert!(text.contains("hob service install"), "{text}");
        // The server itself migrates, and a current database needs no lock.
        open_guarded(&home, Opener::Server, earlier, || Ok(())).unwrap();
        open_guarded(&home, Opener::Command, || Ok(()), migrate).unwrap();
        drop(lock);
        open_guarded(&home, Opener::Command, earlier, || Ok(())).unwrap();
    }

    #[test]
    fn lock_of_a_migration_names_no_process() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::new(folder.path().to_owned());
        let lock = home.lock_for_migration().unwrap().expect("nobody serves this home");
        assert_eq!(home.serving_pid(), None, "a command that migrates is no server");
        let server = std::thread::spawn({
            let home = home.clone();
            move || home.take_lock().unwrap().is_ok()
        });
        drop(lock);
        assert!(server.join().unwrap(), "a server waits for the migration");
    }
}
