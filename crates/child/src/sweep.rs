//! The second line of defence: ending processes that an earlier run left.
//!
//! Shims end their trees when Hob dies, so a sweep finds something only if a shim itself was killed.
//! A process counts as a leftover by the run marker in its environment, or by a record of pid and
//! start time; never by its pid alone. It is signalled through a pidfd that was opened before the
//! check, so the process that is checked is the process that is signalled.

use std::path::Path;
use std::time::Duration;

use hob_files::owned;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::tree::{self, Process};

/// The environment variable that marks every process of a run.
pub const RUN_MARKER: &str = "HOB_RUN";

/// The marker of one run of Hob on one home. Every process of the run carries it in its environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    home: String,
    run: String,
}

impl Marker {
    /// Creates the marker of a run. `home` identifies the home for good, `run` this run of Hob on it. Both
    /// must be file names without a dot.
    pub fn new(home: impl Into<String>, run: impl Into<String>) -> Marker {
        Marker { home: home.into(), run: run.into() }
    }

    pub(crate) fn of_child(&self, number: u64) -> String {
        format!("{}.{}.{number}", self.home, self.run)
    }

    /// Returns whether the marker `found` belongs to this home but to another run.
    fn is_stale(&self, found: &str) -> bool {
        let mut parts = found.split('.');
        parts.next() == Some(&self.home) && parts.next().is_some_and(|run| run != self.run)
    }
}

/// Ends every process that an earlier run of this home left, and removes its records. Returns how
/// many processes there were.
pub fn end_leftovers(marker: &Marker, records: &Path) -> usize {
    let mut recorded: Vec<(i32, u64)> = Vec::new();
    for entry in owned::entries(records) {
        let stale = entry.file_name().to_str().is_some_and(|name| marker.is_stale(name));
        if stale && let Ok(text) = owned::read_to_string(entry.path()) {
            recorded.extend(text.lines().filter_map(|line| {
                let (pid, start) = line.split_once(' ')?;
                Some((pid.parse().ok()?, start.parse().ok()?))
            }));
        }
        if stale {
            let _ = owned::remove_file(entry.path());
        }
    }
    let is_leftover = |process: &Process| {
        recorded.contains(&(process.pid, process.start))
            || marker_of(process.pid).is_some_and(|found| marker.is_stale(&found))
    };
    let mut ended = 0;
    // A leftover may start another process during the sweep, so there are a few rounds.
    for _ in 0..5 {
        let found: Vec<Process> = tree::all().into_iter().filter(is_leftover).collect();
        if found.is_empty() {
            break;
        }
        ended += found.iter().filter(|process| kill(process)).count();
        std::thread::sleep(Duration::from_millis(10));
    }
    ended
}

/// Ends every process that carries exactly this marker.
pub(crate) async fn end_marked(marker: &str) {
    for _ in 0..50 {
        let found: Vec<Process> = tree::all()
            .into_iter()
            .filter(|p| !p.zombie && marker_of(p.pid).as_deref() == Some(marker))
            .collect();
        if found.is_empty() {
            return;
        }
        for process in &found {
            kill(process);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Returns the run marker in a process's environment.
fn marker_of(pid: i32) -> Option<String> {
    let environment = owned::read(format!("/proc/{pid}/environ")).ok()?;
    environment.split(|byte| *byte == 0).find_map(|variable| {
        let value = variable.strip_prefix(RUN_MARKER.as_bytes())?.strip_prefix(b"=")?;
        String::from_utf8(value.to_vec()).ok()
    })
}

/// Kills exactly the process that was seen, never a later one with the same pid.
fn kill(process: &Process) -> bool {
    let Some(pid) = Pid::from_raw(process.pid) else { return false };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    if tree::start_time(process.pid) != Some(process.start) {
        return false;
    }
    pidfd_send_signal(&handle, Signal::KILL).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_other_runs_of_the_same_home_are_stale() {
        let marker = Marker::new("home", "run2");
        assert!(marker.is_stale("home.run1.3"));
        assert!(!marker.is_stale(&marker.of_child(1)));
        assert!(!marker.is_stale("other.run1.3"));
        assert!(!marker.is_stale("home"));
        assert!(!marker.is_stale(""));
    }
}
