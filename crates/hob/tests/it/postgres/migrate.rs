//! `hob store migrate` from outside: the memory moves with the ledger, there and back, through kills and refusals.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use hob_testkit::{TestHome, wait_until};
use serde_json::{Value, json};

use crate::backend::postgres as server;
use crate::memory_setup::*;

const THINGS: [&str; 12] = [
    "lighthouse",
    "harbour",
    "crane",
    "ferry",
    "anchor",
    "compass",
    "lantern",
    "bridge",
    "canal",
    "warehouse",
    "signal",
    "chart",
];
const FACTS: [&str; 8] = [
    "stands north of the old pier",
    "was painted red in spring",
    "needs a new cable before winter",
    "opens at six in the morning",
    "is kept by the keeper's sister",
    "broke during the storm and was mended",
    "costs forty coins for a day",
    "can't be moved without two people",
];
const QUESTIONS: [&str; 8] = [
    "where is the lighthouse?",
    "what broke in the storm",
    "when does the ferry open",
    "how much is the warehouse for a day",
    "the keeper's sister",
    "which things need a cable",
    "red paint on the crane and the bridge",
    "two people to move the anchor",
];

/// Writes a transcript with this many turns about many things, in a folder of its own.
fn talk(home: &TestHome, session: &str, from: usize, turns: usize) -> PathBuf {
    let work = folder(home, "work").display().to_string();
    let record = |n: usize| {
        let (thing, fact) = (THINGS[(from + n / 2) % 12], FACTS[(from + n / 2 + n / 24) % 8]);
        let (role, text) = match n.is_multiple_of(2) {
            true => ("user", format!("tell me about the {thing} of {session}, please ({n})")),
            false => ("assistant", format!("the {thing} {fact}, says page {n}\u{0} of {session}")),
        };
        let mut record = said(session, n, role, &text);
        record["cwd"] = json!(work);
        record
    };
    let records: Vec<Value> = (0..turns).map(record).collect();
    transcript(home, &format!("transcripts/{session}.jsonl"), &records)
}

/// Writes a transcript again, so that its recorded modification time is outdated.
fn touch(path: &Path) {
    let text = fs::read(path).unwrap();
    fs::write(path, text).unwrap();
}

fn import(home: &TestHome) -> Value {
    let transcripts = home.user_home().join("transcripts");
    json_of(&home.command(&["import", "--json"]).arg(transcripts).output().unwrap())
}

/// The best ten of every question: who they are, and how good.
fn answers(home: &TestHome) -> Vec<Vec<Value>> {
    let work = folder(home, "work");
    let of = |question: &&str| {
        let found = recall(home, &work, &[question, "--limit", "10"]);
        found["hits"].as_array().unwrap().clone()
    };
    let answers: Vec<Vec<Value>> = QUESTIONS.iter().map(of).collect();
    assert!(answers.iter().all(|hits| hits.len() > 3), "{answers:?}");
    answers
}

fn there(home: &TestHome, url: &str) -> Output {
    let way = ["store", "migrate", "--from", "sqlite", "--to", "postgres", "--json", "--url", url];
    home.run(&way)
}

fn back(home: &TestHome, url: &str) -> Output {
    let way = ["store", "migrate", "--from", "postgres", "--to", "sqlite", "--json", "--url", url];
    home.run(&way)
}

fn moved(output: &Output, table: &str) -> u64 {
    let moved = json_of(output)["moved"].as_array().unwrap().clone();
    moved.iter().find(|row| row["table"] == table).unwrap()["rows"].as_u64().unwrap()
}

fn use_database(home: &TestHome, url: &str) {
    home.configure(&format!("[store]\nurl = {url:?}\n"));
}

fn file(home: &TestHome, name: &str) -> PathBuf {
    home.hob_home().join(name)
}

