//! The confinement of a child: it cannot reach Hob's home and can change only its own files.
//!
//! Landlock can only allow, and what is allowed on a folder is allowed on everything below it. So the
//! folders on the way from the root to the hidden one get nothing, and every sibling of those
//! folders is allowed one by one. A sibling that appears later is closed to children that already run.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, Errno, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope, make_bitflags,
};
use nix::libc;
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};

/// The Landlock version whose rights are restricted. An older kernel restricts those that it knows. Rights
/// of newer versions stay allowed, for example connecting to a socket by its path, which children need to
/// reach Hob.
const RESTRICTED_ABI: ABI = ABI::V7;
const READ_ACCESS: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir | Execute});
/// Additional rights on devices: every program writes to `/dev/null`, and terminals need `ioctl`.
const DEVICE_ACCESS: BitFlags<AccessFs> = make_bitflags!(AccessFs::{WriteFile | IoctlDev});
/// Capabilities with which root reads the memory and environment of any process, despite Landlock.
const DROPPED_CAPABILITIES: [CapabilitySet; 2] = [CapabilitySet::PERFMON, CapabilitySet::SYS_ADMIN];

/// The confinement of a child. It can read and execute everything that the user can, except `hidden`. It
/// can change only `writable` and existing devices, and signal no process outside its own tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// Hob's home. It can be neither read nor written, except for the paths of `writable` and `readable` inside it.
    pub hidden: PathBuf,
    /// Files and folders that the child may change, each with everything below it. Paths that do not exist
    /// are skipped, and so are those that would expose `hidden`; see [`opens`].
    pub writable: Vec<PathBuf>,
    /// Files and folders inside `hidden` that the child may read but not change.
    pub readable: Vec<PathBuf>,
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

/// Returns whether a child that may change `writable` could reach `hidden` through it: whether `hidden` is
/// that path or lies below it, under any name that links or mounts give it.
pub fn opens(writable: &Path, hidden: &Path) -> bool {
    let hidden = hidden.canonicalize().unwrap_or_else(|_| hidden.to_owned());
    let Ok(writable) = writable.canonicalize() else { return false };
    let Ok(metadata) = fs::metadata(&writable) else { return false };
    PathToHidden::to(&hidden).leads_through(&writable, &metadata)
}

/// The rules of one child, ready to be enforced on it.
pub(crate) struct Rules(RulesetCreated);

impl Rules {
    /// Builds the rules. Returns `None` if the kernel has no Landlock; a child then runs unconfined.
    pub fn new(confinement: &Confinement) -> io::Result<Option<Rules>> {
        if landlock_version().is_none() {
            return Ok(None);
        }
        let hidden = confinement.hidden.canonicalize()?;
        let way = PathToHidden::to(&hidden);
        let ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(RESTRICTED_ABI))
            .and_then(|ruleset| ruleset.scope(Scope::from_all(RESTRICTED_ABI)))
            .and_then(Ruleset::create);
        let mut rules = Rules(ruleset.map_err(system)?);
        for folder in hidden.ancestors().skip(1) {
            rules.allow_siblings(&way, folder)?;
        }
        for given in &confinement.writable {
            rules.allow_given(&way, &hidden, given, AccessFs::from_all(RESTRICTED_ABI))?;
        }
        for given in &confinement.readable {
            rules.allow_given(&way, &hidden, given, READ_ACCESS)?;
        }
        Ok(Some(rules))
    }

    /// Confines the calling thread, and everything that it starts, for good. It makes system calls only, so
    /// that it may be called between fork and exec.
    pub fn enforce(self) -> io::Result<()> {
        for power in DROPPED_CAPABILITIES {
            // A process that is not root has none of these capabilities, and may not drop them.
            let _ = remove_capability_from_bounding_set(power);
        }
        self.0.restrict_self().map(drop).map_err(system)
    }

    /// Allows reading the entries of a folder, except the one that leads to the hidden folder. Links get no
    /// rule: their target is allowed, or not, under its own name.
    fn allow_siblings(&mut self, way: &PathToHidden, folder: &Path) -> io::Result<()> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            // For example a `/home` that cannot be listed. Less is allowed then, never more.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let path = entry?.path();
            // A child could not read an entry that is gone again or closed to this user.
            let Ok((file, metadata)) = look_at(&path) else { continue };
            if metadata.is_symlink() || way.leads_through(&path, &metadata) {
                continue;
            }
            let device = if path.starts_with("/dev") { DEVICE_ACCESS } else { BitFlags::EMPTY };
            self.allow(file, &metadata, READ_ACCESS | device)?;
        }
        Ok(())
    }

    fn allow_given(
        &mut self,
        way: &PathToHidden,
        hidden: &Path,
        given: &Path,
        rights: BitFlags<AccessFs>,
    ) -> io::Result<()> {
        let found = given.canonicalize().and_then(|real| Ok((look_at(&real)?, real)));
        let ((file, metadata), real) = match found {
            Ok(found) => found,
            Err(error) if is_missing(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        if way.leads_through(&real, &metadata) || slips_into(hidden, given, &real) {
            return Ok(());
        }
        self.allow(file, &metadata, rights)
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
        (&mut self.0).add_rule(PathBeneath::new(file, fitting)).map(drop).map_err(system)
    }
}

/// The hidden folder and all folders above it, with their device and inode numbers. The kernel applies rules
/// to folders, not to names, so a second mount of one of them counts as the same folder.
struct PathToHidden(Vec<(PathBuf, Option<(u64, u64)>)>);

impl PathToHidden {
    fn to(hidden: &Path) -> PathToHidden {
        let step = |path: &Path| (path.to_owned(), fs::metadata(path).ok().map(|m| identity(&m)));
        PathToHidden(hidden.ancestors().map(step).collect())
    }

    fn leads_through(&self, path: &Path, metadata: &Metadata) -> bool {
        let same = Some(identity(metadata));
        self.0.iter().any(|(step, folder)| step == path || *folder == same)
    }
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

/// Opens a file only to name it in a rule. Links are not followed, so that nothing can be replaced by a link
/// meanwhile.
fn look_at(path: &Path) -> io::Result<(File, Metadata)> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW);
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn system(error: RulesetError) -> io::Error {
    io::Error::from_raw_os_error(*Errno::from(error))
}
