//! Ids that people type: shortened ones, and those that the shell completes.

use hob_testkit::TestHome;

use crate::cli_output::remembering;
use crate::memory_setup::{export, json_of};

#[test]
fn ids_of_the_memory_may_be_shortened() {
    let home = remembering();
    let all = export(&home);
    let id = all[0]["record_id"].as_str().unwrap().to_owned();
    let turns = |arguments: &[&str]| {
        let output = home.run(&[&["timeline", "--json"], arguments].concat());
        json_of(&output)["turns"].as_array().unwrap().len()
    };
    assert_eq!(turns(&["--session-id", "session-of-t"]), 2);
    assert_eq!(turns(&["--session-id", "no-such"]), 0);
    assert_eq!(turns(&["--project", "*", "--around", &id[..10]]), 2);
    let forgotten = home.run(&["forget", "--yes", "--json", &id[..10]]);
    assert_eq!(json_of(&forgotten)["count"], 1, "{forgotten:?}");
    assert!(export(&home).iter().all(|row| row["record_id"] != *id));
    // What is forgotten has its short ID still.
    let unknown = home.run(&["forget", "--undo", "--yes", "no-such"]);
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
    let restored = home.run(&["forget", "--undo", "--yes", "--json", &id[..10]]);
    assert_eq!(json_of(&restored)["count"], 1, "{restored:?}");
    assert!(export(&home).iter().any(|row| row["record_id"] == *id));
    assert!(home.run(&["forget", "--yes", &id[..10]]).status.success());
    let exported = home.run(&["export", "--session-id", "session-of"]);
    assert_eq!(String::from_utf8(exported.stdout).unwrap().lines().count(), 1);
    let shared = home.run(&["forget", "--yes", "--json", "--session-id", "session-"]);
    assert_eq!(json_of(&shared)["count"], 1, "{shared:?}");
    let undo = ["forget", "--undo", "--json", "--session-id", "session-of"];
    assert_eq!(json_of(&home.run(&undo))["count"], 1, "the turn that was forgotten alone stays so");
}

/// Asks `hob` what a shell would: how to complete the last of these words.
pub fn complete(home: &TestHome, words: &[&str]) -> String {
    let mut command = home.command(&[]);
    command.env("HOB_COMPLETE", "bash");
    command.env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
    command.env("_CLAP_IFS", "\n").arg("--").args(words);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A shell's script asks `hob` itself, which knows the sessions and the agents.
#[test]
fn completions_know_commands_sessions_and_agents() {
    let home = TestHome::new();
    let complete = |words: &[&str]| complete(&home, words);
    for (shell, part) in
        [("bash", "complete -o"), ("zsh", "#compdef hob"), ("fish", "complete "), ("elvish", "hob")]
    {
        let script = home.run(&["completions", shell]);
        let script = String::from_utf8(script.stdout).unwrap();
        assert!(script.contains(part) && script.contains("HOB_COMPLETE"), "{shell}: {script}");
    }
    assert!(complete(&["hob", "sess"]).contains("sessions"));
    assert!(complete(&["hob", "run", "--agent", "dem"]).contains("demo"));
    assert_eq!(complete(&["hob", "sessions", "tail", "0"]).trim(), "", "no server runs");
    let server = home.serve();
    let run = home.run(&["run", "--agent", "demo", "--keep", "--json", "hello"]);
    let answer: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let id = answer["session_id"].as_str().unwrap();
    assert!(complete(&["hob", "sessions", "tail", &id[..4]]).contains(id));
    assert_eq!(complete(&["hob", "attach", "zzz"]).trim(), "");
    assert!(complete(&["hob", "config", "get", "sessions.max"]).contains("sessions.max_live"));
    home.app("lighthouse");
    assert!(complete(&["hob", "app", "revoke", "light"]).contains("lighthouse"));
    assert!(complete(&["hob", "recall", "--app", ""]).contains("lighthouse"));
    let note = home.run(&["remember", "--json", "the lamp is green"]);
    let note: serde_json::Value = serde_json::from_slice(&note.stdout).unwrap();
    let record = note["record_id"].as_str().unwrap();
    assert!(complete(&["hob", "forget", &record[..4]]).contains(record));
    assert!(complete(&["hob", "timeline", "--around", ""]).contains(record));
    let session = export(&home)[0]["session_id"].as_str().unwrap().to_owned();
    for command in ["recall", "timeline", "forget", "export"] {
        let offered = complete(&["hob", command, "--session-id", &session[..3]]);
        assert!(offered.contains(&session), "{command}: {offered}");
        assert_eq!(complete(&["hob", command, "--session-id", "zzz"]).trim(), "", "{command}");
    }
    server.stop();
}
