//! The home folder: its files, their modes, and its locks.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use hob_agents::AGENT_HOME_VARIABLE;
use hob_files::{Folder, owned};

/// How long a command waits for another one that migrates a database.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the server, or a command that must not run next to it, waits for a command that migrates a database.
const SERVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The most entries of an agent's folder that are looked at.
const MAX_FOLDER_NAMES: usize = 10_000;

/// The paths in `$HOB_HOME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    pub fn new(root: PathBuf) -> Home {
        Home { root }
    }

    /// Returns whether this is the home that commands without `$HOB_HOME` use.
    pub fn is_default(&self) -> bool {
        let user = std::env::var_os("HOME").map(PathBuf::from);
        user.is_some_and(|user| self.root == user.join(".hob"))
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

    /// Returns the file with the id of the last node that ran on this home.
    pub fn node(&self) -> PathBuf {
        self.root.join("node")
    }

    pub fn memory(&self) -> PathBuf {
        self.root.join("memory.db")
    }

    /// Returns the file with the public key, to which hooks seal secrets.
    pub fn public_key(&self) -> PathBuf {
        self.root.join("key.pub")
    }

    /// Returns the file with the new key, which exists during a key rotation.
    pub fn next_key(&self) -> PathBuf {
        self.root.join("key.next")
    }

    /// Returns the folder of deferral files: turns that wait for the server to store them.
    pub fn deferred(&self) -> PathBuf {
        self.root.join("deferred-captures")
    }

    /// Returns the folder with one file per transcript that says how far it was captured.
    pub fn capture_state(&self) -> PathBuf {
        self.root.join("capture-state")
    }

    pub fn workspaces(&self) -> PathBuf {
        self.root.join("workspaces")
    }

    pub fn files(&self) -> PathBuf {
        self.root.join("files")
    }

    /// Returns the folder whose content a thread of the server removes.
    pub fn trash(&self) -> PathBuf {
        self.root.join("trash")
    }

    /// Returns the folder for temporary files of sandboxed agents, which cannot use that of the
    /// system.
    pub fn temporary(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// Returns the folder of the configurations that Hob creates for Claude Code, and of its
    /// temporary files.
    pub fn claude(&self) -> PathBuf {
        self.root.join("claude")
    }

    /// Returns the file that says what `hob setup` has created.
    pub fn setup_record(&self) -> PathBuf {
        self.root.join("setup.json")
    }

    /// Returns the folder of what agents ask the owner to forget.
    pub fn forget_requests(&self) -> PathBuf {
        self.root.join("forget-requests")
    }

    /// Returns the folder of the configuration and data of apps' agents.
    pub fn agents(&self) -> PathBuf {
        self.root.join("agents")
    }

    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// Records of live processes, by which the next start ends leftovers.
    pub fn run_records(&self) -> PathBuf {
        self.root.join("run")
    }

    /// Returns the file that says which PostgreSQL databases have held something.
    pub fn known_databases(&self) -> PathBuf {
        self.root.join("databases.json")
    }

    /// Returns the file that exists while `hob restore` replaces files.
    pub fn unfinished_restore(&self) -> PathBuf {
        self.root.join("restore.unfinished")
    }

    /// Returns the file that says how the last scheduled backup went.
    pub fn backup_record(&self) -> PathBuf {
        self.root.join("backup.json")
    }

    /// Returns the file with the owner's acts that are not in the audit log yet.
    pub fn noted_acts(&self) -> PathBuf {
        self.root.join("acts.jsonl")
    }

    /// Returns the file of those that the server is writing into the audit log.
    pub fn taken_acts(&self) -> PathBuf {
        self.root.join("acts.taken.jsonl")
    }

    /// Returns the file with the time that the server went by last.
    pub fn clock_record(&self) -> PathBuf {
        self.root.join("clock.json")
    }

    fn lock(&self) -> PathBuf {
        self.root.join("hob.lock")
    }

    /// Creates the home and its folders, all with mode 0700. The umask of the process must already
    /// be 077.
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

    /// Creates only the folders that a hook needs, because a hook must be fast.
    pub fn prepare_for_capture(&self) -> anyhow::Result<()> {
        let folders = [self.root.clone(), self.deferred(), self.capture_state()];
        folders.iter().filter(|folder| !folder.is_dir()).try_for_each(|folder| make_private(folder))
    }

    /// Returns whether this home has databases, or has had some.
    pub fn has_data(&self) -> bool {
        [self.ledger(), self.memory(), self.root.join("stores.json")]
            .iter()
            .any(|path| path.exists())
    }

    /// Returns whether the home, or one of its databases, can only be read: its disk may be failing, or be a backup.
    pub fn is_read_only(&self) -> bool {
        [self.root.clone(), self.ledger(), self.memory()].iter().any(|path| {
            use nix::errno::Errno::{EACCES, EPERM, EROFS};
            let refused = nix::unistd::access(path, nix::unistd::AccessFlags::W_OK);
            matches!(refused, Err(EACCES | EPERM | EROFS))
        })
    }

    /// Returns the process that serves this home, if it is alive.
    pub fn serving_pid(&self) -> Option<u32> {
        let pid: u32 = owned::read_to_string(self.lock()).ok()?.trim().parse().ok()?;
        let process = hob_child::tree::process(i32::try_from(pid).ok()?);
        process.filter(|found| !found.zombie).map(|_| pid)
    }

    /// Returns the process that serves this home and does not answer, if a call of its socket failed for this reason.
    pub fn unresponsive_pid(&self, error: &io::Error) -> Option<u32> {
        // The kernel refuses a connection at once if no process listens.
        let is_late = matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
        self.serving_pid().filter(|_| is_late)
    }

    /// Returns whether this process runs inside an agent of this home's server.
    pub fn is_inside_agent(&self) -> bool {
        let agents_home = std::env::var_os(AGENT_HOME_VARIABLE).map(PathBuf::from);
        if agents_home.is_some_and(|home| home == self.root) {
            return true;
        }
        match owned::read_to_string(self.lock()) {
            Ok(text) => text.trim().parse().is_ok_and(hob_child::tree::descends_from),
            // Only the sandbox keeps a process out of the user's own files.
            Err(error) => {
                let owner = fs::metadata(&self.root).map(|metadata| metadata.uid()).ok();
                let ours = owner == Some(nix::unistd::getuid().as_raw());
                error.kind() == io::ErrorKind::PermissionDenied && ours
            }
        }
    }

    /// Removes temporary files that killed processes left.
    pub fn remove_temporary_files(&self) {
        for folder in [self.root.clone(), self.deferred(), self.capture_state()] {
            hob_files::remove_temporaries(&folder, Duration::from_secs(60));
        }
        self.remove_unfinished_copies();
        if let Err(error) = self.remove_temporary_files_of_agents()
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "failed to remove temporary files of agents");
        }
    }

    /// Removes copies of databases that an interrupted backup or restore left.
    fn remove_unfinished_copies(&self) {
        let day = Duration::from_secs(24 * 3600);
        for entry in owned::entries(&self.root) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_copy = ["backup-", "restore-"].iter().any(|prefix| name.starts_with(prefix));
            let modified = entry.metadata().and_then(|metadata| metadata.modified()).ok();
            let age = modified.and_then(|at| at.elapsed().ok()).unwrap_or_default();
            if is_copy && age > day {
                let _ = owned::remove_dir_all(entry.path());
            }
        }
    }

    /// Removes what a killed server left in the configuration folders of Claude Code. Only the server writes temporary files
    /// there, and none is running. Agents can write there, too, so links are not followed.
    fn remove_temporary_files_of_agents(&self) -> io::Result<()> {
        let apps = Folder::open(&self.claude().join("apps"))?;
        for app in apps.names(MAX_FOLDER_NAMES)? {
            let Ok(app) = apps.folder(Path::new(&app)) else { continue };
            for config in app.names(MAX_FOLDER_NAMES)? {
                let Ok(config) = app.folder(Path::new(&config)) else { continue };
                let names = config.names(MAX_FOLDER_NAMES)?;
                for name in names.iter().filter(|name| name.to_string_lossy().ends_with(".tmp")) {
                    // A folder is not Hob's.
                    let _ = config.remove_file(name);
                }
            }
        }
        Ok(())
    }

    /// Removes the capture state of transcripts that have not grown for a month. If one grows after
    /// all, it is read again from the start, and nothing is stored twice.
    pub fn remove_old_capture_states(&self) {
        let month = Duration::from_secs(30 * 24 * 3600);
        for entry in owned::entries(self.capture_state()) {
            let modified = entry.metadata().and_then(|metadata| metadata.modified()).ok();
            if modified.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > month) {
                let _ = owned::remove_file(entry.path());
            }
        }
    }

    /// Returns a name for this home that never changes and differs between homes.
    pub fn identity(&self) -> io::Result<String> {
        let metadata = fs::metadata(&self.root)?;
        Ok(format!("{:x}-{:x}", metadata.dev(), metadata.ino()))
    }

    /// Locks the stores for a command that opens them itself. Any number of commands can share the
    /// lock. The operating system releases it when the process ends.
    pub fn share_store(&self) -> anyhow::Result<StoreLock> {
        let file = self.open_store_lock()?;
        match file.try_lock_shared() {
            Ok(()) => Ok(StoreLock { _file: file }),
            Err(fs::TryLockError::WouldBlock) => {
                anyhow::bail!(
                    "`hob store migrate` or `hob restore` is changing the databases in {}; try again when it is done",
                    self.root.display()
                )
            }
            Err(fs::TryLockError::Error(error)) => Err(error).context("cannot lock the store"),
        }
    }

    /// Locks the stores for a migration. Waits up to `timeout` for the commands that use them.
    pub fn lock_store_exclusively(&self, timeout: Duration) -> anyhow::Result<StoreLock> {
        let file = self.open_store_lock()?;
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(StoreLock { _file: file }),
                Err(fs::TryLockError::WouldBlock) if began.elapsed() < timeout => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(fs::TryLockError::WouldBlock) => {
                    anyhow::bail!(
                        "another hob process is using the databases in {}; wait for it or stop it, then try again",
                        self.root.display()
                    )
                }
                Err(fs::TryLockError::Error(error)) => {
                    return Err(error).context("cannot lock the store");
                }
            }
        }
    }

    fn open_store_lock(&self) -> anyhow::Result<File> {
        let path = self.root.join("store.lock");
        owned::open_or_create(&path, 0o600)
            .with_context(|| format!("cannot open {}", path.display()))
    }

    /// Takes the serve lock for a command that migrates a database, without naming this process as the server. Returns `None`
    /// if a server runs. Waits for another command that migrates.
    pub fn lock_for_migration(&self) -> anyhow::Result<Option<ServeLock>> {
        Ok(self.lock_within(MIGRATION_TIMEOUT)?.ok().map(|file| ServeLock { _file: file }))
    }

    /// Takes the serve lock, which at most one process per home has. The operating system releases
    /// it when the process ends, even after `kill -9`. Waits for a command that migrates a database.
    pub fn take_lock(&self) -> anyhow::Result<Result<ServeLock, LockHolder>> {
        let mut file = match self.lock_within(SERVE_TIMEOUT)? {
            Ok(file) => file,
            Err(holder) => return Ok(Err(holder)),
        };
        file.set_len(0)?;
        file.rewind()?;
        write!(file, "{}", std::process::id())?;
        Ok(Ok(ServeLock { _file: file }))
    }

    /// Locks the file of the serve lock. Waits as long as it names no live process: a command that migrates a database has
    /// the lock without its name, and a server writes its own after it has locked the file.
    fn lock_within(&self, timeout: Duration) -> anyhow::Result<Result<File, LockHolder>> {
        let path = self.lock();
        let mut file = owned::open_or_create(&path, 0o600)
            .with_context(|| format!("cannot open {}", path.display()))?;
        let deadline = Instant::now() + timeout;
        loop {
            match try_lock(&mut file) {
                Ok(()) => return Ok(Ok(file)),
                Err(fs::TryLockError::WouldBlock) => {}
                Err(fs::TryLockError::Error(error)) => {
                    return Err(error).with_context(|| format!("cannot lock {}", path.display()));
                }
            }
            let pid = self.serving_pid();
            if pid.is_some() || Instant::now() >= deadline {
                return Ok(Err(LockHolder { pid }));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A lock on the stores of the home: shared by commands that use them, exclusive for a migration.
#[derive(Debug)]
pub struct StoreLock {
    _file: File,
}

/// Tries to lock. If a process was killed while it was starting a child, the child has the lock
/// until its `exec`. This waits up to a second for that, but only if the holder is dead.
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
        std::thread::sleep(Duration::from_millis(10));
    }
    file.try_lock()
}

fn make_private(folder: &Path) -> anyhow::Result<()> {
    let exists = folder.is_dir();
    owned::create_dir_all(folder).and_then(|()| owned::set_mode(folder, 0o700)).with_context(|| {
        let name = folder.display();
        match exists {
            true => format!("the folder {name} is not writable"),
            false => format!("cannot create the folder {name}"),
        }
    })
}

/// The right to serve this home; dropping it releases the lock.
#[derive(Debug)]
pub struct ServeLock {
    _file: File,
}

/// The process that has the serve lock.
#[derive(Debug)]
pub struct LockHolder {
    /// `None` if it is not known to be a server: another command has the lock for too long.
    pub pid: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serve_lock_is_exclusive() {
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
    fn migration_excludes_all_other_commands() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::new(folder.path().join("home"));
        home.prepare().unwrap();
        let soon = Duration::from_millis(50);
        let (one, two) = (home.share_store().unwrap(), home.share_store().unwrap());
        assert!(home.lock_store_exclusively(soon).is_err());
        drop((one, two));
        let alone = home.lock_store_exclusively(soon).unwrap();
        let refused = home.share_store().unwrap_err();
        assert!(refused.to_string().contains("hob store migrate"), "{refused}");
        drop(alone);
        home.share_store().unwrap();
    }
}
