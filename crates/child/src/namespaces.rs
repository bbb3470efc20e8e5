//! A child's own view of the machine: new user, mount, process and IPC namespaces.
//!
//! Landlock alone cannot close everything: sockets with a path, terminals, the process table and `chmod` stay open. So
//! the child sees another tree of files: its own `/tmp`, `/dev`, `/proc` and `/run`, nothing in place of the hidden
//! folders, no socket but those it may use, and everything read-only except its writable folders. An ordinary user may
//! create such a view where the kernel allows unprivileged user namespaces.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use hob_files::owned;
use nix::errno::Errno;
use nix::libc;
use nix::mount::{MsFlags, mount};
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use crate::confine::{Confinement, GrantedPaths, look_at};

/// Devices that every program may use. A new instance of the terminal devices comes in addition.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];
/// Parts of `/run` that programs need and that hold no sockets of the owner: how names are resolved, and where some
/// distributions keep programs.
const RUN_FOLDERS: [&str; 5] = [
    "/run/systemd/resolve/stub-resolv.conf",
    "/run/systemd/resolve/resolv.conf",
    "/run/NetworkManager/resolv.conf",
    "/run/resolvconf/resolv.conf",
    "/run/current-system",
];
/// Namespaces of each kind that an agent may create in its own. The kernel counts them for the agent's user as well, whose
/// limit they must not reach: no other agent could start then.
const MAX_NAMESPACES: u64 = 32;
const NAMESPACE_KINDS: [&str; 8] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"];
/// An agent may have this part of the user's watchers of files, which the owner's programs need as well.
const WATCHERS_PART: u64 = 4;
/// The size of the file systems that only hold mount points.
const COVER_OPTIONS: &str = "mode=0755,size=1m";
const SHARED_MEMORY_OPTIONS: &str = "mode=1777,size=512m";

/// Forks the calling process, which must have one thread, into new namespaces. The child is process 1 there.
///
/// Returns the child's process number, or `None` in the child.
pub(crate) fn fork() -> nix::Result<Option<i32>> {
    let flags = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC;
    let flags = libc::c_long::from(flags | libc::SIGCHLD);
    let none = 0 as libc::c_long;
    // SAFETY: without a stack of its own the child continues like a fork, on a copy of the memory. The process has one
    // thread, so no lock is held in the copy.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    match Errno::result(pid)? {
        0 => Ok(None),
        pid => Ok(Some(pid as i32)),
    }
}

/// The user and group of the process before it entered the namespaces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct User {
    uid: u32,
    gid: u32,
}

impl User {
    pub fn current() -> User {
        User { uid: nix::unistd::getuid().as_raw(), gid: nix::unistd::getgid().as_raw() }
    }

    /// Keeps the numbers of the user and the group in the new namespace.
    fn map(self) -> io::Result<()> {
        let write = |name: &str, text: String| owned::write_existing(name, text.as_bytes());
        write("/proc/self/setgroups", "deny".to_owned())?;
        write("/proc/self/uid_map", format!("{0} {0} 1", self.uid))?;
        write("/proc/self/gid_map", format!("{0} {0} 1", self.gid))
    }
}

/// A part of the old view that the new one shows under its old path.
struct Kept {
    /// The path that was asked for, which may lead through links.
    given: PathBuf,
    path: PathBuf,
    /// The device and inode, by which it is recognised.
    identity: (u64, u64),
    tree: OwnedFd,
    is_folder: bool,
    writable: bool,
}

impl Kept {
    /// Takes a copy of what a path shows now, following links. Returns `None` if there is nothing.
    fn take(given: &Path, writable: bool) -> io::Result<Option<Kept>> {
        match given.canonicalize() {
            Err(error) if is_missing(&error) => Ok(None),
            path => Kept::take_real(given, path?, writable).map(Some),
        }
    }

    /// Takes a copy of what a real path shows now. Fails if there is a link on the way to it.
    fn take_real(given: &Path, path: PathBuf, writable: bool) -> io::Result<Kept> {
        let (file, metadata) = look_at(&path)?;
        let (is_folder, identity) = (metadata.is_dir(), (metadata.dev(), metadata.ino()));
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH
            | OpenTreeFlags::AT_RECURSIVE;
        let tree = open_tree(&file, "", flags)?;
        Ok(Kept { given: given.to_owned(), path, identity, tree, is_folder, writable })
    }

    /// Returns whether its path shows it now.
    fn is_shown(&self) -> bool {
        let shown = fs::metadata(&self.path).map(|metadata| (metadata.dev(), metadata.ino()));
        shown.is_ok_and(|shown| shown == self.identity)
    }

