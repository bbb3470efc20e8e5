//! Capture, as the hooks of agents call it: nothing is started, nothing is lost, nothing comes twice.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use hob_testkit::leak::processes_with;
use hob_testkit::{Stopwatch, TestHome, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::memory_setup::*;

/// The three turns of the seed.
fn seed(home: &TestHome) -> PathBuf {
    let turns = [
        bare("user", "hello world"),
        bare("assistant", "hi back at you"),
        bare("user", "third turn here"),
    ];
    transcript(home, "transcript.jsonl", &turns)
}

const SEED_TEXTS: [&str; 3] = ["hello world", "hi back at you", "third turn here"];

/// How a home and its secret are named: by Hob's variables, by those of the earlier program, or by none.
const WAYS: [&str; 4] = ["plain", "passphrase", "earlier names", "seed"];

/// Returns a command on a home that is named in one of these ways, and its folder of deferral files.
fn in_way(home: &TestHome, way: &str, arguments: &[&str]) -> (Command, PathBuf) {
    let mut command = home.command(arguments);
    command.env("HOB_TEST_MARK", mark(home));
    let socket = home.user_home().join("d.sock");
    let root = match way {
        "plain" => home.hob_home(),
        "passphrase" => {
            command.env("HOB_PASSPHRASE", "test-no-spawn-pass");
            home.hob_home()
        }
        "earlier names" => {
            let store = home.user_home().join("store");
            command.env_remove("HOB_HOME").env("IAI_MCP_STORE", &store);
            command.env("IAI_DAEMON_SOCKET_PATH", socket);
            store
        }
        _ => {
            command.env_remove("HOB_HOME").env("IAI_DAEMON_SOCKET_PATH", socket);
            command.env("IAI_MCP_CRYPTO_PASSPHRASE", "test-no-spawn-pass");
            home.user_home().join(".hob")
        }
    };
    (command, root.join("deferred-captures"))
}

fn mark(home: &TestHome) -> String {
    format!("mark-of-{}", home.user_home().display())
}

/// Asserts the contract's limit for hooks (section 3).
#[track_caller]
fn assert_hook_in_time(stopwatch: Stopwatch) {
    stopwatch.assert_within(Duration::from_secs(2), "a hook exits within 2 s on any input");
}

/// The lines of a deferral file.
pub fn jsonl(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort();
    keys
}

/// Seed 000, tests A, B, C and E.
#[test]
fn no_spawn_defers_in_time_and_starts_nothing() {
    for way in WAYS {
        let home = TestHome::new();
        let path = seed(&home);
        let arguments = ["capture-transcript", "--no-spawn", "--session-id", "test-r3"];
        let (mut command, deferred) = in_way(&home, way, &arguments);
        let stopwatch = Stopwatch::start();
        let output = command.args(["--cwd", "/some/cwd"]).arg(&path).output().unwrap();
        assert_hook_in_time(stopwatch);
        assert_eq!(processes_with(&mark(&home)), [0; 0], "{way}: nothing was started");
        let answer = json_of(&output);
        assert_eq!(keys(&answer), ["events", "path", "status"], "{way}");
        assert_eq!((&answer["status"], &answer["events"]), (&json!("deferred"), &json!(3)));
        let files: Vec<PathBuf> =
            fs::read_dir(&deferred).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files, [PathBuf::from(answer["path"].as_str().unwrap())], "{way}");
        let name = files[0].file_name().unwrap().to_str().unwrap();
        let stamp = name.strip_prefix("test-r3-").unwrap().strip_suffix(".jsonl").unwrap();
        assert!(stamp.parse::<u64>().is_ok(), "{name}");
        let lines = jsonl(&files[0]);
        assert_eq!(lines.len(), 4, "{way}");
        assert_eq!((&lines[0]["version"], &lines[0]["session_id"]), (&json!(1), &json!("test-r3")));
        assert_eq!(lines[0]["cwd"], "/some/cwd");
        assert!(lines[0]["deferred_at"].as_str().unwrap().ends_with('Z'));
        for (line, text) in lines[1..].iter().zip(SEED_TEXTS) {
            for key in ["text", "cue", "tier", "role", "ts"] {
                assert!(line[key].is_string(), "{way}: {key} of {line}");
            }
            assert_eq!((&line["text"], &line["tier"]), (&json!(text), &json!("episodic")));
            assert!(line["role"] == "user" || line["role"] == "assistant");
        }
    }
}

