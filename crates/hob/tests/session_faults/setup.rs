//! A home with the scripted agent, and the memory of a process.

use std::fs;

use hob_testkit::TestHome;

/// Returns a home with the scripted agent `acp`, room for many sessions, and these settings.
pub fn home(settings: &str) -> TestHome {
    let home = TestHome::new();
    let agent = TestHome::scripted_agent("acp", "acp", &["acp"]);
    home.configure(&format!("{settings}\n[sessions]\nmax_live = 300\n{agent}"));
    home
}

/// Returns a line of `/proc/PID/status` in MB.
pub fn memory(pid: i32, line: &str) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(':'));
    let kilobytes = line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kilobytes.unwrap_or_default() / 1024.0
}
