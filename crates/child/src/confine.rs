//! The confinement of a child: it cannot reach Hob's home and can change only its own files.
//!
//! Landlock can only allow, and what is allowed on a folder is allowed on everything below it. So the
//! folders on the way from the root to the hidden one get nothing, and every sibling of those
//! folders is allowed one by one. A sibling that appears later is closed to children that already run.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hob_files::owned;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, Errno, NetPort,
    PathBeneath, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
    make_bitflags,
};
use nix::libc;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};

use crate::limits::TreeLimits;
use crate::network_filter::NetworkFilter;

/// The Landlock version whose rights are restricted. An older kernel restricts those that it knows. Rights
/// of newer versions stay allowed, for example connecting to a socket by its path, which children need to
/// reach Hob.
const RESTRICTED_ABI: ABI = ABI::V7;
const READ_ACCESS: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir | Execute});
/// Additional rights on devices: every program writes to `/dev/null`, and terminals need `ioctl`.
const DEVICE_ACCESS: BitFlags<AccessFs> = make_bitflags!(AccessFs::{WriteFile | IoctlDev});
/// Capabilities with which root reads the memory and environment of any process, despite Landlock.
const DROPPED_CAPABILITIES: CapabilitySet = CapabilitySet::PERFMON.union(CapabilitySet::SYS_ADMIN);

/// The oldest Landlock version that a strict confinement accepts. Older ones do not restrict signals and abstract
/// sockets.
pub const STRICT_LANDLOCK_VERSION: u32 = 6;
/// The oldest Landlock version that restricts TCP ports.
const PORTS_LANDLOCK_VERSION: u32 = 4;

/// The confinement of a child. It can read and execute everything that the user can, except `hidden`. It
/// can change only `writable` and existing devices, and signal no process outside its own tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Confinement {
    /// Hob's home and stores of credentials. They can be neither read nor written, except for the paths of
    /// the following lists inside them. The first one must exist.
    pub hidden: Vec<PathBuf>,
    /// Files and folders that the child may change, each with everything below it. Paths that do not exist
    /// are skipped, and so are those that would expose a hidden one; see [`opens`].
    pub writable: Vec<PathBuf>,
    /// Files and folders inside hidden ones that the child may read but not change.
    pub readable: Vec<PathBuf>,
    /// Sockets of the owner that the child may connect to.
    pub sockets: Vec<PathBuf>,
    /// Files and folders that the child needs to see even if they lie in a folder for temporary files.
    pub visible: Vec<PathBuf>,
    /// The child's own folder for temporary files, which is shown as `/tmp`.
    pub temporary: PathBuf,
    /// Whether the child must not start without a view of its own. Set where the kernel allows views: a failure then has
    /// another reason, perhaps something that another child did.
    pub view_required: bool,
    /// Whether the child must also not start with less than [`STRICT_LANDLOCK_VERSION`].
    pub strict: bool,
    /// The TCP ports that the child may connect to; all of them if `None`.
    pub ports: Option<Vec<u16>>,
    /// What the child and everything that it started may use. The shim does not need to know.
    pub limits: TreeLimits,
}

/// The paths of a confinement as they are on this machine: real, and without those that would expose a hidden one.
pub(crate) struct GrantedPaths {
    pub hidden: Vec<PathBuf>,
    /// The hidden paths, including those that do not exist yet.
    pub closed: Vec<PathBuf>,
    pub writable: Vec<PathBuf>,
    pub readable: Vec<PathBuf>,
    pub temporary: PathBuf,
}

impl Confinement {
    /// Looks the paths up. Fails if the first hidden one does not exist, or if a writable one leads through a link: another
    /// child may have put it there since the path was checked. In the first hidden folder no child can do that.
    pub(crate) fn granted(&self) -> io::Result<GrantedPaths> {
        let first = self.hidden.first().map(|path| path.canonicalize()).transpose()?;
        // A store of credentials need not exist.
        let others = self.hidden.iter().skip(1).filter_map(|path| path.canonicalize().ok());
        let hidden: Vec<PathBuf> = first.into_iter().chain(others).collect();
        let paths = HiddenPaths::new(&hidden);
        let grant = |given: &PathBuf| {
            let real = match given.canonicalize() {
                Err(error) if is_missing(&error) => return Ok(None),
                real => real?,
            };
            let is_trusted = self.hidden.first().is_some_and(|home| given.starts_with(home));
            if real != *given && !is_trusted {
                return Err(io::Error::from_raw_os_error(libc::ELOOP));
            }
            let exposes = paths.meets(&real, &fs::metadata(&real)?);
            let slips = hidden.iter().any(|hidden| slips_into(hidden, given, &real));
            Ok((!exposes && !slips).then_some(real))
        };
        let all = |given: &[PathBuf]| -> io::Result<Vec<PathBuf>> {
            given.iter().filter_map(|path| grant(path).transpose()).collect()
        };
        let closed = self.hidden.iter().map(|path| path.canonicalize().unwrap_or(path.clone()));
        Ok(GrantedPaths {
            writable: all(&self.writable)?,
            readable: all(&self.readable)?,
            closed: closed.collect(),
            // It lies in the first hidden folder, where no child can replace it.
            temporary: self.temporary.canonicalize().unwrap_or_else(|_| self.temporary.clone()),
            hidden,
        })
    }
}

