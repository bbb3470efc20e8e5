//! Reads a growing transcript: on file notifications, with polling as the fallback.

use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hob_domain::json_size::has_too_many_values;
use hob_transcript::claude::LiveRecord;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::watch;

use super::transcript_file::TranscriptFile;

/// How much is read at a time. Longer records are skipped.
pub const MAX_READ_BYTES: usize = 8 << 20;
/// A record of more than this is an error: the file is no transcript.
const MAX_SKIPPED_BYTES: u64 = 128 << 20;
/// How much is read without a permit.
pub const SHORT_READ_BYTES: usize = 32 << 10;

/// A reader of the records that are appended to a file.
#[derive(Debug)]
pub struct TranscriptTail {
    file: TranscriptFile,
    /// Where the next record begins.
    offset: u64,
    /// How far the file has been read. It may end with a part of a record, which is read again.
    seen: u64,
    /// How much was skipped of a record that is too long to be read.
    skipped: u64,
}

/// What was appended to a transcript.
#[derive(Debug)]
pub enum Appended {
    Nothing,
    /// More than may be read.
    Long,
    Records(Vec<LiveRecord>),
}

impl TranscriptTail {
    /// Starts at the current end of the file, or at 0 if it does not exist yet.
    pub fn at_end(file: TranscriptFile) -> TranscriptTail {
        let length = file.open().and_then(|file| file.metadata()).map(|metadata| metadata.len());
        let offset = length.unwrap_or_default();
        TranscriptTail { file, offset, seen: offset, skipped: 0 }
    }

    /// Reads the records of complete lines since the last call. Call it until nothing was appended. A partial
    /// line waits for its rest; lines that are not records are skipped. If there is more than `limit` bytes,
    /// nothing is read, unless the limit is [`MAX_READ_BYTES`].
    pub fn read(&mut self, limit: usize) -> io::Result<Appended> {
        let mut file = match self.file.open() {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Appended::Nothing),
            Err(error) => return Err(error),
        };
        let length = file.metadata()?.len();
        if length <= self.seen {
            return Ok(Appended::Nothing);
        }
        if length - self.offset > limit as u64 && limit < MAX_READ_BYTES {
            return Ok(Appended::Long);
        }
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.take(limit as u64).read_to_end(&mut bytes)?;
        self.seen = self.offset + bytes.len() as u64;
        let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if complete == 0 && (bytes.len() == MAX_READ_BYTES || self.skipped > 0) {
            return self.skip(bytes.len() as u64);
        }
        self.offset += complete as u64;
        let mut lines = &bytes[..complete];
        if std::mem::take(&mut self.skipped) > 0 {
            // These bytes are the end of the record that was skipped.
            let end = lines.iter().position(|byte| *byte == b'\n').map_or(complete, |at| at + 1);
            lines = &lines[end..];
        }
        Ok(Appended::Records(records(lines)))
    }

    /// Skips a part of a record that is too long to be read, such as a large picture.
    fn skip(&mut self, bytes: u64) -> io::Result<Appended> {
        if self.skipped == 0 {
            tracing::warn!(
                "skipping a record of a transcript: it has more than {MAX_READ_BYTES} bytes"
            );
        }
        self.offset += bytes;
        self.skipped += bytes;
        if self.skipped > MAX_SKIPPED_BYTES {
            let text =
                format!("the transcript has a record of more than {MAX_SKIPPED_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        Ok(Appended::Records(Vec::new()))
    }
}

fn records(lines: &[u8]) -> Vec<LiveRecord> {
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| {
        let is_too_large = has_too_many_values(line);
        if is_too_large {
            tracing::warn!("skipped a record of a transcript: its JSON has too many values");
        }
        !is_too_large
    });
    lines.filter_map(|line| LiveRecord::parse(&String::from_utf8_lossy(line))).collect()
}

/// Notifies about changes in watched folders. Clones share it.
#[derive(Clone)]
pub struct TranscriptWatcher {
    inner: Arc<WatcherState>,
}

struct WatcherState {
    /// `None` if the system provides no notifications. Callers poll then.
    watcher: Option<Mutex<WatchedFolders>>,
    changed: watch::Receiver<u64>,
}

struct WatchedFolders {
    watcher: RecommendedWatcher,
    folders: HashMap<PathBuf, usize>,
}

/// A watch on one folder. Dropping it ends the watch.
pub struct FolderWatch {
    changes: TranscriptWatcher,
    folder: PathBuf,
}

