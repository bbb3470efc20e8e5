//! Rotating the key of a home loses nothing that was sealed, however the rotation ends.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hob_testkit::leak::files_below;
use hob_testkit::{Random, TestHome};
use serde_json::{Value, json};

use crate::memory_secrets::{secrets, unsealed};
use crate::memory_setup::*;

/// Fills the store of a home with sealed turns and returns their texts, sorted.
fn sealed_home(turns: usize, home: &TestHome) -> Vec<String> {
    let secrets = secrets();
    let sentence = |n: usize| format!("sealed {n:04}: {}", secrets[n % 40].0);
    let expected: Vec<String> = (0..turns).map(sentence).collect();
    let records: Vec<Value> =
        expected.iter().enumerate().map(|(n, text)| said("sealed", n, "user", text)).collect();
    let path = transcript(home, "sealed.jsonl", &records);
    let output = home.run(&["import", "--json", path.to_str().unwrap()]);
    assert_eq!(json_of(&output)["inserted"], turns);
    expected
}

/// Defers one more turn with a secret, as a hook does without a server.
fn defer(home: &TestHome, n: usize, expected: &mut Vec<String>) {
    let text = format!("waiting {n:04}: {}", secrets()[2].0);
    let path = transcript(
        home,
        &format!("waiting-{n}.jsonl"),
        &[said(&format!("w{n}"), 0, "user", &text)],
    );
    let answer = capture(home, &["--no-spawn"], &path);
    assert_eq!(answer["status"], "deferred", "{answer}");
    expected.push(text);
    expected.sort();
}

/// Serves until everything deferred is drained, and compares what the owner then reads.
fn assert_all_there(home: &TestHome, expected: &[String], why: &str) {
    let server = home.serve();
    wait_for_drain(home);
    assert!(server.stop().success());
    let found = unsealed(home);
    let lost: Vec<&String> = expected.iter().filter(|text| !found.contains(text)).take(3).collect();
    assert!(
        lost.is_empty() && found.len() == expected.len(),
        "{why}: lost {lost:?} of {}",
        expected.len()
    );
}

#[test]
fn rotated_key_opens_everything_and_the_old_one_nothing() {
    let home = TestHome::new();
    let mut expected = sealed_home(120, &home);
    let server = home.serve();
    assert_eq!(
        home.run(&["key", "rotate", "--yes"]).status.code(),
        Some(3),
        "not while it is served"
    );
    assert!(server.stop().success());
    defer(&home, 0, &mut expected);
    let old = fs::read(home.hob_home().join("key")).unwrap();
    let answer = json_of(&home.run(&["key", "rotate", "--yes", "--json"]));
    assert_eq!(
        (&answer["rotated"], answer["resealed"].as_u64() >= Some(120)),
        (&json!(true), true),
        "{answer}"
    );
    let new = fs::read(home.hob_home().join("key")).unwrap();
    assert_ne!(old, new);
    assert_all_there(&home, &expected, "after a rotation");
    // Whoever has a copy of the databases and the old key has nothing.
    let thief = TestHome::new();
    let mut copy = std::process::Command::new("cp");
    assert!(copy.arg("-r").args([home.hob_home(), thief.hob_home()]).status().unwrap().success());
    fs::write(thief.hob_home().join("key"), old).unwrap();
    for arguments in [&["export", "--unseal", "--yes"][..], &["recall", "sealed", "--project", "*"]]
    {
        let output = thief.run(arguments);
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    }
}

/// Hooks may have run before there ever was a store.
#[test]
fn secrets_deferred_before_the_first_store_survive_a_rotation() {
    let home = TestHome::new();
    let mut expected = Vec::new();
    defer(&home, 0, &mut expected);
    assert!(!home.hob_home().join("memory.db").exists());
    assert!(home.run(&["key", "rotate", "--yes"]).status.success());
    assert_all_there(&home, &expected, "after a rotation without a store");
}

/// A rotation that was killed has published the next key; hooks seal to it from then on. That state
/// is made here from the keys of another home.
#[test]
fn secrets_deferred_after_an_interrupted_rotation_are_kept() {
    let (home, other) = (TestHome::new(), TestHome::new());
    let mut expected = sealed_home(5, &home);
    defer(&home, 0, &mut expected);
    sealed_home(1, &other);
    fs::copy(other.hob_home().join("key"), home.hob_home().join("key.next")).unwrap();
    fs::copy(other.hob_home().join("key.pub"), home.hob_home().join("key.pub")).unwrap();
    defer(&home, 1, &mut expected);
    assert_all_there(&home, &expected, "after a broken off rotation");
}

