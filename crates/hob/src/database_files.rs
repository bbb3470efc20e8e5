//! The files of one SQLite database: the file itself, its write-ahead log, the index of the log, and the number of the last
//! commit.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use hob_files::owned;

/// The endings of the files of one database.
const SUFFIXES: [&str; 4] = ["", "-wal", "-shm", "-mark"];

pub fn with_suffix(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Removes a database.
pub fn remove(path: &Path) -> anyhow::Result<()> {
    for part in SUFFIXES.map(|ending| with_suffix(path, ending)) {
        if part.exists() {
            owned::remove_file(&part)
                .with_context(|| format!("cannot remove {}", part.display()))?;
        }
    }
    Ok(())
}

/// Replaces a database. Keeps the old one under its name with `ending`, or with `ending` and a number if that name is taken,
/// and returns that name. No process may have either database open.
pub fn put_in_place(new: &Path, path: &Path, ending: &str) -> anyhow::Result<Option<PathBuf>> {
    let is_there = |path: &Path| SUFFIXES.iter().any(|ending| with_suffix(path, ending).exists());
    let mut kept = None;
    if is_there(path) {
        let names = std::iter::once(ending.to_owned())
            .chain((2..).map(|number: u32| format!("{ending}-{number}")));
        let mut places = names.map(|name| with_suffix(path, &name));
        let place = places.find(|place| !is_there(place)).with_context(|| {
            let path = path.display();
            format!(
                "cannot keep a copy of {path}: every name for it is taken; delete or move old {path}{ending} files"
            )
        })?;
        rename(path, &place)?;
        kept = Some(place);
    }
    rename(new, path)?;
    Ok(kept)
}

fn rename(from: &Path, to: &Path) -> anyhow::Result<()> {
    // The write-ahead log goes first. A database without its log is outdated, and one with
    // another's log is corrupt.
    for ending in ["-wal", "-shm", "-mark", ""] {
        let part = with_suffix(from, ending);
        if part.exists() {
            owned::rename(&part, with_suffix(to, ending))
                .with_context(|| format!("cannot rename {}", part.display()))?;
        }
    }
    if let Some(folder) = to.parent() {
        owned::open(folder)?.sync_all()?;
    }
    Ok(())
}
