//! Reads memory files: notes that agents wrote for their own later sessions.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use hob_domain::Timestamp;
use hob_domain::memory::{NOTE_SESSION, Tier, TurnKey, TurnRole};
use hob_files::{open_regular, owned, read_regular};
use hob_transcript::{ReadProgress, RecordedClient, memory_file_folder, parse_chunk};

use super::batch::RawTurn;
use super::follow::TranscriptUpdate;

/// Longer memory files are not read.
const MAX_FILE_BYTES: u64 = 8 << 20;
/// How many transcripts, and how many bytes of each, are read for the folder of their project.
const MAX_TRANSCRIPTS: usize = 8;
const MAX_HEAD_BYTES: u64 = 256 << 10;

/// Reads a memory file as one note in a session of its own, by which a later version of the file is recognised.
pub fn read_memory_file(path: &Path, client: RecordedClient) -> io::Result<TranscriptUpdate> {
    let bytes = read_regular(path, MAX_FILE_BYTES)?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text).trim();
    let real = path.canonicalize()?;
    let digest = TurnKey::of(&["memory file", &real.to_string_lossy()]).to_hex();
    let modified = fs::metadata(path)?.modified().ok();
    let note = RawTurn {
        id: None,
        role: TurnRole::Assistant,
        text: text.to_owned(),
        ts: modified.and_then(|at| Timestamp::try_from(at).ok()).unwrap_or_default(),
        at: None,
        n: 1,
        answer: None,
        tier: Tier::Semantic,
        cue: path.file_stem().map(|name| name.to_string_lossy().replace(['_', '-'], " ")),
    };
    let folder = memory_file_folder(text).map(PathBuf::from).or_else(|| folder_of(&real));
    Ok(TranscriptUpdate {
        session: format!("{NOTE_SESSION}{}-memory-{}", client.as_str(), &digest[..8]),
        cwd: folder.map(|folder| folder.to_string_lossy().into_owned()),
        client: Some(client),
        turns: if text.is_empty() { Vec::new() } else { vec![note] },
        ..TranscriptUpdate::default()
    })
}

/// Returns the folder that a memory of Claude Code or Qwen Code is about: that of the project's sessions, or for the memory
/// of a sub-agent the one that contains `.claude`.
fn folder_of(path: &Path) -> Option<PathBuf> {
    let folder_named = |name: &str| path.ancestors().find(|folder| folder.ends_with(name));
    match folder_named("memory") {
        // Qwen Code has a folder of its own for the transcripts of a project.
        Some(memory) => folder_of_transcripts(memory.parent()?)
            .or_else(|| folder_of_transcripts(&memory.with_file_name("chats"))),
        None => folder_named(".claude")?.parent().map(Path::to_owned),
    }
}

/// Returns the working folder that one of the transcripts in a folder names.
fn folder_of_transcripts(folder: &Path) -> Option<PathBuf> {
    let entries = owned::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let is_transcript = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "jsonl");
    let mut transcripts: Vec<PathBuf> = entries.filter(is_transcript).collect();
    transcripts.sort();
    transcripts.iter().take(MAX_TRANSCRIPTS).find_map(|path| {
        let mut head = Vec::new();
        open_regular(path).ok()?.take(MAX_HEAD_BYTES).read_to_end(&mut head).ok()?;
        let mut progress = ReadProgress::default();
        parse_chunk(&head, &mut progress);
        progress.cwd.map(PathBuf::from)
    })
}
