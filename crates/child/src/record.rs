//! What is written down of a live tree.

use std::io::Write;
use std::path::{Path, PathBuf};

use hob_files::owned;

use crate::tree;

/// The file that names a tree's first processes until the tree is gone: for the next run's sweep,
/// should this run be killed together with the shim.
pub(crate) struct RunRecord {
    path: PathBuf,
}

impl RunRecord {
    pub fn write(folder: &Path, shim: i32, marker: &str) -> RunRecord {
        let record = RunRecord { path: folder.join(marker) };
        record.add(shim, tree::start_time(shim).unwrap_or(0));
        record
    }

    pub fn add(&self, pid: i32, start: u64) {
        let file = owned::open_to_append(&self.path, 0o600);
        if let Err(error) = file.and_then(|mut file| writeln!(file, "{pid} {start}")) {
            tracing::warn!(%error, "a child's record could not be written");
        }
    }

    pub fn remove(&self) {
        let _ = owned::remove_file(&self.path);
    }
}
