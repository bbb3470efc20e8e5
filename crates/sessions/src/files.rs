//! Files that apps upload for their agents. Every app has a folder, and every file has one inside
//! of it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hob_domain::file::safe_name;
use hob_domain::{AppName, ClusterStore, FilePart, Timestamp};
use hob_files::{Folder, Trash, owned};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uuid::Uuid;

use crate::upload_quota::{OverQuota, TakenRoom, UploadQuota};

/// How much of a file is shared with other nodes at a time.
const PART_BYTES: usize = 1 << 20;

/// The store of uploaded files. An app can reach only its own files.
#[derive(Clone)]
pub struct UploadStore {
    root: PathBuf,
    limit: u64,
    quota: UploadQuota,
    /// The store through which other nodes get the files.
    shared: Option<Arc<dyn ClusterStore>>,
    trash: Trash,
}

/// A file of an app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    pub id: String,
    pub path: PathBuf,
}

/// Why a file was not stored. No part of it is left.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error("the file is larger than {0} bytes (max_file_bytes)")]
    TooLarge(u64),
    #[error("{0}")]
    OverQuota(#[from] OverQuota),
    #[error("the disk is full")]
    DiskFull,
    #[error("the upload is incomplete: {0}")]
    Broken(String),
    #[error("the file could not be stored: {0}")]
    Failed(io::Error),
}

impl From<io::Error> for UploadError {
    fn from(error: io::Error) -> UploadError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => UploadError::DiskFull,
            _ => UploadError::Failed(error),
        }
    }
}

/// Runs a call that may wait for the disk, away from the threads of the runtime.
pub(crate) async fn on_disk<T: Send + 'static>(
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(call).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

impl UploadStore {
    /// Creates a store in this folder. `limit` is the size limit of a file in bytes, `app_limit` that of all files of an
    /// app; 0 is none.
    pub fn new(root: PathBuf, limit: u64, app_limit: u64, trash: Trash) -> UploadStore {
        let quota = UploadQuota::new(root.clone(), app_limit);
        UploadStore { root, limit, quota, shared: None, trash }
    }

    /// Shares the files with other nodes, if there is a store to share them through.
    pub fn sharing(self, shared: Option<Arc<dyn ClusterStore>>) -> UploadStore {
        UploadStore { shared, ..self }
    }

    /// Stores a file where other nodes find it.
    pub async fn share(&self, app: &AppName, stored: &StoredFile) -> Result<(), UploadError> {
        let Some(shared) = &self.shared else { return Ok(()) };
        let name = stored.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let below = stored.path.strip_prefix(&self.root).map_err(io::Error::other)?.to_owned();
        let root = self.root.clone();
        let (size, file) = on_disk(move || {
            let file = Folder::open(&root)?.file(&below)?;
            Ok((file.metadata()?.len(), file))
        })
        .await?;
        let mut file = tokio::fs::File::from_std(file);
        let (mut part, mut read) = (0, 0);
        loop {
            let mut bytes = Vec::with_capacity(PART_BYTES);
            (&mut file).take(PART_BYTES as u64).read_to_end(&mut bytes).await?;
            read += bytes.len() as u64;
            let last = read >= size || bytes.is_empty();
            let (app, id, name) = (app.clone(), stored.id.clone(), name.clone());
            let stored = shared.put_file(&FilePart { app, id, name, part, bytes, last }).await;
            stored.map_err(|error| UploadError::Failed(io::Error::other(error)))?;
            if last {
                return Ok(());
            }
            part += 1;
        }
    }

