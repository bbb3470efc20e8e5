//! `hob capture-turn`: captures new turns once and loses nothing that it acknowledged.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use hob_testkit::{TestHome, wait_until};
use serde_json::{Value, json};

use crate::memory_capture::jsonl;
use crate::memory_setup::*;

fn append(path: &Path, records: &[Value]) {
    let text = fs::read_to_string(path).unwrap() + &lines(records);
    fs::write(path, text).unwrap();
}

#[test]
fn capture_turn_captures_only_what_is_new() {
    let home = TestHome::new();
    let path = transcript(&home, "t.jsonl", &[said("s", 0, "user", "first prompt")]);
    let event = |name: &str| json!({"session_id": "s", "transcript_path": path, "cwd": "/w", "hook_event_name": name});
    let deferred = || deferrals(&home).iter().map(|path| jsonl(path).len() - 1).collect::<Vec<_>>();
    hook(&home, &event("UserPromptSubmit"));
    assert_eq!(deferred(), [1]);
    hook(&home, &event("UserPromptSubmit"));
    assert_eq!(deferred(), [1], "nothing is new");
    append(
        &path,
        &[said("s", 1, "assistant", "first answer"), said("s", 2, "user", "second prompt")],
    );
    hook(&home, &event("Stop"));
    assert_eq!(deferred().iter().sum::<usize>(), 3, "only what is new");
    let _server = home.serve();
    wait_for_drain(&home);
    append(&path, &[said("s", 3, "assistant", "second answer")]);
    hook(&home, &event("Stop"));
    let expected = ["first prompt", "first answer", "second prompt", "second answer"];
    assert_eq!(exported_texts(&home), expected);
    assert!(deferrals(&home).is_empty());
    // A file that was cut short or replaced is another file, and is read from its beginning.
    fs::write(&path, lines(&[said("s", 0, "user", "first prompt"), said("s", 9, "user", "cut")]))
        .unwrap();
    hook(&home, &event("Stop"));
    let other: Vec<Value> = (10..30).map(|n| said("s", n, "user", &format!("other {n}"))).collect();
    fs::write(&path, lines(&other)).unwrap();
    hook(&home, &event("Stop"));
    let texts = exported_texts(&home);
    assert_eq!(texts.len(), 4 + 1 + 20, "{texts:?}");
    assert_eq!(texts[4], "cut");
}

/// The transcript has no times here, so that its turns are as new as the hook.
#[test]
fn last_assistant_message_is_captured_before_the_transcript_has_it() {
    let record = |n: usize, role: &str, text: &str| {
        let mut record = said("s", n, role, text);
        record.as_object_mut().unwrap().remove("timestamp");
        record
    };
    for serving in [false, true] {
        let home = TestHome::new();
        let server = serving.then(|| home.serve());
        let path = transcript(&home, "t.jsonl", &[record(0, "user", "again please")]);
        let event = |name: &str| json!({"session_id": "s", "transcript_path": path, "cwd": "/w", "hook_event_name": name});
        let mut stop = event("Stop");
        stop["last_assistant_message"] = json!("the same answer");
        for round in 0..3 {
            hook(&home, &stop);
            if serving {
                let known = exported_texts(&home);
                assert_eq!(known.len(), 2 * round + 2, "it is there at once: {known:?}");
            }
            let n = 2 * round + 1;
            append(&path, &[record(n, "assistant", "the same answer")]);
            hook(&home, &event("UserPromptSubmit"));
            append(&path, &[record(n + 1, "user", "again please")]);
        }
        hook(&home, &event("SessionEnd"));
        let server = server.unwrap_or_else(|| home.serve());
        wait_for_drain(&home);
        let expected: Vec<&str> =
            (0..7).map(|n| ["again please", "the same answer"][n % 2]).collect();
        assert_eq!(exported_texts(&home), expected, "serving: {serving}");
        assert_eq!(capture(&home, &[], &path)["inserted"], 0, "serving: {serving}");
        assert!(server.stop().success());
    }
}

/// Hob may be installed in the middle of a long session: its hooks get through it in time, at worst
/// a part of it each time.
#[test]
fn long_transcript_is_captured_over_several_hooks() {
    let home = TestHome::new();
    let words = "lorem ipsum dolor sit amet ".repeat(40);
    let records: Vec<Value> =
        (0..60_000).map(|n| said("s", n, "user", &format!("{n} {words}"))).collect();
    let path = transcript(&home, "t.jsonl", &records);
    let event = json!({"session_id": "s", "transcript_path": path, "hook_event_name": "Stop"});
    // A machine that does much else may not even get one part done in a hook's time, but in some.
    wait_until("hooks have captured a part of it", || {
        let output = feed(home.command(&["capture-turn"]), event.to_string().as_bytes());
        assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
        (!deferrals(&home).is_empty()).then_some(())
    });
}

/// Whatever the answer was, the turn is there afterwards: from the server, from the store, from a file.
#[test]
fn acknowledged_turns_survive_kill_9() {
    let home = TestHome::new();
    let server = home.serve();
    let acknowledged = Mutex::new(BTreeSet::new());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (home, acknowledged) = (&home, &acknowledged);
            scope.spawn(move || {
                for n in 0..60 {
                    let session = format!("k{thread}-{n:02}");
                    let path = transcript(home, &session, &[said(&session, 0, "user", &session)]);
                    let flags: &[&str] = if n % 2 == 0 { &["--no-spawn"] } else { &[] };
                    let answer = capture(home, flags, &path);
                    // The server may have stored it and been killed before it could say so.
                    let done = ["inserted", "duplicates", "events"].iter().any(|k| answer[k] == 1);
                    assert!(done, "{answer}");
                    acknowledged.lock().unwrap().insert(session);
                }
            });
        }
        wait_until("some were acknowledged", || {
            (acknowledged.lock().unwrap().len() > 60).then_some(())
        });
        server.kill();
    });
    let server = home.serve();
    wait_for_drain(&home);
    let mut texts = exported_texts(&home);
    texts.sort();
    assert_eq!(texts, acknowledged.into_inner().unwrap().into_iter().collect::<Vec<_>>());
    assert!(server.stop().success());
}
