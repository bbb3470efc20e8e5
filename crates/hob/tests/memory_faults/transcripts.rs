//! Transcripts that are torn, binary, huge, no files at all, or out of time.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use hob_domain::Timestamp;
use hob_testkit::{Random, TestHome};
use nix::sys::stat::Mode;
use serde_json::json;
use uuid::Uuid;

use crate::hooks::{
    Watch, assert_no_process, assert_whole, deferred, hook_input, serve, wait_drained,
};
use crate::transcript::{
    ASSISTANT, Said, Shape, Transcript, USER, assert_stored, export, exported, place, text,
};

/// Whatever the path names, the commands exit 0 in time.
#[test]
fn paths_that_are_no_transcripts_capture_nothing() {
    let (home, watch) = (TestHome::new(), Watch::new());
    let folder = place(&home, "a-folder.jsonl");
    fs::create_dir(&folder).unwrap();
    let turning = place(&home, "turning.jsonl");
    symlink(&turning, &turning).unwrap();
    let empty = place(&home, "empty.jsonl");
    fs::write(&empty, "").unwrap();
    let nulls = place(&home, "nulls.jsonl");
    fs::write(&nulls, vec![0; 300_000]).unwrap();
    let missing = place(&home, "missing.jsonl");
    let odd = ["/dev/zero", "/dev/null", "/proc/self/mem", "/", ""].map(PathBuf::from);
    let paths = [folder, turning, empty, nulls, missing].into_iter().chain(odd);
    for path in paths {
        for flags in [&["--no-spawn"][..], &[]] {
            let done = watch.capture(&home, flags, text(&path));
            if !path.as_os_str().is_empty() {
                assert_ne!(done.status(), "failed", "{path:?}: {done:?}");
            }
        }
        let session = "odd";
        let input = json!({"session_id": session, "transcript_path": path, "cwd": "/nowhere",
            "hook_event_name": "Stop", "last_assistant_message": format!("said at {}", path.display())});
        assert_eq!(watch.turn(&home, &input).stderr, "");
    }
    assert_whole(&home);
    let server = serve(&home);
    wait_drained(&home);
    let said = exported(&home, "odd");
    assert_eq!(said.len(), 10, "the hooks' inputs are stored: {said:?}");
    assert!(server.stop().success());
    assert_no_process(&home);
    watch.print("no transcripts");
}

/// A pipe without a writer: the hook still captures the answer in its input.
#[test]
fn pipe_as_a_transcript_does_not_block_a_hook() {
    let (home, watch) = (TestHome::new(), Watch::new());
    let pipe = place(&home, "pipe.jsonl");
    nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    watch.capture(&home, &["--no-spawn"], text(&pipe)).json();
    watch.capture(&home, &[], text(&pipe)).json();
    let input = json!({"session_id": "pipe", "transcript_path": pipe, "cwd": "/nowhere",
        "hook_event_name": "Stop", "last_assistant_message": "Done."});
    watch.turn(&home, &input);
    watch.print("pipe");
    let server = serve(&home);
    wait_drained(&home);
    assert_eq!(exported(&home, "pipe").len(), 1, "the answer is stored");
    assert!(server.stop().success());
}

/// Hooks with nonsense as input.
#[test]
fn bad_hook_input_captures_nothing() {
    let (home, watch) = (TestHome::new(), Watch::new());
    let long = format!("{{\"session_id\":\"{}", "x".repeat(1 << 20));
    let inputs = [
        "",
        "{",
        "[]",
        "null",
        "\u{0}",
        "{\"session_id\":5}",
        "{}",
        "nonsense",
        long.as_str(),
        "{\"transcript_path\":\"/nowhere\"}",
        "{\"last_assistant_message\":\"\"}",
    ];
    for input in inputs {
        for command in ["capture-turn", "session-start"] {
            let done = watch.run(home.command(&[command]), input);
            assert_eq!(done.stdout, "", "{input:.40}: {done:?}");
        }
    }
    assert_eq!(export(&home).len(), 0);
    assert_whole(&home);
    watch.print("nonsense");
}

