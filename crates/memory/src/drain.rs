//! Drains the folder of deferral files into the store, in the background, oldest first.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_domain::memory::{MaintenanceEvent, Principal};
use hob_domain::{StoreError, Timestamp};
use hob_files::{owned, read_regular};
use notify::{RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::capture::backlog::{failed_name, waiting_files};
use crate::capture::deferral::decode;
use crate::engine::Engine;

/// How many times a file is retried before it is set aside.
const MAX_RETRIES: u32 = 3;
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// How often the folder is polled without a notification of a change.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The largest file that is drained.
const MAX_FILE_BYTES: u64 = 512 << 20;
/// How long the store may take for the turns of one file.
const FILE_DEADLINE: Duration = Duration::from_secs(300);
/// A file that was written to more recently may not be complete.
const SETTLE_TIME: Duration = Duration::from_millis(150);
/// A temporary file that is older was left by a process that ended while it wrote.
const STALE_TEMPORARY_AGE: Duration = Duration::from_secs(600);

/// A task that drains one folder.
pub struct Drain {
    engine: Engine,
    folder: PathBuf,
    failures: HashMap<PathBuf, FileFailure>,
}

/// The failed attempts to drain a file.
struct FileFailure {
    attempts: u32,
    retry_at: Instant,
}

/// Why a file could not be drained.
enum DrainError {
    /// The file is at fault.
    File(String),
    /// The store may be at fault.
    Store(StoreError),
}

impl Drain {
    pub fn new(engine: Engine, folder: PathBuf) -> Drain {
        Drain { engine, folder, failures: HashMap::new() }
    }

    /// Drains until `stopping`: at once, whenever the folder changes, and when a retry is due.
    pub async fn run(mut self, stopping: CancellationToken) {
        let changed = Arc::new(Notify::new());
        let _watcher = self.watch(changed.clone());
        loop {
            let next = tokio::select! {
                next = self.pass(Instant::now()) => next,
                () = stopping.cancelled() => return,
            };
            tokio::select! {
                () = tokio::time::sleep(next.unwrap_or(POLL_INTERVAL).min(POLL_INTERVAL)) => {}
                () = changed.notified() => {}
                () = stopping.cancelled() => return,
            }
        }
    }

    fn watch(&self, changed: Arc<Notify>) -> Option<notify::RecommendedWatcher> {
        let tell = move |event: notify::Result<notify::Event>| {
            // Notifications include this task's own reads; only additions to the folder matter.
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
                tracing::warn!(%error, "failed to watch the folder of deferral files; polling it");
                None
            }
        }
    }

    /// Drains every file that is due. Returns the time until the next retry.
    pub async fn pass(&mut self, now: Instant) -> Option<Duration> {
        let mut unsettled = false;
        let folder = self.folder.clone();
        let files = on_file(move || Ok(look_through(&folder))).await.unwrap_or_default();
        let waiting: HashSet<PathBuf> = files.iter().map(|(_, path)| path.clone()).collect();
        self.failures.retain(|path, _| waiting.contains(path));
        for (is_being_written, path) in files {
            if is_being_written {
                unsettled = true;
                continue;
            }
            if self.failures.get(&path).is_some_and(|failure| failure.retry_at > now) {
                continue;
            }
            match self.drain(&path).await {
                Ok(()) => {
                    self.failures.remove(&path);
                }
                Err(error) => self.record_failure(path, error, now).await,
            }
        }
        let due = self.failures.values().map(|failure| failure.retry_at).min();
        let due = due.map(|due| due.saturating_duration_since(Instant::now()));
        let settled = unsettled.then_some(SETTLE_TIME);
        due.into_iter().chain(settled).min()
    }

    async fn drain(&self, path: &Path) -> Result<(), DrainError> {
        let file = path.to_owned();
        let content = match on_file(move || read_regular(&file, MAX_FILE_BYTES)).await {
            Ok(content) => content,
            // Another process has drained it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(DrainError::File(format!("cannot read it: {error}"))),
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !content.is_empty() {
            let deferred = decode(&content, &name, self.engine.opening_keys())
                .map_err(|error| DrainError::File(error.to_string()))?;
            if !deferred.batch.turns.is_empty() {
                let storing = self.engine.capture(&Principal::Owner, deferred.batch, Vec::new());
                let stored = tokio::time::timeout(FILE_DEADLINE, storing).await;
                let too_long = |_| StoreError::Unavailable("it did not answer in time".to_owned());
                let stored = stored.map_err(too_long).flatten().map_err(DrainError::Store)?;
                tracing::info!(
                    inserted = stored.inserted,
                    duplicates = stored.duplicates,
                    "drained a deferral file"
                );
            }
            if !deferred.bad_lines.is_empty() {
                let lines: Vec<String> =
                    deferred.bad_lines.iter().take(20).map(usize::to_string).collect();
                let detail = format!(
                    "{} lines of {name} could not be read and were skipped ({})",
                    deferred.bad_lines.len(),
                    lines.join(", ")
                );
                let _ = self.event("bad_lines", detail).await;
            }
        }
        let file = path.to_owned();
        match on_file(move || owned::remove_file(&file)).await {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(DrainError::File(format!("cannot remove it: {error}"))),
        }
    }

    /// Schedules the next attempt, or sets the file aside after the last one.
    async fn record_failure(&mut self, path: PathBuf, error: DrainError, now: Instant) {
        let attempts = self.failures.get(&path).map_or(0, |failure| failure.attempts) + 1;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (why, is_files_fault) = match error {
            DrainError::File(why) => (why, true),
            // A store that is locked or full says nothing about the file, which waits.
            DrainError::Store(error) => (error.to_string(), !error.is_temporary()),
        };
        tracing::warn!(name, attempts, "a deferral file could not be drained: {why}");
        let attempts = if is_files_fault { attempts } else { attempts.min(MAX_RETRIES) };
        if attempts > MAX_RETRIES {
            let detail = format!("{name} could not be stored in {attempts} attempts: {why}");
            if self.event("set_aside", detail).await.is_ok() {
                let aside = failed_name(&path, &name);
                let from = path.clone();
                match on_file(move || owned::rename(&from, &aside)).await {
                    Ok(()) => {
                        self.failures.remove(&path);
                        return;
                    }
                    Err(error) => {
                        tracing::error!(%error, name, "failed to set a deferral file aside")
                    }
                }
            }
        }
        let delay =
            FIRST_RETRY_DELAY.saturating_mul(1 << (attempts - 1).min(10)).min(MAX_RETRY_DELAY);
        self.failures.insert(path, FileFailure { attempts, retry_at: now + delay });
    }

    async fn event(&self, kind: &str, detail: String) -> Result<(), StoreError> {
        let event = MaintenanceEvent { at: Timestamp::now(), kind: kind.to_owned(), detail };
        self.engine.note_event(event).await
    }
}

/// Runs a call that may wait for the disk, away from the threads of the runtime.
async fn on_file<T: Send + 'static>(
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(call).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Returns the files that wait, oldest first, each with whether it may still be written. Removes temporary files that were
/// left.
fn look_through(folder: &Path) -> Vec<(bool, PathBuf)> {
    hob_files::remove_temporaries(folder, STALE_TEMPORARY_AGE);
    let files = waiting_files(folder).into_iter();
    files.map(|path| (is_being_written(&path), path)).collect()
}

/// Returns whether another program may still be writing a file. Hob's own files are complete when they
/// appear; those of others need not be.
fn is_being_written(path: &Path) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < SETTLE_TIME))
}
