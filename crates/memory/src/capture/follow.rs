//! Reads what is new in a transcript since the last time.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use hob_domain::Timestamp;
use hob_domain::json_size::has_too_many_values;
use hob_domain::memory::TurnKey;
use hob_files::{open_linked_regular, read_regular};
use hob_transcript::{MAX_LINE_BYTES, RecordedClient, TranscriptTurn, goose_session, parse_chunk};
use serde_json::Value;

use super::batch::RawTurn;
use super::mark::TranscriptMark;

/// How many bytes at the beginning of a file distinguish it from another file of the same name.
const HEAD_BYTES: usize = 512;
/// How much of a line that is too long is read at a time.
const SKIP_BUFFER_BYTES: usize = 64 << 10;
/// Longer descriptions of a transcript are not read.
const MAX_DESCRIPTION_BYTES: u64 = 4 << 20;

/// What was added to a transcript.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TranscriptUpdate {
    pub session: String,
    pub cwd: Option<String>,
    pub client: Option<RecordedClient>,
    pub turns: Vec<RawTurn>,
    /// How many lines could not be read.
    pub unreadable: usize,
    /// Whether there is more to read.
    pub more: bool,
}

/// How to read a transcript.
#[derive(Debug, Clone, Copy)]
pub struct ReadOptions<'a> {
    /// The session's name, if it is not the transcript's own.
    pub session: Option<&'a str>,
    pub partial_line: PartialLine,
    /// About how many bytes to read at most. A longer line is read as a whole, up to [`MAX_LINE_BYTES`].
    pub max_bytes: usize,
}

/// What to do with a last line that is complete but for its line end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartialLine {
    /// Return its turns now. They come again once the line has its end.
    Include,
    /// Return its turns once the line has its end.
    Defer,
}

/// Reads a whole transcript.
pub fn read_all(path: &Path, session: Option<&str>) -> io::Result<TranscriptUpdate> {
    let options =
        ReadOptions { session, partial_line: PartialLine::Include, max_bytes: usize::MAX };
    read_update(path, &mut TranscriptMark::default(), options)
}

/// Reads what was added after the mark, and advances the mark.
pub fn read_update(
    path: &Path,
    mark: &mut TranscriptMark,
    options: ReadOptions<'_>,
) -> io::Result<TranscriptUpdate> {
    let mut file = open_linked_regular(path)?;
    let metadata = file.metadata()?;
    let mut head = Vec::new();
    Read::by_ref(&mut file).take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    if metadata.len() < mark.offset() || !mark.is_of(&head, HEAD_BYTES) {
        *mark = TranscriptMark::default();
    }
    file.seek(SeekFrom::Start(mark.offset()))?;
    let Lines { mut bytes, more, skipped } = read_lines(&mut file, options.max_bytes)?;
    let lacks_end = bytes.last().is_some_and(|byte| *byte != b'\n');
    let is_included = lacks_end && !more && options.partial_line == PartialLine::Include;
    // The last line is read again once it has its end, so the mark must not remember it.
    let ahead = is_included.then(|| mark.clone());
    let chunk = parse_chunk(&bytes, mark.progress_mut());
    mark.advance(chunk.consumed + skipped, &head, HEAD_BYTES);

    let modified = metadata.modified().ok().and_then(|at| Timestamp::try_from(at).ok());
    let modified = modified.unwrap_or_default();
    let session = options.session.map(str::to_owned).or_else(|| mark.session());
    let session = session.unwrap_or_else(|| session_of_file(path, mark.client()));
    let unreadable = chunk.unreadable + usize::from(skipped > 0);
    let mut turns = number_turns(mark, &session, chunk.turns, modified);
    if let Some(mut ahead) = ahead {
        // The last line may be the parent of others, so all of them are put in order together.
        bytes.push(b'\n');
        let whole = parse_chunk(&bytes, ahead.progress_mut());
        turns = number_turns(&mut ahead, &session, whole.turns, modified);
    }
    let (cwd, client) = (mark.cwd(), mark.client());
    Ok(TranscriptUpdate { session, cwd, client, turns, unreadable, more })
}

/// Identifies the turns of a chunk. A turn without a time has that of the turn before it; the first
/// one has the time at which the file was modified.
fn number_turns(
    mark: &mut TranscriptMark,
    session: &str,
    turns: Vec<TranscriptTurn>,
    modified: Timestamp,
) -> Vec<RawTurn> {
    let mut last = modified;
    turns.into_iter().map(|turn| mark.number(session, turn, &mut last)).collect()
}

/// What was read of a transcript.
struct Lines {
    /// Complete lines. The last line of a file may lack its end.
    bytes: Vec<u8>,
    more: bool,
    /// The length of a line that was skipped because it is too long.
    skipped: usize,
}

