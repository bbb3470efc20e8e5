//! The home folder: its places, its modes, and the one lock.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// `$HOB_HOME` and what lies in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    pub fn new(root: PathBuf) -> Home {
        Home { root }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn config(&self) -> PathBuf {
        self.root.join("config.toml")
    }

    pub fn key(&self) -> PathBuf {
        self.root.join("key")
    }

    pub fn admin_token(&self) -> PathBuf {
        self.root.join("admin.token")
    }

    pub fn ledger(&self) -> PathBuf {
        self.root.join("hob.db")
    }

    /// The name of the node that last ran here.
    pub fn node(&self) -> PathBuf {
        self.root.join("node")
    }

    pub fn memory(&self) -> PathBuf {
        self.root.join("memory.db")
    }

    /// What hooks seal to; no secret.
    pub fn public_key(&self) -> PathBuf {
        self.root.join("key.pub")
    }

    /// The next key, while one takes the place of another.
    pub fn next_key(&self) -> PathBuf {
        self.root.join("key.next")
    }

    /// Turns that wait for the server.
    pub fn deferred(&self) -> PathBuf {
        self.root.join("deferred-captures")
    }

    /// How far transcripts have been captured.
    pub fn capture_state(&self) -> PathBuf {
        self.root.join("capture-state")
    }

    pub fn workspaces(&self) -> PathBuf {
        self.root.join("workspaces")
    }

    pub fn files(&self) -> PathBuf {
        self.root.join("files")
    }

    /// Temporary folders of agents that can't have the system's.
    pub fn temporary(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// Configuration folders of Claude Code that Hob made, and its temporary files.
    pub fn claude(&self) -> PathBuf {
        self.root.join("claude")
    }

    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// Records of live processes, for the next start's sweep.
    pub fn run_records(&self) -> PathBuf {
        self.root.join("run")
    }

    fn lock(&self) -> PathBuf {
        self.root.join("hob.lock")
    }

    /// Makes the home and its folders, all 0700. The process's umask must already be 077.
    pub fn prepare(&self) -> anyhow::Result<()> {
        let folders = [
            self.root.clone(),
            self.workspaces(),
            self.files(),
            self.temporary(),
            self.claude(),
            self.logs(),
            self.run_records(),
            self.deferred(),
            self.capture_state(),
        ];
        folders.iter().try_for_each(|folder| make_private(folder))
    }

    /// Makes what a hook needs, and no more: it must cost next to nothing.
    pub fn prepare_for_capture(&self) -> anyhow::Result<()> {
        let folders = [self.root.clone(), self.deferred(), self.capture_state()];
        folders.iter().filter(|folder| !folder.is_dir()).try_for_each(|folder| make_private(folder))
    }

    /// Whether this process was started by an agent that this home's server runs.
    pub fn is_inside_agent(&self) -> bool {
        match fs::read_to_string(self.lock()) {
            Ok(text) => text.trim().parse().is_ok_and(hob_child::tree::descends_from),
            // Nobody else is kept out of the user's own files.
            Err(error) => {
                let owner = fs::metadata(&self.root).map(|metadata| metadata.uid()).ok();
                let ours = owner == Some(nix::unistd::getuid().as_raw());
                error.kind() == io::ErrorKind::PermissionDenied && ours
            }
        }
    }

    /// Removes what killed processes have left half written.
    pub fn remove_halves(&self) {
        for folder in [self.root.clone(), self.deferred(), self.capture_state()] {
            hob_files::remove_temporaries(&folder, std::time::Duration::from_secs(60));
        }
    }

    /// Removes what is known of transcripts that nobody has added to for long. Should one go on after
    /// all it is read again, and nothing is stored twice.
    pub fn remove_old_states(&self) {
        let month = std::time::Duration::from_secs(30 * 24 * 3600);
        for entry in fs::read_dir(self.capture_state()).into_iter().flatten().flatten() {
            let modified = entry.metadata().and_then(|metadata| metadata.modified()).ok();
            if modified.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > month) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// A name for this home that is the same at every start and differs between homes.
    pub fn identity(&self) -> io::Result<String> {
        let metadata = fs::metadata(&self.root)?;
        Ok(format!("{:x}-{:x}", metadata.dev(), metadata.ino()))
    }

    /// For commands that work on the databases themselves. The operating system ends it with the process, where the
    /// lock is not dropped before.
    pub fn share_store(&self) -> anyhow::Result<StoreLock> {
        let file = self.open_store_lock()?;
        match file.try_lock_shared() {
            Ok(()) => Ok(StoreLock { _file: file }),
            Err(fs::TryLockError::WouldBlock) => {
                anyhow::bail!("`hob store migrate` is moving what is in {}", self.root.display())
            }
            Err(fs::TryLockError::Error(error)) => Err(error).context("the store cannot be locked"),
        }
    }

    /// For whoever moves them: waits for those who work on them, but not for ever.
    pub fn own_store(&self, patience: std::time::Duration) -> anyhow::Result<StoreLock> {
        let file = self.open_store_lock()?;
        let began = std::time::Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(StoreLock { _file: file }),
                Err(fs::TryLockError::WouldBlock) if began.elapsed() < patience => {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                Err(fs::TryLockError::WouldBlock) => {
                    anyhow::bail!("another hob command is working on {}", self.root.display())
                }
                Err(fs::TryLockError::Error(error)) => {
                    return Err(error).context("the store cannot be locked");
                }
            }
        }
    }

    fn open_store_lock(&self) -> anyhow::Result<File> {
        let path = self.root.join("store.lock");
        let mut options = OpenOptions::new();
        options.create(true).read(true).write(true).truncate(false).mode(0o600);
        options.open(&path).with_context(|| format!("{} cannot be opened", path.display()))
    }

    /// Takes the lock that makes `hob serve` the only one of this home. The operating system gives
    /// it back when the process ends, however it ends.
    pub fn take_lock(&self) -> anyhow::Result<Result<ServeLock, Holder>> {
        let path = self.lock();
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("{} cannot be opened", path.display()))?;
        match try_lock(&mut file) {
            Ok(()) => {
                file.set_len(0)?;
                file.rewind()?;
                write!(file, "{}", std::process::id())?;
                Ok(Ok(ServeLock { _file: file }))
            }
            Err(fs::TryLockError::WouldBlock) => {
                let mut text = String::new();
                file.read_to_string(&mut text)?;
                Ok(Err(Holder { pid: text.trim().parse().ok() }))
            }
            Err(fs::TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("{} cannot be locked", path.display()))
            }
        }
    }
}

