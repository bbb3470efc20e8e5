//! Upgrades: the home of the first build under this one, and the way back.

use std::fs;
use std::process::Output;

use hob_testkit::server::folder_holds;
use hob_testkit::{EarlierServer, TestHome, wait_until};
use serde_json::{Value, json};

use crate::earlier_home::{self, CONVERSATION, EarlierHome, LIGHTHOUSE, SCHEMAS, SESSION, TOKEN};
use crate::memory_secrets::unsealed;
use crate::memory_setup::{
    Bridge, capture, deferrals, exported_texts, feed, hook, json_of, recall, said, texts,
    transcript, wait_for_drain,
};

fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort();
    texts
}

#[track_caller]
fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn home_of_the_first_build_keeps_everything() {
    let earlier = EarlierHome::new();
    let (home, project) = (&earlier.home, &earlier.project);
    let server = home.serve();
    assert_ne!(earlier.schemas(), SCHEMAS, "both databases are migrated");

    // The memory: what was indexed, what only the full-text index had, and what is sealed.
    assert_eq!(sorted(exported_texts(home)), sorted(earlier_home::texts()));
    for (question, expect) in [
        ("which port does the harbour server use", "port 7717"),
        ("who painted the door", LIGHTHOUSE),
    ] {
        // Turns of the earlier index are indexed again in the background.
        wait_until(expect, || {
            let found = recall(home, project, &[question]);
            texts(found["hits"].as_array().unwrap())
                .iter()
                .any(|hit| hit.contains(expect))
                .then_some(())
        });
    }
    let mut bridge = Bridge::new(home, project);
    let listed = bridge.call("memory_timeline", json!({"session_id": CONVERSATION}));
    assert_eq!(texts(listed["turns"].as_array().unwrap()), earlier_home::texts());
    let path = transcript(home, "s1.jsonl", &earlier_home::records());
    let again = capture(home, &["--cwd", project.to_str().unwrap()], &path);
    let known = earlier_home::records().len();
    assert_eq!((&again["inserted"], &again["duplicates"]), (&json!(0), &json!(known)), "{again}");
    let secret = earlier_home::originals()[2].clone();
    let token = secret.split(' ').find(|word| word.starts_with("ghp_")).unwrap().to_owned();
    assert!(!folder_holds(&home.hob_home(), &token), "the secret is sealed");

    // The ledger: the app's token, its session with the turn and the events.
    let answer = server.get("/sessions", Some(TOKEN)).json();
    assert_eq!(
        (&answer["count"], &answer["sessions"][0]["session_id"]),
        (&json!(1), &json!(SESSION))
    );
    assert_eq!(answer["sessions"][0]["meta"]["purpose"], "upgrade");
    let turn = server.get(&format!("/sessions/{SESSION}/turns/1"), Some(TOKEN)).json();
    assert_eq!(
        (&turn["text"], &turn["stop_reason"]),
        (&json!("the anchor is up"), &json!("end_turn"))
    );
    let log = server.get(&format!("/sessions/{SESSION}/events"), Some(TOKEN)).json();
    let kinds: Vec<&Value> =
        log["events"].as_array().unwrap().iter().map(|e| &e["event"]).collect();
    assert_eq!(kinds, ["create", "message", "turn"], "{log}");
    let doctor = home.run(&["doctor", "--json"]);
    assert!(doctor.status.success(), "{doctor:?}");
    drop(bridge);
    assert!(server.stop().success());

    let unsealed_texts = unsealed(home);
    assert_eq!(unsealed_texts, sorted(earlier_home::originals()));
    let file = home.user_home().join("hob.backup");
    assert!(home.run(&["backup", file.to_str().unwrap()]).status.success());
    let other = TestHome::new();
    assert!(other.run(&["restore", file.to_str().unwrap(), "--yes"]).status.success());
    assert_eq!(unsealed(&other), unsealed_texts);
    let server = other.serve();
    assert_eq!(server.get(&format!("/sessions/{SESSION}"), Some(TOKEN)).json()["turn_count"], 1);
}

#[test]
fn commands_migrate_an_earlier_home_that_nobody_serves() {
    let earlier = EarlierHome::new();
    let apps = json_of(&earlier.home.run(&["app", "list", "--json"]));
    assert_eq!(apps["apps"][0]["app"], "first");
    assert_eq!(sorted(exported_texts(&earlier.home)), sorted(earlier_home::texts()));
    let [ledger, memory] = earlier.schemas();
    assert!(ledger > SCHEMAS[0] && memory > SCHEMAS[1], "{ledger} {memory}");
    assert!(earlier.home.serve().stop().success());
}

