//! Databases in which other clients record: what `hob import` takes from them, and that everything is stored once. The
//! samples have the formats that the clients' sources and public readers describe; no client has written them.

use std::fs;
use std::path::{Path, PathBuf};

use hob_testkit::{TestHome, proved_with_samples, wait_until};
use serde_json::{Value, json};

use crate::memory_setup::*;

/// The folder that the samples name.
const PROJECT: &str = "/nowhere/herons";
const CURSOR_DATABASE: &str = ".config/Cursor/User/globalStorage/state.vscdb";
const CURSOR_CHAT: &str = ".cursor/chats/36e6f82a4f9ae16e16ce627c19e4b65f/\
                           f1ff7b74-0a28-4dd4-a452-e01ae080eb20/store.db";
const GOOSE_DATABASE: &str = ".local/share/goose/sessions/sessions.db";
const ZED_DATABASE: &str = ".local/share/zed/threads/threads.db";

/// Copies a sample to where its client has it.
fn sample(home: &TestHome, name: &str, to: &str) -> PathBuf {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples").join(name);
    let path = home.user_home().join(to);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::copy(sample, &path).unwrap();
    path
}

/// Returns what the session says in which this text is.
fn session_with<'a>(turns: &'a [Value], text: &str) -> Vec<&'a str> {
    let turn = turns.iter().find(|turn| turn["text"] == text).expect(text);
    let session = turns.iter().filter(|other| other["session_id"] == turn["session_id"]);
    session.map(|turn| turn["text"].as_str().unwrap()).collect()
}

/// Returns the client of each place, and how many turns were imported from it.
fn places(imported: &Value) -> Vec<(&str, u64)> {
    let places = imported["places"].as_array().unwrap().iter();
    places
        .map(|place| (place["client"].as_str().unwrap(), place["inserted"].as_u64().unwrap()))
        .collect()
}

fn check_project(turns: &[Value], client: &str) {
    for turn in turns {
        assert_eq!(
            (&turn["project"], &turn["client"]),
            (&json!(PROJECT), &json!(client)),
            "{turn}"
        );
    }
}

#[test]
fn databases_of_cursor_are_imported_once() {
    let home = TestHome::new();
    sample(&home, "cursor-state.vscdb", CURSOR_DATABASE);
    sample(&home, "cursor-store.db", CURSOR_CHAT);
    let first = json_of(&home.run(&["import", "--json"]));
    assert_eq!(places(&first), [("Cursor", 4), ("Cursor", 2)], "{first}");
    assert_eq!(first["errors"], 0, "{first}");
    let turns = export(&home);
    assert_eq!(turns.len(), 6, "without what a sub-agent was told");
    check_project(&turns, "cursor");
    assert_eq!(session_with(&turns, "cursor heron?"), ["cursor heron?", "cursor harbour"]);
    assert_eq!(session_with(&turns, "cursor egret?"), ["cursor egret?", "cursor marsh"]);
    assert_eq!(session_with(&turns, "cursor bittern?"), ["cursor bittern?", "cursor reeds"]);
    let found = json_of(&home.run(&["recall", "--json", "--project", PROJECT, "bittern"]));
    assert!(found.to_string().contains("cursor bittern?"), "{found}");
    let again = json_of(&home.run(&["import", "--json"]));
    assert_eq!((&again["inserted"], &again["duplicates"]), (&json!(0), &json!(6)), "{again}");
    assert_eq!(export(&home).len(), 6);
    proved_with_samples("cursor", &["import", "once"]);
}

#[test]
fn database_of_goose_is_imported_once() {
    let home = TestHome::new();
    // goose has left the file of an earlier version where it was, and copied it into its database.
    let message = |role: &str, created: i64, text: &str| json!({"role": role, "created": created, "content": [{"type": "text", "text": text}]});
    let records = [
        json!({"working_dir": PROJECT, "description": "Herons", "message_count": 2}),
        message("user", 1749738615, "goose heron?"),
        message("assistant", 1749738616, "goose harbour"),
    ];
    transcript(&home, ".local/share/goose/sessions/20250612_143015.jsonl", &records);
    let first = json_of(&home.run(&["import", "--json"]));
    assert_eq!(places(&first), [("goose", 2)], "{first}");
    sample(&home, "goose-sessions.db", GOOSE_DATABASE);
    let second = json_of(&home.run(&["import", "--json"]));
    assert_eq!((&second["inserted"], &second["duplicates"]), (&json!(2), &json!(2)), "{second}");
    let turns = export(&home);
    assert_eq!(turns.len(), 4, "without what a sub-agent was told");
    check_project(&turns, "goose");
    assert_eq!(session_with(&turns, "goose heron?"), ["goose heron?", "goose harbour"]);
    assert_eq!(session_with(&turns, "goose egret?"), ["goose egret?", "goose marsh"]);
    let again = json_of(&home.run(&["import", "--json"]));
    assert_eq!((&again["inserted"], &again["errors"]), (&json!(0), &json!(0)), "{again}");
    proved_with_samples("goose", &["import", "once"]);
}