/// Transcripts cut and dirtied anywhere: every turn whose line is whole is captured, once.
#[test]
fn torn_and_dirty_transcripts_lose_no_turn() {
    let (home, watch) = (TestHome::new(), Watch::new());
    let mut random = Random::new(5);
    let rounds = if hob_testkit::is_campaign() { 200 } else { 15 };
    for round in 0..rounds {
        let session = format!("torn-{round}");
        let mut transcript = Transcript::new(&home, &session, Shape::Claude);
        let mut good: Vec<Said> = Vec::new();
        for number in 0..6 {
            let words = format!("number {number} of {session}");
            let record = transcript.record(USER, &words);
            match random.below(5) {
                0 => {
                    // Cut off; the next record begins on a new line.
                    let cut = random.below(record.len() as u64 - 2) as usize;
                    transcript.append(&record.as_bytes()[..cut]);
                    transcript.append(b"\n");
                }
                1 => {
                    let noise: Vec<u8> =
                        (0..random.below(3000)).map(|_| random.below(256) as u8).collect();
                    let noise: Vec<u8> = noise.into_iter().filter(|byte| *byte != b'\n').collect();
                    transcript.append(&[&noise, b"\n".as_slice(), record.as_bytes()].concat());
                    good.push((USER.to_owned(), words));
                }
                2 => {
                    transcript.append(&[b"\0\0\0\n\n\xff\xfe\n", record.as_bytes()].concat());
                    good.push((USER.to_owned(), words));
                }
                _ => {
                    transcript.append(record.as_bytes());
                    good.push((USER.to_owned(), words));
                }
            }
            // At any length of the file a capture ends well.
            if random.below(4) == 0 {
                let flags: &[&str] = if random.below(2) == 0 { &["--no-spawn"] } else { &[] };
                watch.capture(&home, flags, transcript.path());
            }
            if random.below(4) == 0 {
                watch.turn(&home, &hook_input(&transcript, "Stop", None));
            }
        }
        // The last line is cut, and has no end.
        let record = transcript.record(USER, "cut");
        let cut = random.below(record.len() as u64 - 2) as usize;
        transcript.append(&record.as_bytes()[..cut]);
        let done = watch.capture(&home, &[], transcript.path());
        assert_eq!(done.status(), "captured");
        assert_eq!(exported(&home, &session), good, "{session}");
    }
    let before = export(&home).len();
    let server = serve(&home);
    wait_drained(&home);
    assert_eq!(export(&home).len(), before, "nothing comes twice");
    assert!(server.stop().success());
    watch.print("torn");
}

/// Ten megabytes in one line, with good turns around it. (The tests run a Hob that is not optimized, and takes
/// its time for a line that it tries to mend, hence one megabyte of noise.)
#[test]
fn lines_of_ten_megabytes_do_not_stop_a_capture() {
    let (home, watch) = (TestHome::new(), Watch::new());
    for (name, flags) in [("stored", &[][..]), ("deferred", &["--no-spawn"])] {
        let mut transcript = Transcript::new(&home, name, Shape::Claude);
        transcript.talk(1);
        transcript.append(&[b'x'; 1_000_000]);
        transcript.append(b"\n");
        let result = json!({"type": "user", "uuid": Uuid::new_v4().to_string(), "sessionId": name,
            "toolUseResult": {"stdout": "y".repeat(10_000_000)},
            "message": {"role": "user", "content": [{"type": "tool_result", "content": "z"}]}});
        transcript.append(format!("{result}\n").as_bytes());
        transcript.talk(1);
        assert_eq!(watch.capture(&home, flags, transcript.path()).status(), name_of(flags));
        let server = serve(&home);
        wait_drained(&home);
        assert_eq!(exported(&home, name), transcript.said);
        assert!(server.stop().success());
    }
    watch.print("long lines");
}

fn name_of(flags: &[&str]) -> &'static str {
    if flags.is_empty() { "captured" } else { "deferred" }
}

/// A turn of megabytes, such as a pasted file, is stored with its neighbours in every way of capture.
#[test]
fn turn_of_megabytes_is_stored_whole() {
    let (home, watch) = (TestHome::new(), Watch::new());
    let mut transcripts = Vec::new();
    for (name, flags) in [("stored", &[][..]), ("deferred", &["--no-spawn"])] {
        let mut transcript = Transcript::new(&home, name, Shape::Claude);
        transcript.talk(1);
        transcript.say(USER, &"some words of a pasted file, ".repeat(140_000));
        transcript.say(ASSISTANT, "Done.");
        watch.capture_eventually(&home, flags, transcript.path());
        transcripts.push(transcript);
    }
    let mut transcript = Transcript::new(&home, "followed", Shape::Claude);
    let server = serve(&home);
    wait_drained(&home);
    // If the server does not store the turn within half of the limit, the hook masks and defers it in the other half.
    transcript.say(USER, &"some words of a pasted file, ".repeat(70_000));
    watch.turn_eventually(&home, &hook_input(&transcript, "UserPromptSubmit", None));
    transcripts.push(transcript);
    wait_drained(&home);
    for transcript in &transcripts {
        let there: Vec<usize> =
            exported(&home, &transcript.session).iter().map(|(_, text)| text.len()).collect();
        let said: Vec<usize> = transcript.said.iter().map(|(_, text)| text.len()).collect();
        assert_eq!(there, said, "{}", transcript.session);
    }
    assert!(server.stop().success());
    watch.print("long turns");
}

