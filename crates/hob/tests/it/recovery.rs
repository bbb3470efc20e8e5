//! Losses that must be noticed, and their repair: backups, missing and damaged files.

use std::fs;
use std::path::Path;

use hob_testkit::TestHome;
use serde_json::json;

use crate::api::{api, assert_error, configure};
use crate::memory_setup::{capture, exported_texts, json_of, said, transcript};

/// Returns a home with an app and forty turns in the memory.
fn filled() -> (TestHome, String) {
    let home = TestHome::new();
    let token = home.app("tests");
    let server = home.serve();
    let lines: Vec<serde_json::Value> =
        (0..40).map(|number| said("s", number, "user", &format!("turn number {number}"))).collect();
    let path = transcript(&home, "t.jsonl", &lines);
    assert_eq!(capture(&home, &[], &path)["inserted"], 40);
    assert!(server.stop().success());
    (home, token)
}

/// Asserts that no command starts over, and returns what `hob serve` says.
#[track_caller]
fn refuses(home: &TestHome) -> String {
    let serve = home.run(&["serve", "--no-http"]);
    assert!(!serve.status.success(), "{serve:?}");
    let export = home.run(&["recall", "--project", "*", "turn number"]);
    assert!(!export.status.success(), "{export:?}");
    String::from_utf8_lossy(&serve.stderr).into_owned()
}

#[test]
fn missing_or_empty_memory_is_an_error() {
    let (home, _) = filled();
    let path = home.hob_home().join("memory.db");
    let whole = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let said = refuses(&home);
    assert!(said.contains("memory.db is missing") && said.contains("40 turns"), "{said}");
    assert!(said.contains("hob restore"), "{said}");
    assert!(!path.exists(), "nothing was created");
    fs::write(&path, "").unwrap();
    assert!(refuses(&home).contains("memory.db is missing or empty"));
    // A hook loses nothing meanwhile.
    let later = transcript(&home, "u.jsonl", &[self::said("u", 0, "user", "said meanwhile")]);
    assert_eq!(capture(&home, &[], &later)["status"], "deferred");
    fs::write(&path, whole).unwrap();
    let server = home.serve();
    crate::memory_setup::wait_for_drain(&home);
    assert!(server.stop().success());
    assert_eq!(exported_texts(&home).len(), 41);
}

#[test]
fn memory_without_its_log_is_an_error() {
    let (home, _) = filled();
    let path = home.hob_home().join("memory.db");
    let old = fs::read(&path).unwrap();
    let server = home.serve();
    let later = transcript(&home, "u.jsonl", &[said("u", 0, "user", "the last turn")]);
    assert_eq!(capture(&home, &[], &later)["inserted"], 1);
    assert!(server.stop().success());
    // As if the write-ahead log had been lost before it was written back.
    fs::write(&path, old).unwrap();
    let said = refuses(&home);
    assert!(said.contains("has lost turns") && said.contains("41"), "{said}");
    assert!(!home.run(&["store", "accept-loss"]).status.success(), "it needs --yes");
    let accepted = home.run(&["store", "accept-loss", "--yes", "--json"]);
    assert_eq!(json_of(&accepted)["accepted"], true);
    assert!(home.serve().stop().success());
    assert_eq!(exported_texts(&home).len(), 40);
}

#[test]
fn missing_or_empty_ledger_is_an_error() {
    let (home, _) = filled();
    let path = home.hob_home().join("hob.db");
    for content in [None, Some("")] {
        let _ = fs::remove_file(&path);
        content.iter().for_each(|content| fs::write(&path, content).unwrap());
        let said = String::from_utf8_lossy(&home.run(&["serve", "--no-http"]).stderr).into_owned();
        assert!(said.contains("hob.db is missing or empty"), "{said}");
        assert!(!home.run(&["app", "list"]).status.success());
    }
}

#[test]
fn missing_key_is_not_replaced_by_a_new_one() {
    let (home, _) = filled();
    let key = home.hob_home().join("key");
    let kept = fs::read(&key).unwrap();
    fs::remove_file(&key).unwrap();
    let said = String::from_utf8_lossy(&home.run(&["serve", "--no-http"]).stderr).into_owned();
    assert!(said.contains("key is missing"), "{said}");
    assert!(!key.exists());
    fs::write(&key, kept).unwrap();
    assert!(home.serve().stop().success());
}

