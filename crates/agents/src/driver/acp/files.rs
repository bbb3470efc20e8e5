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

use crate::app_permits::{AppPermit, PermitsOfApp};

/// Larger files are not read.
const MAX_READ_BYTES: u64 = 8 << 20;
/// Longer answers are not sent. In JSON, a control character is six bytes.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// The system knows no longer path (`PATH_MAX`, without its final zero).
const MAX_PATH_BYTES: usize = 4095;
/// The system knows no longer name of a file (`NAME_MAX`).
const MAX_NAME_BYTES: usize = 255;

/// The folders that an agent may reach through Hob. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct FileAccess {
    reach: Arc<Reach>,
    permits: PermitsOfApp,
}

/// Which files may be reached. Its functions block.
#[derive(Debug)]
struct Reach {
    /// Readable and writable.
    folder: PathBuf,
    /// Read only: the app's uploaded files.
    files: PathBuf,
    /// Both, as the agent may call them.
    given: [PathBuf; 2],
    /// Both, opened before the agent started. An agent of another session may be able to replace them.
    opened: [Option<Arc<Folder>>; 2],
    /// Never reachable, even if they lie in `folder`.
    hidden: Vec<PathBuf>,
}

impl FileAccess {
    /// Every request takes one of the permits, because it takes a thread.
    pub fn new(
        folder: &Path,
        files: &Path,
        hidden: &[PathBuf],
        permits: PermitsOfApp,
    ) -> FileAccess {
        FileAccess { reach: Arc::new(Reach::new(folder, files, hidden)), permits }
    }

    /// Reads a file. The permit is for as long as the answer is in memory.
    pub async fn read(
        &self,
        request: ReadTextFileRequest,
    ) -> (Result<ReadTextFileResponse, Error>, Option<AppPermit>) {
        match self.run(move |reach| reach.read(&request)).await {
            Ok((answer, permit)) => (answer, Some(permit)),
            Err(error) => (Err(error), None),
        }
    }

    pub async fn write(
        &self,
        request: WriteTextFileRequest,
    ) -> Result<WriteTextFileResponse, Error> {
        self.run(move |reach| reach.write(&request)).await.and_then(|(answer, _)| answer)
    }

    /// Returns whether an agent may work in a folder.
    pub async fn contains(&self, folder: &Path) -> bool {
        let folder = folder.to_owned();
        self.run(move |reach| reach.contains(&folder)).await.is_ok_and(|(contains, _)| contains)
    }

    /// Runs a request on a blocking thread. The thread keeps the permit also when the agent has gone.
    async fn run<T: Send + 'static>(
        &self,
        request: impl FnOnce(&Reach) -> T + Send + 'static,
    ) -> Result<(T, AppPermit), Error> {
        let permit = self.permits.acquire().await;
        let reach = self.reach.clone();
        let running = tokio::task::spawn_blocking(move || (request(&reach), permit));
        running.await.map_err(|error| Error::new(ErrorCode::INTERNAL_ERROR, error.to_string()))
    }
}

impl Reach {
    fn new(folder: &Path, files: &Path, hidden: &[PathBuf]) -> Reach {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        // The first upload may come later.
        let _ = owned::create_dir_all(files);
        let given = [folder.to_owned(), files.to_owned()];
        let (folder, files) = (real(folder), real(files));
        let opened = [&folder, &files].map(|path| Folder::open_real(path).ok().map(Arc::new));
        let hidden = hidden.iter().map(|path| real(path)).collect();
        Reach { folder, files, given, opened, hidden }
    }

    /// Returns whether a real path lies in the folder and is not hidden.
    fn in_folder(&self, path: &Path) -> bool {
        // A session's folder may itself lie in a hidden folder.
        let is_hidden = |hidden: &PathBuf| {
            path.starts_with(hidden) && !(self.folder.starts_with(hidden) && self.folder != *hidden)
        };
        path.starts_with(&self.folder) && !self.hidden.iter().any(is_hidden)
    }

