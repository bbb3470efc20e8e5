//! Backups by schedule, into the folder that the settings name.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use hob_domain::Timestamp;
use hob_files::owned;
use tokio_util::sync::CancellationToken;

use crate::backup_record::{BackupFailure, BackupRecord, SavedBackup};
use crate::commands::backup::{self, Existing, KeyInBackup};
use crate::settings::Resolved;

/// The longest pause after a failure.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(600);
const PREFIX: &str = "hob-";
const ENDING: &str = ".backup";
const TIME_FORMAT: &str = "%Y%m%dT%H%M%S%3fZ";
/// A time in this format, with `0` for every digit.
const TIME_PATTERN: &str = "00000000T000000000Z";
/// An unfinished backup that has not changed for this long belongs to no running process.
const MAX_PARTIAL_AGE: Duration = Duration::from_secs(3600);

/// Writes backups until `stopping` is cancelled. Returns at once if no folder is set.
pub async fn run(settings: Arc<Resolved>, stopping: CancellationToken) {
    let Some(folder) = settings.values.backup_folder.clone() else { return };
    let interval = settings.values.backup_interval;
    let mut pause = first_pause(&settings, interval);
    while stopping.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
        let (settings, folder) = (settings.clone(), folder.clone());
        let attempt = tokio::task::spawn_blocking(move || save(&settings, &folder));
        pause = match attempt.await {
            Ok(true) => interval,
            _ => interval.min(MAX_RETRY_INTERVAL),
        };
    }
}

/// Returns the folder of the backups if it must be hidden from agents. In Hob's home, it is hidden anyway.
pub fn hidden_folder(settings: &Resolved) -> Option<PathBuf> {
    let folder = settings.values.backup_folder.as_ref()?;
    let is_outside = !real(folder).starts_with(real(settings.home.root()));
    (is_outside && contained_home(settings, folder).is_none()).then(|| folder.clone())
}

/// Returns Hob's home or the user's if the folder is one of them or contains it: then it cannot be hidden from agents.
fn contained_home(settings: &Resolved, folder: &Path) -> Option<PathBuf> {
    let user = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let mut homes = user.into_iter().chain([settings.home.root().to_owned()]);
    homes.find(|home| real(home).starts_with(real(folder)))
}

/// Returns a path without links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Returns when the first backup is due: one interval after the last one of an earlier server.
fn first_pause(settings: &Resolved, interval: Duration) -> Duration {
    let Some(saved) = BackupRecord::read(&settings.home).saved else { return Duration::ZERO };
    let age = Timestamp::now().duration_since(saved.at);
    // A clock that was set back must not delay the next backup.
    let age = Duration::try_from(age).unwrap_or(interval);
    interval.saturating_sub(age)
}

/// Writes one backup, deletes old ones, and notes how it went. Returns whether it succeeded.
fn save(settings: &Resolved, folder: &Path) -> bool {
    let now = Timestamp::now();
    let earlier = BackupRecord::read(&settings.home);
    let record = match write(settings, folder, now) {
        Ok(saved) => {
            tracing::info!(file = %saved.file.display(), bytes = saved.bytes, "wrote a backup");
            BackupRecord { saved: Some(saved), failure: None }
        }
        Err(error) => {
            let error = format!("{error:#}");
            tracing::error!(error, "failed to write a backup");
            BackupRecord { failure: Some(BackupFailure { at: now, error }), ..earlier }
        }
    };
    if let Err(error) = record.write(&settings.home) {
        tracing::error!(%error, "failed to note how the backup went");
    }
    record.failure.is_none()
}