/// After a migration recall gives the same answers, forgotten turns stay forgotten, and turns that come again are
/// duplicates. The way back keeps all of this, too.
#[test]
fn store_migrates_to_postgresql_and_back() {
    let home = TestHome::new();
    let token = home.app("crm");
    let paths: Vec<PathBuf> =
        (0..4).map(|n| talk(&home, &format!("talk-{n}"), n * 3, 24)).collect();
    assert_eq!(import(&home)["inserted"], 96);
    // Captured by a hook, without a record: only its position identifies it.
    let work = folder(&home, "work");
    let unrecorded = transcript(
        &home,
        "bare.jsonl",
        &[bare("user", "where do gulls sleep?"), bare("assistant", "on the lighthouse")],
    );
    let arguments = ["--cwd", work.to_str().unwrap()];
    assert_eq!(capture(&home, &arguments, &unrecorded)["inserted"], 2);
    let forgotten = recall(&home, &work, &["lighthouse storm"])["hits"][0].clone();
    let id = forgotten["record_id"].as_str().unwrap();
    assert!(home.run(&["forget", id, "--yes"]).status.success());
    assert!(home.run(&["forget", "--session-id", "talk-3", "--yes"]).status.success());
    let (before, all) = (answers(&home), export(&home));
    assert_eq!(all.len(), 73);

    let url = server().database();
    let output = there(&home, &url);
    assert_eq!(moved(&output, "memory_turns"), 73);
    assert_eq!(moved(&output, "memory_forgotten"), 25);
    assert_eq!(moved(&output, "memory_forgotten_sessions"), 1);
    assert_eq!(moved(&output, "memory_imports"), 4);
    assert_eq!(moved(&output, "apps"), 1);
    // Again there is nothing to do.
    assert_eq!(json_of(&there(&home, &url)), json_of(&output));
    assert_eq!(export(&home), all, "the source is as it was");

    use_database(&home, &url);
    assert_eq!(export(&home), all);
    assert_eq!(answers(&home), before);
    let again = import(&home);
    assert_eq!((&again["inserted"], &again["skipped"]), (&json!(0), &json!(4)), "{again}");
    paths.iter().for_each(|path| touch(path));
    let again = import(&home);
    assert_eq!((&again["inserted"], &again["duplicates"]), (&json!(0), &json!(96)), "{again}");
    assert_eq!(capture(&home, &arguments, &unrecorded)["inserted"], 0);
    assert_eq!(export(&home), all);

    // It goes on in the database.
    let fifth = talk(&home, "talk-4", 5, 10);
    assert_eq!(import(&home)["inserted"], 10);
    let gone = recall(&home, &work, &["ferry morning"])["hits"][0].clone();
    assert!(home.run(&["forget", gone["record_id"].as_str().unwrap(), "--yes"]).status.success());
    let (before, all) = (answers(&home), export(&home));
    assert_eq!(all.len(), 82);

    let output = back(&home, &url);
    assert_eq!((moved(&output, "memory_turns"), moved(&output, "memory_forgotten")), (82, 26));
    // The next start writes them into the audit log.
    let acts = fs::read_to_string(file(&home, "acts.jsonl")).unwrap();
    assert_eq!(acts.matches("\"migrate\"").count(), 3, "{acts}");
    home.configure("");
    for name in ["hob.db", "memory.db", "hob.db.before", "memory.db.before"] {
        assert!(file(&home, name).exists(), "{name}");
    }
    for name in ["hob.db.moving", "memory.db.moving", "memory.db.moving-wal"] {
        assert!(!file(&home, name).exists(), "{name}");
    }
    assert_eq!(export(&home), all);
    assert_eq!(answers(&home), before);
    touch(&fifth);
    paths.iter().for_each(|path| touch(path));
    let again = import(&home);
    assert_eq!((&again["inserted"], &again["duplicates"]), (&json!(0), &json!(106)), "{again}");
    assert_eq!(capture(&home, &arguments, &unrecorded)["inserted"], 0);
    assert_eq!(export(&home), all);
    let running = home.serve();
    assert_eq!(running.get("/sessions", Some(&token)).status, 200);
    assert_eq!(running.stop().code(), Some(0));
}

