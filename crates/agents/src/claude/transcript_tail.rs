//! Reads a growing transcript: on file notifications, with polling as the fallback.

use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hob_transcript::claude::LiveRecord;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::watch;

use super::transcript_file::TranscriptFile;

/// How much is read at a time. No record may be longer.
const MAX_READ_BYTES: usize = 32 << 20;

/// A reader of the records that are appended to a file.
#[derive(Debug)]
pub struct TranscriptTail {
    file: TranscriptFile,
    offset: u64,
    partial: Vec<u8>,
}

impl TranscriptTail {
    /// Starts at the current end of the file, or at 0 if it does not exist yet.
    pub fn at_end(file: TranscriptFile) -> TranscriptTail {
        let length = file.open().and_then(|file| file.metadata()).map(|metadata| metadata.len());
        TranscriptTail { file, offset: length.unwrap_or_default(), partial: Vec::new() }
    }

    /// Returns records of complete lines since the last call, or `None` if nothing was appended. Call it
    /// until it does. A partial line waits for its rest; lines that are not records are skipped.
    pub fn read(&mut self) -> io::Result<Option<Vec<LiveRecord>>> {
        let mut file = match self.file.open() {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if file.metadata()?.len() <= self.offset {
            return Ok(None);
        }
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = std::mem::take(&mut self.partial);
        let kept = bytes.len();
        file.take((MAX_READ_BYTES - kept) as u64).read_to_end(&mut bytes)?;
        self.offset += (bytes.len() - kept) as u64;
        let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.partial = bytes.split_off(complete);
        if self.partial.len() == MAX_READ_BYTES {
            let text = format!("the transcript has a record of more than {MAX_READ_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        let lines = bytes.split(|byte| *byte == b'\n').map(String::from_utf8_lossy);
        Ok(Some(lines.filter_map(|line| LiveRecord::parse(&line)).collect()))
    }
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
        assert!(tail.read().unwrap().is_none());
        let line = "{\"type\":\"user\",\"uuid\":\"ü\",\"message\":{\"content\":\"x\"}}\n";
        for byte in line.as_bytes() {
            assert!(tail.read().unwrap().unwrap_or_default().is_empty());
            file.write_all(&[*byte]).unwrap();
        }
        assert_eq!(tail.read().unwrap().unwrap()[0].uuid.as_deref(), Some("ü"));
        file.write_all(b"garbage\n{\"type\":\"mode\"}\n").unwrap();
        assert_eq!(tail.read().unwrap().unwrap().len(), 1);
        assert!(TranscriptTail::at_end(transcript).read().unwrap().is_none(), "starts at the end");
    }

    #[test]
    fn an_endless_record_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let (transcript, file) = new_transcript(folder.path());
        let mut tail = TranscriptTail::at_end(transcript);
        // It has a size, but takes no place on the disk.
        file.set_len(9 << 30).unwrap();
        assert_eq!(tail.read().unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    fn new_transcript(folder: &Path) -> (TranscriptFile, File) {
        let config = ConfigFolder::Own(folder.to_owned());
        let transcript = TranscriptFile::new(&config, Path::new("/w"), "t");
        transcript.create("").unwrap();
        let file = File::options().append(true).open(transcript.path()).unwrap();
        (transcript, file)
    }
}
