//! Files that an agent reads and writes through Hob: only those in its session's folder.

use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use agent_client_protocol::v1::schema::{
    ReadTextFileRequest, ReadTextFileResponse, WriteTextFileRequest, WriteTextFileResponse,
};
use agent_client_protocol::{Error, ErrorCode};
use hob_files::{Folder, owned};
use serde_json::json;

/// Larger files are not read.
const MAX_READ_BYTES: u64 = 32 << 20;

/// The folders that an agent may reach through Hob.
#[derive(Debug, Clone)]
pub(super) struct FileAccess {
    /// Readable and writable.
    folder: PathBuf,
    /// Read only: the app's uploaded files.
    files: PathBuf,
    /// Both, opened before the agent started. An agent of another session may be able to replace them.
    opened: [Option<Arc<Folder>>; 2],
    /// Never reachable, even if they lie in `folder`.
    hidden: Vec<PathBuf>,
}

impl FileAccess {
    pub fn new(folder: &Path, files: &Path, hidden: &[PathBuf]) -> FileAccess {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        // The first upload may come later.
        let _ = owned::create_dir_all(files);
        let (folder, files) = (real(folder), real(files));
        let opened = [&folder, &files].map(|path| Folder::open_real(path).ok().map(Arc::new));
        let hidden = hidden.iter().map(|path| real(path)).collect();
        FileAccess { folder, files, opened, hidden }
    }

    /// Returns whether a real path lies in the folder and is not hidden.
    fn in_folder(&self, path: &Path) -> bool {
        // A session's folder may itself lie in a hidden folder.
        let is_hidden = |hidden: &PathBuf| {
            path.starts_with(hidden) && !(self.folder.starts_with(hidden) && self.folder != *hidden)
        };
        path.starts_with(&self.folder) && !self.hidden.iter().any(is_hidden)
    }

    pub fn read(&self, request: &ReadTextFileRequest) -> Result<ReadTextFileResponse, Error> {
        let wrong = |error: io::Error| failed(&request.path, &error);
        let path = request.path.canonicalize().map_err(wrong)?;
        let [folder, files] = &self.opened;
        let (base, opened) = match self.in_folder(&path) {
            true => (&self.folder, folder),
            false if path.starts_with(&self.files) => (&self.files, files),
            false => return Err(outside(&request.path)),
        };
        let (folder, below) = open_base(base, opened, &path).map_err(wrong)?;
        let bytes = folder.read(below, MAX_READ_BYTES).map_err(wrong)?;
        let text = String::from_utf8(bytes).map_err(|error| wrong(io::Error::other(error)))?;
        Ok(ReadTextFileResponse::new(part(&text, request.line, request.limit)))
    }

    pub fn write(&self, request: &WriteTextFileRequest) -> Result<WriteTextFileResponse, Error> {
        let path = self.writable(&request.path)?;
        let wrong = |error: io::Error| failed(&request.path, &error);
        let [opened, _] = &self.opened;
        let (folder, below) = open_base(&self.folder, opened, &path).map_err(wrong)?;
        let parent = below.parent().unwrap_or(Path::new(""));
        folder.create_folders(parent, 0o777).map_err(wrong)?;
        let mut file = folder.overwrite_file(below, 0o666).map_err(wrong)?;
        file.write_all(request.content.as_bytes()).map_err(wrong)?;
        Ok(WriteTextFileResponse::new())
    }

    /// Returns whether an agent may work in a folder.
    pub fn contains(&self, folder: &Path) -> bool {
        folder.canonicalize().is_ok_and(|real| self.in_folder(&real))
    }

    /// Resolves the real path of a file that need not exist. Fails unless it lies in the folder.
    fn writable(&self, path: &Path) -> Result<PathBuf, Error> {
        let plain = path.is_absolute()
            && path.components().all(|part| {
                matches!(part, Component::RootDir | Component::Normal(_) | Component::Prefix(_))
            });
        if !plain {
            return Err(outside(path));
        }
        // The existing part is resolved; the rest cannot be a link.
        let mut existing = path;
        let mut rest = Vec::new();
        let real = loop {
            match existing.canonicalize() {
                Ok(real) => break real,
                Err(_) => {
                    let name = existing.file_name().ok_or_else(|| outside(path))?;
                    rest.push(name);
                    existing = existing.parent().ok_or_else(|| outside(path))?;
                }
            }
        };
        let real = rest.iter().rev().fold(real, |path, name| path.join(name));
        if self.in_folder(&real) { Ok(real) } else { Err(outside(path)) }
    }
}

