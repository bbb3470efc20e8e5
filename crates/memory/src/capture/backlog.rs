//! The deferral files that wait in a folder.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hob_files::{open_regular, owned};

const SUFFIX: &str = ".jsonl";
/// The suffix of a file that was set aside because it could not be drained.
pub const FAILED_SUFFIX: &str = ".failed.jsonl";
/// How many bytes of all files are read to count turns.
const MAX_COUNTED_BYTES: u64 = 16 << 20;

/// What waits in the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    pub files: usize,
    pub bytes: u64,
    /// The number of files that were set aside.
    pub failed: usize,
}

/// Counts the folder's files.
pub fn backlog(folder: &Path) -> Backlog {
    let mut backlog = Backlog::default();
    for entry in owned::entries(folder) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(FAILED_SUFFIX) {
            backlog.failed += 1;
        } else if name.ends_with(SUFFIX) {
            backlog.files += 1;
            backlog.bytes += entry.metadata().map_or(0, |metadata| metadata.len());
        }
    }
    backlog
}

/// Counts the turns that wait: the lines of the files, up to a limit of bytes.
pub fn waiting_turns(folder: &Path) -> usize {
    let mut left = MAX_COUNTED_BYTES;
    let mut turns = 0;
    for entry in owned::entries(folder) {
        if !is_waiting(&entry) || left == 0 {
            continue;
        }
        let Ok(file) = open_regular(&entry.path()) else { continue };
        let mut text = Vec::new();
        let read = file.take(left).read_to_end(&mut text).unwrap_or_default();
        left = left.saturating_sub(read as u64);
        // The first line is the header.
        turns += text.iter().filter(|byte| **byte == b'\n').count().saturating_sub(1);
    }
    turns
}

/// Returns the files that wait, oldest first.
pub fn waiting_files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in owned::entries(folder) {
        if is_waiting(&entry) {
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            files.push((modified.unwrap_or(SystemTime::UNIX_EPOCH), entry.path()));
        }
    }
    files.sort();
    files.into_iter().map(|(_, path)| path).collect()
}

fn is_waiting(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let name = name.to_string_lossy();
    name.ends_with(SUFFIX) && !name.ends_with(FAILED_SUFFIX)
}

/// Returns a name for a file that is set aside. It never replaces an earlier one.
pub fn failed_name(path: &Path, name: &str) -> PathBuf {
    let stem = name.strip_suffix(SUFFIX).unwrap_or(name);
    let named = |n: u32| match n {
        0 => path.with_file_name(format!("{stem}{FAILED_SUFFIX}")),
        n => path.with_file_name(format!("{stem}-{n}{FAILED_SUFFIX}")),
    };
    (0..).map(named).find(|path| fs::symlink_metadata(path).is_err()).unwrap_or_else(|| named(0))
}
