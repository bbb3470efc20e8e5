//! Reads a transcript as it grows: on notification, with polling as the fallback.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hob_transcript::claude::LiveRecord;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::watch;

/// The new records of one file since an offset.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    offset: u64,
    partial: Vec<u8>,
}

impl Tail {
    /// Begins at the file's present end; at 0 when it is not there yet.
    pub fn at_end(path: PathBuf) -> Tail {
        let offset = std::fs::metadata(&path).map(|metadata| metadata.len()).unwrap_or_default();
        Tail { path, offset, partial: Vec::new() }
    }

    /// The complete lines that came since the last call. A torn line waits for its rest; lines that
    /// are no records are left out.
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

/// Tells that some file in some watched folder has changed. Cloning shares it.
#[derive(Clone)]
pub struct Changes {
    inner: Arc<Inner>,
}

struct Inner {
    /// `None` where the system gives no notifications; then everybody polls.
    watcher: Option<Mutex<Watched>>,
    changed: watch::Receiver<u64>,
}

struct Watched {
    watcher: RecommendedWatcher,
    folders: HashMap<PathBuf, usize>,
}

/// A watched folder; dropping it ends the watch.
pub struct Watch {
    changes: Changes,
    folder: PathBuf,
}

impl Changes {
    pub fn new() -> Changes {
        let (sender, changed) = watch::channel(0u64);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Opening and reading are events too: our own reads must not wake us.
            if !event.is_ok_and(|event| event.kind.is_access()) {
                sender.send_modify(|n| *n += 1);
            }
        });
        if let Err(error) = &watcher {
            tracing::warn!(%error, "no file notifications; transcripts are polled");
        }
        let watcher =
            watcher.ok().map(|watcher| Mutex::new(Watched { watcher, folders: HashMap::new() }));
        Changes { inner: Arc::new(Inner { watcher, changed }) }
    }

    /// Watches a folder, which must exist, until the returned value is dropped.
    pub fn watch(&self, folder: &Path) -> Watch {
        if let Some(watched) = &self.inner.watcher {
            let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
            let count = watched.folders.entry(folder.to_owned()).or_default();
            *count += 1;
            if *count == 1
                && let Err(error) = watched.watcher.watch(folder, RecursiveMode::NonRecursive)
            {
                tracing::warn!(%error, "a folder of transcripts is polled");
            }
        }
        Watch { changes: self.clone(), folder: folder.to_owned() }
    }
}

impl Watch {
    /// Something that wakes up when anything changes.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changes.inner.changed.clone()
    }
}

impl Drop for Watch {
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
    fn torn_lines_wait_for_their_rest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let mut tail = Tail::at_end(path.clone());
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
        assert!(Tail::at_end(path).read().unwrap().is_empty(), "begins at the end");
    }
}
