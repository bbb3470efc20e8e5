//! What a child and everything that it started may use of the machine's memory and disk.
//!
//! A limit of the kernel on one process says nothing about a tree of them, and an ordinary user has no quota of the disk. So
//! Hob measures, and ends a tree that uses more. Where it has control groups of its own, the kernel limits the memory.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hob_files::{Folder, bytes_below, open_regular, owned};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};

use crate::tree::{self, Process};

/// How often the memory of a tree is measured.
const MEMORY_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest and the longest pause between two measurements of the disk.
const MIN_DISK_PAUSE: Duration = Duration::from_secs(5);
const MAX_DISK_PAUSE: Duration = Duration::from_secs(60);
/// The pause is this many times as long as the measurement took, within these limits.
const DISK_PAUSE_FACTOR: u32 = 20;

/// The most files that one process of a confined agent may have open.
const MAX_AGENT_OPEN_FILES: u64 = 65_536;
/// An agent may have this part of the files that Hob may have open. The kernel counts the descriptors that a user's
/// processes have sent and nobody has received; over the sender's limit it refuses to send one. At Hob's own limit, an
/// agent could keep Hob from passing descriptors to shims, and no agent would start any more.
const OPEN_FILES_PART: u64 = 2;
/// The most processes and threads of a confined agent that has a view or a control group of its own.
const MAX_AGENT_PROCESSES: u64 = 8_192;
/// An agent may have this part of the process numbers of the machine, so that all agents together leave some.
const PROCESS_NUMBERS_PART: u64 = 32;
/// The largest file that a confined agent may write.
const MAX_AGENT_FILE_BYTES: u64 = 32 << 30;

/// How readily the kernel ends a confined agent when the machine runs out of memory, from -1000 to 1000.
const OUT_OF_MEMORY_SCORE: &[u8] = b"500";

/// Makes the kernel end this process, rather than the server or a program of the owner's, when the machine runs out of
/// memory. Processes that it starts inherit this.
pub(crate) fn prefer_for_the_out_of_memory_killer() {
    // It fails, harmlessly, if the score is higher already.
    let _ = owned::write_existing("/proc/self/oom_score_adj", OUT_OF_MEMORY_SCORE);
}

/// The most that a tree of processes may use. The default is no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeLimits {
    pub memory_bytes: Option<u64>,
    pub disk: Option<DiskLimit>,
}

/// The most that some files, and those in some folders, may take together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskLimit {
    pub bytes: u64,
    /// Folders and files of Hob's that the tree can write.
    pub folders: Vec<PathBuf>,
}

/// A limit that a tree has exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Memory,
    Disk,
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Limit::Memory => "it used more memory than limits.agent_memory_percent allows",
            Limit::Disk => "its files took more of the disk than limits.agent_disk_bytes allows",
        })
    }
}

/// Measures what trees use. All trees share one reading of the process table.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    used: Mutex<Option<Reading<u64>>>,
    table: Mutex<Option<Reading<Arc<Vec<Process>>>>>,
}

#[derive(Debug)]
struct Reading<T> {
    value: T,
    read_at: Instant,
}

impl Meter {
    /// Returns once the tree below a shim uses more than a limit.
    pub async fn exceeded(self: Arc<Meter>, shim: i32, limits: TreeLimits) -> Limit {
        let memory = async {
            let Some(limit) = limits.memory_bytes else { return std::future::pending().await };
            loop {
                tokio::time::sleep(MEMORY_INTERVAL).await;
                let meter = self.clone();
                let measure = move || meter.is_over_memory(shim, limit);
                if tokio::task::spawn_blocking(measure).await.unwrap_or_default() {
                    return Limit::Memory;
                }
            }
        };
        let disk = async {
            let Some(limit) = &limits.disk else { return std::future::pending().await };
            let mut pause = MIN_DISK_PAUSE;
            loop {
                tokio::time::sleep(pause).await;
                let (began, limit) = (Instant::now(), limit.clone());
                let measure = move || limit.is_exceeded();
                if tokio::task::spawn_blocking(measure).await.unwrap_or_default() {
                    return Limit::Disk;
                }
                let took = began.elapsed();
                pause = (took * DISK_PAUSE_FACTOR).clamp(MIN_DISK_PAUSE, MAX_DISK_PAUSE);
            }
        };
        tokio::select! { limit = memory => limit, limit = disk => limit }
    }

    fn is_over_memory(&self, shim: i32, limit: u64) -> bool {
        // No tree uses more than the whole machine does.
        let used = cached(&self.used, || used_memory().unwrap_or(u64::MAX));
        if used <= limit {
            return false;
        }
        let table = cached(&self.table, || Arc::new(tree::all()));
        let mut bytes = 0u64;
        tree::descendants_in(&table, shim).iter().any(|process| {
            bytes = bytes.saturating_add(memory_of(process.pid));
            bytes > limit
        })
    }
}

/// Returns how much of the disk a file takes.
fn bytes_of(path: &Path) -> io::Result<u64> {
    Ok(open_regular(path)?.metadata()?.blocks().saturating_mul(512))
}