    /// Shows it in the new view.
    fn place(&self) -> io::Result<()> {
        self.place_at(&self.path)?;
        if fs::symlink_metadata(&self.given).is_ok() {
            return Ok(());
        }
        // A covered folder had a link that led to it.
        if let Some(folder) = self.given.parent() {
            owned::create_dir_all(folder)?;
        }
        or_exists(owned::symlink(&self.path, &self.given))
    }

    fn place_at(&self, target: &Path) -> io::Result<()> {
        if !self.writable {
            set_read_only(
                self.tree.as_raw_fd(),
                Path::new(""),
                libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            )?;
        }
        if fs::symlink_metadata(target).is_err() {
            if let Some(folder) = target.parent() {
                owned::create_dir_all(folder)?;
            }
            let created = match self.is_folder {
                true => owned::create_dir(target),
                false => owned::create_new(target, 0o666).map(drop),
            };
            or_exists(created)?;
        }
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        Ok(move_mount(&self.tree, "", CWD, target, flags)?)
    }
}

/// Builds the view of a child. The calling process must come from [`fork`].
pub(crate) fn enter(
    user: User,
    confinement: &Confinement,
    granted: &GrantedPaths,
) -> io::Result<()> {
    user.map()?;
    // What is mounted here must not appear outside.
    mount(none(), "/", none(), MsFlags::MS_REC | MsFlags::MS_PRIVATE, none())?;
    let take_all = |paths: &[PathBuf], writable: bool| -> io::Result<Vec<Kept>> {
        paths.iter().filter_map(|path| Kept::take(path, writable).transpose()).collect()
    };
    let visible = take_all(&confinement.visible, false)?;
    // What was granted is real, and must still be.
    let take_granted = |paths: &[PathBuf], writable: bool| -> io::Result<Vec<Kept>> {
        paths.iter().map(|path| Kept::take_real(path, path.clone(), writable)).collect()
    };
    let mut own = take_granted(&granted.writable, true)?;
    own.extend(take_granted(&granted.readable, false)?);
    own.extend(take_sockets(&confinement.sockets)?);
    own.extend(take_all(std::slice::from_ref(&confinement.temporary), true)?);
    own.sort_by_key(|kept| kept.path.components().count());
    let temporary =
        || Kept::take(&confinement.temporary, true)?.ok_or(io::ErrorKind::NotFound.into());
    let temporary: [io::Result<Kept>; 2] = [temporary(), temporary()];
    let devices = take_all(&DEVICES.map(|name| Path::new("/dev").join(name)), true)?;
    let run = take_all(&RUN_FOLDERS.map(PathBuf::from), false)?;
    let sockets = bound_sockets()?;

    make_read_only("/", Below::All)?;
    mount_new("proc", "/proc", MsFlags::MS_NOEXEC, "")?;
    limit_namespaces()?;
    build_devices(&devices)?;
    cover_folder(Path::new("/run"))?;
    run.iter().try_for_each(Kept::place)?;
    for (folder, temporary) in ["/tmp", "/var/tmp"].into_iter().zip(temporary) {
        if Path::new(folder).is_dir() {
            temporary?.place_at(Path::new(folder))?;
        }
    }
    // What lies in a covered folder, such as a home below `/tmp`, is shown again.
    visible.iter().filter(|kept| !kept.is_shown()).try_for_each(Kept::place)?;
    for path in &granted.hidden {
        if !path.exists() {
            // It lies in a covered folder. The child must not make one of its own there.
            owned::create_dir_all(path)?;
        }
        hide(path)?;
    }
    own.iter().try_for_each(Kept::place)?;
    for folder in granted.hidden.iter().filter(|path| path.is_dir()) {
        make_read_only(folder, Below::This)?;
    }
    make_read_only("/run", Below::This)?;
    make_read_only("/dev", Below::This)?;
    sockets
        .iter()
        .filter(|socket| !allows(confinement, socket))
        .try_for_each(|path| hide_socket(confinement, path))
}

/// Bounds what the namespaces of the child take from its user's share. A kernel that lacks a limit has nothing to bound.
fn limit_namespaces() -> io::Result<()> {
    let write = |name: String, limit: u64| match owned::write_existing(
        format!("/proc/sys/user/{name}"),
        limit.to_string().as_bytes(),
    ) {
        Err(error) if !is_missing(&error) => Err(error),
        _ => Ok(()),
    };
    for kind in NAMESPACE_KINDS {
        write(format!("max_{kind}_namespaces"), MAX_NAMESPACES)?;
    }
    for what in ["instances", "watches"] {
        let of_user = owned::read_to_string(format!("/proc/sys/fs/inotify/max_user_{what}"));
        let of_user = of_user.ok().and_then(|text| text.trim().parse::<u64>().ok());
        if let Some(of_user) = of_user {
            write(format!("max_inotify_{what}"), of_user / WATCHERS_PART)?;
        }
    }
    Ok(())
}