/// Reads complete lines of about `max_bytes` bytes, or skips one line that is too long.
fn read_lines(file: &mut File, max_bytes: usize) -> io::Result<Lines> {
    let mut bytes = Vec::new();
    let mut wanted = max_bytes;
    loop {
        let read = Read::by_ref(file).take(wanted as u64).read_to_end(&mut bytes)?;
        if read < wanted {
            return Ok(Lines { bytes, more: false, skipped: 0 });
        }
        if let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') {
            bytes.truncate(end + 1);
            return Ok(Lines { bytes, more: true, skipped: 0 });
        }
        if bytes.len() >= MAX_LINE_BYTES {
            let begun = bytes.len();
            bytes = Vec::new();
            // A line that has no end yet is skipped once it has one.
            let skipped = skip_line(file)?.map_or(0, |rest| begun + rest);
            return Ok(Lines { bytes, more: skipped > 0, skipped });
        }
        // One line that is longer than `max_bytes`: read as much again.
        wanted = bytes.len();
    }
}

/// Reads to the end of a line. Returns the length of what was read, or `None` if the file ends before the line.
fn skip_line(file: &mut File) -> io::Result<Option<usize>> {
    let mut reader = BufReader::with_capacity(SKIP_BUFFER_BYTES, file);
    let mut skipped = 0;
    loop {
        let read = reader.fill_buf()?;
        if read.is_empty() {
            return Ok(None);
        }
        let end = read.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(read.len(), |at| at + 1);
        reader.consume(length);
        skipped += length;
        if end.is_some() {
            return Ok(Some(skipped));
        }
    }
}

/// Returns a session name for a transcript whose lines have none.
fn session_of_file(path: &Path, client: Option<RecordedClient>) -> String {
    let named = match client {
        Some(RecordedClient::Goose) => {
            path.file_stem().map(|stem| goose_session(&stem.to_string_lossy(), ""))
        }
        // `metadata.json` next to `transcript.jsonl`
        Some(RecordedClient::Entire) => neighbour(path, "metadata.json")
            .and_then(|metadata| Some(metadata["session_id"].as_str()?.to_owned())),
        _ => None,
    };
    named.filter(|name| !name.is_empty()).unwrap_or_else(|| session_of_path(path))
}

/// Reads a JSON file in the folder of a record.
pub(super) fn neighbour(path: &Path, name: &str) -> Option<Value> {
    let bytes = read_regular(&path.with_file_name(name), MAX_DESCRIPTION_BYTES).ok()?;
    if has_too_many_values(&bytes) {
        return None;
    }
    serde_json::from_slice(&bytes).ok()
}