/// Seed 000, test F: a missing transcript leaves a header, and the folder is the current one.
#[test]
fn missing_transcript_defers_only_a_header() {
    for way in WAYS {
        let home = TestHome::new();
        let missing = home.user_home().join("does-not-exist.jsonl");
        let arguments = ["capture-transcript", "--no-spawn", "--session-id", "unit-f"];
        let (mut command, _) = in_way(&home, way, &arguments);
        let answer = json_of(&command.arg(&missing).current_dir("/").output().unwrap());
        assert_eq!((&answer["status"], &answer["events"]), (&json!("deferred"), &json!(0)));
        let lines = jsonl(Path::new(answer["path"].as_str().unwrap()));
        assert_eq!(lines.len(), 1, "{way}");
        assert_eq!((&lines[0]["session_id"], &lines[0]["cwd"]), (&json!("unit-f"), &json!("/")));
    }
}

/// Seed 000, test D.
#[test]
fn capture_without_a_server_writes_into_the_store() {
    for way in WAYS {
        let home = TestHome::new();
        let (mut help, _) = in_way(&home, way, &["capture-transcript", "--help"]);
        let help = help.output().unwrap();
        assert!(help.status.success());
        assert!(String::from_utf8_lossy(&help.stdout).contains("--no-spawn"));
        let missing = home.user_home().join("no-such-file.jsonl");
        let expected = [(missing, 0, 0, 1), (seed(&home), 3, 0, 0), (seed(&home), 0, 3, 0)];
        for (path, inserted, duplicates, errors) in expected {
            let (mut command, deferred) = in_way(&home, way, &["capture-transcript"]);
            let answer = json_of(&command.arg(&path).output().unwrap());
            assert_eq!(answer["status"], "captured", "{way}");
            let counts = ["inserted", "duplicates", "errors"].map(|key| answer[key].as_u64());
            assert_eq!(counts, [inserted, duplicates, errors].map(Some), "{way}: {answer}");
            let files = fs::read_dir(&deferred).map(Iterator::count).unwrap_or_default();
            assert_eq!(files, 0, "{way}");
            assert_eq!(processes_with(&mark(&home)), [0; 0], "{way}: nothing was started");
        }
    }
}

#[test]
fn capture_answers_have_the_contracts_shape() {
    let home = TestHome::new();
    let server = home.serve();
    let path = seed(&home);
    let captured = ["duplicates", "errors", "inserted", "status"];
    for (flag, counts) in [("--no-spawn", [3, 0, 0]), ("--no-spawn", [0, 3, 0])] {
        let answer = capture(&home, &[flag], &path);
        assert_eq!(keys(&answer), captured, "{answer}");
        assert_eq!(
            ["inserted", "duplicates", "errors"].map(|key| &answer[key]),
            counts.map(|n| json!(n)).each_ref()
        );
    }
    assert!(deferrals(&home).is_empty(), "the server took it");
    let torn = format!("{}\nno json\n{{\"type\":\n", bare("user", "between the bad lines"));
    let broken = home.user_home().join("broken.jsonl");
    fs::write(&broken, torn).unwrap();
    let answer = capture(&home, &[], &broken);
    assert_eq!((&answer["inserted"], &answer["errors"]), (&json!(1), &json!(2)), "{answer}");
    let answer = capture(&home, &[], Path::new("/no/such/transcript.jsonl"));
    assert_eq!((&answer["inserted"], &answer["errors"]), (&json!(0), &json!(1)), "{answer}");
    assert!(server.stop().success());
}

#[test]
fn session_id_is_the_flag_or_the_transcripts() {
    for (arguments, expected) in [(&[][..], "own-session"), (&["--session-id", "given"], "given")] {
        let home = TestHome::new();
        let path = transcript(&home, "a.jsonl", &[said("own-session", 0, "user", "who am I")]);
        capture(&home, arguments, &path);
        assert_eq!(export(&home)[0]["session_id"], expected);
    }
}

#[test]
fn turns_are_ordered_by_their_parent_links() {
    let home = TestHome::new();
    let mut records: Vec<Value> = (0..12)
        .map(|n| said("s", n, ["user", "assistant"][n % 2], &format!("turn {n:02}")))
        .collect();
    for record in &mut records {
        record.as_object_mut().unwrap().remove("timestamp");
    }
    let expected: Vec<String> = (0..12).map(|n| format!("turn {n:02}")).collect();
    records.reverse();
    records.swap(3, 7);
    let path = transcript(&home, "shuffled.jsonl", &records);
    assert_eq!(capture(&home, &["--no-spawn"], &path)["events"], 12);
    let _server = home.serve();
    wait_for_drain(&home);
    assert_eq!(exported_texts(&home), expected);
    let mut bridge = Bridge::new(&home, Path::new("/"));
    let turns = bridge.call("memory_timeline", json!({"session_id": "s"}));
    assert_eq!(texts(turns["turns"].as_array().unwrap()), expected);
}