#[test]
fn database_of_zed_is_imported_once() {
    let home = TestHome::new();
    sample(&home, "zed-threads.db", ZED_DATABASE);
    let first = json_of(&home.run(&["import", "--json"]));
    assert_eq!(places(&first), [("Zed", 6)], "{first}");
    assert_eq!(first["errors"], 0, "{first}");
    let turns = export(&home);
    assert_eq!(turns.len(), 6, "without what a sub-agent was told");
    check_project(&turns, "zed");
    assert_eq!(session_with(&turns, "zed heron?"), ["zed heron?", "zed harbour"]);
    assert_eq!(session_with(&turns, "zed egret?"), ["zed egret?", "zed marsh"]);
    assert_eq!(session_with(&turns, "zed bittern?"), ["zed bittern?", "zed reeds"]);
    let again = json_of(&home.run(&["import", "--json"]));
    assert_eq!((&again["inserted"], &again["duplicates"]), (&json!(0), &json!(6)), "{again}");
    assert_eq!(export(&home).len(), 6);
    proved_with_samples("zed", &["import", "once"]);
}

#[test]
fn followed_databases_are_remembered() {
    let home = TestHome::new();
    let _server = home.serve_with(|command| {
        command.env("HOB_MEMORY_FOLLOW", "cursor,goose,zed");
    });
    sample(&home, "cursor-state.vscdb", CURSOR_DATABASE);
    sample(&home, "cursor-store.db", CURSOR_CHAT);
    sample(&home, "goose-sessions.db", GOOSE_DATABASE);
    sample(&home, "zed-threads.db", ZED_DATABASE);
    let count = |client: &str, turns: &[Value]| {
        turns.iter().filter(|turn| turn["client"] == client).count()
    };
    wait_until("the turns of the editors", || {
        let turns = export(&home);
        (count("cursor", &turns) >= 6 && count("goose", &turns) >= 2 && count("zed", &turns) >= 2)
            .then_some(())
    });
    let again = json_of(&home.run(&["import", "--json"]));
    assert_eq!(again["inserted"], 0, "{again}");
    proved_with_samples("cursor", &["live"]);
    proved_with_samples("goose", &["live"]);
    proved_with_samples("zed", &["live"]);
}

#[test]
fn import_says_why_it_cannot_read_a_database() {
    let home = TestHome::new();
    let words = "just words, but enough of them for the header of a database file".repeat(9);
    for name in [CURSOR_DATABASE, CURSOR_CHAT, GOOSE_DATABASE, ZED_DATABASE] {
        let path = home.user_home().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &words).unwrap();
    }
    let done = home.run(&["import", "--json"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "nothing of four clients: {said}");
    assert!(
        said.contains("nothing of Zed was imported: Hob could read none of its files in /"),
        "{said}"
    );
    let imported: Value = serde_json::from_slice(&done.stdout).unwrap();
    let reasons: Vec<&str> = imported["places"]
        .as_array()
        .unwrap()
        .iter()
        .map(|place| place["unread"][0]["reason"].as_str().unwrap())
        .collect();
    for (reason, program) in reasons.iter().zip(["goose", "Cursor", "Cursor", "Zed"]) {
        assert!(
            reason.starts_with(&format!("not a database of {program} in a format")),
            "{reason}"
        );
    }
    assert_eq!((reasons.len(), &imported["errors"]), (4, &json!(4)), "{imported}");
    // A database of the right name that has other tables.
    let path = sample(&home, "goose-sessions.db", CURSOR_DATABASE);
    let done = home.run(&["import", &path.display().to_string()]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("it has no table `cursorDiskKV`"), "{said}");
}
