//! Reads a growing transcript: on file notifications, with polling as the fallback.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hob_transcript::claude::LiveRecord;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::watch;

/// A reader of the records that are appended to a file.
#[derive(Debug)]
pub struct TranscriptTail {
    path: PathBuf,
    offset: u64,
    partial: Vec<u8>,
}

impl TranscriptTail {
    /// Starts at the current end of the file, or at 0 if it does not exist yet.
    pub fn at_end(path: PathBuf) -> TranscriptTail {
        let offset = std::fs::metadata(&path).map(|metadata| metadata.len()).unwrap_or_default();
        TranscriptTail { path, offset, partial: Vec::new() }
    }

    /// Returns the records of the complete lines since the last call. A partial line waits for its rest;
    /// lines that are not records are skipped.
    pub fn read(&mut self) -> io::Result<Vec<LiveRecord>> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        if file.metadata()?.len() <= self.offset {
            return Ok(Vec::new());
        }
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = std::mem::take(&mut self.partial);
        let kept = bytes.len();
        file.read_to_end(&mut bytes)?;
        self.offset += (bytes.len() - kept) as u64;
        let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.partial = bytes.split_off(complete);
        let lines = bytes.split(|byte| *byte == b'\n').map(String::from_utf8_lossy);
        Ok(lines.filter_map(|line| LiveRecord::parse(&line)).collect())
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
    use std::io::Write;

    #[test]
    fn partial_lines_wait_for_their_rest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let mut tail = TranscriptTail::at_end(path.clone());
        assert!(tail.read().unwrap().is_empty());
        let mut file = File::create(&path).unwrap();
        let line = "{\"type\":\"user\",\"uuid\":\"ü\",\"message\":{\"content\":\"x\"}}\n";
        for byte in line.as_bytes() {
            assert!(tail.read().unwrap().is_empty());
            file.write_all(&[*byte]).unwrap();
        }
        assert_eq!(tail.read().unwrap()[0].uuid.as_deref(), Some("ü"));
        file.write_all(b"garbage\n{\"type\":\"mode\"}\n").unwrap();
        assert_eq!(tail.read().unwrap().len(), 1);
        assert!(TranscriptTail::at_end(path).read().unwrap().is_empty(), "starts at the end");
    }
}
