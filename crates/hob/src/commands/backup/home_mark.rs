//! The mark of a home in the names of its backups.

use std::os::unix::ffi::OsStrExt;

use hob_domain::secret::hex;
use hob_files::owned;
use sha2::{Digest, Sha256};

use crate::home::Home;

/// The number of bytes of the digest in the mark.
const MARK_BYTES: usize = 6;

/// Returns a short word that differs between homes, also of several machines that share a folder of backups. It changes if
/// the home is moved.
pub fn home_mark(home: &Home) -> String {
    let root = home.root().canonicalize().unwrap_or_else(|_| home.root().to_owned());
    let machine = owned::read("/etc/machine-id").unwrap_or_default();
    let digest = Sha256::new().chain_update(machine).chain_update(root.as_os_str().as_bytes());
    hex(&digest.finalize()[..MARK_BYTES])
}

/// Returns how the names of this home's unfinished backups begin.
pub fn partial_prefix(home: &Home) -> String {
    format!(".hob-backup-{}-", home_mark(home))
}
