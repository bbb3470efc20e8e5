//! Draining the folder of deferral files into the store, in the background, oldest first.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hob_domain::memory::{MaintenanceEvent, Principal};
use hob_domain::{StoreError, Timestamp};
use notify::{RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::capture::deferral::{BadFile, decode};
use crate::engine::Engine;

/// A file is tried once and then so many times more before it is set aside.
const RETRIES: u32 = 3;
const FIRST_DELAY: Duration = Duration::from_millis(500);
const LONGEST_DELAY: Duration = Duration::from_secs(60);
/// How often the folder is looked at without being told of a change.
const LOOK: Duration = Duration::from_secs(5);
/// A file that was written to more recently may not be whole.
const SETTLE: Duration = Duration::from_millis(150);
const SET_ASIDE: &str = ".failed.jsonl";

/// What waits in the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    pub files: usize,
    pub bytes: u64,
    /// Files that were set aside.
    pub failed: usize,
}

/// Counts the folder's files.
pub fn backlog(folder: &Path) -> Backlog {
    let mut backlog = Backlog::default();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(SET_ASIDE) {
            backlog.failed += 1;
        } else if name.ends_with(".jsonl") {
            backlog.files += 1;
            backlog.bytes += entry.metadata().map_or(0, |metadata| metadata.len());
        }
    }
    backlog
}

/// About how many turns wait: the lines of the files, of very many bytes only the first.
pub fn waiting_turns(folder: &Path) -> usize {
    let mut left: u64 = 16 << 20;
    let mut turns = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(SET_ASIDE) || !name.ends_with(".jsonl") || left == 0 {
            continue;
        }
        let Ok(file) = fs::File::open(entry.path()) else { continue };
        let mut text = Vec::new();
        let read = file.take(left).read_to_end(&mut text).unwrap_or_default();
        left = left.saturating_sub(read as u64);
        // The first line is about the file.
        turns += text.iter().filter(|byte| **byte == b'\n').count().saturating_sub(1);
    }
    turns
}

/// Drains one folder.
pub struct Drain {
    engine: Engine,
    folder: PathBuf,
    failures: HashMap<PathBuf, Failure>,
}

struct Failure {
    attempts: u32,
    again: Instant,
}

/// Why a file could not be drained.
enum Trouble {
    /// It is the file.
    File(String),
    /// It may be the store.
    Store(StoreError),
}

impl Drain {
    pub fn new(engine: Engine, folder: PathBuf) -> Drain {
        Drain { engine, folder, failures: HashMap::new() }
    }

    /// Drains until told to stop: at once, whenever the folder changes, and when a retry is due.
    pub async fn run(mut self, stopping: CancellationToken) {
        let changed = Arc::new(Notify::new());
        let _watcher = self.watch(changed.clone());
        loop {
            let next = tokio::select! {
                next = self.pass(Instant::now()) => next,
                () = stopping.cancelled() => return,
            };
            tokio::select! {
                () = tokio::time::sleep(next.unwrap_or(LOOK).min(LOOK)) => {}
                () = changed.notified() => {}
                () = stopping.cancelled() => return,
            }
        }
    }

