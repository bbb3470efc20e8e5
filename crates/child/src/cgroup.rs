//! Control groups of children, where the service manager has given Hob a part of the hierarchy.
//!
//! With `Delegate=` in its unit, systemd leaves the groups below the service's own to Hob. The kernel allows no processes
//! in a group that has groups with controllers below it, so Hob moves itself into one of its own, next to those of the
//! children.

use std::io;
use std::path::{Path, PathBuf};

use hob_files::owned;

/// The kernel's hierarchy of control groups, version 2.
const HIERARCHY: &str = "/sys/fs/cgroup";
/// The group of the server itself.
const SERVER_GROUP: &str = "hob-server";
/// How the groups of children begin.
const CHILD_GROUP_PREFIX: &str = "agent-";

/// The group below which Hob may create groups.
#[derive(Debug, Clone)]
pub struct ControlGroups {
    root: PathBuf,
}

/// The group of one child. Dropping it removes the group, whose processes must have ended.
#[derive(Debug)]
pub(crate) struct ControlGroup {
    path: PathBuf,
}

impl ControlGroups {
    /// Takes over the group of this process if it was delegated. Returns `None` if it was not.
    pub fn delegated() -> Option<ControlGroups> {
        let own = owned::read_to_string("/proc/self/cgroup").ok()?;
        let root = delegated_root(Path::new(HIERARCHY), &own)?;
        let taken = take_over(&root, std::process::id());
        if let Err(error) = &taken {
            tracing::warn!(%error, "failed to use the control group that was delegated to Hob");
        }
        taken.ok().map(|()| ControlGroups { root })
    }

    /// Creates the group of a child with its limits.
    pub(crate) fn create(
        &self,
        name: &str,
        memory_bytes: Option<u64>,
        processes: u64,
    ) -> io::Result<ControlGroup> {
        let group = ControlGroup { path: self.root.join(format!("{CHILD_GROUP_PREFIX}{name}")) };
        owned::create_dir(&group.path)?;
        group.write("pids.max", &processes.to_string())?;
        if let Some(bytes) = memory_bytes {
            group.write("memory.max", &bytes.to_string())?;
            // Not every kernel has swap. If one process must be killed, the others of the agent are killed with it.
            let _ = group.write("memory.swap.max", "0");
            let _ = group.write("memory.oom.group", "1");
        }
        Ok(group)
    }
}

impl ControlGroup {
    /// Moves a process, which must not have started another yet, into the group.
    pub fn add(&self, pid: u32) -> io::Result<()> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// Returns whether the group has reached its limit of memory. That the whole machine has none left does not count.
    pub fn ran_out_of_memory(&self) -> bool {
        let events = owned::read_to_string(self.path.join("memory.events")).unwrap_or_default();
        let times = events.lines().find_map(|line| line.strip_prefix("oom "));
        times.is_some_and(|times| times.trim() != "0")
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        write(&self.path.join(file), text)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // A process that is not reaped yet keeps its group. The next server removes it.
        let _ = owned::remove_dir(&self.path);
    }
}

/// Returns whether a process is a server that has control groups for its children.
pub fn has_control_groups(pid: u32) -> bool {
    let own = owned::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    group_in(&own).is_some_and(|group| group.ends_with(SERVER_GROUP))
}

/// Returns the group in a process's list of groups, one of each hierarchy.
fn group_in(list: &str) -> Option<&str> {
    list.lines().find_map(|line| line.strip_prefix("0::/"))
}

/// Returns the folder of the group that was delegated to this process.
fn delegated_root(hierarchy: &Path, own: &str) -> Option<PathBuf> {
    let group = group_in(own)?;
    // Started again in place, Hob is in its own group already.
    let group = group.strip_suffix(SERVER_GROUP).unwrap_or(group).trim_end_matches('/');
    let root = hierarchy.join(group);
    // systemd marks a group that it leaves to a service. In a container there may be no systemd.
    let is_marked = has_delegation_mark(&root);
    let is_managed = Path::new("/run/systemd/system").exists();
    (is_marked || !is_managed).then_some(())?;
    // The root of the hierarchy has no limits, and without both controllers there is nothing to gain.
    let available = owned::read_to_string(root.join("cgroup.controllers")).ok()?;
    let has = |name| available.split_ascii_whitespace().any(|known| known == name);
    (root.join("cgroup.type").exists() && has("memory") && has("pids")).then_some(root)
}

fn has_delegation_mark(group: &Path) -> bool {
    let mut value = [0u8; 1];
    rustix::fs::getxattr(group, "user.delegate", &mut value).is_ok() && value == *b"1"
}

/// Moves this process into a group of its own below `root` and switches the limits of other groups there on. Fails if
/// `root` holds processes that are not this one: it is not Hob's alone then.
fn take_over(root: &Path, pid: u32) -> io::Result<()> {
    let members = owned::read_to_string(root.join("cgroup.procs"))?;
    let own = pid.to_string();
    if members.lines().any(|member| member != own) {
        return Err(io::Error::other("other programs are in it"));
    }
    for entry in owned::read_dir(root)?.flatten() {
        // A server that was killed has left it. A group with processes stays.
        if entry.file_name().to_string_lossy().starts_with(CHILD_GROUP_PREFIX) {
            let _ = owned::remove_dir(entry.path());
        }
    }
    let server = root.join(SERVER_GROUP);
    match owned::create_dir(&server) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => write(&server.join("cgroup.procs"), &own)?,
    }
    write(&root.join("cgroup.subtree_control"), "+memory +pids")
}

/// Writes to a file of the kernel's.
fn write(path: &Path, text: &str) -> io::Result<()> {
    owned::write_existing(path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Builds a folder that looks like a group with the controllers.
    fn group(controllers: &str, members: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("cgroup.controllers", controllers),
            ("cgroup.type", "domain"),
            ("cgroup.procs", members),
            ("cgroup.subtree_control", ""),
        ] {
            fs::write(root.path().join(name), text).unwrap();
        }
        root
    }

    #[test]
    fn group_is_read_from_a_mixed_list() {
        assert_eq!(
            group_in("9:name=systemd:/x\n0::/a.slice/hob.service\n"),
            Some("a.slice/hob.service")
        );
        assert_eq!(group_in("4:memory:/x\n"), None);
    }

    #[test]
    fn group_without_the_controllers_is_not_used() {
        let root = group("cpu pids", "");
        assert_eq!(delegated_root(root.path(), "0::/\n"), None);
        let missing = root.path().join("nowhere");
        assert_eq!(delegated_root(&missing, "0::/a\n"), None);
    }

    #[test]
    fn group_with_other_programs_is_not_taken_over() {
        let root = group("memory pids", "1\n77\n");
        assert!(take_over(root.path(), 77).is_err());
        assert!(!root.path().join(SERVER_GROUP).exists());
    }
}