fn write(settings: &Resolved, folder: &Path, now: Timestamp) -> anyhow::Result<SavedBackup> {
    if let Some(home) = contained_home(settings, folder) {
        bail!(
            "backup.folder {} contains {}, which agents must be able to read; set backup.folder to a folder for backups only",
            folder.display(),
            home.display()
        );
    }
    owned::create_dir_all(folder).with_context(|| {
        format!(
            "cannot create {}; set backup.folder to a folder that can be written",
            folder.display()
        )
    })?;
    let mark = backup::home_mark(&settings.home);
    let file = folder.join(format!("{PREFIX}{mark}-{}{ENDING}", now.strftime(TIME_FORMAT)));
    let key = match settings.values.backup_with_key {
        true => KeyInBackup::Included,
        false => KeyInBackup::LeftOut,
    };
    let saved = backup::create(settings, &file, key, Existing::Keep)?;
    let mut unneeded = superseded(folder, &mark, &file, settings.values.backup_keep);
    unneeded.extend(abandoned(folder, &backup::partial_prefix(&settings.home)));
    for old in unneeded {
        // The new backup is there: the next attempt may wait for its time.
        if let Err(error) = owned::remove_file(&old) {
            tracing::warn!(file = %old.display(), %error, "failed to delete an old backup");
        }
    }
    Ok(SavedBackup { at: now, file, bytes: saved.bytes })
}

/// Returns the scheduled backups of this home that are no longer kept. `newest` is kept, even if the clock was set back.
fn superseded(folder: &Path, mark: &str, newest: &Path, keep: usize) -> Vec<PathBuf> {
    let mut files = named(folder, |name| is_scheduled(name, mark));
    files.retain(|file| file != newest);
    // Their names are ordered by time.
    files.sort();
    files.truncate(files.len().saturating_sub(keep.saturating_sub(1)));
    files
}

/// Returns whether `hob serve` gave this name to a backup of the home with this mark.
fn is_scheduled(name: &str, mark: &str) -> bool {
    let time = name
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.strip_prefix(mark))
        .and_then(|rest| rest.strip_prefix('-'))
        .and_then(|rest| rest.strip_suffix(ENDING));
    time.is_some_and(|time| {
        time.len() == TIME_PATTERN.len()
            && time.bytes().zip(TIME_PATTERN.bytes()).all(|(byte, expected)| match expected {
                b'0' => byte.is_ascii_digit(),
                _ => byte == expected,
            })
    })
}

/// Returns unfinished backups of this home that killed processes left.
fn abandoned(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut files = named(folder, |name| name.starts_with(prefix));
    files.retain(|file| {
        let modified = fs::symlink_metadata(file).and_then(|metadata| metadata.modified());
        let age = modified.ok().and_then(|at| at.elapsed().ok());
        age.is_some_and(|age| age > MAX_PARTIAL_AGE)
    });
    files
}

/// Returns the entries of a folder whose names are wanted.
fn named(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    owned::entries(folder)
        .filter(|entry| entry.file_name().to_str().is_some_and(&is_wanted))
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_backups_of_this_home_are_superseded() {
        let folder = tempfile::tempdir().unwrap();
        let create = |name: &str| {
            let path = folder.path().join(name);
            fs::write(&path, "").unwrap();
            path
        };
        for kept in [
            "hob-private.backup",
            "hob-aa-private.backup",
            "hob-aa-20260101T000000000Z.backup.old",
            "hob-aa-20260101T00000000xZ.backup",
            "hob-bb-20260101T000000000Z.backup",
        ] {
            create(kept);
        }
        let time: Timestamp = "2026-02-01T00:00:00.5Z".parse().unwrap();
        let first = create(&format!("hob-aa-{}.backup", time.strftime(TIME_FORMAT)));
        let second = create("hob-aa-20260301T000000000Z.backup");
        // The clock was set back before the newest was written.
        let newest = create("hob-aa-20260102T000000000Z.backup");
        assert_eq!(superseded(folder.path(), "aa", &newest, 3), [] as [PathBuf; 0]);
        assert_eq!(superseded(folder.path(), "aa", &newest, 2), std::slice::from_ref(&first));
        assert_eq!(superseded(folder.path(), "aa", &newest, 1), [first, second]);
    }

    #[test]
    fn unfinished_backups_are_abandoned_after_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let old = std::time::SystemTime::now() - MAX_PARTIAL_AGE * 2;
        for (name, modified) in [
            (".hob-backup-aa-old", old),
            (".hob-backup-bb-old", old),
            (".hob-backup-aa-new", std::time::SystemTime::now()),
        ] {
            let file = fs::File::create(folder.path().join(name)).unwrap();
            file.set_modified(modified).unwrap();
        }
        let found = abandoned(folder.path(), ".hob-backup-aa-");
        assert_eq!(found, [folder.path().join(".hob-backup-aa-old")]);
    }
}
