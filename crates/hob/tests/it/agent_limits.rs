//! What an agent may use of the machine, and a server that stands still.

use std::fs;

use hob_testkit::{TestHome, wait_until};
use nix::libc;
use serde_json::json;

use crate::api::*;

/// Runs a command in an agent that is ended because of it. Returns the error of the turn.
#[track_caller]
fn ended_by(api: &Api, id: &str, command: &str) -> String {
    let prompt = format!("[[tool Bash {}]] [[say done]]", json!({"command": command}));
    let answer = api.post(&format!("/sessions/{id}/turn"), &json!({"prompt": prompt}));
    assert_eq!(answer.status, 502, "{}", answer.text);
    assert_eq!(answer.json()["code"], "agent_died", "{}", answer.text);
    answer.json()["error"].as_str().unwrap().to_owned()
}

fn machine_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn agent_that_uses_too_much_memory_is_ended() {
    let api = api("[limits]\nagent_memory_percent = 1\n");
    let id = api.session();
    let sandbox = api.describe(&id)["sandbox"].clone();
    assert_eq!(sandbox["memory_bytes"], machine_memory() / 100, "{sandbox}");
    assert!(sandbox["layers"].as_array().unwrap().contains(&json!("limits")), "{sandbox}");
    assert_eq!(api.shell(&id, "echo small"), "small", "an agent that uses less goes on");
    // Two processes that use less than the limit each. A shell would become its last command, and free its memory.
    let bytes = machine_memory() / 100 * 3 / 4;
    let hold = format!("x=$(head -c {bytes} /dev/zero | tr '\\0' x); sleep 600; :");
    let error = ended_by(&api, &id, &format!("(  {hold} ) & (  {hold} ) & wait"));
    assert!(error.contains("limits.agent_memory_percent"), "{error}");
    assert_eq!(api.shell(&id, "echo again"), "again", "the session goes on with another agent");
}

#[test]
fn agent_that_fills_the_disk_is_ended() {
    let api = api("[limits]\nagent_disk_bytes = 30000000\n");
    let id = api.session();
    assert_eq!(api.describe(&id)["sandbox"]["disk_bytes"], 30_000_000);
    for place in [".", "$TMPDIR"] {
        let fill = format!("for i in 1 2 3 4; do head -c 10000000 /dev/zero > {place}/$i; done");
        let error = ended_by(&api, &id, &format!("{fill}; sleep 600"));
        assert!(error.contains("limits.agent_disk_bytes"), "{error}");
        assert_eq!(api.shell(&id, &format!("rm {place}/?; echo free")), "free");
    }
}

#[test]
fn doctor_says_what_agents_may_use() {
    let home = TestHome::new();
    let said = String::from_utf8(home.run(&["doctor"]).stdout).unwrap();
    assert!(said.contains("each agent may use 75% of the memory"), "{said}");
}

/// Stops threads of a process while the others run.
struct StoppedThreads(Vec<i32>);

impl StoppedThreads {
    fn of(pid: i32, name: &str) -> StoppedThreads {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        let is_named = |task: &fs::DirEntry| {
            fs::read_to_string(task.path().join("comm")).is_ok_and(|found| found.trim() == name)
        };
        let number = |task: fs::DirEntry| task.file_name().to_str().unwrap().parse().unwrap();
        let threads: Vec<i32> = tasks.filter(is_named).map(number).collect();
        for thread in &threads {
            let none = std::ptr::null_mut::<libc::c_void>();
            for request in [libc::PTRACE_SEIZE, libc::PTRACE_INTERRUPT] {
                // SAFETY: these requests read and write no memory of this process.
                let done = unsafe { libc::ptrace(request, *thread, none, none) };
                assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
            }
        }
        StoppedThreads(threads)
    }

    /// Reaps the threads, which the kernel leaves to the process that stopped them. Returns once all have ended.
    fn reap(&self) {
        for thread in &self.0 {
            wait_until("the thread ends", || {
                let mut status = 0;
                // SAFETY: the status is a local variable that outlives the call.
                let found = unsafe {
                    libc::waitpid(*thread, &raw mut status, libc::__WALL | libc::WNOHANG)
                };
                let is_over = found < 0
                    || found == *thread && (libc::WIFEXITED(status) || libc::WIFSIGNALED(status));
                is_over.then_some(())
            });
        }
    }
}

#[test]
fn server_that_stands_still_ends_for_the_service_manager() {
    let home = TestHome::new();
    home.configure("watchdog_secs = 2\n");
    let mut server = home.serve();
    // The threads must not be stopped while one of them writes a file.
    wait_until("the time is recorded", || {
        home.hob_home().join("clock.json").exists().then_some(())
    });
    let threads = StoppedThreads::of(server.pid(), "tokio-rt-worker");
    assert!(!threads.0.is_empty());
    threads.reap();
    assert_eq!(server.wait().code(), Some(70));
    let log = home.run(&["logs"]);
    let log = String::from_utf8_lossy(&log.stdout);
    assert!(log.contains("has been stuck"), "{log}");
    assert!(home.serve().stop().success(), "and starts again");
}