/// Takes copies of sockets, whose modes the child cannot change. What is not a socket is left out.
fn take_sockets(paths: &[PathBuf]) -> io::Result<Vec<Kept>> {
    let is_socket =
        |path: &Path| fs::metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let sockets = paths.iter().filter(|path| is_socket(path));
    sockets.filter_map(|path| Kept::take(path, false).transpose()).collect()
}

fn allows(confinement: &Confinement, socket: &Path) -> bool {
    let own = confinement.writable.iter().chain([&confinement.temporary]);
    let is_named = confinement.sockets.iter().any(|allowed| allowed == socket);
    is_named || own.into_iter().any(|folder| socket.starts_with(folder))
}

/// Returns the paths of all sockets that are bound now.
fn bound_sockets() -> io::Result<Vec<PathBuf>> {
    // Any process of the machine chooses names in this table, which need not be UTF-8.
    let table = owned::read("/proc/net/unix")?;
    // Num RefCount Protocol Flags Type St Inode Path
    let path = |line: &[u8]| {
        let path = line.splitn(8, |byte| *byte == b' ').nth(7)?.trim_ascii_start();
        Some(PathBuf::from(OsStr::from_bytes(path)))
    };
    let lines = table.split(|byte| *byte == b'\n').skip(1);
    let mut paths: Vec<PathBuf> =
        lines.filter_map(path).filter(|path| path.is_absolute()).collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}

fn build_devices(devices: &[Kept]) -> io::Result<()> {
    cover_folder(Path::new("/dev"))?;
    devices.iter().try_for_each(Kept::place)?;
    owned::create_dir("/dev/pts")?;
    mount_new("devpts", "/dev/pts", MsFlags::MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")?;
    owned::create_dir("/dev/shm")?;
    mount_new("tmpfs", "/dev/shm", MsFlags::MS_NODEV, SHARED_MEMORY_OPTIONS)?;
    for (name, target) in DEVICE_LINKS {
        owned::symlink(target, Path::new("/dev").join(name))?;
    }
    Ok(())
}

/// Shows a device in place of a socket. The path is what some process calls its socket; nothing happens unless it leads to
/// one.
fn hide_socket(confinement: &Confinement, path: &Path) -> io::Result<()> {
    let Ok(real) = path.canonicalize() else { return Ok(()) };
    let Ok((_, metadata)) = look_at(&real) else { return Ok(()) };
    let is_allowed = |socket: &PathBuf| socket.canonicalize().is_ok_and(|socket| socket == real);
    if !metadata.file_type().is_socket() || confinement.sockets.iter().any(is_allowed) {
        return Ok(());
    }
    // A socket that was removed meanwhile need not be hidden.
    match cover_file(&real) {
        Err(_) if fs::symlink_metadata(&real).is_err() => Ok(()),
        placed => placed,
    }
}

/// Shows an empty folder or file in place of what a path shows now. Nothing happens if there is nothing.
fn hide(path: &Path) -> io::Result<()> {
    let path = match path.canonicalize() {
        // A path that cannot be looked up cannot be opened either.
        Err(_) => return Ok(()),
        Ok(path) => path,
    };
    if path.is_dir() {
        return cover_folder(&path);
    }
    cover_file(&path)
}

fn cover_file(path: &Path) -> io::Result<()> {
    let empty = Kept::take(Path::new("/dev/null"), true)?.ok_or(io::ErrorKind::NotFound)?;
    empty.place_at(path)
}

fn cover_folder(path: &Path) -> io::Result<()> {
    let path = path.canonicalize()?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    Ok(mount(Some("tmpfs"), &path, Some("tmpfs"), flags, Some(COVER_OPTIONS))?)
}

fn mount_new(kind: &str, path: &str, flags: MsFlags, options: &str) -> io::Result<()> {
    let flags = flags | MsFlags::MS_NOSUID;
    Ok(mount(Some(kind), path, Some(kind), flags, Some(options))?)
}

/// Which mounts an attribute applies to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Below {
    /// The mount itself.
    This,
    /// The mount and all below it.
    All,
}

fn make_read_only(path: impl AsRef<Path>, below: Below) -> io::Result<()> {
    let flags = if below == Below::All { libc::AT_RECURSIVE } else { 0 };
    set_read_only(libc::AT_FDCWD, path.as_ref(), flags)
}

fn set_read_only(folder: RawFd, path: &Path, flags: libc::c_int) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_encoded_bytes())?;
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the path and the attributes live across the call, and the size is that of the attributes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            folder,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    Errno::result(result)?;
    Ok(())
}

fn none() -> Option<&'static str> {
    None
}

/// Ignores that something exists already. The agents of an app share their temporary folder, and two of them may build
/// their views at the same time.
fn or_exists(created: io::Result<()>) -> io::Result<()> {
    match created {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => created,
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