/// Turns that cannot be stored before the hook's deadline go into a deferral file.
#[test]
fn capture_over_its_deadline_defers_the_rest() {
    let (home, watch) = (TestHome::new(), Watch::new());
    let mut transcript = Transcript::new(&home, "many", Shape::Claude);
    let lines: String = (0..6000)
        .map(|number| {
            let words = format!("number {number}: {}", "some words of a long session ".repeat(15));
            transcript.said.push((USER.to_owned(), words.clone()));
            transcript.record(USER, &words)
        })
        .collect();
    transcript.append(lines.as_bytes());
    watch.capture_eventually(&home, &[], transcript.path());
    let server = serve(&home);
    wait_drained(&home);
    assert_stored(&home, &[&transcript]);
    assert!(server.stop().success());
    watch.print("many turns");
}

/// Records with odd or missing timestamps keep the order of the conversation.
#[test]
fn turns_with_odd_timestamps_keep_their_order() {
    let (home, watch) = (TestHome::new(), Watch::new());
    let server = serve(&home);
    let times = [
        json!("2026-05-01T10:00:00Z"),
        json!("2026-05-01T09:00:00Z"),
        serde_json::Value::Null,
        json!("1970-01-01T00:00:00Z"),
        json!("9999-12-31T23:59:59Z"),
        json!("-009999-01-02T01:59:59Z"),
        json!("yesterday"),
        json!(12345),
        json!("2026-05-01T10:00:01Z"),
    ];
    let path = place(&home, "jumping.jsonl");
    let mut lines = String::new();
    let mut said: Vec<Said> = Vec::new();
    let mut parent: Option<String> = None;
    for (number, time) in times.iter().enumerate() {
        let id = Uuid::new_v4().to_string();
        let words = format!("jump number {number}");
        let record = json!({"type": "user", "uuid": id, "parentUuid": parent, "sessionId": "jumping",
            "cwd": "/nowhere", "timestamp": time, "message": {"role": "user", "content": words}});
        lines += &format!("{record}\n");
        said.push((USER.to_owned(), words));
        parent = Some(id);
    }
    fs::write(&path, lines).unwrap();
    for flags in [&["--no-spawn"][..], &[]] {
        let done = watch.capture(&home, flags, text(&path)).json();
        assert_eq!((&done["status"], &done["errors"]), (&json!("captured"), &json!(0)), "{done}");
    }
    server.kill();
    assert_eq!(watch.capture(&home, &["--no-spawn"], text(&path)).status(), "deferred");
    let server = serve(&home);
    wait_drained(&home);
    let stored: Vec<Said> = export(&home)
        .into_iter()
        .map(|turn| (USER.to_owned(), turn["text"].as_str().unwrap().to_owned()))
        .collect();
    assert_eq!(stored, said, "each once, in the order of the links");
    for turn in export(&home) {
        turn["ts"].as_str().unwrap().parse::<Timestamp>().unwrap();
    }
    assert_eq!(deferred(&home), [""; 0]);
    assert!(server.stop().success());
    watch.print("jumping clock");
}

/// The parent links decide the order, not the timestamps.
#[test]
fn timeline_follows_the_parent_links() {
    let (home, watch) = (TestHome::new(), Watch::new());
    let server = serve(&home);
    let path = place(&home, "backwards.jsonl");
    let times = ["2026-05-01T10:00:00Z", "2026-05-01T09:00:00Z", "2026-05-01T09:30:00Z"];
    let mut parent: Option<String> = None;
    let mut lines = String::new();
    for (number, time) in times.iter().enumerate() {
        let id = Uuid::new_v4().to_string();
        let record = json!({"type": "user", "uuid": id, "parentUuid": parent, "sessionId": "backwards",
            "cwd": "/nowhere", "timestamp": time,
            "message": {"role": "user", "content": format!("jump {number}")}});
        lines += &format!("{record}\n");
        parent = Some(id);
    }
    fs::write(&path, lines).unwrap();
    assert_eq!(watch.capture(&home, &[], text(&path)).status(), "captured");
    let mut stream = UnixStream::connect(home.hob_home().join("hob.sock")).unwrap();
    let mut call = |body: serde_json::Value| -> serde_json::Value {
        let body = body.to_string();
        stream.write_all(&(body.len() as u32).to_be_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    };
    call(json!({"call": "hello", "protocol": 1}));
    let asked = json!({"session_id": "backwards"});
    let answer =
        call(json!({"call": "tool", "name": "memory_timeline", "arguments": asked, "cwd": "/"}));
    let turns = answer["result"]["turns"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let texts: Vec<&str> = turns.iter().map(|turn| turn["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["jump 0", "jump 1", "jump 2"]);
    drop(stream);
    assert!(server.stop().success());
}
