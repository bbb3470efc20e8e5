//! The owner's acts on the command line are in the audit log, with and without a server.

use hob_testkit::TestHome;
use serde_json::Value;

use crate::console::{ADMIN, serve};
use crate::memory_setup::{capture, said, transcript};

#[test]
fn owners_acts_are_in_the_audit_log() {
    let home = TestHome::new();
    let path = transcript(&home, "t.jsonl", &[said("s", 0, "user", "PASSWORD=letmein123 now")]);
    assert_eq!(capture(&home, &["--cwd", "/"], &path)["inserted"], 1);
    let run = |arguments: &[&str]| {
        let output = home.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    };
    run(&["app", "create", "first"]);
    run(&["export"]);
    run(&["export", "--unseal", "--yes"]);
    run(&["recall", "password", "--project", "*", "--unseal", "--yes"]);
    run(&["forget", "--session-id", "s", "--yes"]);
    run(&["forget", "--undo", "--session-id", "s"]);
    let copy = home.folder().join("copy.hob");
    run(&["backup", copy.to_str().unwrap()]);
    run(&["key", "rotate", "--yes"]);
    let server = serve(&home);
    run(&["app", "create", "second"]);
    run(&["export"]);
    let answer = server.get("/admin/audit?limit=50", Some(ADMIN));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let log = answer.json();
    let entries = log["entries"].as_array().unwrap();
    let actions: Vec<&str> =
        entries.iter().rev().map(|entry| entry["action"].as_str().unwrap()).collect();
    let expected = [
        "app_create",
        "export",
        "export_unsealed",
        "unseal",
        "forget",
        "undo_forget",
        "backup",
        "key_rotate",
        "app_create",
        "export",
    ];
    assert_eq!(actions, expected, "{}", answer.text);
    assert!(!answer.text.contains("letmein"), "{}", answer.text);
}

/// Acts on the databases and the settings happen while no ledger can be written: the next start writes them.
#[test]
fn acts_on_databases_and_settings_are_in_the_audit_log() {
    let home = TestHome::new();
    let path = transcript(&home, "t.jsonl", &[said("s", 0, "user", "the owners lantern")]);
    assert_eq!(capture(&home, &["--cwd", "/"], &path)["inserted"], 1);
    assert!(serve(&home).stop().success());
    let run = |arguments: &[&str]| {
        let output = home.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    };
    let copy = home.folder().join("copy.hob");
    let copy = copy.to_str().unwrap();
    run(&["backup", copy]);
    run(&["config", "set", "sessions.max_live", "7"]);
    assert!(!home.run(&["config", "set", "no.such", "7"]).status.success());
    run(&["restore", copy, "--yes"]);
    assert!(!home.run(&["store", "accept-loss"]).status.success(), "it needs --yes");
    run(&["store", "accept-loss", "--yes"]);
    run(&["store", "salvage", "--yes"]);
    let actions = || {
        let server = serve(&home);
        let answer = server.get("/admin/audit?limit=50", Some(ADMIN));
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(server.stop().success());
        let entries = answer.json()["entries"].as_array().unwrap().clone();
        let row = |entry: &Value| {
            [&entry["action"], &entry["target"]].map(|text| text.as_str().unwrap().to_owned())
        };
        entries.iter().rev().map(row).collect::<Vec<_>>()
    };
    // The restored ledger is older than the backup's own entry, and nothing was damaged.
    let expected = [["config_set", "sessions.max_live"], ["restore", copy], ["accept_loss", ""]];
    assert_eq!(actions(), expected);
    assert_eq!(actions(), expected, "each once");
}
