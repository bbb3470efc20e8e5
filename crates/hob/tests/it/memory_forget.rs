//! `hob forget`: turns are hidden at once, restored on request, and erased in the end.

use hob_testkit::{TestHome, wait_until};
use serde_json::{Value, json};

use crate::memory_mcp::two_projects;
use crate::memory_setup::*;
use crate::on_terminal::on_terminal;

#[test]
fn forgotten_turns_are_hidden_and_can_be_restored() {
    let (server, home, alpha, _) = two_projects();
    let mut bridge = Bridge::new(&home, &alpha);
    let arguments = json!({"cue": "crane harbour", "project": "*"});
    let before = export(&home);
    let record = before[0]["record_id"].as_str().unwrap().to_owned();
    let session = before[0]["session_id"].as_str().unwrap().to_owned();
    let count = |arguments: &[&str]| {
        let output = home.run(&[&["forget", "--json"], arguments].concat());
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let count = answer["count"].as_u64().unwrap();
        // A command that found nothing to change has failed, and says so.
        assert_eq!(output.status.code(), Some(i32::from(count == 0)), "{output:?}");
        assert_eq!(output.stderr.is_empty(), count > 0, "{output:?}");
        count
    };
    assert_eq!(count(&["--yes", "no-such-record"]), 0);
    assert_eq!(count(&["--yes", "--session-id", "no-such-session"]), 0);
    assert_eq!(count(&["--undo", &record]), 0, "it is not forgotten");
    for what in [vec![&*record], vec!["--session-id", &*session]] {
        let told = home.run(&[&["forget", "--yes"], &what[..]].concat());
        let told = String::from_utf8(told.stdout).unwrap();
        assert!(told.contains(&format!("hob forget --undo {}", what.join(" "))), "{told}");
        let hidden = export(&home);
        assert!(hidden.iter().all(|row| row["record_id"] != *record), "{hidden:?}");
        let found = bridge.recalled(arguments.clone());
        assert!(!found.contains(&before[0]["text"].as_str().unwrap().to_owned()), "{found:?}");
        // An agent cannot restore what the owner forgot.
        let refused = bridge.refused("memory_forget", json!({"record_id": record, "undo": true}));
        assert!(refused.contains("only the owner"), "{refused}");
        assert!(count(&[&["--undo"], &what[..]].concat()) > 0);
        assert_eq!(count(&[&["--undo"], &what[..]].concat()), 0);
        let found = bridge.recalled(arguments.clone());
        assert!(found.contains(&before[0]["text"].as_str().unwrap().to_owned()), "{found:?}");
    }
    let mut after = export(&home);
    after.sort_by_key(|row| row["record_id"].to_string());
    let mut before = before;
    before.sort_by_key(|row| row["record_id"].to_string());
    assert_eq!(after, before);
    drop(bridge);
    assert!(server.stop().success());
    // Without a server, too.
    assert_eq!(count(&["--yes", &record]), 1);
    assert_eq!(count(&["--undo", &record]), 1);
}

#[test]
fn forgotten_turns_are_erased_after_their_time() {
    let (server, home, _, _) = two_projects();
    let record = export(&home)[0]["record_id"].as_str().unwrap().to_owned();
    assert!(home.run(&["forget", "--yes", &record]).status.success());
    assert!(server.stop().success());
    let server = home.serve_with(|command| {
        command.env("HOB_MEMORY_FORGET_UNDO_SECS", "1");
    });
    let log = home.hob_home().join("logs");
    let is_erased = || {
        let files = std::fs::read_dir(&log).unwrap().flatten();
        files
            .map(|file| std::fs::read_to_string(file.path()).unwrap_or_default())
            .any(|text| text.contains("erased forgotten turns"))
            .then_some(())
    };
    wait_until("the turn to be erased", is_erased);
    assert!(server.stop().success());
    let undo = home.run(&["forget", "--undo", &record]);
    assert_eq!(undo.status.code(), Some(1), "{undo:?}");
    assert!(String::from_utf8_lossy(&undo.stderr).contains("nothing was restored"), "{undo:?}");
}

