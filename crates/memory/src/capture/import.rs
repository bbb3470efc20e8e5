//! Finding past transcripts.

use std::fs;
use std::path::{Path, PathBuf};

use hob_domain::memory::{ImportMark, TurnKey};

/// Where the transcripts of the usual agents lie, given the user's home and the folders their own
/// settings name.
pub fn usual_places(home: &Path, claude: Option<PathBuf>, codex: Option<PathBuf>) -> Vec<PathBuf> {
    let claude = claude.unwrap_or_else(|| home.join(".claude"));
    let codex = codex.unwrap_or_else(|| home.join(".codex"));
    let places = [
        claude.join("projects"),
        home.join(".config/claude/projects"),
        codex.join("sessions"),
        codex.join("archived_sessions"),
    ];
    places.into_iter().filter(|place| place.is_dir()).collect()
}

/// All transcripts under a path, or the path itself where it is a file. What sub-agents did lies in
/// folders of their own and is not part of a conversation. Oldest first, so that sessions come in
/// the order they happened.
pub fn transcripts(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        if folder.is_file() {
            found.push(folder);
            continue;
        }
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            if kind.is_dir() && entry.file_name() != "subagents" {
                folders.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|e| e == "jsonl") {
                found.push(path);
            }
        }
    }
    found.sort_by_cached_key(|path| {
        (fs::metadata(path).and_then(|metadata| metadata.modified()).ok(), path.clone())
    });
    found
}

/// What tells whether a file has changed since it was imported.
pub fn mark_of(path: &Path) -> Option<ImportMark> {
    let real = path.canonicalize().ok()?;
    let metadata = fs::metadata(&real).ok()?;
    let modified = metadata.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(ImportMark {
        path: TurnKey::of(&["import", &real.to_string_lossy()]),
        size: metadata.len(),
        modified: modified.as_micros() as i64,
    })
}