/// Turns were in the order of the file if the last line lacked its line end.
#[test]
fn last_line_without_its_end_is_put_in_order() {
    let records =
        [said("s", 2, "user", "three"), said("s", 0, "user", "one"), said("s", 1, "user", "two")];
    let expected = ["one", "two", "three"];
    for way in ["captured", "deferred", "imported"] {
        let home = TestHome::new();
        let path = home.user_home().join("t.jsonl");
        fs::write(&path, lines(&records).trim_end()).unwrap();
        match way {
            "captured" => drop(capture(&home, &[], &path)),
            "deferred" => {
                let answer = capture(&home, &["--no-spawn"], &path);
                let written = jsonl(Path::new(answer["path"].as_str().unwrap()));
                assert_eq!(texts(&written[1..]), expected);
                continue;
            }
            _ => assert!(home.run(&["import", path.to_str().unwrap()]).status.success()),
        }
        assert_eq!(exported_texts(&home), expected, "{way}");
    }
}

/// Equal turns come live, deferred, by the hook and imported; any of these may be the first.
#[test]
fn turn_captured_in_every_way_is_stored_once() {
    let without_ids = |session: &str| {
        let turns = [("user", "go"), ("assistant", "gone"), ("user", "go"), ("assistant", "gone")];
        turns.map(|(role, text)| {
            let mut record = bare(role, text);
            record["sessionId"] = json!(session);
            record
        })
    };
    let turns = ["go", "gone", "go", "gone"].map(str::to_owned);
    let roles = ["user", "assistant", "user", "assistant"];
    let with_ids: Vec<Value> = (0..4).map(|n| said("s", n, roles[n], &turns[n])).collect();
    let pairs: Vec<(&str, String)> = roles.into_iter().zip(turns.clone()).collect();
    let shapes = [with_ids, without_ids("s").to_vec(), codex("s", "/", &pairs)];
    for (shape, records) in shapes.iter().enumerate() {
        for first in 0..4 {
            let home = TestHome::new();
            let path = transcript(&home, "t.jsonl", records);
            let way = |way: usize| match way {
                0 => drop(capture(&home, &[], &path)),
                1 => drop(capture(&home, &["--no-spawn"], &path)),
                2 => hook(
                    &home,
                    &json!({"session_id": "s", "transcript_path": path, "hook_event_name": "Stop",
                        "last_assistant_message": "gone"}),
                ),
                _ => assert!(home.run(&["import", path.to_str().unwrap()]).status.success()),
            };
            (0..4).for_each(|step| way((first + step) % 4));
            let server = home.serve();
            wait_for_drain(&home);
            (0..4).for_each(way);
            assert_eq!(exported_texts(&home), turns, "shape {shape}, way {first} first");
            assert!(server.stop().success());
        }
    }
}

#[test]
fn folders_of_one_repository_are_one_project() {
    let home = TestHome::new();
    let main = folder(&home, "main");
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=t", "-c", "user.email=t@example.com"]).args(arguments);
        let output = command.current_dir(&main).env("HOME", home.user_home()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    git(&["init", "-q"]);
    git(&["commit", "-q", "--allow-empty", "-m", "first"]);
    git(&["worktree", "add", "-q", "../tree"]);
    let tree = home.user_home().canonicalize().unwrap().join("tree");
    fs::create_dir_all(tree.join("deep/er")).unwrap();
    let cases = [
        (main.clone(), None),
        (main.join("not/there/yet"), None),
        (tree.clone(), Some(&tree)),
        (tree.join("deep/er"), Some(&tree)),
    ];
    for (n, (cwd, worktree)) in cases.iter().enumerate() {
        let path = transcript(
            &home,
            &format!("{n}.jsonl"),
            &[said(&format!("s{n}"), 0, "user", &format!("kumquat {n}"))],
        );
        capture(&home, &["--cwd", cwd.to_str().unwrap()], &path);
        for from in [&main, &tree] {
            let found = recall(&home, from, &[&format!("kumquat {n}"), "--limit", "1"]);
            let hit = &found["hits"][0];
            assert_eq!(hit["project"], main.to_str().unwrap(), "{found}");
            assert_eq!(hit["worktree"], json!(worktree), "{found}");
        }
    }
    let mut command = home.command(&["recall", "kumquat", "3"]);
    let shown = command.current_dir(&main).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains(tree.to_str().unwrap()), "people see the working tree, too: {shown}");
}

