//! Imports the records of programs that have no hooks, while these programs write them (`memory.follow`).

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hob_memory::{Engine, find_transcripts};
use hob_transcript::RecordFile;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::commands::import;
use crate::settings::Resolved;

/// The shortest and the longest pause between two looks at the records.
const MIN_PAUSE: Duration = Duration::from_secs(5);
const MAX_PAUSE: Duration = Duration::from_secs(600);
/// The pause is this many times as long as the look took, within these limits.
const PAUSE_FACTOR: u32 = 20;
/// The pause after a failure of the store.
const RETRY_PAUSE: Duration = Duration::from_secs(60);
/// Larger files are left to `hob import`, because a file is read as a whole. Databases are read by rows.
const MAX_FILE_BYTES: u64 = 128 << 20;

/// Imports what is new in the followed records until `stopping` is cancelled. Returns at once if none are followed.
pub async fn run(settings: Arc<Resolved>, engine: Engine, stopping: CancellationToken) {
    let followed = &settings.values.memory_follow;
    if followed.clients.is_empty() && followed.folders.is_empty() {
        return;
    }
    let mut watch = Watch {
        settings,
        engine,
        stopping: stopping.clone(),
        runtime: Handle::current(),
        seen: HashMap::new(),
    };
    loop {
        let began = Instant::now();
        let look = tokio::task::spawn_blocking(move || {
            let outcome = watch.look();
            (watch, outcome)
        });
        let Ok((returned, outcome)) = look.await else { return };
        watch = returned;
        let pause = match outcome {
            Ok(()) => (began.elapsed() * PAUSE_FACTOR).clamp(MIN_PAUSE, MAX_PAUSE),
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "cannot import followed records");
                RETRY_PAUSE
            }
        };
        if stopping.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}

/// The followed records, and what is known of them.
struct Watch {
    settings: Arc<Resolved>,
    engine: Engine,
    stopping: CancellationToken,
    runtime: Handle,
    seen: HashMap<PathBuf, Seen>,
}

/// A file as the last look found it.
#[derive(Clone, Copy)]
struct Seen {
    stamp: Stamp,
    is_imported: bool,
}

/// What tells that a file has changed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    file: (u64, SystemTime),
    /// The write-ahead log of a database: new rows are there first.
    log: Option<(u64, SystemTime)>,
}

impl Stamp {
    fn of(path: &Path) -> Option<Stamp> {
        let look = |path: &Path| {
            let metadata = fs::metadata(path).ok()?;
            Some((metadata.len(), metadata.modified().ok()?))
        };
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        Some(Stamp { file: look(path)?, log: look(Path::new(&log)) })
    }
}

impl Watch {
    /// Imports the files that are new or have changed.
    fn look(&mut self) -> anyhow::Result<()> {
        let before = std::mem::take(&mut self.seen);
        for path in self.files() {
            // The stamp is taken before reading: if the file grows meanwhile, the next look reads it again.
            let Some(stamp) = Stamp::of(&path) else { continue };
            let known = before.get(&path).filter(|seen| seen.stamp == stamp);
            let is_imported = known.is_some_and(|seen| seen.is_imported);
            self.seen.insert(path, Seen { stamp, is_imported });
        }
        let is_settled = |path: &PathBuf| {
            before.get(path).map(|s| s.stamp) == self.seen.get(path).map(|s| s.stamp)
        };
        let due = self.seen.iter().filter(|(_, seen)| !seen.is_imported).map(|(path, _)| path);
        let mut due: Vec<PathBuf> =
            due.filter(|path| is_read_while_written(path) || is_settled(path)).cloned().collect();
        due.sort();
        due.retain(|path| self.is_small_enough(path));
        if due.is_empty() {
            return Ok(());
        }
        let workspaces = self.settings.home.workspaces();
        let import = import::import_files(&self.engine, &workspaces, due.clone());
        let Some(totals) = self.runtime.block_on(self.stopping.run_until_cancelled(import)) else {
            return Ok(());
        };
        let totals = totals?;
        for path in due {
            if let Some(seen) = self.seen.get_mut(&path) {
                seen.is_imported = true;
            }
        }
        if totals.stored.inserted > 0 {
            tracing::info!(turns = totals.stored.inserted, "imported from followed records");
        }
        for path in &totals.unknown {
            tracing::warn!(file = %path.display(), "a followed record has an unknown format or no turns");
        }
        for (path, reason) in &totals.failed {
            tracing::warn!(file = %path.display(), reason, "cannot read a followed record");
        }
        Ok(())
    }

    fn files(&self) -> Vec<PathBuf> {
        let followed = &self.settings.values.memory_follow;
        let mut places = import::places_of(&followed.clients);
        places.extend(followed.folders.iter().filter(|folder| folder.exists()).cloned());
        places.iter().flat_map(|place| find_transcripts(place)).collect()
    }

    /// Returns whether a file may be read here. One that is too large is not looked at again until it changes.
    fn is_small_enough(&mut self, path: &Path) -> bool {
        let Some(seen) = self.seen.get_mut(path) else { return false };
        let is_database = matches!(RecordFile::of_named(path), RecordFile::Database(_));
        if is_database || seen.stamp.file.0 <= MAX_FILE_BYTES {
            return true;
        }
        seen.is_imported = true;
        tracing::warn!(file = %path.display(), "a followed record is too large; run `hob import` to read it");
        false
    }
}

/// Returns whether a file can be read while its program writes it. A document may be half written, so it is read once it has
/// not changed between two looks.
fn is_read_while_written(path: &Path) -> bool {
    matches!(RecordFile::of_named(path), RecordFile::Lines | RecordFile::Database(_))
}