impl TranscriptWatcher {
    /// Starts the file notifications. Without them, readers poll.
    pub fn start() -> TranscriptWatcher {
        let (sender, changed) = watch::channel(0u64);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Opening and reading are events too; Hob's own reads must not wake its readers.
            if !event.is_ok_and(|event| event.kind.is_access()) {
                sender.send_modify(|n| *n += 1);
            }
        });
        if let Err(error) = &watcher {
            tracing::warn!(%error, "file notifications are unavailable; polling transcripts");
        }
        let watcher = watcher
            .ok()
            .map(|watcher| Mutex::new(WatchedFolders { watcher, folders: HashMap::new() }));
        TranscriptWatcher { inner: Arc::new(WatcherState { watcher, changed }) }
    }

    /// Watches a folder, which must exist, until the returned value is dropped.
    pub fn watch(&self, folder: &Path) -> FolderWatch {
        if let Some(watched) = &self.inner.watcher {
            let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
            let count = watched.folders.entry(folder.to_owned()).or_default();
            *count += 1;
            if *count == 1
                && let Err(error) = watched.watcher.watch(folder, RecursiveMode::NonRecursive)
            {
                tracing::warn!(%error, "failed to watch a transcript folder; polling it");
            }
        }
        FolderWatch { changes: self.clone(), folder: folder.to_owned() }
    }
}

impl FolderWatch {
    /// Returns a receiver that wakes up on any change.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changes.inner.changed.clone()
    }
}

impl Drop for FolderWatch {
    fn drop(&mut self) {
        if let Some(watched) = &self.changes.inner.watcher {
            let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(count) = watched.folders.get_mut(&self.folder) else { return };
            *count -= 1;
            if *count == 0 {
                watched.folders.remove(&self.folder);
                let _ = watched.watcher.unwatch(&self.folder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claude::config::ConfigFolder;
    use std::fs::File;
    use std::io::Write;

    #[test]
    fn partial_lines_wait_for_their_rest() {
        let folder = tempfile::tempdir().unwrap();
        let (transcript, mut file) = new_transcript(folder.path());
        let mut tail = TranscriptTail::at_end(transcript.clone());
        assert!(matches!(tail.read(MAX_READ_BYTES).unwrap(), Appended::Nothing));
        let line = "{\"type\":\"user\",\"uuid\":\"ü\",\"message\":{\"content\":\"x\"}}\n";
        for byte in line.as_bytes() {
            assert!(read_records(&mut tail).is_empty());
            file.write_all(&[*byte]).unwrap();
        }
        assert_eq!(read_records(&mut tail)[0].uuid.as_deref(), Some("ü"));
        file.write_all(b"garbage\n{\"type\":\"mode\"}\n").unwrap();
        assert_eq!(read_records(&mut tail).len(), 1);
        let mut end = TranscriptTail::at_end(transcript);
        assert!(read_records(&mut end).is_empty(), "starts at the end");
    }

    #[test]
    fn long_parts_are_read_in_bounded_steps() {
        let folder = tempfile::tempdir().unwrap();
        let (transcript, mut file) = new_transcript(folder.path());
        let mut tail = TranscriptTail::at_end(transcript);
        let line = format!("{{\"type\":\"user\",\"x\":\"{}\"}}\n", "x".repeat(5 << 20));
        let values = format!("{{\"type\":\"user\",\"x\":[{}0]}}\n", "{},".repeat(1 << 20));
        for line in [&line, &values, &line] {
            file.write_all(line.as_bytes()).unwrap();
        }
        assert!(matches!(tail.read(SHORT_READ_BYTES).unwrap(), Appended::Long));
        let counts: Vec<usize> = (0..4).map(|_| read_records(&mut tail).len()).collect();
        assert_eq!(counts.iter().sum::<usize>(), 2, "{counts:?}");
        assert!(counts.iter().all(|count| *count < 2), "{counts:?}");
    }

    fn read_records(tail: &mut TranscriptTail) -> Vec<LiveRecord> {
        match tail.read(MAX_READ_BYTES).unwrap() {
            Appended::Records(records) => records,
            Appended::Nothing => Vec::new(),
            Appended::Long => panic!("the limit is the largest"),
        }
    }

    #[test]
    fn an_endless_record_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let (transcript, file) = new_transcript(folder.path());
        let mut tail = TranscriptTail::at_end(transcript);
        // It has a size, but takes no place on the disk.
        file.set_len(9 << 30).unwrap();
        let steps = MAX_SKIPPED_BYTES as usize / MAX_READ_BYTES;
        for _ in 0..steps {
            assert!(read_records(&mut tail).is_empty());
        }
        let error = tail.read(MAX_READ_BYTES).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn long_record_is_skipped_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let (transcript, mut file) = new_transcript(folder.path());
        let mut tail = TranscriptTail::at_end(transcript);
        let record = |id: &str, length: usize| {
            format!("{{\"type\":\"user\",\"uuid\":\"{id}\",\"x\":\"{}\"}}\n", "x".repeat(length))
        };
        for (id, length) in [("a", 1), ("picture", 2 * MAX_READ_BYTES + 9), ("b", 1)] {
            file.write_all(record(id, length).as_bytes()).unwrap();
        }
        let found: Vec<String> =
            (0..6).flat_map(|_| read_records(&mut tail)).filter_map(|record| record.uuid).collect();
        assert_eq!(found, ["a", "b"]);
    }

    fn new_transcript(folder: &Path) -> (TranscriptFile, File) {
        let config = ConfigFolder::Own(folder.to_owned());
        let transcript = TranscriptFile::new(&config, Path::new("/w"), "t");
        transcript.create("").unwrap();
        let file = File::options().append(true).open(transcript.path()).unwrap();
        (transcript, file)
    }
}
