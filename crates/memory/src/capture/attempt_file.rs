//! Files that count how often a process ended while it drained a deferral file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hob_files::{owned, read_regular};

/// The suffix that is added to the name of the deferral file.
const SUFFIX: &str = ".attempts";
/// The length of a number with its sign.
const MAX_FILE_BYTES: u64 = 16;

/// An attempt that is going on. Its file is removed when it ends, but not when the process is killed.
pub struct AttemptFile(PathBuf);

impl AttemptFile {
    /// Writes the count that holds if the process ends during the attempt. If the file cannot be written, the attempt is
    /// made without it.
    pub fn begin(path: &Path, ends: u32) -> Option<AttemptFile> {
        let file = attempt_path(path);
        match hob_files::write_over_unsynced(&file, ends.to_string().as_bytes(), 0o600) {
            Ok(()) => Some(AttemptFile(file)),
            Err(error) => {
                tracing::warn!(%error, "cannot count the attempts to drain a deferral file");
                None
            }
        }
    }

    /// Returns how often a process has ended during an attempt.
    pub fn ends(path: &Path) -> u32 {
        let text = read_regular(&attempt_path(path), MAX_FILE_BYTES).unwrap_or_default();
        String::from_utf8(text).ok().and_then(|text| text.trim().parse().ok()).unwrap_or_default()
    }

    /// Removes the counts of files that are gone.
    pub fn remove_orphans(folder: &Path) {
        for entry in owned::entries(folder) {
            let name = entry.file_name();
            let Some(name) = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)) else {
                continue;
            };
            if fs::symlink_metadata(folder.join(name)).is_err() {
                remove(&entry.path());
            }
        }
    }

    /// Removes the count of a file.
    pub fn forget(path: &Path) {
        remove(&attempt_path(path));
    }
}

impl Drop for AttemptFile {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

fn attempt_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(SUFFIX);
    path.with_file_name(name)
}

fn remove(file: &Path) {
    match owned::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, "cannot remove a count of attempts");
        }
        _ => {}
    }
}