/// Nobody moves the databases of this home while this lives; or, where it was taken alone, nobody else uses them.
#[derive(Debug)]
pub struct StoreLock {
    _file: File,
}

/// Tries to lock. A process that was killed while it started another may leave the lock to that one for
/// the moment until its program begins: it is waited for, but only for one that is dead.
fn try_lock(file: &mut File) -> Result<(), fs::TryLockError> {
    for _ in 0..100 {
        match file.try_lock() {
            Err(fs::TryLockError::WouldBlock) => {}
            other => return other,
        }
        let mut text = String::new();
        let holder = file.rewind().and_then(|()| file.read_to_string(&mut text)).ok();
        let pid = holder.and_then(|_| text.trim().parse::<i32>().ok());
        file.rewind().map_err(fs::TryLockError::Error)?;
        if pid.is_none_or(|pid| hob_child::tree::process(pid).is_some_and(|found| !found.zombie)) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    file.try_lock()
}

fn make_private(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder)
        .and_then(|()| fs::set_permissions(folder, Permissions::from_mode(0o700)))
        .with_context(|| format!("the folder {} cannot be made", folder.display()))
}

/// The right to serve this home; dropping it gives it back.
#[derive(Debug)]
pub struct ServeLock {
    _file: File,
}

/// Who holds the lock.
#[derive(Debug)]
pub struct Holder {
    pub pid: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lock_per_home() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::new(folder.path().join("home"));
        home.prepare().unwrap();
        let first = home.take_lock().unwrap().expect("the lock is free");
        let holder = home.take_lock().unwrap().expect_err("the lock is taken");
        assert_eq!(holder.pid, Some(std::process::id()));
        drop(first);
        assert!(home.take_lock().unwrap().is_ok());
    }

    #[test]
    fn whoever_moves_the_store_is_alone() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::new(folder.path().join("home"));
        home.prepare().unwrap();
        let soon = std::time::Duration::from_millis(50);
        let (one, two) = (home.share_store().unwrap(), home.share_store().unwrap());
        assert!(home.own_store(soon).is_err());
        drop((one, two));
        let alone = home.own_store(soon).unwrap();
        let refused = home.share_store().unwrap_err();
        assert!(refused.to_string().contains("hob store migrate"), "{refused}");
        drop(alone);
        home.share_store().unwrap();
    }
}
