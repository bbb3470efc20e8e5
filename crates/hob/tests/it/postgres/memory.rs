//! The memory in PostgreSQL: hooks, commands and the server work on the database. What cannot be stored there in time is
//! deferred in the home.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use hob_testkit::{Postgres, Stopwatch, TestHome, wait_until};
use serde_json::json;

use super::address;
use crate::backend::{Backend, postgres as server};
use crate::memory_setup::*;

fn home_on(url: &str, more: &str) -> TestHome {
    let home = TestHome::new();
    home.configure(&format!("[store]\nurl = {url:?}\n{more}"));
    home
}

fn talk(home: &TestHome, session: &str, texts: &[&str]) -> std::path::PathBuf {
    let role = |n: usize| if n.is_multiple_of(2) { "user" } else { "assistant" };
    let records: Vec<_> =
        texts.iter().enumerate().map(|(n, text)| said(session, n, role(n), text)).collect();
    transcript(home, &format!("{session}.jsonl"), &records)
}

/// Without a server, with one, and after it: one memory, in the database, and none in the home.
#[test]
fn turns_are_stored_in_the_database() {
    let home = home_on(&server().database(), "");
    let work = folder(&home, "work");
    let url = address(&home);
    let first = talk(&home, "one", &["where is the lighthouse\u{0}?", "the lighthouse is north"]);
    let arguments = ["--cwd", work.to_str().unwrap()];
    let answer = capture(&home, &arguments, &first);
    assert_eq!(
        (&answer["status"], &answer["inserted"]),
        (&json!("captured"), &json!(2)),
        "{answer}"
    );
    assert_eq!(capture(&home, &arguments, &first)["duplicates"], 2);
    let found = recall(&home, &work, &["lighthouse"]);
    assert_eq!(found["hits"].as_array().unwrap().len(), 2, "{found}");
    let started = home.command(&["session-start"]).args(arguments).output().unwrap();
    let started = String::from_utf8(started.stdout).unwrap();
    assert!(started.contains("lighthouse is north"), "{started}");

    let running = home.serve();
    let second = talk(&home, "two", &["where is the crane?", "the crane is by the harbour"]);
    assert_eq!(capture(&home, &arguments, &second)["inserted"], 2);
    let mut bridge = Bridge::new(&home, &work);
    let hits = bridge.call("memory_recall", json!({"cue": "crane harbour"}));
    let id = hits["hits"][0]["record_id"].as_str().unwrap().to_owned();
    assert_eq!(hits["hits"][0]["text"], "the crane is by the harbour");
    let forgotten = home.run(&["forget", &id, "--yes", "--json"]);
    assert_eq!(json_of(&forgotten)["count"], 1, "{forgotten:?}");
    assert_eq!(capture(&home, &arguments, &second)["inserted"], 0, "it stays forgotten");
    assert_eq!(bridge.call("memory_stats", json!({}))["turns"], 3);
    drop(bridge);
    assert_eq!(running.stop().code(), Some(0));

    let expected =
        ["where is the lighthouse\u{0}?", "the lighthouse is north", "where is the crane?"];
    assert_eq!(exported_texts(&home), expected);
    assert!(!home.hob_home().join("memory.db").exists(), "there is no second memory");
    let doctor = String::from_utf8(home.run(&["doctor"]).stdout).unwrap();
    assert!(doctor.contains("3 turns of 2 sessions"), "{doctor}");
    // The database shows neither texts nor projects.
    for word in ["lighthouse", "crane", "work", "claude-session", "one"] {
        let held = format!(
            "SELECT count(*) FROM (SELECT body AS b FROM hob.memory_turns
                 UNION ALL SELECT name FROM hob.memory_sessions
                 UNION ALL SELECT root FROM hob.memory_projects
                 UNION ALL SELECT id FROM hob.memory_turns) x WHERE position('{word}'::bytea IN b) > 0"
        );
        assert_eq!(server().sql(&url, &held), "0", "{word}");
    }
}

/// With `store.encrypt` off, bodies are stored in clear. The setting cannot be changed later.
#[test]
fn unencrypted_store_shows_bodies_but_no_terms() {
    let home = home_on(&server().database(), "encrypt = false\n");
    let path = talk(&home, "one", &["where is the lighthouse?"]);
    assert_eq!(capture(&home, &[], &path)["inserted"], 1);
    let url = address(&home);
    let held =
        "SELECT count(*) FROM hob.memory_turns WHERE position('lighthouse'::bytea IN body) > 0";
    assert_eq!(server().sql(&url, held), "1");
    home.configure(&format!("[store]\nurl = {url:?}\n"));
    let refused = home.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert!(!refused.status.success());
    assert!(format!("{refused:?}").contains("store.encrypt = false"), "{refused:?}");
}

