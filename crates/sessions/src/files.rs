//! Files that apps upload for their agents: one folder per app, one per file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hob_domain::AppName;
use hob_domain::file::safe_name;
use tokio::io::AsyncWriteExt;
use uuid::Uuid;

/// Where uploaded files lie. An app reaches its own alone.
#[derive(Debug, Clone)]
pub struct FileRoom {
    root: PathBuf,
    limit: u64,
}

/// A file of an app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    pub id: String,
    pub path: PathBuf,
}

/// Why a file was not stored. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error("the file is larger than {0} bytes (max_file_bytes)")]
    TooLarge(u64),
    #[error("the upload broke off: {0}")]
    Broken(String),
    #[error("the file could not be stored: {0}")]
    Failed(#[from] io::Error),
}

impl FileRoom {
    /// `limit` is the most bytes a file may have.
    pub fn new(root: PathBuf, limit: u64) -> FileRoom {
        FileRoom { root, limit }
    }

    /// Begins a file; write to it, then finish it. One that is dropped before that is removed.
    pub async fn begin(&self, app: &AppName, name: &str) -> Result<Upload, UploadError> {
        let id = Uuid::new_v4().simple().to_string();
        let folder = self.root.join(app.as_str()).join(&id);
        fs::create_dir_all(&folder)?;
        let path = folder.join(safe_name(name));
        let unfinished = Unfinished { folder: Some(folder) };
        let file = tokio::fs::OpenOptions::new().write(true).create_new(true).open(&path).await?;
        let stored = StoredFile { id, path };
        Ok(Upload { file, stored, unfinished, written: 0, limit: self.limit })
    }

    /// The path of an app's file; `None` for another app's, or one that never was.
    pub fn find(&self, app: &AppName, id: &str) -> Option<PathBuf> {
        let well_formed = id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit());
        if !well_formed {
            return None;
        }
        let folder = self.root.join(app.as_str()).join(id);
        let entry = fs::read_dir(folder).ok()?.next()?.ok()?;
        entry.file_type().ok()?.is_file().then(|| entry.path())
    }

    /// Removes all files of an app, so that a later app of that name does not find them.
    pub fn remove_app(root: &Path, app: &AppName) -> io::Result<()> {
        match fs::remove_dir_all(root.join(app.as_str())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The most bytes a file may have.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Where all files lie.
    pub fn root(&self) -> &Path {
        &self.root
    }
}

/// A file that is being written.
pub struct Upload {
    file: tokio::fs::File,
    stored: StoredFile,
    unfinished: Unfinished,
    written: u64,
    limit: u64,
}

struct Unfinished {
    folder: Option<PathBuf>,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(folder) = self.folder.take() {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

impl Upload {
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), UploadError> {
        self.written += bytes.len() as u64;
        if self.written > self.limit {
            return Err(UploadError::TooLarge(self.limit));
        }
        Ok(self.file.write_all(bytes).await?)
    }

    pub async fn finish(mut self) -> Result<StoredFile, UploadError> {
        self.file.flush().await?;
        self.file.sync_all().await?;
        self.unfinished.folder = None;
        Ok(self.stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_whole_or_not_there_and_its_apps_alone() {
        let folder = tempfile::tempdir().unwrap();
        let room = FileRoom::new(folder.path().join("files"), 10);
        let (a, b) = (AppName::new("a").unwrap(), AppName::new("b").unwrap());
        let mut upload = room.begin(&a, "../x.txt").await.unwrap();
        upload.write(b"12345").await.unwrap();
        let stored = upload.finish().await.unwrap();
        assert!(stored.path.ends_with(format!("files/a/{}/x.txt", stored.id)));
        assert_eq!(room.find(&a, &stored.id), Some(stored.path.clone()));
        assert_eq!(room.find(&b, &stored.id), None);
        for bad in ["", "..", "../a", "x", &format!("{}/..", stored.id)] {
            assert_eq!(room.find(&a, bad), None, "{bad}");
        }
        let mut upload = room.begin(&a, "big").await.unwrap();
        upload.write(b"1234567890").await.unwrap();
        assert!(matches!(upload.write(b"1").await, Err(UploadError::TooLarge(10))));
        drop(upload);
        assert_eq!(fs::read_dir(room.root().join("a")).unwrap().count(), 1);
        FileRoom::remove_app(room.root(), &a).unwrap();
        FileRoom::remove_app(room.root(), &a).unwrap();
        assert_eq!(room.find(&a, &stored.id), None);
    }
}
