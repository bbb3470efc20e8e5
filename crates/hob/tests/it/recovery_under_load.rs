//! A backup of a large home while it is used, restored and compared byte by byte.
//!
//! Two thousand turns here; `HOB_CAMPAIGN=1` has a hundred thousand.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hob_testkit::{TestHome, is_campaign, wait_until};
use serde_json::{Value, json};

use crate::api::*;
use crate::backend::Backend;
use crate::memory_setup::{capture, json_of, said, transcript, wait_for_drain};

const TURNS: usize = 2_000;
const CAMPAIGN_TURNS: usize = 100_000;
const TURNS_PER_TRANSCRIPT: usize = 500;
/// How many turns one capture under load has.
const TURNS_PER_CAPTURE: usize = 3;
/// How many captures are acknowledged before the backup begins, and after it has ended.
const CAPTURES_AROUND: usize = 3;

/// Returns a text with letters of several scripts, quotes, control characters and line ends, of 200 to 900 bytes.
fn words(session: &str, number: usize) -> String {
    let odd =
        ["naïve", "日本語", "🦀", "a\tb", "two\nlines", "\"quoted\"", "back\\slash", "e\u{301}"];
    let count = 20 + number * 7 % 70;
    let filler: Vec<String> =
        (0..count).map(|n| format!("w{} {}", n * 31 + number, odd[(n + number) % 8])).collect();
    format!("{session} turn {number}: {}", filler.join(" "))
}

fn records(session: &str, count: usize) -> Vec<Value> {
    let role = |n: usize| if n.is_multiple_of(2) { "user" } else { "assistant" };
    (0..count).map(|n| said(session, n, role(n), &words(session, n))).collect()
}

/// Imports this many turns, as `hob setup` does.
fn fill(home: &TestHome, turns: usize) {
    let folder = ".claude/projects/-load";
    for number in 0..turns / TURNS_PER_TRANSCRIPT {
        let session = format!("past-{number}");
        let lines = records(&session, TURNS_PER_TRANSCRIPT);
        transcript(home, &format!("{folder}/{session}.jsonl"), &lines);
    }
    let imported = json_of(&home.run(&["import", "--json"]));
    assert_eq!(imported["inserted"], turns, "{imported}");
}

/// Returns the lines of `hob export` by record.
fn exported(home: &TestHome) -> BTreeMap<String, String> {
    let output = home.run(&["export"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let id = |line: &str| {
        let row: Value = serde_json::from_str(line).expect("a JSON line");
        row["record_id"].as_str().unwrap().to_owned()
    };
    let lines: BTreeMap<String, String> =
        text.lines().map(|line| (id(line), line.to_owned())).collect();
    assert_eq!(lines.len(), text.lines().count(), "every record is exported once");
    lines
}

/// What clients did while the backup ran.
#[derive(Default)]
struct Load {
    is_over: AtomicBool,
    /// The texts of turns that Hob has acknowledged.
    acknowledged: Mutex<Vec<String>>,
    captures: AtomicUsize,
    recalls: AtomicUsize,
    turns: AtomicUsize,
}

impl Load {
    fn repeat(&self, counter: &AtomicUsize, mut work: impl FnMut(usize)) {
        for number in 0.. {
            if self.is_over.load(Ordering::Acquire) {
                return;
            }
            work(number);
            counter.fetch_add(1, Ordering::Release);
        }
    }

    /// Captures turns by the socket, as hooks do.
    fn capture(&self, home: &TestHome) {
        self.repeat(&self.captures, |number| {
            let session = format!("live-{number}");
            let path = transcript(
                home,
                &format!("{session}.jsonl"),
                &records(&session, TURNS_PER_CAPTURE),
            );
            let answer = capture(home, &["--cwd", "/"], &path);
            if answer["status"] == "captured" {
                let texts = (0..TURNS_PER_CAPTURE).map(|n| words(&session, n));
                self.acknowledged.lock().unwrap().extend(texts);
            }
        });
    }

    /// Recalls by the socket, as agents do.
    fn recall(&self, home: &TestHome) {
        self.repeat(&self.recalls, |number| {
            let cue = format!("naïve turn {}", number % 400);
            let hits = home.run(&["recall", "--json", "--project", "*", &cue]);
            assert!(!json_of(&hits)["hits"].as_array().unwrap().is_empty(), "{cue}");
        });
    }

    /// Runs turns of an app over HTTP.
    fn talk(&self, api: &Api) {
        let id = api.session();
        self.repeat(&self.turns, |number| {
            assert_eq!(
                api.ask(&id, &format!("[[say answer {number}]]")),
                format!("answer {number}")
            );
        });
    }

    fn wait_for_captures(&self, more: usize) {
        let before = self.captures.load(Ordering::Acquire);
        wait_until("turns are captured", || {
            (self.captures.load(Ordering::Acquire) >= before + more).then_some(())
        });
    }
}

/// Ends the load even if the test panics, so that its threads end.
struct EndOfLoad<'l>(&'l Load);

impl Drop for EndOfLoad<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
    }
}