/// A second home with the same key shares the memory. A home with another key gets an error that says what to do.
#[test]
fn nodes_share_a_memory_by_sharing_the_key() {
    let one = home_on(&server().database(), "");
    let path = talk(&one, "one", &["where is the lighthouse?"]);
    assert_eq!(capture(&one, &[], &path)["inserted"], 1);
    let two = home_on(&address(&one), "");
    let refused = two.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert!(!refused.status.success());
    let said = format!("{refused:?}");
    assert!(said.contains("different key") && said.contains("copy the file"), "{said}");
    assert!(!two.run(&["export"]).status.success());
    let doctor = String::from_utf8(two.run(&["doctor"]).stdout).unwrap();
    assert!(doctor.contains("different key"), "{doctor}");
    // Its hooks defer what they capture meanwhile.
    let other = talk(&two, "two", &["where is the crane?"]);
    assert_eq!(capture(&two, &[], &other)["status"], "deferred");
    std::fs::copy(one.hob_home().join("key"), two.hob_home().join("key")).unwrap();
    std::fs::remove_file(two.hob_home().join("key.pub")).unwrap();
    assert_eq!(exported_texts(&two), ["where is the lighthouse?"]);
    let rotated = two.run(&["key", "rotate", "--yes"]);
    assert!(!rotated.status.success() && format!("{rotated:?}").contains("all nodes"));
}

/// With a database that is gone, or accepts connections and never answers, hooks exit in time and lose nothing. The
/// server stores their turns when the database is back.
#[test]
fn hooks_defer_what_the_database_cannot_take() {
    let mut own = Postgres::start();
    let url = own.database();
    let home = home_on(&url, "");
    let first = talk(&home, "one", &["where is the lighthouse?"]);
    assert_eq!(capture(&home, &[], &first)["status"], "captured");
    own.crash();
    let hook = |name: &str, text: &str| {
        let path = talk(&home, name, &[text]);
        // Contract, section 3, for both hooks.
        let promise = "a hook exits within 2 s on any input";
        let run = |arguments: &[&str]| {
            let mut command = home.command(arguments);
            command.env_remove("HOB_MEMORY_HOOK_TIMEOUT_SECS").output().unwrap()
        };
        let stopwatch = Stopwatch::start();
        let answer = json_of(&run(&["capture-transcript", path.to_str().unwrap()]));
        assert_eq!(answer["status"], "deferred", "{answer}");
        stopwatch.assert_within(Duration::from_secs(2), promise);
        let stopwatch = Stopwatch::start();
        assert!(run(&["session-start"]).status.success());
        stopwatch.assert_within(Duration::from_secs(2), promise);
    };
    hook("two", "where is the crane?");
    // A socket that accepts connections and never answers replaces it.
    let socket = own.socket();
    let silent = tempfile::tempdir().unwrap();
    let _listener = UnixListener::bind(silent.path().join(".s.PGSQL.5432")).unwrap();
    let folder = |path: &std::path::Path| path.display().to_string().replace('/', "%2F");
    let to_silent = url.replace(&folder(socket.parent().unwrap()), &folder(silent.path()));
    home.configure(&format!("[store]\nurl = {to_silent:?}\n"));
    hook("three", "where is the harbour?");
    home.configure(&format!("[store]\nurl = {url:?}\n"));
    own.start_again();
    let running = home.serve();
    wait_for_drain(&home);
    let count = "SELECT count(*) FROM hob.memory_turns";
    wait_until("all is stored", || (own.sql(&url, count) == "3").then_some(()));
    assert_eq!(running.stop().code(), Some(0));
    let mut texts = exported_texts(&home);
    texts.sort();
    assert_eq!(texts, ["where is the crane?", "where is the harbour?", "where is the lighthouse?"]);
}

/// The memory of an app is isolated, both by its token and by its role in the database.
#[test]
fn memory_of_an_app_is_isolated_in_the_database() {
    let api = Backend::Postgres.api("");
    let id = api.create(&json!({"agent": "acp"}));
    api.ask(&id, "the tests know the lighthouse");
    let url = address(&api.home);
    let of = |speaker: &str| {
        let sql = format!("SELECT count(*) FROM hob.memory_turns WHERE speaker = '{speaker}'");
        server().sql(&url, &sql)
    };
    wait_until("both turns are remembered", || (of("tests") == "2").then_some(()));
    assert_eq!(of(""), "0");
    assert!(api.home.run(&["app", "revoke", "tests", "--yes"]).status.success());
    assert_eq!(of("tests"), "0");
    for table in ["projects", "sessions", "standing", "vectors", "recent", "runs"] {
        let left = format!("SELECT count(*) FROM hob.memory_{table}");
        assert_eq!(server().sql(&url, &left), "0", "{table}");
    }
}