/// Returns a session name for a transcript that has none: the file's name if it is an id, else the
/// name with a digest of its path, so that two files of one name are two sessions.
pub(super) fn session_of_path(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let is_id = stem.len() >= 32 && stem.bytes().filter(u8::is_ascii_digit).count() >= 4;
    if is_id {
        return stem;
    }
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let digest = TurnKey::of(&["transcript", &real.to_string_lossy()]).to_hex();
    format!("{stem}-{}", &digest[..8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn line(role: &str, id: &str, parent: &str, text: &str) -> String {
        serde_json::json!({
            "type": role, "uuid": id, "parentUuid": parent, "sessionId": "s", "cwd": "/w",
            "timestamp": "2026-01-02T03:04:05Z", "message": {"role": role, "content": text},
        })
        .to_string()
            + "\n"
    }

    fn texts(update: &TranscriptUpdate) -> Vec<&str> {
        update.turns.iter().map(|turn| turn.text.as_str()).collect()
    }

    fn read(path: &Path, mark: &mut TranscriptMark, partial_line: PartialLine) -> TranscriptUpdate {
        read_update(path, mark, ReadOptions { session: None, partial_line, max_bytes: 1 << 20 })
            .unwrap()
    }

    fn lagging(mark: &TranscriptMark, text: &str) -> Option<RawTurn> {
        mark.lagging_answer(text, None, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn read_update_returns_only_what_is_new() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let mut file = File::create(&path).unwrap();
        file.write_all(line("user", "u1", "", "one").as_bytes()).unwrap();
        let mut mark = TranscriptMark::default();
        assert_eq!(texts(&read(&path, &mut mark, PartialLine::Defer)), ["one"]);
        let told = lagging(&mark, "two").unwrap();
        let second = line("assistant", "a1", "u1", "two\n");
        file.write_all(&second.as_bytes()[..second.len() - 1]).unwrap();
        let before = mark.clone();
        assert_eq!(texts(&read(&path, &mut mark, PartialLine::Defer)), [""; 0]);
        assert_eq!(texts(&read(&path, &mut mark.clone(), PartialLine::Include)), ["two\n"]);
        assert_eq!(mark, before);
        file.write_all(b"\n").unwrap();
        let update = read(&path, &mut mark, PartialLine::Defer);
        assert_eq!((texts(&update), update.session.as_str()), (vec!["two\n"], "s"));
        assert_eq!(
            update.turns[0].answer, told.answer,
            "the record has the key that the hook gave it"
        );
        assert_eq!(lagging(&mark, "two"), None);
        // A stored mark knows as much; another file of the same name is new.
        let kept = serde_json::to_vec(&mark.without_secrets()).unwrap();
        let mut mark: TranscriptMark = serde_json::from_slice(&kept).unwrap();
        assert_eq!(lagging(&mark, "two "), None);
        std::fs::write(&path, line("user", "u9", "", "other") + &" ".repeat(900)).unwrap();
        assert_eq!(texts(&read(&path, &mut mark, PartialLine::Defer)), ["other"]);
    }

    #[test]
    fn last_line_without_its_end_is_put_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let shuffled = [
            line("user", "c3", "b2", "three"),
            line("user", "a1", "", "one"),
            line("assistant", "b2", "a1", "two"),
        ]
        .concat();
        std::fs::write(&path, &shuffled).unwrap();
        let expect = read_all(&path, None).unwrap();
        assert_eq!(texts(&expect), ["one", "two", "three"]);
        std::fs::write(&path, shuffled.trim_end()).unwrap();
        assert_eq!(read_all(&path, None).unwrap().turns, expect.turns);
        let mut mark = TranscriptMark::default();
        assert_eq!(texts(&read(&path, &mut mark, PartialLine::Include)), ["one", "two", "three"]);
        // Once the line has grown, it is read again with what follows.
        std::fs::write(&path, shuffled + &line("user", "d4", "c3", "four")).unwrap();
        assert_eq!(texts(&read(&path, &mut mark, PartialLine::Defer)), ["two", "four"]);
        // A line that is not complete yet is not read at all.
        std::fs::write(&path, line("user", "a1", "", "one") + "{\"type\":\"user\"").unwrap();
        let cut = read_all(&path, None).unwrap();
        assert_eq!((texts(&cut), cut.unreadable), (vec!["one"], 0));
    }

    #[test]
    fn turns_without_ids_are_numbered_by_occurrence() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let bare = |role: &str, text: &str| {
            format!("{{\"type\":\"{role}\",\"message\":{{\"content\":\"{text}\"}}}}\n")
        };
        let text = bare("user", "go") + &bare("assistant", "done") + &bare("user", "go");
        std::fs::write(&path, text).unwrap();
        let mut mark = TranscriptMark::default();
        let update = read(&path, &mut mark, PartialLine::Defer);
        assert_eq!(update.turns.iter().map(|turn| turn.n).collect::<Vec<_>>(), [1, 1, 2]);
        assert!(update.session.starts_with("t-"));
        // The second prompt's answer is the second of its kind, until it is there.
        assert_eq!(lagging(&mark, "done").unwrap().n, 2);
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(bare("assistant", "done").as_bytes()).unwrap();
        assert_eq!(read(&path, &mut mark, PartialLine::Defer).turns[0].n, 2);
        assert_eq!(lagging(&mark, "done"), None);
        assert_eq!(read_all(&path, Some("x")).unwrap().turns.len(), 4);
    }

    #[test]
    fn line_that_is_too_long_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let long = line("user", "u2", "u1", &"x".repeat(MAX_LINE_BYTES * 3 / 2));
        let (first, last) = (line("user", "u1", "", "one"), line("user", "u3", "u1", "three"));
        // It may still grow.
        std::fs::write(&path, format!("{first}{}", long.trim_end())).unwrap();
        let mut mark = TranscriptMark::default();
        let update = read(&path, &mut mark, PartialLine::Defer);
        assert_eq!((texts(&update), update.unreadable, update.more), (vec!["one"], 0, true));
        let update = read(&path, &mut mark, PartialLine::Defer);
        assert_eq!((texts(&update), update.unreadable, update.more), (vec![], 0, false));
        std::fs::write(&path, format!("{first}{long}{last}")).unwrap();
        let update = read(&path, &mut mark, PartialLine::Defer);
        assert_eq!((texts(&update), update.unreadable, update.more), (vec![], 1, true));
        let update = read(&path, &mut mark, PartialLine::Defer);
        assert_eq!((texts(&update), update.unreadable, update.more), (vec!["three"], 0, false));
        let all = read_all(&path, None).unwrap();
        assert_eq!((texts(&all), all.unreadable), (vec!["one", "three"], 1));
    }

    #[test]
    fn long_transcripts_are_read_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let lines: Vec<String> =
            (0..50).map(|n| line("user", &n.to_string(), "", &"x".repeat(n * 7))).collect();
        std::fs::write(&path, lines.concat()).unwrap();
        let all = read_all(&path, None).unwrap().turns;
        let (mut mark, mut found) = (TranscriptMark::default(), Vec::new());
        loop {
            let options =
                ReadOptions { session: None, partial_line: PartialLine::Include, max_bytes: 300 };
            let update = read_update(&path, &mut mark, options).unwrap();
            found.extend(update.turns);
            if !update.more {
                break;
            }
        }
        assert_eq!(found, all);
    }
}