    fn watch(&self, changed: Arc<Notify>) -> Option<notify::RecommendedWatcher> {
        let tell = move |event: notify::Result<notify::Event>| {
            // Our own reading is told as well; only what comes into the folder matters.
            if event.is_ok_and(|event| event.kind.is_create() || event.kind.is_modify()) {
                changed.notify_one();
            }
        };
        let watched = notify::recommended_watcher(tell).and_then(|mut watcher| {
            watcher.watch(&self.folder, RecursiveMode::NonRecursive).map(|()| watcher)
        });
        match watched {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                tracing::warn!(%error, "the folder of deferred captures cannot be watched");
                None
            }
        }
    }

    /// Drains every file that is due. Returns after how long the next retry is due.
    pub async fn pass(&mut self, now: Instant) -> Option<Duration> {
        let mut unsettled = false;
        for path in waiting(&self.folder) {
            if is_being_written(&path) {
                unsettled = true;
                continue;
            }
            if self.failures.get(&path).is_some_and(|failure| failure.again > now) {
                continue;
            }
            match self.drain(&path).await {
                Ok(()) => {
                    self.failures.remove(&path);
                }
                Err(trouble) => self.failed(path, trouble, now).await,
            }
        }
        self.failures.retain(|path, _| fs::symlink_metadata(path).is_ok());
        let due = self.failures.values().map(|failure| failure.again).min();
        let due = due.map(|due| due.saturating_duration_since(Instant::now()));
        let settled = unsettled.then_some(SETTLE);
        due.into_iter().chain(settled).min()
    }

    async fn drain(&self, path: &Path) -> Result<(), Trouble> {
        // Reading a pipe would wait for whoever writes to it.
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) => return Err(Trouble::File("it is not a file".to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(Trouble::File(format!("it cannot be read: {error}"))),
        }
        let content = match fs::read(path) {
            Ok(content) => content,
            // Somebody else has drained it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(Trouble::File(format!("it cannot be read: {error}"))),
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !content.is_empty() {
            let deferred = decode(&content, &name, self.engine.opening_keys())
                .map_err(|error: BadFile| Trouble::File(error.to_string()))?;
            if !deferred.batch.turns.is_empty() {
                let stored =
                    self.engine.capture(&Principal::Owner, deferred.batch, Vec::new()).await;
                let stored = stored.map_err(Trouble::Store)?;
                tracing::info!(
                    inserted = stored.inserted,
                    duplicates = stored.duplicates,
                    "drained a deferred capture"
                );
            }
            if !deferred.bad_lines.is_empty() {
                let lines: Vec<String> =
                    deferred.bad_lines.iter().take(20).map(usize::to_string).collect();
                let detail = format!(
                    "{} lines of {name} could not be read and were left out ({})",
                    deferred.bad_lines.len(),
                    lines.join(", ")
                );
                let _ = self.event("bad_lines", detail).await;
            }
        }
        match fs::remove_file(path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Trouble::File(format!("it cannot be removed: {error}"))),
        }
    }

    async fn failed(&mut self, path: PathBuf, trouble: Trouble, now: Instant) {
        let attempts = self.failures.get(&path).map_or(0, |failure| failure.attempts) + 1;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (why, is_files_fault) = match trouble {
            Trouble::File(why) => (why, true),
            // A store that is locked or full says nothing about the file; it waits.
            Trouble::Store(error) => (error.to_string(), !error.is_temporary()),
        };
        tracing::warn!(name, attempts, "a deferred capture could not be drained: {why}");
        let attempts = if is_files_fault { attempts } else { attempts.min(RETRIES) };
        if attempts > RETRIES {
            let detail = format!("{name} was set aside after {attempts} attempts: {why}");
            if self.event("set_aside", detail).await.is_ok() {
                let aside = free_name(&path, &name);
                match fs::rename(&path, &aside) {
                    Ok(()) => {
                        self.failures.remove(&path);
                        return;
                    }
                    Err(error) => tracing::error!(%error, name, "it cannot be set aside"),
                }
            }
        }
        let delay = FIRST_DELAY.saturating_mul(1 << (attempts - 1).min(10)).min(LONGEST_DELAY);
        self.failures.insert(path, Failure { attempts, again: now + delay });
    }

    async fn event(&self, kind: &str, detail: String) -> Result<(), StoreError> {
        let event = MaintenanceEvent { at: Timestamp::now(), kind: kind.to_owned(), detail };
        self.engine.note_event(event).await
    }
}

/// A name for a file that is set aside; an earlier one is never replaced.
fn free_name(path: &Path, name: &str) -> PathBuf {
    let stem = name.strip_suffix(".jsonl").unwrap_or(name);
    let named = |n: u32| match n {
        0 => path.with_file_name(format!("{stem}{SET_ASIDE}")),
        n => path.with_file_name(format!("{stem}-{n}{SET_ASIDE}")),
    };
    (0..).map(named).find(|path| fs::symlink_metadata(path).is_err()).unwrap_or_else(|| named(0))
}

/// Whether somebody may still be at it. Hob's own files are whole when they appear, others' need not be.
fn is_being_written(path: &Path) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < SETTLE))
}

/// The files that wait, oldest first.
fn waiting(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".jsonl") && !name.ends_with(SET_ASIDE) {
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            files.push((modified.unwrap_or(SystemTime::UNIX_EPOCH), path));
        }
    }
    files.sort();
    files.into_iter().map(|(_, path)| path).collect()
}
