//! What keeps a child out of Hob's home and from changing what is not its own.
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

/// The version whose rights are ruled. An older kernel rules those it has; what newer versions add is
/// left alone, such as connecting to a socket with a path, by which children reach Hob.
const RULED: ABI = ABI::V7;
const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir | Execute});
/// Additional rights on devices: every program writes to `/dev/null`, and terminals need `ioctl`.
const DEVICE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{WriteFile | IoctlDev});
/// With one of these root reads the memory and the variables of any process, whatever Landlock says.
const BEYOND: [CapabilitySet; 2] = [CapabilitySet::PERFMON, CapabilitySet::SYS_ADMIN];

/// What a child may not reach. Whatever else the user can read and execute, the child can too; it can
/// change nothing but `writable` and existing devices, and signal no process outside its own tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// Neither read nor written, but for what `writable` names inside it (Hob's home).
    pub hidden: PathBuf,
    /// Files and folders it may change, each with all below it. Those that do not exist are passed
    /// over, and so are those that would open what is hidden: see [`opens`].
    pub writable: Vec<PathBuf>,
}

/// The kernel's Landlock version; `None` where it has none.
pub fn landlock_version() -> Option<u32> {
    const VERSION: libc::c_uint = 1;
    let nothing = std::ptr::null::<libc::c_void>();
    // SAFETY: asked for its version, the kernel wants a null pointer of length zero and reads no memory.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0usize, VERSION) };
    u32::try_from(version).ok().filter(|version| *version > 0)
}

/// Whether a child that may change `writable` could reach `hidden` by it: that is so when `hidden` is
/// it or lies in it, whatever links or mounts it is named by.
pub fn opens(writable: &Path, hidden: &Path) -> bool {
    let hidden = hidden.canonicalize().unwrap_or_else(|_| hidden.to_owned());
    let Ok(writable) = writable.canonicalize() else { return false };
    let Ok(metadata) = fs::metadata(&writable) else { return false };
    PathToHidden::to(&hidden).leads_through(&writable, &metadata)
}

/// The rules of one child, ready to be enforced on it.
pub(crate) struct Rules(RulesetCreated);

impl Rules {
    /// Builds the rules. `None` where the kernel has no Landlock: there a child runs unconfined.
    pub fn new(confinement: &Confinement) -> io::Result<Option<Rules>> {
        if landlock_version().is_none() {
            return Ok(None);
        }
        let hidden = confinement.hidden.canonicalize()?;
        let way = PathToHidden::to(&hidden);
        let ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(RULED))
            .and_then(|ruleset| ruleset.scope(Scope::from_all(RULED)))
            .and_then(Ruleset::create);
        let mut rules = Rules(ruleset.map_err(system)?);
        for folder in hidden.ancestors().skip(1) {
            rules.allow_siblings(&way, folder)?;
        }
        for given in &confinement.writable {
            rules.allow_changes(&way, &hidden, given)?;
        }
        Ok(Some(rules))
    }

    /// Confines the calling thread and all it starts, for good. It only makes system calls, so that it
    /// can be called between fork and exec.
    pub fn enforce(self) -> io::Result<()> {
        for power in BEYOND {
            // Who is not root has none of them, and may not lay them down.
            let _ = remove_capability_from_bounding_set(power);
        }
        self.0.restrict_self().map(drop).map_err(system)
    }

    /// Allows to read what is in this folder, but for what leads to the hidden one. Links get nothing:
    /// where they lead to is allowed, or not, under its own name.
    fn allow_siblings(&mut self, way: &PathToHidden, folder: &Path) -> io::Result<()> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            // For example a `/home` that cannot be listed. Less is allowed then, never more.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let path = entry?.path();
            // What is gone again, or closed to this user, is nothing a child could read.
            let Ok((file, metadata)) = look_at(&path) else { continue };
            if metadata.is_symlink() || way.leads_through(&path, &metadata) {
                continue;
            }
            let device = if path.starts_with("/dev") { DEVICE } else { BitFlags::EMPTY };
            self.allow(file, &metadata, READ | device)?;
        }
        Ok(())
    }

    fn allow_changes(&mut self, way: &PathToHidden, hidden: &Path, given: &Path) -> io::Result<()> {
        let found = given.canonicalize().and_then(|real| Ok((look_at(&real)?, real)));
        let ((file, metadata), real) = match found {
            Ok(found) => found,
            Err(error) if is_missing(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        if way.leads_through(&real, &metadata) || slips_into(hidden, given, &real) {
            return Ok(());
        }
        self.allow(file, &metadata, AccessFs::from_all(RULED))
    }

    fn allow(
        &mut self,
        file: File,
        metadata: &Metadata,
        rights: BitFlags<AccessFs>,
    ) -> io::Result<()> {
        // The kernel refuses a folder's rights on a file.
        let fitting = if metadata.is_dir() { rights } else { rights & AccessFs::from_file(RULED) };
        (&mut self.0).add_rule(PathBeneath::new(file, fitting)).map(drop).map_err(system)
    }
}

/// The hidden folder and all folders above it. The kernel keeps rules by the folder, not by its name,
/// so a second mount of one of them is the same folder: its device and number tell.
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

/// Whether a path leads into the hidden folder by a link. A child could have left that link, in a folder
/// it may change, to have the next one given what it wants; so the way inside must be the plain one.
fn slips_into(hidden: &Path, given: &Path, real: &Path) -> bool {
    let Ok(inside) = real.strip_prefix(hidden) else { return false };
    let is_hidden = |path: &&Path| path.canonicalize().is_ok_and(|path| path == hidden);
    let entry = given.ancestors().find(is_hidden);
    entry.and_then(|entry| given.strip_prefix(entry).ok()) != Some(inside)
}

/// Opens a file for no more than to name it in a rule. A link is the link itself, so that nothing can be
/// exchanged for one meanwhile.
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