/// A migration that is killed, in both directions: a partial target is never used, and the migration resumes.
#[test]
fn killed_migration_resumes() {
    let home = TestHome::new();
    for n in 0..6 {
        talk(&home, &format!("talk-{n}"), n, 400);
    }
    assert_eq!(import(&home)["inserted"], 2400);
    let (before, all) = (answers(&home), export(&home));
    let url = server().database();
    let mut killed = home.command(&["store", "migrate", "--from", "sqlite", "--to", "postgres"]);
    let mut killed = killed.args(["--url", &url]).stderr(Stdio::null()).spawn().unwrap();
    let count = "SELECT CASE WHEN to_regclass('hob.memory_turns') IS NULL THEN 0 ELSE 1 END";
    wait_until("there is a schema", || (server().sql(&url, count) == "1").then_some(()));
    let arrived =
        || -> u64 { server().sql(&url, "SELECT count(*) FROM hob.memory_turns").parse().unwrap() };
    wait_until("some turns have arrived", || (arrived() > 0).then_some(()));
    killed.kill().unwrap();
    killed.wait().unwrap();
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    wait_until("the server has noticed", || (server().sql(&url, locks) == "0").then_some(()));
    let some = arrived();
    assert!(some > 0 && some < 2400, "{some}");
    assert_eq!(export(&home).len(), all.len(), "the source can be used");
    use_database(&home, &url);
    for way in [&["serve", "--listen", "127.0.0.1:0"][..], &["export"]] {
        let refused = home.run(way);
        assert!(!refused.status.success());
        assert!(format!("{refused:?}").contains("is incomplete"), "{refused:?}");
    }
    assert_eq!(moved(&there(&home, &url), "memory_turns"), 2400);
    assert_eq!(export(&home), all);
    assert_eq!(answers(&home), before);

    let old = fs::read(file(&home, "memory.db")).unwrap();
    let mut killed = home.command(&["store", "migrate", "--from", "postgres", "--to", "sqlite"]);
    let mut killed = killed.stderr(Stdio::null()).spawn().unwrap();
    let half = file(&home, "memory.db.moving-wal");
    let size = || fs::metadata(&half).map_or(0, |metadata| metadata.len());
    wait_until("some turns have arrived", || (size() > 1 << 20).then_some(()));
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(file(&home, "memory.db.moving").exists());
    assert!(!file(&home, "memory.db.before").exists());
    assert_eq!(fs::read(file(&home, "memory.db")).unwrap(), old, "it is as it was");
    assert_eq!(moved(&back(&home, &url), "memory_turns"), 2400);
    home.configure("");
    assert_eq!(export(&home), all);
    assert_eq!(answers(&home), before);
}

/// Broken off between the last row and the last name it goes on as well, and no file that was there is lost.
#[test]
fn migration_killed_before_its_last_file_rename_resumes() {
    let home = TestHome::new();
    let mut paths = vec![talk(&home, "talk-0", 0, 24)];
    import(&home);
    home.app("crm");
    let url = server().database();
    assert!(there(&home, &url).status.success());
    use_database(&home, &url);
    paths.push(talk(&home, "talk-1", 3, 24));
    assert_eq!(import(&home)["inserted"], 24);
    let all = export(&home);
    let originals = ["hob.db", "memory.db"].map(|name| fs::read(file(&home, name)).unwrap());

    // Before the first name is changed: all has arrived, and the old ones are in their places.
    assert!(back(&home, &url).status.success());
    let rename = |from: &str, to: &str| fs::rename(file(&home, from), file(&home, to)).unwrap();
    for name in ["hob.db", "memory.db"] {
        rename(name, &format!("{name}.moving"));
        rename(&format!("{name}.before"), name);
    }
    assert!(back(&home, &url).status.success());
    home.configure("");
    assert_eq!(export(&home), all);
    // Between two renames: one file is in its final place and the other is not.
    rename("memory.db", "memory.db.moving");
    use_database(&home, &url);
    // The source has changed since, too.
    paths.push(talk(&home, "talk-2", 5, 10));
    assert_eq!(import(&home)["inserted"], 10);
    let all = export(&home);
    assert_eq!(moved(&back(&home, &url), "memory_turns"), 58);
    home.configure("");
    assert_eq!(export(&home), all);
    // After the last: it is done once more, and is the same.
    use_database(&home, &url);
    assert!(back(&home, &url).status.success());
    home.configure("");
    assert_eq!(export(&home), all);
    for (name, original) in ["hob.db", "memory.db"].iter().zip(originals) {
        let kept = fs::read(file(&home, &format!("{name}.before"))).unwrap();
        assert!(kept == original, "{name} is unchanged");
        assert!(file(&home, &format!("{name}.before-2")).exists());
    }
    // With another key it moves into an empty database, and is known there.
    assert!(home.run(&["key", "rotate", "--yes"]).status.success());
    let url = server().database();
    assert_eq!(moved(&there(&home, &url), "memory_turns"), 58);
    use_database(&home, &url);
    assert_eq!(export(&home), all);
    paths.iter().for_each(|path| touch(path));
    let again = import(&home);
    assert_eq!((&again["inserted"], &again["duplicates"]), (&json!(0), &json!(58)), "{again}");
    assert_eq!(home.run(&["app", "list"]).status.code(), Some(0));
}

