//! Deferral files of other programs, and damaged ones.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use hob_testkit::{TestHome, wait_until};
use nix::sys::stat::Mode;
use serde_json::{Value, json};

use crate::hooks::{deferred, deferred_folder, serve, set_aside, wait_drained};
use crate::transcript::{ASSISTANT, USER, export, exported};

fn header(session: &str, at: &str) -> Value {
    json!({"version": 1, "session_id": session, "deferred_at": at, "cwd": "/nowhere"})
}

fn turn(role: &str, text: &str, ts: &str) -> Value {
    json!({"text": text, "cue": "", "tier": "episodic", "role": role, "ts": ts})
}

fn lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

const TIME: &str = "2026-05-01T10:00:00Z";

#[test]
fn bad_deferral_files_are_set_aside_and_block_no_others() {
    let home = TestHome::new();
    assert!(serve(&home).stop().success());
    let folder = deferred_folder(&home);
    let write = |name: &str, content: &[u8]| fs::write(folder.join(name), content).unwrap();
    let newer = json!({"version": 99, "session_id": "newer", "deferred_at": TIME, "cwd": "/"});
    write("newer-1.jsonl", lines(&[newer, turn(USER, "from the future", TIME)]).as_bytes());
    write("binary-1.jsonl", &[0, 159, 146, 150, b'\n', 255, 0]);
    write("list-1.jsonl", b"[1,2,3]\n");
    fs::create_dir(folder.join("folder-1.jsonl")).unwrap();
    let bad = ["binary-1", "folder-1", "list-1", "newer-1"];
    // Older than all the others, so that they are tried first.
    let old = SystemTime::now() - Duration::from_secs(1000);
    for name in ["newer-1", "binary-1", "list-1"] {
        let file = fs::File::options().write(true).open(folder.join(format!("{name}.jsonl")));
        file.unwrap().set_modified(old).unwrap();
    }
    write("empty-1.jsonl", b"");
    write("header-1.jsonl", lines(&[header("header", TIME)]).as_bytes());
    let mixed = [
        lines(&[header("mixed", TIME), turn(USER, "first", TIME)]),
        "no JSON at all\n{\"text\":5}\n\u{0}\n{\"text\":\"who?\",\"role\":\"nobody\"}\n".to_owned(),
        lines(&[turn(ASSISTANT, "second", TIME), turn(USER, "first", TIME)]),
        "{\"text\":\"torn".to_owned(),
    ];
    write("mixed-1.jsonl", mixed.concat().as_bytes());
    write("good-1.jsonl", lines(&[header("good", TIME), turn(USER, "good", TIME)]).as_bytes());
    let server = serve(&home);
    // Good files do not wait for bad ones, which take some seconds.
    wait_until("good files are drained", || (exported(&home, "good").len() == 1).then_some(()));
    assert_eq!(set_aside(&home), [""; 0], "the bad ones are still being tried");
    fs::write(
        folder.join("late-1.jsonl"),
        lines(&[header("late", TIME), turn(USER, "late", TIME)]),
    )
    .unwrap();
    wait_until("a file that comes later is drained", || {
        (exported(&home, "late").len() == 1).then_some(())
    });
    wait_drained(&home);
    assert_eq!(deferred(&home), bad.map(|name| format!("{name}.failed.jsonl")));
    let mixed: Vec<String> = exported(&home, "mixed").into_iter().map(|(_, text)| text).collect();
    assert_eq!(mixed, ["first", "second", "first"]);
    assert_eq!(export(&home).len(), 5);
    assert!(server.stop().success());
    let server = serve(&home);
    assert_eq!(deferred(&home).len(), bad.len(), "what was set aside stays so");
    assert!(server.stop().success());
}

#[test]
fn doctor_shows_deferral_files_set_aside() {
    let home = TestHome::new();
    let server = serve(&home);
    let folder = deferred_folder(&home);
    fs::write(folder.join("broken-1.jsonl"), b"{\"version\":99}\n").unwrap();
    let one_bad_line = lines(&[header("one", TIME), turn(USER, "good", TIME)]) + "no JSON\n";
    fs::write(folder.join("one-1.jsonl"), one_bad_line).unwrap();
    wait_until("it is set aside", || (!set_aside(&home).is_empty()).then_some(()));
    wait_drained(&home);
    for arguments in [&["doctor"][..], &["doctor", "--json"]] {
        let output = home.run(arguments);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("broken-1"), "the file that was set aside: {said}");
    }
    assert!(server.stop().success());
}

/// A link that leads nowhere is as bad as any other file.
#[test]
fn deferral_file_that_links_to_itself_is_set_aside() {
    let home = TestHome::new();
    let server = serve(&home);
    let folder = deferred_folder(&home);
    symlink("turning-1.jsonl", folder.join("turning-1.jsonl")).unwrap();
    wait_until("it is set aside", || (set_aside(&home).len() == 1).then_some(()));
    assert!(server.stop().success());
}

/// A pipe in the folder never ends; the others must not wait for it.
#[test]
fn pipe_among_deferral_files_blocks_no_others() {
    let home = TestHome::new();
    assert!(serve(&home).stop().success());
    let folder = deferred_folder(&home);
    nix::unistd::mkfifo(&folder.join("a-pipe-1.jsonl"), Mode::S_IRWXU).unwrap();
    fs::write(
        folder.join("good-1.jsonl"),
        lines(&[header("good", TIME), turn(USER, "good", TIME)]),
    )
    .unwrap();
    let server = serve(&home);
    wait_until("the good file is drained", || (exported(&home, "good").len() == 1).then_some(()));
    assert!(server.stop().success());
}

/// Clocks that jumped between the hooks and the server.
#[test]
fn deferral_files_with_odd_times_are_drained() {
    let home = TestHome::new();
    assert!(serve(&home).stop().success());
    let folder = deferred_folder(&home);
    let times = [
        ("past", "1970-01-01T00:00:00Z"),
        ("future", "9999-12-31T23:59:59.999999999Z"),
        ("ancient", "-009999-01-02T01:59:59Z"),
        ("wrong", "half past nine"),
        ("empty", ""),
    ];
    for (name, time) in times {
        let content = lines(&[
            header(name, time),
            turn(USER, "one", time),
            json!({"text": "two", "role": "assistant"}),
        ]);
        let path = folder.join(format!("{name}-99999999999999999999.jsonl"));
        fs::write(&path, content).unwrap();
        let modified = match name {
            "future" => SystemTime::now() + Duration::from_secs(1_000_000_000),
            _ => SystemTime::UNIX_EPOCH,
        };
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    }
    let server = serve(&home);
    wait_drained(&home);
    assert_eq!(set_aside(&home), [""; 0]);
    for (name, _) in times {
        let said: Vec<String> = export(&home)
            .into_iter()
            .filter(|turn| turn["session_id"] == name)
            .map(|turn| turn["text"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(said, ["one", "two"], "{name}");
    }
    // The memory is usable all the same.
    let recalled = home.run(&["recall", "one", "--json"]);
    assert!(recalled.status.success(), "{recalled:?}");
    assert!(server.stop().success());
}