    /// Reads a file. What is not there, and what a link hides outside, have one answer: otherwise an agent could ask which
    /// files exist.
    fn read(&self, request: &ReadTextFileRequest) -> Result<ReadTextFileResponse, Error> {
        let path = self.inside(&request.path).ok_or_else(|| outside(&request.path))?;
        let path = hob_files::real_path(&path).map_err(|_| missing(&request.path))?;
        let [folder, files] = &self.opened;
        let (base, opened) = match self.in_folder(&path) {
            true => (&self.folder, folder),
            false if path.starts_with(&self.files) => (&self.files, files),
            false => return Err(missing(&request.path)),
        };
        let wrong = |error: io::Error| match is_link_or_missing(&error) {
            true => missing(&request.path),
            false => failed(&request.path, &error),
        };
        let (folder, below) = open_base(base, opened, &path).map_err(wrong)?;
        // Nothing of a file is read that is known to be too long.
        let length = folder.file(below).and_then(|file| file.metadata()).map_err(wrong)?.len();
        if length > MAX_READ_BYTES {
            let text = format!("the file has more than {MAX_READ_BYTES} bytes");
            return Err(wrong(io::Error::other(text)));
        }
        let bytes = folder.read(below, MAX_READ_BYTES).map_err(wrong)?;
        let text = String::from_utf8(bytes).map_err(|error| wrong(io::Error::other(error)))?;
        let text = part(text, request.line, request.limit);
        if bytes_in_json(&text) > MAX_ANSWER_BYTES {
            return Err(wrong(io::Error::other("the file has too many control characters")));
        }
        Ok(ReadTextFileResponse::new(text))
    }

    fn write(&self, request: &WriteTextFileRequest) -> Result<WriteTextFileResponse, Error> {
        // As in the sandbox, a folder that leads to something hidden is read-only.
        if self.hidden.iter().any(|hidden| hidden.starts_with(&self.folder)) {
            return Err(outside(&request.path));
        }
        let path = self.writable(&request.path).ok_or_else(|| outside(&request.path))?;
        let wrong = |error: io::Error| match is_link_or_missing(&error) {
            true => outside(&request.path),
            false => failed(&request.path, &error),
        };
        let [opened, _] = &self.opened;
        let (folder, below) = open_base(&self.folder, opened, &path).map_err(wrong)?;
        let parent = below.parent().unwrap_or(Path::new(""));
        folder.create_folders(parent, 0o777).map_err(wrong)?;
        let mut file = folder.overwrite_file(below, 0o666).map_err(wrong)?;
        file.write_all(request.content.as_bytes()).map_err(wrong)?;
        Ok(WriteTextFileResponse::new())
    }

    fn contains(&self, folder: &Path) -> bool {
        let real = self.inside(folder).and_then(|path| hob_files::real_path(&path).ok());
        real.is_some_and(|real| self.in_folder(&real))
    }

    /// Returns a path without `..` if its words say that it lies in one of the folders. Nothing is looked up.
    fn inside(&self, path: &Path) -> Option<PathBuf> {
        let is_too_long = path.as_os_str().len() > MAX_PATH_BYTES
            || path.iter().any(|name| name.len() > MAX_NAME_BYTES);
        if is_too_long || !path.is_absolute() {
            return None;
        }
        let mut plain = PathBuf::new();
        for part in path.components() {
            match part {
                Component::ParentDir => drop(plain.pop()),
                Component::CurDir => {}
                part => plain.push(part),
            }
        }
        let folders = self.given.iter().chain([&self.folder, &self.files]);
        folders.into_iter().any(|folder| plain.starts_with(folder)).then_some(plain)
    }

    /// Resolves the real path of a file that need not exist. Returns `None` unless it lies in the folder.
    fn writable(&self, path: &Path) -> Option<PathBuf> {
        if path.components().any(|part| part == Component::ParentDir) {
            return None;
        }
        let path = self.inside(path)?;
        let ancestors: Vec<&Path> = path.ancestors().collect();
        // The existing part is resolved; the rest cannot be a link. If a folder exists, so do those above it.
        let existing = ancestors.partition_point(|path| hob_files::real_path(path).is_err());
        let existing = ancestors.get(existing)?;
        let rest = path.strip_prefix(existing).ok()?;
        let real = hob_files::real_path(existing).ok()?;
        let real = if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        self.in_folder(&real).then_some(real)
    }
}