/// A migration is refused while a server runs, with another key, and into a memory that is in use. Nothing is lost.
#[test]
fn refused_migration_changes_nothing() {
    let home = TestHome::new();
    let path = talk(&home, "talk-0", 0, 24);
    assert_eq!(import(&home)["inserted"], 24);
    let url = server().database();
    let tables = || {
        let sql = "SELECT coalesce(to_regclass('hob.memory_turns')::text, 'none')";
        server().sql(&url, sql)
    };
    let running = home.serve();
    let refused = there(&home, &url);
    assert_eq!(refused.status.code(), Some(3));
    assert!(format!("{refused:?}").contains("run `hob stop` first"), "{refused:?}");
    assert_eq!(running.stop().code(), Some(0));
    assert_eq!(tables(), "none");

    // During a migration hooks defer their turns and commands fail with a message.
    let lock = File::create(file(&home, "store.lock")).unwrap();
    lock.lock().unwrap();
    let second = talk(&home, "talk-1", 0, 4);
    assert_eq!(capture(&home, &[], &second)["status"], "deferred");
    for way in [&["export"][..], &["app", "create", "crm"]] {
        let refused = home.run(way);
        assert!(!refused.status.success());
        assert!(format!("{refused:?}").contains("hob store migrate"), "{refused:?}");
    }
    drop(lock);

    let key = fs::read(file(&home, "key")).unwrap();
    fs::remove_file(file(&home, "key")).unwrap();
    let refused = there(&home, &url);
    assert!(!refused.status.success());
    assert!(format!("{refused:?}").contains("key is missing"), "{refused:?}");
    assert_eq!(tables(), "none");
    fs::write(file(&home, "key"), &key).unwrap();

    // Somebody else's memory, and one of the same key that was used.
    let used = TestHome::new();
    use_database(&used, &url);
    let other = talk(&used, "talk-9", 4, 6);
    assert_eq!(capture(&used, &[], &other)["inserted"], 6);
    let refused = there(&home, &url);
    assert!(!refused.status.success());
    assert!(format!("{refused:?}").contains("different key"), "{refused:?}");
    let refused = back(&home, &url);
    assert!(format!("{refused:?}").contains("different key"), "{refused:?}");
    let own = server().database();
    use_database(&home, &own);
    let third = talk(&home, "talk-2", 2, 8);
    assert_eq!(capture(&home, &[], &third)["inserted"], 8);
    let refused = there(&home, &own);
    assert!(!refused.status.success());
    assert!(format!("{refused:?}").contains("nothing was migrated"), "{refused:?}");
    assert_eq!(server().sql(&own, "SELECT count(*) FROM hob.apps"), "0", "nor the ledger");
    assert_eq!(export(&home).len(), 8);
    assert_eq!(export(&used).len(), 6);
    home.configure("");
    assert_eq!(export(&home).len(), 24);
    assert_eq!(capture(&home, &[], &path)["inserted"], 0);

    // On the way back a server on the database is detected, and files stay.
    use_database(&home, &own);
    let running = home.sibling(2);
    fs::create_dir_all(running.hob_home()).unwrap();
    fs::write(running.hob_home().join("key"), &key).unwrap();
    use_database(&running, &own);
    let serving = running.serve();
    let refused = back(&home, &own);
    assert!(format!("{refused:?}").contains("is using the database: stop it first"), "{refused:?}");
    assert_eq!(serving.stop().code(), Some(0));
    assert!(!file(&home, "memory.db.moving").exists());
}