#[test]
fn project_folder_need_not_exist() {
    let home = TestHome::new();
    let path = seed(&home);
    let answer = capture(&home, &["--cwd", "/gone/with/the wind"], &path);
    assert_eq!(answer["inserted"], 3);
    assert_eq!(export(&home)[0]["project"], "/gone/with/the wind");
    assert_eq!(
        recall(&home, Path::new("/"), &["hello", "--project", "/gone/with/the wind"])["hits"][0]["text"],
        "hello world"
    );
}

/// A failing hook would disturb the agent, so hooks exit 0 on any input.
#[test]
fn hooks_exit_0_on_any_input() {
    let home = TestHome::new();
    let arguments: [&[&str]; 9] = [
        &["capture-transcript"],
        &["capture-transcript", "--nonsense"],
        &["capture-transcript", "--no-spawn", "/"],
        &["capture-transcript", "a", "b"],
        &["capture-transcript", "--session-id"],
        &["capture-turn", "--nonsense"],
        &["capture-turn", "extra"],
        &["session-start", "--budget-tokens", "many"],
        &["session-start", "--nonsense"],
    ];
    for arguments in arguments {
        let output = home.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?} {output:?}");
        let quiet = arguments[0] != "capture-transcript";
        assert!(!quiet || output.stdout.is_empty(), "{arguments:?} {output:?}");
    }
    let huge = format!("{{\"session_id\":\"{}\"}}", "x".repeat(8 << 20));
    let odd = json!({"session_id": 7, "transcript_path": ["x"], "cwd": {}}).to_string();
    let missing =
        json!({"transcript_path": "/no/such", "session_id": "s", "cwd": "/no"}).to_string();
    let garbage = vec![0xff; 1 << 20];
    let inputs: [&[u8]; 7] =
        [b"", b"garbage", b"[]", &garbage, huge.as_bytes(), odd.as_bytes(), missing.as_bytes()];
    for name in ["capture-turn", "session-start"] {
        for input in inputs {
            let output = feed(home.command(&[name]), input);
            let start = &input[..input.len().min(40)];
            assert_eq!(output.status.code(), Some(0), "{name} {start:?} {output:?}");
            assert!(output.stdout.is_empty(), "{name} {start:?} {output:?}");
        }
    }
    home.configure("this is no toml [");
    for name in ["capture-turn", "session-start"] {
        let output = feed(home.command(&[name]), missing.as_bytes());
        assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    }
    let answer = capture(&home, &["--no-spawn"], &seed(&home));
    assert_eq!(answer["status"], "deferred", "wrong settings lose nothing: {answer}");
}

/// An endless standard input, or an output that is never read, must not block an agent.
#[test]
fn hooks_do_not_wait_for_open_pipes() {
    let home = TestHome::new();
    for arguments in [
        &["capture-turn"][..],
        &["session-start"],
        &["capture-transcript", "--no-spawn", "/dev/stdin"],
    ] {
        let mut command = home.command(arguments);
        command.env_remove("HOB_MEMORY_HOOK_TIMEOUT_SECS");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stopwatch = Stopwatch::start();
        drop((child.stdout.take(), child.stderr.take()));
        let status = wait_until("the hook ends", || child.try_wait().unwrap());
        assert_hook_in_time(stopwatch);
        assert_eq!(status.code(), Some(0), "{arguments:?}");
    }
}