fn backup(home: &TestHome, file: &Path) {
    let output = home.run(&["backup", file.to_str().unwrap(), "--json"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(json_of(&output)["rows"]["memory.db"]["turns"], 40);
}

/// A home that was copied works in folders of its own, not in those of the home that it was copied from.
#[test]
fn session_of_a_copied_home_works_in_its_own_folder() {
    let api = api("");
    let id = api.session();
    assert_eq!(api.turn(&id, "hi").status, 200);
    let (home, token) = api.end_with(|server| assert!(server.stop().success()));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hob.backup");
    assert!(home.run(&["backup", file.to_str().unwrap()]).status.success());
    let other = TestHome::new();
    configure(&other, "");
    assert!(other.run(&["restore", file.to_str().unwrap(), "--yes"]).status.success());
    let server = other.serve();
    let body = json!({"prompt": "hi"});
    let answer = server.post(&format!("/sessions/{id}/turn"), Some(&token), &body);
    // The agent keeps its conversations with its user, and this one has none.
    assert_error(&answer, 502, "resume_failed", "conversation");
    assert!(other.hob_home().join("workspaces").join(&id).is_dir());
    assert!(server.stop().success());
}

#[test]
fn backup_of_a_running_home_restores_into_a_new_one() {
    let (home, token) = filled();
    let upload = home.hob_home().join("files/tests/x");
    fs::create_dir_all(&upload).unwrap();
    fs::write(upload.join("a.txt"), "uploaded").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hob.backup");
    let server = home.serve();
    backup(&home, &file);
    assert!(server.stop().success());
    let bytes = fs::read(&file).unwrap();
    assert!(!bytes.windows(11).any(|part| part == b"turn number"), "it is encrypted");
    assert!(!home.run(&["backup", file.to_str().unwrap()]).status.success(), "it exists");

    let other = TestHome::new();
    let restored = other.run(&["restore", file.to_str().unwrap()]);
    assert!(restored.status.success(), "{restored:?}");
    assert_eq!(exported_texts(&other), exported_texts(&home));
    let server = other.serve();
    assert_eq!(server.get("/sessions", Some(&token)).status, 200, "the app's token works");
    let files = other.hob_home().join("files/tests/x/a.txt");
    assert_eq!(fs::read_to_string(files).unwrap(), "uploaded");
    let busy = other.run(&["restore", file.to_str().unwrap(), "--yes"]);
    assert_eq!(busy.status.code(), Some(3), "not while it is served");
    assert!(server.stop().success());
}

#[test]
fn restore_replaces_a_lost_memory_and_keeps_what_was_there() {
    let (home, _) = filled();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hob.backup");
    backup(&home, &file);
    fs::remove_file(home.hob_home().join("memory.db")).unwrap();
    assert!(!home.run(&["restore", file.to_str().unwrap()]).status.success(), "it needs --yes");
    let restored = home.run(&["restore", file.to_str().unwrap(), "--yes", "--json"]);
    let before = json_of(&restored)["before"].as_str().unwrap().to_owned();
    assert!(Path::new(&before).join("hob.db").exists());
    assert!(home.serve().stop().success());
    assert_eq!(exported_texts(&home).len(), 40);
}

#[test]
fn damaged_backup_is_refused_and_changes_nothing() {
    let (home, _) = filled();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hob.backup");
    backup(&home, &file);
    let whole = fs::read(&file).unwrap();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let middle = whole.len() / 2;
    for (name, bytes) in [
        ("cut", whole[..middle].to_vec()),
        ("flipped", flipped(middle)),
        ("empty", Vec::new()),
        ("another file", b"not a backup".to_vec()),
    ] {
        fs::write(&file, bytes).unwrap();
        let other = TestHome::new();
        for home in [&home, &other] {
            let output = home.run(&["restore", file.to_str().unwrap(), "--yes"]);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && said.contains("hob.backup"), "{name}: {output:?}");
        }
        assert!(!other.hob_home().join("memory.db").exists(), "{name}");
    }
    assert_eq!(exported_texts(&home).len(), 40);
}

/// Unsealing, forgetting, revoking and changing the key need a confirmation.
#[test]
fn owners_acts_need_a_confirmation() {
    let (home, _) = filled();
    let acts: [&[&str]; 6] = [
        &["recall", "--unseal", "turn"],
        &["export", "--unseal"],
        &["forget", "--session-id", "s"],
        &["app", "revoke", "tests"],
        &["key", "rotate"],
        &["store", "accept-loss"],
    ];
    for act in acts {
        let output = home.run(act);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{act:?}: {output:?}");
        assert!(said.contains("--yes"), "{act:?}: {said}");
        assert!(output.stdout.is_empty(), "{act:?}: {output:?}");
    }
    assert_eq!(exported_texts(&home).len(), 40);
    assert_eq!(json_of(&home.run(&["app", "list", "--json"]))["apps"][0]["app"], json!("tests"));
}