    /// Returns the path of an app's file. A file that was uploaded to another node is copied here
    /// first.
    pub async fn fetch(&self, app: &AppName, id: &str) -> Result<Option<PathBuf>, UploadError> {
        if let Some(path) = self.find(app, id) {
            return Ok(Some(path));
        }
        let Some(shared) = self.shared.as_ref().filter(|_| is_id(id)) else { return Ok(None) };
        let read_part = |part| async move {
            let part = shared.file(app, id, part).await;
            part.map_err(|error| UploadError::Failed(io::Error::other(error)))
        };
        let Some(first) = read_part(0).await? else { return Ok(None) };
        // The file is copied under a temporary name, so that it is complete or absent, and several
        // tasks may fetch it.
        let folder = self.folder(app)?;
        let making = format!(".{}", Uuid::new_v4().simple());
        let unfinished = self.unfinished(app, &making);
        let made = folder.create_folder(&making, 0o700)?;
        let file = made.create_file(Path::new(&safe_name(&first.name)), 0o600)?;
        let mut file = tokio::fs::File::from_std(file);
        let mut part = first;
        loop {
            file.write_all(&part.bytes).await?;
            if part.last {
                break;
            }
            let broken = || UploadError::Broken("a part of the file is missing".to_owned());
            part = read_part(part.part + 1).await?.ok_or_else(broken)?;
        }
        file.flush().await?;
        file.sync_all().await?;
        // Another task may have been first. Then the file is there all the same.
        let _ = folder.rename(making.as_ref(), &folder, id.as_ref());
        drop(unfinished);
        Ok(self.find(app, id))
    }

    /// Returns the paths that these files have on this node. A turn may have been accepted on
    /// another node, where its files have other paths. Files of other nodes are copied here first.
    pub async fn local_paths(
        &self,
        app: &AppName,
        paths: &[String],
    ) -> Result<Vec<String>, UploadError> {
        if self.shared.is_none() {
            return Ok(paths.to_vec());
        }
        let mut local = Vec::with_capacity(paths.len());
        for path in paths {
            let id = Path::new(path).parent().and_then(Path::file_name).and_then(|id| id.to_str());
            let found = match id {
                Some(id) => self.fetch(app, id).await?,
                None => None,
            };
            local.push(found.map_or(path.clone(), |path| path.display().to_string()));
        }
        Ok(local)
    }

    /// Begins an upload. It is removed if it is dropped before [`Upload::finish`].
    pub async fn begin(&self, app: &AppName, name: &str) -> Result<Upload, UploadError> {
        let id = Uuid::new_v4().simple().to_string();
        let name = safe_name(name);
        let room = self.quota.begin(app).await?;
        let unfinished = self.unfinished(app, &id);
        let folder = self.folder(app)?.create_folder(&id, 0o700)?;
        let file = tokio::fs::File::from_std(folder.create_file(Path::new(&name), 0o600)?);
        let stored = StoredFile { path: self.root.join(app.as_str()).join(&id).join(name), id };
        Ok(Upload { file, stored, unfinished, room, written: 0, limit: self.limit })
    }

    /// Opens the folder of an app, which is created if there is none.
    fn folder(&self, app: &AppName) -> io::Result<Folder> {
        owned::create_dir_all(&self.root)?;
        Folder::open(&self.root)?.create_folders(Path::new(app.as_str()), 0o700)
    }

    fn unfinished(&self, app: &AppName, name: &str) -> Unfinished {
        let folder = self.root.join(app.as_str()).join(name);
        Unfinished { folder: Some(folder), trash: self.trash.clone() }
    }

    /// Returns the path of an app's file on this node; `None` if the app has no such file here.
    pub fn find(&self, app: &AppName, id: &str) -> Option<PathBuf> {
        if !is_id(id) {
            return None;
        }
        let below = Path::new(app.as_str()).join(id);
        let folder = Folder::open(&self.root).ok()?.folder(&below).ok()?;
        let name = folder.names(1).ok()?.pop()?;
        folder.file(Path::new(&name)).ok()?;
        Some(self.root.join(below).join(name))
    }

    /// Removes all files of an app, so that a later app of the same name does not find them.
    pub fn remove_app(&self, app: &AppName) -> io::Result<()> {
        self.trash.remove(&self.root.join(app.as_str()))
    }