/// Three sessions that close within a second are the seed's story; here they are forty.
#[test]
fn concurrent_hooks_write_a_deferral_file_each() {
    let home = TestHome::new();
    let path = seed(&home);
    let children: Vec<_> = (0..40)
        .map(|_| {
            let mut command = home.command(&["capture-transcript", "--no-spawn"]);
            command.args(["--session-id", "a/b c"]).arg(&path).stdout(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    for child in children {
        let answer = json_of(&child.wait_with_output().unwrap());
        assert_eq!(answer["events"], 3, "{answer}");
        assert!(answer["path"].as_str().unwrap().contains("/a_b_c-"), "{answer}");
    }
    assert_eq!(deferrals(&home).len(), 40);
    let server = home.serve();
    wait_for_drain(&home);
    assert_eq!(exported_texts(&home), SEED_TEXTS);
    assert!(server.stop().success());
}

/// A server that hangs counts as unreachable.
#[test]
fn hooks_do_not_wait_for_a_hanging_server() {
    let home = TestHome::new();
    let server = home.serve();
    server.signal(Signal::SIGSTOP);
    for (arguments, status) in [(&[][..], "captured"), (&["--no-spawn"], "deferred")] {
        let path = transcript(&home, status, &[said(status, 0, "user", status)]);
        let stopwatch = Stopwatch::start();
        let answer = capture(&home, arguments, &path);
        // A server that was stopped while it wrote holds the lock of the store.
        assert!(answer["status"] == status || answer["status"] == "deferred", "{answer}");
        assert_hook_in_time(stopwatch);
    }
    let stopwatch = Stopwatch::start();
    let path = transcript(&home, "hooked", &[said("hooked", 0, "user", "hooked")]);
    hook(
        &home,
        &json!({"session_id": "hooked", "transcript_path": path, "hook_event_name": "Stop"}),
    );
    assert_hook_in_time(stopwatch);
    server.signal(Signal::SIGCONT);
    wait_for_drain(&home);
    let mut texts = exported_texts(&home);
    texts.sort();
    assert_eq!(texts, ["captured", "deferred", "hooked"]);
    assert!(server.stop().success());
}

/// A script may pass variables that are not set. Its turns were stored in a session without a name, or not at all.
#[test]
fn empty_arguments_count_as_absent() {
    let home = TestHome::new();
    for session in ["own-1", "own-2"] {
        let path = transcript(
            &home,
            session,
            &[json!({"type": "user", "sessionId": session,
            "message": {"role": "user", "content": "continue"}})],
        );
        let answer = capture(&home, &["--session-id", "", "--cwd", ""], &path);
        assert_eq!(answer["inserted"], 1, "{answer}");
    }
    let rows = export(&home);
    let sessions: Vec<&str> = rows.iter().map(|row| row["session_id"].as_str().unwrap()).collect();
    assert_eq!(sessions, ["own-1", "own-2"]);
}

/// A turn of more than a megabyte was deferred, with all after it, although the store was free.
#[test]
fn long_turn_is_stored_without_a_server() {
    let home = TestHome::new();
    let long = "alpha beta gamma ".repeat(90_000);
    let records = [said("s", 0, "user", &long), said("s", 1, "assistant", "small")];
    let answer = capture(&home, &[], &transcript(&home, "long.jsonl", &records));
    assert_eq!(
        (&answer["status"], &answer["inserted"]),
        (&json!("captured"), &json!(2)),
        "{answer}"
    );
    assert!(deferrals(&home).is_empty());
}

/// A hook that had waited for the store or the server had no time left to mask and defer megabytes.
#[test]
fn large_batch_is_captured_or_deferred_whole() {
    let home = TestHome::new();
    let large = |session: &str| {
        let text = |n: usize| format!("{n} {}", "alpha beta gamma ".repeat(20_000));
        let records: Vec<Value> = (0..3).map(|n| said(session, n, "user", &text(n))).collect();
        transcript(&home, &format!("{session}.jsonl"), &records)
    };
    let answer = capture(&home, &[], &large("stored"));
    assert_eq!(
        (&answer["status"], &answer["inserted"]),
        (&json!("captured"), &json!(3)),
        "{answer}"
    );
    assert!(deferrals(&home).is_empty());
    // Another command keeps the store closed.
    let lock = fs::File::open(home.hob_home().join("store.lock")).unwrap();
    lock.lock().unwrap();
    let answer = capture(&home, &[], &large("locked"));
    lock.unlock().unwrap();
    assert_eq!((&answer["status"], &answer["events"]), (&json!("deferred"), &json!(3)), "{answer}");
    let file = PathBuf::from(answer["path"].as_str().unwrap());
    assert_eq!(jsonl(&file).len(), 4, "a header and three turns");
    assert_eq!(deferrals(&home), [file], "no temporary file is left");
    let server = home.serve();
    let answer = capture(&home, &[], &large("live"));
    assert_ne!(answer["status"], "failed", "{answer}");
    wait_for_drain(&home);
    assert_eq!(export(&home).len(), 9);
    assert!(server.stop().success());
}

/// The temporary file of a hook that was ended while it wrote stayed until the next start of the server.
#[test]
fn stale_temporary_files_are_removed_while_the_server_runs() {
    let home = TestHome::new();
    let server = home.serve();
    let folder = home.hob_home().join("deferred-captures");
    let (stale, fresh) = (folder.join("s-1.jsonl.a.tmp"), folder.join("s-1.jsonl.b.tmp"));
    fs::write(&fresh, "{").unwrap();
    let file = fs::File::create(&stale).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    wait_until("the stale file is removed", || (!stale.exists()).then_some(()));
    assert!(fresh.exists(), "a hook may still write it");
    fs::remove_file(fresh).unwrap();
    assert!(server.stop().success());
}