/// Returns an opened folder with the rest of a path that lies below it. What was checked is what is opened, whatever an
/// agent swaps meanwhile.
fn open_base<'a>(
    base: &Path,
    opened: &'a Option<Arc<Folder>>,
    path: &'a Path,
) -> io::Result<(&'a Folder, &'a Path)> {
    let below = path.strip_prefix(base).map_err(|_| io::ErrorKind::PermissionDenied)?;
    Ok((opened.as_ref().ok_or(io::ErrorKind::NotFound)?, below))
}

/// Returns at most `limit` lines, starting at `line` (the first is 1).
fn part(text: &str, line: Option<u32>, limit: Option<u32>) -> String {
    if line.is_none() && limit.is_none() {
        return text.to_owned();
    }
    let skip = line.unwrap_or(1).max(1) as usize - 1;
    let take = limit.map_or(usize::MAX, |limit| limit as usize);
    text.split_inclusive('\n').skip(skip).take(take).collect()
}

fn outside(path: &Path) -> Error {
    let text = format!("{} is outside of the session's folder", path.display());
    Error::new(ErrorCode::INVALID_PARAMS, text)
}

fn failed(path: &Path, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::new(ErrorCode::RESOURCE_NOT_FOUND, "Resource not found")
            .data(json!({"uri": path.display().to_string()})),
        _ => Error::new(ErrorCode::INTERNAL_ERROR, format!("{}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_the_session_folder_is_reachable() {
        let root = tempfile::tempdir().unwrap();
        let (inside, files, other) =
            (root.path().join("ws"), root.path().join("files"), root.path().join("other"));
        for folder in [&inside, &files, &other] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(other.join("secret"), "s").unwrap();
        fs::write(files.join("up"), "u").unwrap();
        symlink(&other, inside.join("way-out")).unwrap();
        symlink(other.join("secret"), inside.join("link")).unwrap();
        let reach = FileAccess::new(&inside, &files, std::slice::from_ref(&other));
        let read = |path: PathBuf| reach.read(&ReadTextFileRequest::new("s", path));
        let write = |path: PathBuf| reach.write(&WriteTextFileRequest::new("s", path, "new"));
        write(inside.join("a/b/new.txt")).unwrap();
        assert_eq!(read(inside.join("a/b/new.txt")).unwrap().content, "new");
        assert_eq!(read(files.join("up")).unwrap().content, "u");
        for path in ["way-out/secret", "link", "../other/secret", "a/../../other/secret"] {
            assert!(read(inside.join(path)).is_err(), "{path}");
            assert!(write(inside.join(path)).is_err(), "{path}");
        }
        assert!(write(files.join("up")).is_err());
        assert!(write(inside.join("way-out/new")).is_err());
        assert!(write("relative".into()).is_err());
        assert!(read(inside.join("missing")).is_err());
        assert_eq!(fs::read_to_string(other.join("secret")).unwrap(), "s");
        let above = FileAccess::new(root.path(), &files, std::slice::from_ref(&other));
        assert!(above.read(&ReadTextFileRequest::new("s", inside.join("a/b/new.txt"))).is_ok());
        assert!(above.read(&ReadTextFileRequest::new("s", other.join("secret"))).is_err());
        assert!(above.write(&WriteTextFileRequest::new("s", other.join("n"), "")).is_err());
        assert!(!above.contains(&other));
        assert!(reach.contains(&inside.join("a")) && !reach.contains(&inside.join("way-out")));
    }

    #[test]
    fn line_ranges_are_cut_out() {
        let text = "one\ntwo\nthree\n";
        assert_eq!(part(text, None, None), text);
        assert_eq!(part(text, Some(2), Some(1)), "two\n");
        assert_eq!(part(text, Some(3), None), "three\n");
        assert_eq!(part(text, Some(9), Some(9)), "");
        assert_eq!(part(text, Some(0), Some(1)), "one\n");
    }
}