/// Returns the kernel's Landlock version, or `None` if it has none.
pub fn landlock_version() -> Option<u32> {
    const VERSION: libc::c_uint = 1;
    let nothing = std::ptr::null::<libc::c_void>();
    // SAFETY: asked for its version, the kernel wants a null pointer of length zero and reads no memory.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0usize, VERSION) };
    u32::try_from(version).ok().filter(|version| *version > 0)
}

/// Returns whether the kernel has Landlock. Fails if `ports` are given and it cannot restrict them.
fn is_restricted(ports: Option<&[u16]>) -> io::Result<bool> {
    let version = landlock_version();
    if ports.is_some() && version.unwrap_or_default() < PORTS_LANDLOCK_VERSION {
        return Err(io::Error::from_raw_os_error(libc::EPROTONOSUPPORT));
    }
    Ok(version.is_some())
}

/// Returns whether a child that may change `writable` could reach `hidden` through it: whether `hidden` is
/// that path or lies below it, under any name that links or mounts give it.
pub fn opens(writable: &Path, hidden: &Path) -> bool {
    let hidden = hidden.canonicalize().unwrap_or_else(|_| hidden.to_owned());
    let Ok(writable) = writable.canonicalize() else { return false };
    let Ok(metadata) = fs::metadata(&writable) else { return false };
    HiddenPaths::new(&[hidden]).meets(&writable, &metadata)
}

/// The rules of one child, ready to be enforced on it.
pub(crate) struct Rules {
    ruleset: RulesetCreated,
    /// The capabilities that the child loses. They matter only if the user is root.
    dropped: CapabilitySet,
    /// Closes the ways around the ports, if ports are restricted.
    filter: Option<NetworkFilter>,
}

impl Rules {
    /// Builds the rules of a child that sees the whole machine. Returns `None` if the kernel has no Landlock;
    /// a child then runs unconfined.
    pub fn new(confinement: &Confinement) -> io::Result<Option<Rules>> {
        let ports = confinement.ports.as_deref();
        if !is_restricted(ports)? {
            return Ok(None);
        }
        let granted = confinement.granted()?;
        let mut rules = Rules::empty(DROPPED_CAPABILITIES, ports)?;
        rules.allow_around(&HiddenPaths::new(&granted.closed), Path::new("/"))?;
        let own = [granted.temporary.clone(), "/dev/shm".into()];
        rules
            .allow_paths(granted.writable.iter().chain(&own), AccessFs::from_all(RESTRICTED_ABI))?;
        rules.allow_paths(&granted.readable, READ_ACCESS)?;
        Ok(Some(rules))
    }

    /// Builds the rules of a child that has a view of its own, which shows nothing hidden.
    pub fn in_view(confinement: &Confinement, granted: &GrantedPaths) -> io::Result<Option<Rules>> {
        let ports = confinement.ports.as_deref();
        if !is_restricted(ports)? {
            return Ok(None);
        }
        // With capabilities of its namespace, a child of root could take the view apart.
        let mut rules = Rules::empty(CapabilitySet::all(), ports)?;
        // The view covers what is hidden now. A store of credentials that the owner creates or replaces later has no rule.
        rules.allow_around(&HiddenPaths::new(&granted.closed), Path::new("/"))?;
        // Folders can be listed everywhere: what is hidden now is covered.
        rules.allow_paths(&[PathBuf::from("/")], AccessFs::ReadDir.into())?;
        rules.allow_paths(&granted.readable, READ_ACCESS)?;
        let own = ["/dev/shm", "/tmp", "/var/tmp"].map(PathBuf::from);
        rules
            .allow_paths(granted.writable.iter().chain(&own), AccessFs::from_all(RESTRICTED_ABI))?;
        Ok(Some(rules))
    }

    /// Builds rules that allow no file, and TCP connections to `ports` only.
    fn empty(dropped: CapabilitySet, ports: Option<&[u16]>) -> io::Result<Rules> {
        let create = || -> Result<RulesetCreated, RulesetError> {
            let mut ruleset = Ruleset::default()
                .set_compatibility(CompatLevel::BestEffort)
                .handle_access(AccessFs::from_all(RESTRICTED_ABI))?
                .scope(Scope::from_all(RESTRICTED_ABI))?;
            if ports.is_some() {
                ruleset = ruleset.handle_access(AccessNet::ConnectTcp)?;
            }
            let mut created = ruleset.create()?;
            for port in ports.into_iter().flatten() {
                created = created.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
            }
            Ok(created)
        };
        let filter = ports.map(|_| NetworkFilter::new()).transpose()?;
        Ok(Rules { ruleset: create().map_err(system)?, dropped, filter })
    }

