//! Leak checks: processes, zombies, descriptors and files that should not be there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use hob_child::tree;

use crate::wait::wait_until;

/// The processes and descriptors of the calling process, to be compared with those at the end.
pub struct LeakCheck {
    pid: i32,
    processes: BTreeSet<i32>,
    descriptors: usize,
}

impl LeakCheck {
    /// Counts what the calling process has now.
    pub fn new() -> LeakCheck {
        let pid = std::process::id() as i32;
        LeakCheck { pid, processes: descendants(pid), descriptors: descriptors(pid) }
    }

    /// Waits until there are no more processes and descriptors than at the beginning. Zombies count as
    /// processes.
    #[track_caller]
    pub fn assert_clean(&self) {
        let look = || {
            let new: Vec<i32> =
                descendants(self.pid).difference(&self.processes).copied().collect();
            (new, descriptors(self.pid))
        };
        wait_until("no process, no zombie and no descriptor is left", || {
            let (new, descriptors) = look();
            (new.is_empty() && descriptors <= self.descriptors).then_some(())
        });
    }
}

impl Default for LeakCheck {
    fn default() -> LeakCheck {
        LeakCheck::new()
    }
}

/// Returns the processes with this text in their command line or environment.
pub fn processes_with(text: &str) -> Vec<i32> {
    tree::all()
        .into_iter()
        .filter(|process| !process.zombie)
        .map(|process| process.pid)
        .filter(|pid| {
            ["environ", "cmdline"].iter().any(|file| {
                fs::read(format!("/proc/{pid}/{file}"))
                    .is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text))
            })
        })
        .collect()
}

/// Returns all files below a folder.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                _ => found.push(entry.path()),
            }
        }
    }
    found
}

fn descendants(pid: i32) -> BTreeSet<i32> {
    tree::descendants(pid).into_iter().map(|process| process.pid).collect()
}

/// Counts the open descriptors of a process, except those of SQLite files: the store opens readers on
/// demand, so a busy machine makes it keep a few more of a bounded number.
pub fn descriptors(pid: i32) -> usize {
    let is_database = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        [".db", ".db-wal", ".db-shm"].iter().any(|ending| name.ends_with(ending))
    };
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter(|entry| !fs::read_link(entry.path()).is_ok_and(|to| is_database(&to))).count()
}