/// On a terminal the question shows what will be forgotten, and nothing of it acts on the terminal.
#[test]
fn question_shows_what_will_be_forgotten() {
    let home = TestHome::new();
    let text = "the\u{1b}]0;x\u{7} crane is blue\nand tall";
    let records = [said("s1", 0, "user", text), said("s1", 1, "assistant", "noted, it is blue")];
    let path = transcript(&home, "s1.jsonl", &records);
    assert_eq!(capture(&home, &[], &path)["inserted"], 2);
    let record = export(&home).into_iter().find(|row| row["role"] == "user").unwrap();
    let id = record["record_id"].as_str().unwrap();
    let shown = on_terminal(home.command(&["forget", id]), "n\n");
    assert!(shown.contains("the]0;x crane is blue") && !shown.contains("tall"), "{shown:?}");
    assert!(!shown.contains('\u{1b}') && shown.contains("nothing was changed"), "{shown:?}");
    let shown = on_terminal(home.command(&["forget", "--session-id", "s1"]), "y\n");
    assert!(shown.contains("crane is blue") && shown.contains("noted, it is blue"), "{shown:?}");
    assert!(shown.contains("forgot 2 records"), "{shown:?}");
}

/// Turns that a session said while it was forgotten were lost, also after the owner had undone that.
#[test]
fn session_that_goes_on_while_forgotten_is_restored_whole() {
    let home = TestHome::new();
    let server = home.serve();
    let roles = ["user", "assistant", "user", "assistant"];
    let texts = ["what is due", "the harbour crane", "and then", "the lighthouse"];
    let records: Vec<_> = (0..4).map(|n| said("live", n, roles[n], texts[n])).collect();
    let event = |name: &str| {
        let path = home.user_home().join("live.jsonl");
        json!({"session_id": "live", "transcript_path": path, "hook_event_name": name})
    };
    transcript(&home, "live.jsonl", &records[..2]);
    hook(&home, &event("Stop"));
    assert_eq!(exported_texts(&home), texts[..2]);
    assert!(home.run(&["forget", "--yes", "--session-id", "live"]).status.success());
    transcript(&home, "live.jsonl", &records);
    hook(&home, &event("Stop"));
    assert!(export(&home).is_empty(), "it is still forgotten");
    assert!(home.run(&["forget", "--undo", "--session-id", "live"]).status.success());
    hook(&home, &event("SessionEnd"));
    assert_eq!(exported_texts(&home), texts);
    assert!(server.stop().success());
}

/// An import that ran while a session was forgotten counted as done, also after the owner had undone that.
#[test]
fn import_takes_what_a_forgotten_session_refused() {
    let home = TestHome::new();
    let roles = ["user", "assistant", "user"];
    let texts = ["what is due", "the harbour crane", "and then"];
    let records: Vec<_> = (0..3).map(|n| said("past", n, roles[n], texts[n])).collect();
    let import = |records: &[Value]| {
        let path = transcript(&home, "past.jsonl", records);
        json_of(&home.run(&["import", "--json", path.to_str().unwrap()]))
    };
    assert_eq!(import(&records[..2])["inserted"], 2);
    assert!(home.run(&["forget", "--yes", "--session-id", "past"]).status.success());
    let known = import(&records);
    assert_eq!((&known["inserted"], &known["duplicates"]), (&json!(0), &json!(3)), "{known}");
    let undone = home.run(&["forget", "--undo", "--session-id", "past"]);
    assert!(undone.status.success(), "{undone:?}");
    let path = home.user_home().join("past.jsonl");
    let again = json_of(&home.run(&["import", "--json", path.to_str().unwrap()]));
    assert_eq!((&again["inserted"], &again["skipped"]), (&json!(1), &json!(0)), "{again}");
    assert_eq!(exported_texts(&home), texts);
}