/// Returns whether a file cannot be opened because there is none, or a link on the way.
fn is_link_or_missing(error: &io::Error) -> bool {
    // `ELOOP` has no kind of its own in stable Rust.
    let is_link = error.raw_os_error() == Some(nix::errno::Errno::ELOOP as i32);
    is_link || matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
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
fn part(text: String, line: Option<u32>, limit: Option<u32>) -> String {
    if line.is_none() && limit.is_none() {
        return text;
    }
    let skip = line.unwrap_or(1).max(1) as usize - 1;
    let take = limit.map_or(usize::MAX, |limit| limit as usize);
    text.split_inclusive('\n').skip(skip).take(take).collect()
}

fn outside(path: &Path) -> Error {
    let text = format!("{} is outside of the session's folder", path.display());
    Error::new(ErrorCode::INVALID_PARAMS, text)
}

/// Returns how long a text is in JSON.
fn bytes_in_json(text: &str) -> usize {
    let bytes = |byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(bytes).sum()
}

fn missing(path: &Path) -> Error {
    Error::new(ErrorCode::RESOURCE_NOT_FOUND, "Resource not found")
        .data(json!({"uri": path.display().to_string()}))
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::new(ErrorCode::INTERNAL_ERROR, format!("{}: {error}", path.display()))
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
        let reach = Reach::new(&inside, &files, std::slice::from_ref(&other));
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
        let above = Reach::new(root.path(), &files, std::slice::from_ref(&other));
        assert!(above.read(&ReadTextFileRequest::new("s", inside.join("a/b/new.txt"))).is_ok());
        assert!(above.read(&ReadTextFileRequest::new("s", other.join("secret"))).is_err());
        assert!(above.write(&WriteTextFileRequest::new("s", other.join("n"), "")).is_err());
        assert!(!above.contains(&other));
        assert!(reach.contains(&inside.join("a")) && !reach.contains(&inside.join("way-out")));
    }

    /// An agent must not find out by Hob's answers which files of others exist.
    #[test]
    fn what_is_outside_and_what_is_missing_have_one_answer() {
        let root = tempfile::tempdir().unwrap();
        let (inside, other) = (root.path().join("ws"), root.path().join("other"));
        fs::create_dir_all(&inside).unwrap();
        fs::create_dir_all(&other).unwrap();
        fs::write(other.join("there"), "s").unwrap();
        let reach = Reach::new(&inside, &root.path().join("files"), &[]);
        symlink(&other, inside.join("out")).unwrap();
        for (name, link) in [("there", "a"), ("missing", "b")] {
            symlink(other.join(name), inside.join(link)).unwrap();
        }
        let answers = |path: PathBuf| {
            let read = reach.read(&ReadTextFileRequest::new("s", path.clone())).unwrap_err();
            let write = WriteTextFileRequest::new("s", path.clone(), "new");
            let write = reach.write(&write).unwrap_err();
            let path = path.display().to_string();
            [read, write]
                .map(|error| format!("{:?} {}", error.code, error.message.replace(&path, "PATH")))
        };
        let below = |name: &str| other.join(name);
        assert_eq!(answers(below("there")), answers(below("missing")));
        assert_eq!(answers(inside.join("out/there")), answers(inside.join("out/missing")));
        assert_eq!(answers(inside.join("a")), answers(inside.join("b")));
        assert_eq!(answers(inside.join("a/x")), answers(inside.join("b/x")));
        assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
    }

    #[test]
    fn paths_that_no_file_can_have_are_refused_at_once() {
        let root = tempfile::tempdir().unwrap();
        let reach = Reach::new(root.path(), &root.path().join("files"), &[]);
        for rest in ["a/".repeat(4_000_000), "n".repeat(256)] {
            let path = root.path().join(rest);
            assert!(reach.read(&ReadTextFileRequest::new("s", path.clone())).is_err());
            assert!(reach.write(&WriteTextFileRequest::new("s", path.clone(), "")).is_err());
            assert!(!reach.contains(&path));
        }
        let deep = root.path().join("a/".repeat(1500));
        assert!(reach.write(&WriteTextFileRequest::new("s", deep.join("f"), "x")).is_ok());
        assert_eq!(
            reach.read(&ReadTextFileRequest::new("s", deep.join("f"))).unwrap().content,
            "x"
        );
        fs::write(root.path().join("long"), vec![b'x'; 9 << 20]).unwrap();
        fs::write(root.path().join("odd"), vec![1; 8 << 20]).unwrap();
        for name in ["long", "odd"] {
            let request = ReadTextFileRequest::new("s", root.path().join(name));
            assert!(reach.read(&request).is_err(), "{name}");
        }
    }

    #[test]
    fn line_ranges_are_cut_out() {
        let text = "one\ntwo\nthree\n";
        assert_eq!(part(text.to_owned(), None, None), text);
        assert_eq!(part(text.to_owned(), Some(2), Some(1)), "two\n");
        assert_eq!(part(text.to_owned(), Some(3), None), "three\n");
        assert_eq!(part(text.to_owned(), Some(9), Some(9)), "");
        assert_eq!(part(text.to_owned(), Some(0), Some(1)), "one\n");
    }
}
