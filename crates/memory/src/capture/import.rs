//! Finds past transcripts.

use std::fs;
use std::path::{Path, PathBuf};

use hob_domain::memory::{ImportMark, TurnKey};
use hob_transcript::AgentClient;

/// Returns the existing folders of transcripts of every client. `home` is the user's home;
/// `config_folder` gives the configuration folder that a client's own environment variable names.
pub fn transcript_folders(
    home: &Path,
    config_folder: impl Fn(AgentClient) -> Option<PathBuf>,
) -> Vec<PathBuf> {
    let folders = AgentClient::ALL.into_iter().flat_map(|client| {
        let described = client.description();
        let config = config_folder(client).unwrap_or_else(|| home.join(described.config_folder));
        let below_config = described.transcript_folders.iter().map(move |name| config.join(name));
        below_config.chain(described.other_transcript_folders.iter().map(|name| home.join(name)))
    });
    folders.filter(|folder| folder.is_dir()).collect()
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
