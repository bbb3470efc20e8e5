//! Drains the folder of deferral files into the store, in the background, oldest first.
//!
//! A file that was tried once without success is then tried next to the others. While a file is tried, a file next to it
//! counts the attempts at which a process ended: a file that ends the server again and again is found by that count.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use hob_domain::memory::{MaintenanceEvent, Principal};
use hob_domain::{StoreError, Timestamp};
use hob_files::{owned, read_regular};
use notify::{RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::capture::attempt_file::AttemptFile;
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
/// A file is set aside after this many attempts at which the process ended.
const MAX_ENDS: u32 = 4;
/// How long after a start a file is tried at which a process ended once. With each further end it waits this much longer:
/// a server that is killed often for other reasons must not count ends.
const PAUSE_AFTER_END: Duration = Duration::from_secs(5);
/// How many files are tried next to the others at a time.
const MAX_BESIDE: usize = 2;
/// How long the first attempt to store the turns of a file may take, in addition to what its size takes. Each later
/// attempt may take this much longer.
const FILE_DEADLINE: Duration = Duration::from_secs(15);
/// How many bytes of a file add a second to its deadline.
const BYTES_PER_SECOND: u64 = 256 << 10;
/// A file that was written to more recently may not be complete.
const SETTLE_TIME: Duration = Duration::from_millis(150);
/// A temporary file that is older was left by a process that ended while it wrote.
const STALE_TEMPORARY_AGE: Duration = Duration::from_secs(600);

/// A task that drains one folder.
pub struct Drain {
    folder: PathBuf,
    failures: HashMap<PathBuf, FileFailure>,
    /// The files that are tried next to the others, and what has become of them.
    beside: JoinSet<(PathBuf, Result<(), DrainError>)>,
    files: FileDrain,
    pause_after_end: Duration,
}

/// What drains a file.
#[derive(Clone)]
struct FileDrain {
    engine: Engine,
    deadline: Duration,
}

/// The failed attempts to drain a file.
#[derive(Clone, Copy, Default)]
struct FileFailure {
    attempts: u32,
    /// How often an earlier process has ended during an attempt.
    ends: u32,
    /// `None` while the file is tried.
    retry_at: Option<Instant>,
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
        let files = FileDrain { engine, deadline: FILE_DEADLINE };
        let (failures, beside) = (HashMap::new(), JoinSet::new());
        Drain { folder, failures, beside, files, pause_after_end: PAUSE_AFTER_END }
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
                Some(tried) = self.beside.join_next() => {
                    if let Ok((path, result)) = tried {
                        self.note_result(path, result).await;
                    }
                }
                () = changed.notified() => {}
                () = stopping.cancelled() => return,
            }
        }
    }

    /// Drains what can be drained now: every file is tried once.
    pub async fn drain_once(mut self) {
        self.pause_after_end = Duration::ZERO;
        self.pass(Instant::now()).await;
        while let Some(tried) = self.beside.join_next().await {
            if let Ok((path, result)) = tried {
                self.note_result(path, result).await;
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

    /// Drains every file that is due, or begins to. Returns the time until the next retry.
    async fn pass(&mut self, now: Instant) -> Option<Duration> {
        let mut unsettled = false;
        let folder = self.folder.clone();
        let files = on_file(move || Ok(look_through(&folder))).await.unwrap_or_default();
        let waiting: HashSet<PathBuf> = files.iter().map(|(_, path)| path.clone()).collect();
        self.failures.retain(|path, failure| failure.retry_at.is_none() || waiting.contains(path));
        for (is_being_written, path) in files {
            if is_being_written {
                unsettled = true;
                continue;
            }
            let Some(failure) = self.failures.get(&path) else {
                self.try_first(path).await;
                continue;
            };
            let is_due = failure.retry_at.is_some_and(|at| at <= now);
            if is_due && self.beside.len() < MAX_BESIDE {
                self.try_beside(path);
            }
        }
        let due = self.failures.values().filter_map(|failure| failure.retry_at).min();
        let due = due.map(|due| due.saturating_duration_since(Instant::now()));
        // A file that is due waits for others that are tried; the end of one of them begins the next pass.
        let due = due.filter(|_| self.beside.len() < MAX_BESIDE);
        let settled = unsettled.then_some(SETTLE_TIME);
        due.into_iter().chain(settled).min()
    }

    /// Tries a file for the first time; next to the others, and later, if earlier processes ended while they tried it.
    async fn try_first(&mut self, path: PathBuf) {
        let file = path.clone();
        let ends = on_file(move || Ok(AttemptFile::ends(&file))).await.unwrap_or_default();
        if ends == 0 {
            let result = self.files.drain(&path, FileFailure::default()).await;
            self.note_result(path, result).await;
            return;
        }
        let is_last = ends >= MAX_ENDS;
        let attempts = if is_last { MAX_RETRIES } else { 0 };
        let retry_at = Some(Instant::now() + self.pause_after_end * ends);
        self.failures.insert(path.clone(), FileFailure { attempts, ends, retry_at });
        if is_last {
            let why = "the server ended while it was being stored".to_owned();
            self.record_failure(path, DrainError::File(why)).await;
        } else if self.pause_after_end.is_zero() {
            self.try_beside(path);
        }
    }

    fn try_beside(&mut self, path: PathBuf) {
        let Some(failure) = self.failures.get_mut(&path) else { return };
        failure.retry_at = None;
        let (files, earlier) = (self.files.clone(), *failure);
        self.beside.spawn(async move {
            let result = files.drain(&path, earlier).await;
            (path, result)
        });
    }

    async fn note_result(&mut self, path: PathBuf, result: Result<(), DrainError>) {
        match result {
            Ok(()) => {
                self.failures.remove(&path);
            }
            Err(error) => self.record_failure(path, error).await,
        }
    }

    /// Schedules the next attempt, or sets the file aside after the last one.
    async fn record_failure(&mut self, path: PathBuf, error: DrainError) {
        let earlier = self.failures.get(&path).copied().unwrap_or_default();
        let attempts = earlier.attempts + 1;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (why, is_files_fault) = match error {
            DrainError::File(why) => (why, true),
            // A store that is locked, full or damaged says nothing about the file, which waits.
            DrainError::Store(error) => (error.to_string(), !error.is_of_the_store()),
        };
        tracing::warn!(name, attempts, "a deferral file could not be drained: {why}");
        let attempts = if is_files_fault { attempts } else { attempts.min(MAX_RETRIES) };
        if attempts > MAX_RETRIES {
            let detail = format!("{name} could not be stored in {attempts} attempts: {why}");
            if self.files.event("set_aside", detail).await.is_ok() {
                let aside = failed_name(&path, &name);
                let from = path.clone();
                match on_file(move || owned::rename(&from, &aside)).await {
                    Ok(()) => {
                        let file = path.clone();
                        let _ = on_file(move || {
                            AttemptFile::forget(&file);
                            Ok(())
                        })
                        .await;
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
        let retry_at = Some(Instant::now() + delay);
        self.failures.insert(path, FileFailure { attempts, retry_at, ..earlier });
    }
}

impl FileDrain {
    /// Stores the turns of a file and removes it. A panic is the file's fault, and does not end the drain.
    async fn drain(&self, path: &Path, earlier: FileFailure) -> Result<(), DrainError> {
        let drained = AssertUnwindSafe(self.store_and_remove(path, earlier)).catch_unwind().await;
        drained.unwrap_or_else(|_| Err(DrainError::File("it ends with a panic".to_owned())))
    }

    async fn store_and_remove(&self, path: &Path, earlier: FileFailure) -> Result<(), DrainError> {
        let file = path.to_owned();
        let content = match on_file(move || read_regular(&file, MAX_FILE_BYTES)).await {
            Ok(content) => content,
            // Another process has drained it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(DrainError::File(format!("cannot read it: {error}"))),
        };
        let size = Duration::from_secs(content.len() as u64 / BYTES_PER_SECOND);
        let deadline = self.deadline * (earlier.attempts + 1) + size;
        let file = path.to_owned();
        // The count is removed when the attempt ends, in whatever way; a process that is killed leaves it.
        let attempt = on_file(move || Ok(AttemptFile::begin(&file, earlier.ends + 1))).await;
        match tokio::time::timeout(deadline, self.store(path, content)).await {
            Ok(stored) => stored?,
            Err(_) => return Err(self.late(path).await),
        }
        let file = path.to_owned();
        let removed = on_file(move || {
            drop(attempt);
            owned::remove_file(&file)
        });
        match removed.await {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(DrainError::File(format!("cannot remove it: {error}"))),
        }
    }

    /// Returns who is at fault that a file was not stored in time: the file, if the store takes something else.
    async fn late(&self, path: &Path) -> DrainError {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match self.event("slow", format!("{name} could not be stored in time")).await {
            Ok(()) => DrainError::File("it takes too long".to_owned()),
            Err(error) => DrainError::Store(error),
        }
    }

    async fn store(&self, path: &Path, content: Vec<u8>) -> Result<(), DrainError> {
        if content.is_empty() {
            return Ok(());
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (engine, file) = (self.engine.clone(), name.clone());
        let decoded = on_file(move || Ok(decode(&content, &file, engine.opening_keys()))).await;
        let deferred = decoded
            .map_err(|error| DrainError::File(error.to_string()))?
            .map_err(|error| DrainError::File(error.to_string()))?;
        if !deferred.batch.turns.is_empty() {
            let stored = self.engine.capture(&Principal::Owner, deferred.batch, Vec::new()).await;
            let stored = stored.map_err(DrainError::Store)?;
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
        Ok(())
    }

    async fn event(&self, kind: &str, detail: String) -> Result<(), StoreError> {
        let event = MaintenanceEvent { at: Timestamp::now(), kind: kind.to_owned(), detail };
        let noted = tokio::time::timeout(self.deadline, self.engine.note_event(event)).await;
        let late = || StoreError::Unavailable("it did not answer in time".to_owned());
        noted.unwrap_or_else(|_| Err(late()))
    }
}

/// Runs a call that may wait for the disk, away from the threads of the runtime.
async fn on_file<T: Send + 'static>(
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(call).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Returns the files that wait, oldest first, each with whether it may still be written. Removes temporary files and counts
/// of attempts that were left.
fn look_through(folder: &Path) -> Vec<(bool, PathBuf)> {
    hob_files::remove_temporaries(folder, STALE_TEMPORARY_AGE);
    AttemptFile::remove_orphans(folder);
    let files = waiting_files(folder).into_iter();
    files.map(|path| (is_being_written(&path), path)).collect()
}

/// Returns whether another program may still be writing a file. Hob's own files are complete when they
/// appear; those of others need not be.
fn is_being_written(path: &Path) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < SETTLE_TIME))
}

#[cfg(test)]
#[path = "drain_tests.rs"]
mod tests;
