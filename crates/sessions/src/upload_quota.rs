//! How much the uploaded files of each app take.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hob_domain::AppName;
use hob_files::owned;

/// A file counts as at least this many bytes, so that the number of files is bounded too.
const MIN_FILE_BYTES: u64 = 64 << 10;
/// How often the files are counted again: old ones are deleted elsewhere.
const RECOUNT_INTERVAL: Duration = Duration::from_secs(30);
/// How often they are counted again if there is no room.
const FULL_RECOUNT_INTERVAL: Duration = Duration::from_secs(1);

/// An app has no room for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "with this file, the app's uploads would take more than {0} bytes (limits.app_upload_bytes); raise the limit, or wait until \
     Hob deletes old files (sessions.hard_ttl_secs seconds after their upload)"
)]
pub struct OverQuota(pub u64);

/// The limit of each app's files. Clones share the counts.
#[derive(Debug, Clone)]
pub(crate) struct UploadQuota {
    root: PathBuf,
    /// In bytes; 0 is none.
    limit: u64,
    counts: Arc<Mutex<HashMap<AppName, Count>>>,
}

#[derive(Debug, Clone, Copy)]
struct Count {
    bytes: u64,
    counted_at: Instant,
}

/// The room of one file. Dropping it gives the room back, unless the file is kept.
#[derive(Debug)]
pub(crate) struct TakenRoom {
    quota: UploadQuota,
    app: AppName,
    written: u64,
    is_kept: bool,
}

impl UploadQuota {
    pub fn new(root: PathBuf, limit: u64) -> UploadQuota {
        UploadQuota { root, limit, counts: Arc::default() }
    }

    /// Takes the room of an empty file.
    pub async fn begin(&self, app: &AppName) -> Result<TakenRoom, OverQuota> {
        if self.limit > 0 {
            self.recount(app).await;
            self.add(app, MIN_FILE_BYTES)?;
        }
        Ok(TakenRoom { quota: self.clone(), app: app.clone(), written: 0, is_kept: false })
    }

    /// Counts an app's files if the last count is old.
    async fn recount(&self, app: &AppName) {
        let known = self.lock().get(app).copied();
        let is_recent = known.is_some_and(|known| {
            let has_room = known.bytes + MIN_FILE_BYTES <= self.limit;
            let interval = if has_room { RECOUNT_INTERVAL } else { FULL_RECOUNT_INTERVAL };
            known.counted_at.elapsed() < interval
        });
        if is_recent {
            return;
        }
        let folder = self.root.join(app.as_str());
        let bytes = tokio::task::spawn_blocking(move || size_of(&folder)).await.unwrap_or_default();
        self.lock().insert(app.clone(), Count { bytes, counted_at: Instant::now() });
    }

    fn add(&self, app: &AppName, bytes: u64) -> Result<(), OverQuota> {
        let mut counts = self.lock();
        let Some(count) = counts.get_mut(app) else { return Ok(()) };
        if count.bytes + bytes > self.limit {
            return Err(OverQuota(self.limit));
        }
        count.bytes += bytes;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<AppName, Count>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TakenRoom {
    /// Takes room for more bytes of the file.
    pub fn take(&mut self, bytes: u64) -> Result<(), OverQuota> {
        let before = self.written.max(MIN_FILE_BYTES);
        let after = (self.written + bytes).max(MIN_FILE_BYTES);
        if self.quota.limit > 0 {
            self.quota.add(&self.app, after - before)?;
        }
        self.written += bytes;
        Ok(())
    }

    /// Keeps the room: the file stays.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }
}

impl Drop for TakenRoom {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        if let Some(count) = self.quota.lock().get_mut(&self.app) {
            count.bytes = count.bytes.saturating_sub(self.written.max(MIN_FILE_BYTES));
        }
    }
}

/// Returns how much the files in an app's folder take. Each lies in a folder of its own. Agents cannot change them.
fn size_of(folder: &Path) -> u64 {
    let entries = |path: &Path| owned::entries(path);
    let size = |file: fs::DirEntry| file.metadata().map_or(0, |metadata| metadata.len());
    let uploads = entries(folder).map(|upload| entries(&upload.path()).map(size).sum::<u64>());
    uploads.map(|bytes| bytes.max(MIN_FILE_BYTES)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_of_an_app_are_bounded_together() {
        let folder = tempfile::tempdir().unwrap();
        let quota = UploadQuota::new(folder.path().to_owned(), 3 * MIN_FILE_BYTES);
        let (a, b) = (AppName::new("a").unwrap(), AppName::new("b").unwrap());
        let mut first = quota.begin(&a).await.unwrap();
        first.take(2 * MIN_FILE_BYTES).unwrap();
        let mut second = quota.begin(&a).await.unwrap();
        second.take(MIN_FILE_BYTES).unwrap();
        assert_eq!(second.take(1), Err(OverQuota(3 * MIN_FILE_BYTES)));
        assert!(quota.begin(&a).await.is_err());
        assert!(quota.begin(&b).await.is_ok(), "another app has its own");
        second.keep();
        drop((first, second));
        let _third = quota.begin(&a).await.unwrap();
        let mut fourth = quota.begin(&a).await.unwrap();
        assert!(fourth.take(MIN_FILE_BYTES + 1).is_err(), "the second file was kept");
    }

    #[tokio::test]
    async fn files_of_an_earlier_server_count() {
        let folder = tempfile::tempdir().unwrap();
        let upload = folder.path().join("a/1234");
        fs::create_dir_all(&upload).unwrap();
        fs::write(upload.join("x"), vec![0; 3 * MIN_FILE_BYTES as usize]).unwrap();
        let quota = UploadQuota::new(folder.path().to_owned(), 3 * MIN_FILE_BYTES);
        assert!(quota.begin(&AppName::new("a").unwrap()).await.is_err());
    }
}