struct BackedUp {
    /// What was acknowledged before the backup began.
    before: Vec<String>,
    rows: Value,
    took: Duration,
}

/// Makes a backup while clients capture, recall and talk.
fn back_up_under_load(api: &Api, load: &Load, file: &Path) -> BackedUp {
    std::thread::scope(|scope| {
        let _end = EndOfLoad(load);
        scope.spawn(|| load.capture(&api.home));
        scope.spawn(|| load.recall(&api.home));
        scope.spawn(|| load.talk(api));
        load.wait_for_captures(CAPTURES_AROUND);
        let before = load.acknowledged.lock().unwrap().clone();
        let started = Instant::now();
        let output = api.home.run(&["backup", file.to_str().unwrap(), "--json"]);
        let took = started.elapsed();
        let rows = json_of(&output)["rows"].clone();
        load.wait_for_captures(CAPTURES_AROUND);
        BackedUp { before, rows, took }
    })
}

#[test]
fn backup_under_load_restores_every_acknowledged_turn_byte_by_byte() {
    let turns = if is_campaign() { CAMPAIGN_TURNS } else { TURNS };
    let home = TestHome::new();
    configure(&home, "");
    let token = home.app("tests");
    let started = Instant::now();
    fill(&home, turns);
    let filling = started.elapsed();
    let api = Backend::File.start(home, &token);
    let (load, file) = (Load::default(), api.home.folder().join("hob.backup"));
    let BackedUp { before, rows, took } = back_up_under_load(&api, &load, &file);
    wait_for_drain(&api.home);
    let (home, token) = api.end_with(|server| assert!(server.stop().success()));
    let other = TestHome::new();
    configure(&other, "");
    fs::remove_file(other.hob_home().join("config.toml")).unwrap();
    let started = Instant::now();
    let restored = other.run(&["restore", file.to_str().unwrap()]);
    assert!(restored.status.success(), "{restored:?}");
    let restoring = started.elapsed();

    let started = Instant::now();
    let (original, copy) = (exported(&home), exported(&other));
    let exporting = started.elapsed();
    for (id, line) in &copy {
        assert_eq!(original.get(id), Some(line), "a turn that never existed, or another text");
    }
    let text = |line: &String| -> String {
        serde_json::from_str::<Value>(line).unwrap()["text"].as_str().unwrap().to_owned()
    };
    let texts: BTreeSet<String> = copy.values().map(text).collect();
    let past = (0..turns).map(|turn| {
        words(&format!("past-{}", turn / TURNS_PER_TRANSCRIPT), turn % TURNS_PER_TRANSCRIPT)
    });
    let lost: Vec<String> =
        past.chain(before.iter().cloned()).filter(|text| !texts.contains(text)).collect();
    assert_eq!(lost, [""; 0], "acknowledged before the backup began");
    // The backup counts the apps' turns too.
    let counted = rows["memory.db"]["turns"].as_u64().unwrap() as usize;
    assert!(counted >= copy.len() && copy.len() >= turns + before.len(), "{rows}");
    // The copy is a whole home: it passes the deep check, and its app can go on.
    let doctor = other.run(&["doctor", "--deep"]);
    assert!(doctor.status.success(), "{doctor:?}");
    configure(&other, "");
    let copied = Backend::File.start(other, &token);
    assert_eq!(copied.get("/sessions").status, 200);
    let hits = copied.home.run(&["recall", "--json", "--project", "*", "past-0 turn 7"]);
    assert!(!json_of(&hits)["hits"].as_array().unwrap().is_empty());
    let bytes = |path: &Path| fs::metadata(path).unwrap().len();
    println!(
        "{}",
        json!({
            "turns": turns, "acknowledged_before": before.len(),
            "acknowledged": load.acknowledged.lock().unwrap().len(), "restored": copy.len(),
            "captures": load.captures.load(Ordering::Acquire),
            "recalls": load.recalls.load(Ordering::Acquire),
            "turns_over_http": load.turns.load(Ordering::Acquire),
            "memory_bytes": bytes(&home.hob_home().join("memory.db")), "backup_bytes": bytes(&file),
            "import_ms": filling.as_millis(), "backup_ms": took.as_millis(),
            "restore_ms": restoring.as_millis(), "export_both_ms": exporting.as_millis(),
        })
    );
}