#[test]
fn killed_rotation_loses_nothing() {
    let home = TestHome::new();
    let mut expected = sealed_home(400, &home);
    let started = Instant::now();
    assert!(home.run(&["key", "rotate", "--yes"]).status.success());
    let whole = started.elapsed();
    let mut random = Random::new(7);
    for round in 0..10 {
        defer(&home, 2 * round, &mut expected);
        let mut child = home.command(&["key", "rotate", "--yes"]).spawn().unwrap();
        // The test is about a kill at any moment, so it waits for no condition.
        let part = random.below(1000) as u32;
        std::thread::sleep(whole * part / 1000 + Duration::from_micros(200));
        let _ = child.kill();
        child.wait().unwrap();
        // Half-written files are removed at the next start, which another test checks.
        let half_written = |path: &PathBuf| path.extension().is_some_and(|end| end == "tmp");
        files_below(&home.hob_home()).iter().filter(|path| half_written(path)).for_each(|path| {
            fs::remove_file(path).unwrap();
        });
        defer(&home, 2 * round + 1, &mut expected);
        assert_all_there(&home, &expected, &format!("round {round}, killed at {part} of 1000"));
    }
}

/// With a passphrase hooks seal without it, and only the owner reads.
#[test]
fn passphrase_is_needed_to_read_but_not_to_capture() {
    let home = TestHome::new();
    let text = format!("sealed behind a passphrase: {}", secrets()[2].0);
    let open = |command: &mut std::process::Command| {
        command.env("HOB_PASSPHRASE", "open sesame");
    };
    assert!(home.serve_with(open).stop().success());
    let path = transcript(&home, "t.jsonl", &[said("s", 0, "user", &text)]);
    assert_eq!(capture(&home, &[], &path)["status"], "deferred", "the store is locked to it");
    hook(&home, &json!({"session_id": "s", "transcript_path": path, "hook_event_name": "Stop"}));
    let server = home.serve_with(open);
    wait_for_drain(&home);
    assert!(server.stop().success());
    let mut rotate = home.command(&["key", "rotate", "--yes"]);
    assert!(!rotate.output().unwrap().status.success(), "a wrapped key needs its passphrase");
    open(&mut rotate);
    assert!(rotate.output().unwrap().status.success());
    assert!(!home.run(&["export", "--unseal", "--yes"]).status.success());
    let mut export = home.command(&["export", "--unseal", "--yes"]);
    open(&mut export);
    let output = export.output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains(&text), "{output:?}");
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 1, "{output:?}");
}

/// Hooks continue while a key is rotated.
#[test]
fn secrets_deferred_during_rotations_are_kept() {
    let home = TestHome::new();
    let known = Mutex::new(sealed_home(5, &home));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (home, known, done) = (&home, &known, &done);
            scope.spawn(move || {
                for n in 0.. {
                    let mut deferred = Vec::new();
                    defer(home, thread * 10_000 + n, &mut deferred);
                    known.lock().unwrap().append(&mut deferred);
                    // As fast as agents are; the server has to store all of it afterwards.
                    std::thread::sleep(Duration::from_millis(10));
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let rotated: Vec<_> = (0..3).map(|_| home.run(&["key", "rotate", "--yes"])).collect();
        done.store(true, Ordering::Relaxed);
        assert!(rotated.iter().all(|output| output.status.success()), "{rotated:?}");
    });
    assert_all_there(&home, &known.into_inner().unwrap(), "hooks during rotations");
}

/// Captures lock the store only for a moment, and a rotation waits for that.
#[test]
fn rotation_during_captures_succeeds_or_changes_nothing() {
    let home = TestHome::new();
    let known = Mutex::new(sealed_home(5, &home));
    let done = AtomicBool::new(false);
    let succeeded = std::thread::scope(|scope| {
        for thread in 0..2 {
            let (home, known, done) = (&home, &known, &done);
            scope.spawn(move || {
                for n in 0.. {
                    let text = format!("beside {thread} {n}: {}", secrets()[2].0);
                    let session = format!("b{thread}-{n}");
                    let path = transcript(home, &session, &[said(&session, 0, "user", &text)]);
                    let answer = capture(home, &[], &path);
                    assert_ne!(answer["status"], "failed", "{answer}");
                    known.lock().unwrap().push(text);
                    std::thread::sleep(Duration::from_millis(5));
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let rotated = home.run(&["key", "rotate", "--yes"]);
        done.store(true, Ordering::Relaxed);
        rotated.status.success()
    });
    let mut expected = known.into_inner().unwrap();
    defer(&home, 0, &mut expected);
    assert_all_there(&home, &expected, &format!("concurrent captures, rotated: {succeeded}"));
}