    /// Confines the calling thread, and everything that it starts, for good. It makes system calls only, so
    /// that it may be called between fork and exec.
    pub fn enforce(self) -> io::Result<()> {
        for capability in self.dropped.iter() {
            // A process that is not root has none of these capabilities, and may not drop them.
            let _ = remove_capability_from_bounding_set(capability);
        }
        self.ruleset.restrict_self().map(drop).map_err(system)?;
        self.filter.as_ref().map_or(Ok(()), NetworkFilter::enforce)
    }

    /// Allows reading everything below a folder, except hidden paths. Links get no rule: their target is
    /// allowed, or not, under its own name.
    fn allow_around(&mut self, paths: &HiddenPaths, folder: &Path) -> io::Result<()> {
        let entries = match owned::read_dir(folder) {
            Ok(entries) => entries,
            // For example a `/home` that cannot be listed. Of what is in it, only the way to hidden paths is known.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                for below in paths.known_in(folder) {
                    self.allow_around(paths, &below)?;
                }
                return Ok(());
            }
            Err(error) if is_missing(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let path = entry?.path();
            // A child could not read an entry that is gone again or closed to this user.
            let Ok((file, metadata)) = look_at(&path) else { continue };
            if metadata.is_symlink() || paths.hides(&path, &metadata) {
                continue;
            }
            if paths.meets(&path, &metadata) {
                self.allow_around(paths, &path)?;
                continue;
            }
            let device = if path.starts_with("/dev") { DEVICE_ACCESS } else { BitFlags::EMPTY };
            self.allow(file, &metadata, READ_ACCESS | device)?;
        }
        Ok(())
    }

    /// Allows rights on paths. Those that do not exist are skipped.
    fn allow_paths<'a>(
        &mut self,
        paths: impl IntoIterator<Item = &'a PathBuf>,
        rights: BitFlags<AccessFs>,
    ) -> io::Result<()> {
        for path in paths {
            match look_at(path) {
                Ok((file, metadata)) => self.allow(file, &metadata, rights)?,
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn allow(
        &mut self,
        file: File,
        metadata: &Metadata,
        rights: BitFlags<AccessFs>,
    ) -> io::Result<()> {
        // The kernel refuses a folder's rights on a file.
        let fitting =
            if metadata.is_dir() { rights } else { rights & AccessFs::from_file(RESTRICTED_ABI) };
        (&mut self.ruleset).add_rule(PathBeneath::new(file, fitting)).map(drop).map_err(system)
    }
}

/// Hidden paths and all folders above them, with their device and inode numbers. The kernel applies rules to
/// folders, not to names, so a second mount of one of them counts as that folder.
struct HiddenPaths {
    hidden: Vec<(PathBuf, Option<(u64, u64)>)>,
    above: Vec<(PathBuf, Option<(u64, u64)>)>,
}

impl HiddenPaths {
    fn new(hidden: &[PathBuf]) -> HiddenPaths {
        let step = |path: &Path| (path.to_owned(), fs::metadata(path).ok().map(|m| identity(&m)));
        let above = hidden.iter().flat_map(|path| path.ancestors().skip(1));
        HiddenPaths {
            hidden: hidden.iter().map(|path| step(path)).collect(),
            above: above.map(step).collect(),
        }
    }

    /// Returns the folders in a folder that lead to hidden paths.
    fn known_in(&self, folder: &Path) -> Vec<PathBuf> {
        let mut known: Vec<PathBuf> = self.above.iter().map(|(path, _)| path.clone()).collect();
        known.retain(|path| path.parent() == Some(folder));
        known.sort();
        known.dedup();
        known
    }

    /// Returns whether a path is a hidden one.
    fn hides(&self, path: &Path, metadata: &Metadata) -> bool {
        is_among(&self.hidden, path, metadata)
    }

    /// Returns whether a path is a hidden one or leads to one.
    fn meets(&self, path: &Path, metadata: &Metadata) -> bool {
        self.hides(path, metadata) || is_among(&self.above, path, metadata)
    }
}

fn is_among(paths: &[(PathBuf, Option<(u64, u64)>)], path: &Path, metadata: &Metadata) -> bool {
    let same = Some(identity(metadata));
    paths.iter().any(|(known, folder)| known == path || *folder == same)
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Returns whether a path leads into the hidden folder through a link. A child could have left such a link in
/// a folder that it may change, so that the next child is allowed its target. A path inside must have no links.
fn slips_into(hidden: &Path, given: &Path, real: &Path) -> bool {
    let Ok(inside) = real.strip_prefix(hidden) else { return false };
    let is_hidden = |path: &&Path| path.canonicalize().is_ok_and(|path| path == hidden);
    let entry = given.ancestors().find(is_hidden);
    entry.and_then(|entry| given.strip_prefix(entry).ok()) != Some(inside)
}

/// Opens a file only to name it in a rule. No link on the way is followed, so that nothing can be replaced by a link
/// after it was looked up.
pub(crate) fn look_at(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file: File = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?.into();
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn system(error: RulesetError) -> io::Error {
    io::Error::from_raw_os_error(*Errno::from(error))
}