/// A server that hangs does not answer hooks, so that they would write into the databases themselves.
#[test]
fn databases_of_a_running_earlier_server_are_not_migrated() {
    let earlier = EarlierHome::new();
    let (home, project) = (&earlier.home, &earlier.project);
    let server = EarlierServer::silent(home);
    let pid = format!("(pid {})", server.pid());
    let path = transcript(home, "s2.jsonl", &[said("s2", 0, "user", "the ferry leaves at nine")]);
    let refused = |arguments: &[&str]| {
        let output = home.command(arguments).current_dir(project).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?} {output:?}");
        let said = stderr(&output);
        assert!(
            said.contains(&pid) && said.contains("hob service install"),
            "{arguments:?} {said}"
        );
    };
    refused(&["import", path.to_str().unwrap()]);
    refused(&["recall", "harbour"]);
    refused(&["export"]);
    refused(&["app", "create", "second"]);
    for arguments in [&["restore", "x.backup", "--yes"][..], &["store", "salvage", "--yes"]] {
        let output = home.run(arguments);
        assert!(!output.status.success(), "{arguments:?} {output:?}");
    }
    assert_eq!(earlier.schemas(), SCHEMAS);

    let captured = capture(home, &["--cwd", project.to_str().unwrap()], &path);
    assert_eq!((&captured["status"], &captured["events"]), (&json!("deferred"), &json!(1)));
    let path = transcript(home, "s3.jsonl", &[said("s3", 0, "user", "the tide turns at noon")]);
    hook(
        home,
        &json!({"session_id": "s3", "transcript_path": path, "cwd": project,
        "hook_event_name": "SessionEnd"}),
    );
    assert_eq!(deferrals(home).len(), 2);
    let briefing =
        feed(home.command(&["session-start"]), json!({"cwd": project}).to_string().as_bytes());
    assert!(briefing.status.success() && briefing.stdout.is_empty(), "{briefing:?}");
    assert!(stderr(&briefing).contains(&pid), "{briefing:?}");
    let doctor = json_of(&home.run(&["doctor", "--json"]));
    let memory =
        doctor["checks"].as_array().unwrap().iter().find(|check| check["name"] == "memory");
    let memory = memory.expect("a check of the memory");
    assert_eq!(memory["verdict"], "warning", "{memory}");
    assert!(memory["fix"].as_str().unwrap().contains("hob service install"), "{memory}");
    assert_eq!(earlier.schemas(), SCHEMAS);

    // The server of this build stores what waits.
    drop(server);
    let server = home.serve();
    wait_for_drain(home);
    let mut expect = earlier_home::texts();
    expect.extend(["the ferry leaves at nine", "the tide turns at noon"].map(str::to_owned));
    assert_eq!(sorted(exported_texts(home)), sorted(expect));
    assert!(server.stop().success());
}

/// A backup copies the databases as they are, and a restore brings the earlier home back.
#[test]
fn backup_from_before_the_upgrade_brings_the_earlier_home_back() {
    let earlier = EarlierHome::new();
    let home = &earlier.home;
    let server = EarlierServer::silent(home);
    let file = home.user_home().join("before.backup");
    let backup = home.run(&["backup", file.to_str().unwrap()]);
    assert!(backup.status.success(), "{backup:?}");
    assert_eq!(earlier.schemas(), SCHEMAS);
    drop(server);
    assert!(home.serve().stop().success());
    assert_ne!(earlier.schemas(), SCHEMAS);
    let restored = home.run(&["restore", file.to_str().unwrap(), "--yes"]);
    assert!(restored.status.success(), "{restored:?}");
    assert_eq!(earlier.schemas(), SCHEMAS, "the earlier build can open it");
}

#[test]
fn home_of_a_later_build_is_refused_with_the_way_back() {
    let earlier = EarlierHome::new();
    let home = &earlier.home;
    earlier.set_schemas(99);
    let before = fs::read(home.hob_home().join("memory.db")).unwrap();
    for arguments in [&["serve", "--no-http"][..], &["recall", "harbour"], &["app", "list"]] {
        let output = home.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?} {output:?}");
        let said = stderr(&output);
        assert!(said.contains("newer hob (schema 99"), "{arguments:?} {said}");
        assert!(said.contains("hob restore FILE"), "{arguments:?} {said}");
    }
    assert_eq!(fs::read(home.hob_home().join("memory.db")).unwrap(), before, "nothing changed");
    assert_eq!(earlier.schemas(), [99, 99]);
    let path = transcript(home, "s4.jsonl", &[said("s4", 0, "user", "the buoy is red")]);
    let captured = capture(home, &["--cwd", "/"], &path);
    assert_eq!(captured["status"], "deferred", "{captured}");
}
