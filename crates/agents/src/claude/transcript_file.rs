//! The transcript file of a session.
//!
//! The agent can change the folders that it lies in, and Hob reads and writes it with the owner's rights. So every
//! access starts at a folder that the agent cannot replace, and follows no link from there.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use hob_files::{Folder, Trash, owned};
use hob_transcript::claude::transcript_path;

use super::config::ConfigFolder;

/// Where a session's transcript lies. It need not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptFile {
    /// A folder that the agent cannot replace.
    root: PathBuf,
    /// The path of the file below it.
    below: PathBuf,
}

impl TranscriptFile {
    /// Returns the transcript of a session that works in `cwd`, a real path.
    pub fn new(config: &ConfigFolder, cwd: &Path, session: &str) -> TranscriptFile {
        let path = transcript_path(config.path(), cwd, session);
        let root = match config {
            ConfigFolder::Own(folder) => folder.clone(),
            // The owner may have made his folder of transcripts a link. Agents cannot replace it.
            ConfigFolder::Users(folder) => folder.join("projects"),
        };
        let below = path.strip_prefix(&root).unwrap_or(&path).to_owned();
        let root = match config {
            ConfigFolder::Own(_) => root,
            ConfigFolder::Users(_) => root.canonicalize().unwrap_or(root),
        };
        TranscriptFile { root, below }
    }

    #[cfg(test)]
    pub fn path(&self) -> PathBuf {
        self.root.join(&self.below)
    }

    /// Opens the file for reading.
    pub fn open(&self) -> io::Result<File> {
        Folder::open(&self.root)?.file(&self.below)
    }

    /// Reads the whole lines among the last `limit` bytes of the file.
    pub fn read_end(&self, limit: u64) -> io::Result<String> {
        let mut file = self.open()?;
        let skipped = file.metadata()?.len().saturating_sub(limit);
        // With the byte before, a line that begins there is known to be whole.
        file.seek(SeekFrom::Start(skipped.saturating_sub(1)))?;
        let mut bytes = Vec::new();
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
        let is_end = |byte: &u8| *byte == b'\n';
        let begin = match skipped {
            0 => 0,
            _ => bytes.iter().position(is_end).map_or(bytes.len(), |at| at + 1),
        };
        Ok(String::from_utf8_lossy(&bytes[begin..]).into_owned())
    }

    pub fn exists(&self) -> bool {
        self.open().is_ok()
    }

    /// Creates the folder of the file unless it exists, and returns its path.
    pub fn create_folder(&self) -> io::Result<PathBuf> {
        owned::create_dir_all(&self.root)?;
        let below = self.below.parent().unwrap_or(Path::new(""));
        Folder::open(&self.root)?.create_folders(below, 0o700)?;
        Ok(self.root.join(below))
    }

    /// Creates the file. Fails if it exists.
    pub fn create(&self, text: &str) -> io::Result<()> {
        self.create_folder()?;
        let mut file = Folder::open(&self.root)?.create_file(&self.below, 0o600)?;
        file.write_all(text.as_bytes())
    }

    /// Renames the file, if there is one, so that another can be created in its place.
    pub fn set_aside(&self) -> io::Result<()> {
        let (folder, name) = self.parent()?;
        let aside = Path::new(&name).with_extension("jsonl.before");
        let _ = folder.remove_file(aside.as_os_str());
        match folder.rename(name.as_os_str(), &folder, aside.as_os_str()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub fn remove(&self) -> io::Result<()> {
        let (folder, name) = self.parent()?;
        folder.remove_file(name.as_os_str())
    }

    /// Removes the folder of the same session, in which Claude Code keeps long results of tools and the transcripts of
    /// sub-agents.
    pub fn remove_session_folder(&self, trash: &Trash) -> io::Result<()> {
        let (folder, name) = self.parent()?;
        match name.file_stem() {
            Some(session) => trash.remove_from(&folder, session),
            None => Ok(()),
        }
    }

    fn parent(&self) -> io::Result<(Folder, PathBuf)> {
        let parts = self.below.parent().zip(self.below.file_name());
        let (parent, name) = parts.ok_or(io::ErrorKind::InvalidInput)?;
        Ok((Folder::open(&self.root)?.folder(parent)?, name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn an_agent_cannot_point_the_transcript_elsewhere() {
        let root = tempfile::tempdir().unwrap();
        let (config, other) = (root.path().join("config"), root.path().join("other"));
        fs::create_dir(&config).unwrap();
        let file = |config: &Path| {
            let config = ConfigFolder::Own(config.to_owned());
            TranscriptFile::new(&config, Path::new("/w"), "id")
        };
        let (own, foreign) = (file(&config), file(&other));
        fs::create_dir(&other).unwrap();
        foreign.create("{\"secret\":1}\n").unwrap();
        symlink(other.join("projects"), config.join("projects")).unwrap();
        assert!(own.open().is_err() && own.read_end(99).is_err() && !own.exists());
        assert!(own.create_folder().is_err() && own.create("x").is_err());
        assert!(own.set_aside().is_err() && own.remove().is_err());
        fs::remove_file(config.join("projects")).unwrap();
        own.create("first").unwrap();
        assert_eq!(own.read_end(3).unwrap(), "", "no whole line");
        assert_eq!(own.read_end(99).unwrap(), "first");
        assert!(own.create("second").is_err());
        own.set_aside().unwrap();
        own.create("second").unwrap();
        own.set_aside().unwrap();
        own.set_aside().unwrap();
        assert!(!own.exists());
        fs::remove_file(own.path()).unwrap_err();
        nix::unistd::mkfifo(&own.path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(own.open().is_err(), "a pipe does not block");
        own.remove().unwrap();
        assert_eq!(foreign.read_end(99).unwrap(), "{\"secret\":1}\n");
        fs::write(foreign.path(), "one\ntwo\n").unwrap();
        let ends = [2, 4, 5, 8].map(|limit| foreign.read_end(limit).unwrap());
        assert_eq!(ends, ["", "two\n", "two\n", "one\ntwo\n"]);
    }

    #[test]
    fn the_owners_folder_of_transcripts_may_be_a_link() {
        let root = tempfile::tempdir().unwrap();
        let real = root.path().join("real");
        fs::create_dir_all(&real).unwrap();
        symlink(&real, root.path().join("projects")).unwrap();
        let config = ConfigFolder::Users(root.path().to_owned());
        let file = TranscriptFile::new(&config, Path::new("/w"), "id");
        file.create("x").unwrap();
        assert_eq!(fs::read_to_string(real.join("-w/id.jsonl")).unwrap(), "x");
    }

    #[test]
    fn session_folder_is_removed_without_following_links() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("config")).unwrap();
        std::fs::create_dir(path("outside")).unwrap();
        std::fs::write(path("outside").join("kept"), "").unwrap();
        let transcript =
            TranscriptFile::new(&ConfigFolder::Own(path("config")), Path::new("/w"), "s");
        transcript.create("").unwrap();
        let session = transcript.path().with_extension("");
        let trash = Trash::open(&path("trash")).unwrap();
        std::fs::create_dir_all(session.join("tool-results")).unwrap();
        transcript.remove_session_folder(&trash).unwrap();
        assert!(!session.exists());
        std::os::unix::fs::symlink(path("outside"), &session).unwrap();
        transcript.remove_session_folder(&trash).unwrap();
        assert!(std::fs::symlink_metadata(&session).is_err());
        assert!(path("outside").join("kept").exists());
        transcript.remove_session_folder(&trash).unwrap();
    }
}