    /// Returns the size limit of a file in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }
}

/// Removes uploads that are older than `age` at the time `now`.
pub(crate) fn remove_old_files(
    files: &Path,
    now: Timestamp,
    age: Duration,
    remove: &dyn Fn(&Path),
) {
    let now = SystemTime::from(now);
    let folders = |path: &Path| owned::entries(path);
    for app in folders(files) {
        for upload in folders(&app.path()) {
            let modified = upload.metadata().and_then(|metadata| metadata.modified()).ok();
            if modified.and_then(|at| now.duration_since(at).ok()).is_some_and(|old| old > age) {
                remove(&upload.path());
            }
        }
    }
}

fn is_id(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit())
}

/// An upload in progress.
pub struct Upload {
    file: tokio::fs::File,
    stored: StoredFile,
    unfinished: Unfinished,
    room: TakenRoom,
    written: u64,
    limit: u64,
}

/// A folder that is removed when this is dropped.
struct Unfinished {
    folder: Option<PathBuf>,
    trash: Trash,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(folder) = self.folder.take() {
            let _ = self.trash.remove(&folder);
        }
    }
}

impl Upload {
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), UploadError> {
        self.written += bytes.len() as u64;
        if self.written > self.limit {
            return Err(UploadError::TooLarge(self.limit));
        }
        self.room.take(bytes.len() as u64)?;
        Ok(self.file.write_all(bytes).await?)
    }

    pub async fn finish(mut self) -> Result<StoredFile, UploadError> {
        self.file.flush().await?;
        self.file.sync_all().await?;
        self.unfinished.folder = None;
        self.room.keep();
        Ok(self.stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[tokio::test]
    async fn upload_is_complete_or_absent_and_private_to_its_app() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("files");
        let trash = Trash::open(&folder.path().join("trash")).unwrap();
        let store = UploadStore::new(root.clone(), 10, 0, trash);
        let (a, b) = (AppName::new("a").unwrap(), AppName::new("b").unwrap());
        let mut upload = store.begin(&a, "../x.txt").await.unwrap();
        upload.write(b"12345").await.unwrap();
        let stored = upload.finish().await.unwrap();
        assert!(stored.path.ends_with(format!("files/a/{}/x.txt", stored.id)));
        assert_eq!(store.find(&a, &stored.id), Some(stored.path.clone()));
        assert_eq!(store.find(&b, &stored.id), None);
        for bad in ["", "..", "../a", "x", &format!("{}/..", stored.id)] {
            assert_eq!(store.find(&a, bad), None, "{bad}");
        }
        let mut upload = store.begin(&a, "big").await.unwrap();
        upload.write(b"1234567890").await.unwrap();
        assert!(matches!(upload.write(b"1").await, Err(UploadError::TooLarge(10))));
        drop(upload);
        assert_eq!(fs::read_dir(root.join("a")).unwrap().count(), 1);
        store.remove_app(&a).unwrap();
        store.remove_app(&a).unwrap();
        assert_eq!(store.find(&a, &stored.id), None);
    }

    #[test]
    fn old_uploads_are_removed() {
        let files = tempfile::tempdir().unwrap();
        let upload = files.path().join("app/1234");
        fs::create_dir_all(&upload).unwrap();
        fs::write(upload.join("x.txt"), "x").unwrap();
        let remove = |path: &Path| fs::remove_dir_all(path).unwrap();
        remove_old_files(files.path(), Timestamp::now(), Duration::from_secs(60), &remove);
        assert!(upload.exists());
        let past = SystemTime::now() - Duration::from_secs(3600);
        fs::File::open(&upload).unwrap().set_modified(past).unwrap();
        remove_old_files(files.path(), Timestamp::now(), Duration::from_secs(60), &remove);
        assert!(!upload.exists() && files.path().join("app").exists());
    }
}
