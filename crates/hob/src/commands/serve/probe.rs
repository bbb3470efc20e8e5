//! Whether the stores of the home can be written, for `/readyz`.

use std::io;

use hob_domain::DataKey;
use hob_files::owned;
use hob_gateway::StoreProbe;

use crate::home::Home;

/// The size of the file that is written, in bytes: a full disk may have room for less.
const PROBE_BYTES: usize = 64 << 10;

/// Writes into the databases of a home, and into the home.
pub struct HomeProbe {
    pub home: Home,
    pub key: DataKey,
}

impl StoreProbe for HomeProbe {
    fn check(&self) -> Result<(), &'static str> {
        for path in [self.home.ledger(), self.home.memory()] {
            hob_store::advance_generation(&path, &self.key).map_err(|error| {
                tracing::error!(%error, "a database cannot be written");
                error.reason()
            })?;
        }
        let path = self.home.root().join("ready-probe.tmp");
        // A killed server may have left one.
        let _ = owned::remove_file(&path);
        let written = hob_files::create(&path, &[0; PROBE_BYTES]);
        let _ = owned::remove_file(&path);
        written.map_err(|error| {
            tracing::error!(%error, "the home cannot be written");
            match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "the disk is full",
                io::ErrorKind::ReadOnlyFilesystem => "the disk is read-only",
                io::ErrorKind::FileTooLarge => "a limit of the size of files is reached",
                _ => "the home cannot be written",
            }
        })
    }
}
