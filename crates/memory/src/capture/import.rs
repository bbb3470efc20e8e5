//! Finds past transcripts.

use std::fs;
use std::path::{Path, PathBuf};

use hob_domain::memory::{ImportMark, TurnKey};
use hob_files::owned;
use hob_transcript::{RECORDS, RecordFile, RecordedClient};

use crate::capture::batch::CaptureBatch;

/// Folders in which nobody's conversation is: those of sub-agents, and large ones of other programs.
const SKIPPED_FOLDERS: [&str; 3] = ["subagents", "node_modules", ".git"];

/// Returns the existing folders and files of records of every client. `home` is the user's home; `variable`
/// gives the folder that an environment variable names.
pub fn record_folders(
    home: &Path,
    variable: impl Fn(&str) -> Option<PathBuf>,
) -> Vec<(RecordedClient, PathBuf)> {
    let mut found = Vec::new();
    for record in &RECORDS {
        for place in record.places {
            let named =
                place.by_variable.and_then(|(name, below)| Some(variable(name)?.join(below)));
            let path = named.unwrap_or_else(|| home.join(place.below_home));
            if path.exists() {
                found.push((record.client, path));
            }
        }
    }
    found
}

/// Returns all transcripts below a path, or the path itself if it is a file. Transcripts of sub-agents
/// have folders of their own and are not part of a conversation. The oldest come first, so that
/// sessions are imported in the order in which they happened.
pub fn find_transcripts(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        if folder.is_file() {
            found.push(folder);
            continue;
        }
        for entry in owned::entries(&folder) {
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            let is_skipped = SKIPPED_FOLDERS.iter().any(|name| entry.file_name() == *name);
            if kind.is_dir() && !is_skipped {
                folders.push(path);
            } else if kind.is_file() && RecordFile::of_found(&path).is_some() && !is_copy(&path) {
                found.push(path);
            }
        }
    }
    found.sort_by_cached_key(|path| {
        (fs::metadata(path).and_then(|metadata| metadata.modified()).ok(), path.clone())
    });
    found
}

/// Returns whether a session took place in the workspace of an app, all of which are below `workspaces`: a folder by each
/// of its paths. It belongs to the app's memory, and an import of the owner's past leaves it out.
pub fn is_of_an_app(batch: &CaptureBatch, workspaces: &[PathBuf]) -> bool {
    workspaces.iter().any(|folder| Path::new(&batch.place.worktree).starts_with(folder))
}

/// Returns whether a file repeats the one next to it. Entire writes a compact transcript in addition to the agent's own,
/// which has the ids of records.
fn is_copy(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "transcript.jsonl")
        && path.with_file_name("full.jsonl").is_file()
}

/// Returns the mark by which a changed file is recognised after it was imported.
pub fn import_mark(path: &Path) -> Option<ImportMark> {
    let real = path.canonicalize().ok()?;
    let metadata = fs::metadata(&real).ok()?;
    let modified = metadata.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(ImportMark {
        path: TurnKey::of(&["import", &real.to_string_lossy()]),
        size: metadata.len(),
        modified: modified.as_micros() as i64,
    })
}