impl DiskLimit {
    fn is_exceeded(&self) -> bool {
        let mut bytes = 0u64;
        self.folders.iter().any(|path| {
            // A folder that is not there takes nothing. Without descriptors, the next measurement tells more.
            let left = self.bytes.saturating_sub(bytes);
            let taken = match Folder::open_real(path) {
                Ok(folder) => bytes_below(&folder, left),
                Err(_) => bytes_of(path),
            };
            bytes = bytes.saturating_add(taken.unwrap_or_default());
            bytes > self.bytes
        })
    }
}

/// Returns the last reading if it is recent, or reads again.
fn cached<T: Clone>(reading: &Mutex<Option<Reading<T>>>, read: impl FnOnce() -> T) -> T {
    let mut reading = reading.lock().unwrap_or_else(PoisonError::into_inner);
    match &*reading {
        Some(known) if known.read_at.elapsed() < MEMORY_INTERVAL / 2 => known.value.clone(),
        _ => {
            let value = read();
            *reading = Some(Reading { value: value.clone(), read_at: Instant::now() });
            value
        }
    }
}

/// Returns the size of the machine's memory in bytes.
pub fn machine_memory() -> Option<u64> {
    kilobytes(&owned::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

/// Returns how much memory and swap space all programs use.
fn used_memory() -> Option<u64> {
    let text = owned::read_to_string("/proc/meminfo").ok()?;
    let field = |name| kilobytes(&text, name);
    let memory = field("MemTotal:")?.saturating_sub(field("MemAvailable:")?);
    let swap = field("SwapTotal:")?.saturating_sub(field("SwapFree:")?);
    Some(memory + swap)
}

/// Returns the memory of one process, without files that the kernel can read again.
fn memory_of(pid: i32) -> u64 {
    let sum = |file: &str, fields: &[&str]| {
        let text = owned::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
        Some(fields.iter().filter_map(|name| kilobytes(&text, name)).sum())
    };
    // What processes share counts once. A process can close this file to others, and then counts in full.
    sum("smaps_rollup", &["Pss_Anon:", "Pss_Shmem:", "SwapPss:"])
        .or_else(|| sum("status", &["RssAnon:", "RssShmem:", "VmSwap:"]))
        .unwrap_or_default()
}

/// Returns a field of a file in which each line has a name and a number of kilobytes, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

/// Returns the most processes and threads of one agent on this machine, seen from outside of its view.
pub(crate) fn max_agent_processes() -> u64 {
    let number = |path: &str| owned::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let limits = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"];
    let of_machine = limits.into_iter().filter_map(number).min();
    of_machine
        .map_or(MAX_AGENT_PROCESSES, |all| MAX_AGENT_PROCESSES.min(all / PROCESS_NUMBERS_PART))
}

/// Bounds what one agent can take from the machine. Processes are counted per user namespace, so they are bounded only
/// where the agent has its own. It makes system calls only, so that it may be called between fork and exec.
pub(crate) fn limit_processes(max_processes: Option<u64>) -> nix::Result<()> {
    let processes = max_processes.unwrap_or(RLIM_INFINITY);
    let (_, max_open_files) = getrlimit(Resource::RLIMIT_NOFILE)?;
    for (resource, limit) in [
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_NOFILE, MAX_AGENT_OPEN_FILES.min(max_open_files / OPEN_FILES_PART)),
        (Resource::RLIMIT_FSIZE, MAX_AGENT_FILE_BYTES),
        (Resource::RLIMIT_NPROC, processes),
    ] {
        let (soft, hard) = getrlimit(resource)?;
        setrlimit(resource, soft.min(limit), hard.min(limit))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_folders_count_together() {
        let folder = tempfile::tempdir().unwrap();
        let (inside, file) = (folder.path().join("inside"), folder.path().join("file"));
        std::fs::create_dir(&inside).unwrap();
        for path in [inside.join("a"), file.clone()] {
            std::fs::write(path, vec![1u8; 64 << 10]).unwrap();
        }
        let folders = vec![inside, file, folder.path().join("missing")];
        let is_exceeded = |bytes| DiskLimit { bytes, folders: folders.clone() }.is_exceeded();
        assert!(is_exceeded(100 << 10), "together they take 128 KiB");
        assert!(!is_exceeded(256 << 10));
    }

    #[test]
    fn fields_in_kilobytes_are_read() {
        let text = "MemTotal:       16384 kB\nMemAvailable:    1 kB\nVmSwap: x kB\n";
        assert_eq!(kilobytes(text, "MemTotal:"), Some(16 << 20));
        assert_eq!(kilobytes(text, "MemAvailable:"), Some(1024));
        assert_eq!(kilobytes(text, "VmSwap:"), None);
        assert_eq!(kilobytes(text, "Pss:"), None);
    }

    #[test]
    fn memory_of_this_process_is_measured() {
        let before = memory_of(std::process::id() as i32);
        let held = vec![1u8; 64 << 20];
        let after = memory_of(std::process::id() as i32);
        assert!(after >= before + (32 << 20), "{before} {after} {}", held.len());
        assert!(used_memory().unwrap() > after && machine_memory().unwrap() > after);
    }
}
