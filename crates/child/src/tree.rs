//! Reads the process table: parents, descendants and start times.

use std::collections::HashMap;

use hob_files::owned;

/// A process as one line of the table: pid, parent and start time in clock ticks since boot. The
/// pair of pid and start time names a process for good; a pid alone does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    pub start: u64,
    pub zombie: bool,
}

/// Returns the process with a pid, or `None` if there is none.
pub fn process(pid: i32) -> Option<Process> {
    // A process chooses its name, which need not be UTF-8.
    parse_stat(&String::from_utf8_lossy(&owned::read(format!("/proc/{pid}/stat")).ok()?))
}

/// Returns the start time of a live process.
pub fn start_time(pid: i32) -> Option<u64> {
    process(pid).map(|p| p.start)
}

/// Returns the numbers of a live process: the one that it has here, then those inside of its process namespaces.
pub fn numbers(pid: i32) -> Vec<i32> {
    let status = owned::read(format!("/proc/{pid}/status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    line.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect()
}

/// Returns every process, except those that end during the read.
pub fn all() -> Vec<Process> {
    let Ok(dir) = owned::read_dir("/proc") else { return Vec::new() };
    dir.flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(process)
        .collect()
}

/// Returns all descendants of `root`, without itself, parents before their children.
pub fn descendants(root: i32) -> Vec<Process> {
    descendants_in(&all(), root)
}

/// Returns all descendants of `root` in a reading of the table, without itself, parents before their children.
pub(crate) fn descendants_in(table: &[Process], root: i32) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in table {
        children.entry(process.parent).or_default().push(*process);
    }
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            next.push(child.pid);
            found.push(child);
        }
    }
    found
}

/// Returns whether this process descends from `ancestor`.
pub fn descends_from(ancestor: i32) -> bool {
    let mut pid = std::process::id() as i32;
    while let Some(found) = process(pid).filter(|found| found.parent > 0) {
        pid = found.parent;
        if pid == ancestor {
            return true;
        }
    }
    false
}

/// Reads `/proc/PID/stat`. The command name is in parentheses and may contain spaces and parentheses.
fn parse_stat(line: &str) -> Option<Process> {
    let pid = line.split_once(' ')?.0.parse().ok()?;
    let mut fields = line.rsplit_once(')')?.1.split_ascii_whitespace();
    let zombie = fields.next()? == "Z";
    let parent = fields.next()?.parse().ok()?;
    let start = fields.nth(17)?.parse().ok()?;
    Some(Process { pid, parent, start, zombie })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_stat_line_with_a_hostile_name() {
        let line = "42 (a) (b c) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 10 11";
        let expect = Process { pid: 42, parent: 7, start: 98765, zombie: false };
        assert_eq!(parse_stat(line), Some(expect));
        assert_eq!(parse_stat("42 (x"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn finds_descendants_at_any_depth_and_survives_a_cycle() {
        let p = |pid, parent| Process { pid, parent, start: 0, zombie: false };
        let table = [p(1, 0), p(2, 1), p(3, 2), p(4, 3), p(5, 1), p(6, 7), p(7, 6)];
        let mut pids: Vec<i32> = descendants_in(&table, 2).iter().map(|p| p.pid).collect();
        pids.sort_unstable();
        assert_eq!(pids, [3, 4]);
        assert_eq!(descendants_in(&table, 6).len(), 2);
    }

    #[test]
    fn knows_itself() {
        let me = process(std::process::id() as i32).expect("own process");
        assert!(me.start > 0 && !me.zombie);
    }
}
