//! Clocks and durations that nobody expects: a clock that jumps or is wrong from the start, and limits of many years.
//!
//! The clock is changed by a library that `cc` compiles and the server loads first. Without `cc`, or with a static Hob,
//! these tests are skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use hob_testkit::{TestHome, wait_until};
use serde_json::json;

use crate::api::*;
use crate::backend::Backend;
use crate::memory_setup::{capture, exported_texts, said, transcript};

const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *at) {
    long failed = syscall(SYS_clock_gettime, id, at);
    const char *path = getenv("HOB_TEST_CLOCK");
    if (failed || id != CLOCK_REALTIME || !path) return (int)failed;
    char text[32] = {0};
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    if (read(file, text, sizeof text - 1) > 0) at->tv_sec += atoll(text);
    close(file);
    return 0;
}
"#;

const DAY: i64 = 24 * 60 * 60;
/// How long a wrong clock lasts; several sweeps.
const WRONG_FOR: Duration = Duration::from_secs(3);

/// A home whose server has a clock that a test can set.
struct Clock {
    library: PathBuf,
    offset: PathBuf,
}

impl Clock {
    fn new(home: &TestHome) -> Option<Clock> {
        let (source, library) = (home.folder().join("clock.c"), home.folder().join("clock.so"));
        fs::write(&source, CLOCK).unwrap();
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .status()
            .is_ok_and(|status| status.success());
        if !compiled {
            println!("skipped: there is no C compiler");
            return None;
        }
        let clock = Clock { library, offset: home.folder().join("clock") };
        clock.set(0);
        Some(clock)
    }

    /// Sets the clock to this many seconds from now.
    fn set(&self, seconds: i64) {
        let part = self.offset.with_extension("part");
        fs::write(&part, seconds.to_string()).unwrap();
        fs::rename(part, &self.offset).unwrap();
    }

    /// Starts a server with this clock; `None` if it does not load libraries.
    fn serve(&self, home: TestHome, token: &str) -> Option<Api> {
        let server = home.serve_with(|command| {
            command.env("LD_PRELOAD", &self.library).env("HOB_TEST_CLOCK", &self.offset);
        });
        let maps = fs::read_to_string(format!("/proc/{}/maps", server.pid())).unwrap();
        if !maps.contains("clock.so") {
            println!("skipped: this hob is static");
            return None;
        }
        Some(Api::new(Backend::File, server, home, token))
    }
}

/// A clock that was wrong for seconds closed idle sessions, and deleted closed ones and uploads for good.
#[test]
fn clock_that_jumps_ahead_for_seconds_deletes_nothing() {
    let home = TestHome::new();
    configure(&home, "[sessions]\nsweep_interval_secs = 1\n");
    let Some(clock) = Clock::new(&home) else { return };
    let token = home.app("tests");
    let Some(api) = clock.serve(home, &token) else { return };
    let (open, closed) = (api.session(), api.session());
    assert_eq!(api.ask(&open, "[[say hello]]"), "hello");
    assert_eq!(api.close(&closed).status, 200);
    let upload = api.server.upload(Some(&api.token), "x.txt", b"the words").json();
    let path = Path::new(upload["path"].as_str().unwrap());
    let began = Instant::now();
    clock.set(8 * DAY);
    wait_until("the clock has been wrong for some sweeps", || {
        (began.elapsed() > WRONG_FOR).then_some(())
    });
    clock.set(0);
    assert_eq!(api.describe(&open)["state"], "idle");
    assert_eq!(api.ask(&open, "[[say again]]"), "again");
    assert_eq!(api.get(&format!("/sessions/{closed}")).status, 200);
    assert_eq!(fs::read(path).unwrap(), b"the words");
}

/// A server that was started while the clock was wrong believed it, and closed and deleted at its first sweep.
#[test]
fn server_that_starts_with_a_wrong_clock_deletes_nothing() {
    let home = TestHome::new();
    configure(&home, "[sessions]\nsweep_interval_secs = 1\n");
    let Some(clock) = Clock::new(&home) else { return };
    let token = home.app("tests");
    let Some(api) = clock.serve(home, &token) else { return };
    let (open, closed) = (api.session(), api.session());
    assert_eq!(api.ask(&open, "[[say hello]]"), "hello");
    assert_eq!(api.close(&closed).status, 200);
    let upload = api.server.upload(Some(&api.token), "x.txt", b"the words").json();
    let path = Path::new(upload["path"].as_str().unwrap());
    let record = said("s", 0, "user", "the owners lantern");
    let words = transcript(&api.home, "t.jsonl", &[record]);
    assert_eq!(capture(&api.home, &["--cwd", "/"], &words)["inserted"], 1);
    assert!(api.home.run(&["forget", "--yes", "--session-id", "s"]).status.success());
    let (home, token) = api.end_with(|server| assert!(server.stop().success()));
    clock.set(8 * DAY);
    let began = Instant::now();
    let api = clock.serve(home, &token).expect("as before");
    let late = api.session();
    wait_until("the clock has been wrong for some sweeps", || {
        (began.elapsed() > WRONG_FOR).then_some(())
    });
    assert_eq!(api.describe(&late)["state"], "idle");
    clock.set(0);
    assert_eq!(api.describe(&open)["state"], "idle");
    assert_eq!(api.ask(&open, "[[say again]]"), "again");
    assert_eq!(api.get(&format!("/sessions/{closed}")).status, 200);
    assert_eq!(fs::read(path).unwrap(), b"the words");
    assert!(api.home.run(&["forget", "--undo", "--session-id", "s"]).status.success());
    assert_eq!(exported_texts(&api.home), ["the owners lantern"]);
}

/// Limits of 292 billion years overflowed: the session's task ended, and the turn never did.
#[test]
fn limits_of_many_years_are_refused_or_work() {
    for key in [
        "turn_timeout_secs",
        "permission_timeout_secs",
        "stall_secs",
        "start_timeout_secs",
        "ttl_secs",
    ] {
        let home = TestHome::new();
        configure(&home, &sessions(&format!("{key} = {}", i64::MAX)));
        let created = home.run(&["app", "create", "tests", "--json"]);
        if !created.status.success() {
            let said = String::from_utf8_lossy(&created.stderr).into_owned();
            assert!(said.contains(key), "{said}");
            continue;
        }
        let created: serde_json::Value = serde_json::from_slice(&created.stdout).unwrap();
        let api = Backend::File.start(home, created["token"].as_str().unwrap());
        let id = api.create(&json!({"agent": "acp", "permissions": "ask"}));
        let turn = api.start_turn(&id, "[[permission go on]] [[say hello]]");
        let request = wait_until(&format!("{key}: the agent asks"), || {
            let log = api.log(&id);
            let asked = log.iter().find(|event| event["event"] == "permission")?;
            Some(asked["request_id"].to_string().trim_matches('"').to_owned())
        });
        let path = format!("/sessions/{id}/permissions/{request}");
        let answer = api.post(&path, &json!({"option": "allow_once"}));
        assert_eq!(answer.status, 200, "{key}: {}", answer.text);
        let turn = api.wait_for_turn(&id, turn, "finished");
        assert_eq!(turn["text"], "hello", "{key}: {turn}");
    }
}
