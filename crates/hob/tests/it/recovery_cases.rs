//! Cases of loss and damage. Each ends in a sentence that names the file and the next step, in an exit code that is not 0,
//! and without silent loss; what is intact stays.

use std::fs;

use hob_testkit::TestHome;
use serde_json::Value;

use crate::memory_setup::{capture, exported_texts, json_of, said, transcript};
use crate::recovery_setup::*;

/// A database of a home.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Store {
    Ledger,
    Memory,
}

impl Store {
    fn file(self) -> &'static str {
        match self {
            Store::Ledger => "hob.db",
            Store::Memory => "memory.db",
        }
    }
}

/// What happens to a database.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Damage {
    Missing,
    Empty,
    Cut,
    FlippedHeader,
    FlippedMiddle,
    FlippedEnd,
    ForeignText,
    ForeignDatabase,
    OlderCopy,
    LostLog,
    DamagedLog,
}

const DAMAGES: [Damage; 11] = [
    Damage::Missing,
    Damage::Empty,
    Damage::Cut,
    Damage::FlippedHeader,
    Damage::FlippedMiddle,
    Damage::FlippedEnd,
    Damage::ForeignText,
    Damage::ForeignDatabase,
    Damage::OlderCopy,
    Damage::LostLog,
    Damage::DamagedLog,
];

fn apply(damage: Damage, home: &TestHome, store: Store) {
    let path = home.hob_home().join(store.file());
    let log = home.hob_home().join(format!("{}-wal", store.file()));
    match damage {
        Damage::Missing => fs::remove_file(&path).unwrap(),
        Damage::Empty => fs::write(&path, "").unwrap(),
        Damage::Cut => {
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        }
        Damage::FlippedHeader => flip(&path, 40),
        Damage::FlippedMiddle => {
            let length = fs::metadata(&path).unwrap().len() as usize;
            flip(&path, length / 2);
        }
        Damage::FlippedEnd => {
            let length = fs::metadata(&path).unwrap().len() as usize;
            flip(&path, length - 2000);
        }
        Damage::ForeignText => fs::write(&path, "shopping list: eggs, milk\n".repeat(900)).unwrap(),
        Damage::ForeignDatabase => {
            let other = TestHome::new();
            other.app("other");
            assert!(other.serve().stop().success());
            fs::copy(other.hob_home().join(store.file()), &path).map(drop).unwrap();
        }
        Damage::OlderCopy => fs::copy(FILLED.older(store.file()), &path).map(drop).unwrap(),
        Damage::LostLog | Damage::DamagedLog => {
            with_logs(home);
            match damage {
                Damage::LostLog => fs::remove_file(&log).unwrap(),
                _ => flip(&log, 40),
            }
            let _ = fs::remove_file(home.hob_home().join(format!("{}-shm", store.file())));
        }
    }
}

#[track_caller]
fn check_damage(store: Store, damage: Damage) {
    let home = FILLED.copy();
    let file = store.file();
    let other = if store == Store::Ledger { "memory.db" } else { "hob.db" };
    apply(damage, &home, store);
    let kept = fs::read(home.hob_home().join(other)).unwrap();
    match damage {
        Damage::Missing | Damage::Empty => {
            does_not_serve(
                &home,
                &[&format!("{file} is missing or empty"), "hob restore", "accept-loss"],
            );
            fails_saying(&home.run(&["doctor"]), &[file]);
        }
        Damage::OlderCopy | Damage::LostLog | Damage::DamagedLog => {
            let is_lost = |words: &str| {
                words.contains("lacks the most recent changes") || words.contains("has lost turns")
            };
            let output = home.run(&["serve", "--no-http"]);
            fails_saying(&output, &[file, "hob restore", "accept-loss"]);
            assert!(is_lost(&words(&output)), "{output:?}");
            fails_saying(&home.run(&["doctor"]), &[file]);
            // The owner can go on.
            assert!(home.run(&["store", "accept-loss", "--yes"]).status.success());
            assert!(home.serve().stop().success());
        }
        Damage::FlippedHeader | Damage::ForeignText | Damage::ForeignDatabase => {
            does_not_serve(&home, &[file, "cannot decrypt", "`key`", "hob restore"]);
            fails_saying(&home.run(&["doctor"]), &[file]);
            assert!(fs::read(home.hob_home().join(other)).unwrap() == kept, "{other} is as it was");
            let salvage = home.run(&["store", "salvage", "--yes"]);
            fails_saying(&salvage, &[file, "nothing was salvaged"]);
        }
        Damage::Cut => {
            does_not_serve(&home, &[file, "is damaged", "hob store salvage", "hob restore"]);
            fails_saying(&home.run(&["doctor"]), &[file, "hob store salvage"]);
        }
        Damage::FlippedMiddle | Damage::FlippedEnd => {
            fails_saying(
                &home.run(&["doctor", "--deep"]),
                &[file, "is damaged", "hob store salvage"],
            );
            let whole = fs::read(home.hob_home().join(file)).unwrap();
            let salvaged = json_of(&home.run(&["store", "salvage", "--yes", "--json"]));
            assert_eq!(salvaged["salvaged"].as_array().unwrap().len(), 1, "{salvaged}");
            let aside = salvaged["salvaged"][0]["damaged"].as_str().unwrap();
            assert!(fs::read(aside).unwrap() == whole, "the damaged file is kept as it was");
            assert!(fs::read(home.hob_home().join(other)).unwrap() == kept, "{other} is as it was");
            let acts = fs::read_to_string(home.hob_home().join("acts.jsonl")).unwrap();
            assert!(acts.contains("\"salvage\"") && acts.contains(file), "{acts}");
            check_salvaged(&home, store, &salvaged);
            // A second time there is nothing to do.
            let again = json_of(&home.run(&["store", "salvage", "--yes", "--json"]));
            assert_eq!(again["salvaged"], serde_json::json!([]));
            assert_eq!(again["intact"].as_array().unwrap().len(), 2);
        }
    }
}

/// Asserts that what was counted is there, that nothing else is lost, and that the home works.
#[track_caller]
fn check_salvaged(home: &TestHome, store: Store, report: &Value) {
    let mut all_lost = 0;
    for table in report["salvaged"][0]["tables"].as_array().unwrap() {
        let had = FILLED.rows()[store.file()][table["table"].as_str().unwrap()].as_u64().unwrap();
        let taken = table["taken"].as_u64().unwrap();
        // Only where no index can be counted the number is not known.
        let lost = table["lost"].as_u64().unwrap_or(had - taken);
        assert_eq!(taken + lost, had, "{table}");
        all_lost += lost;
        if ["turns", "events"].contains(&table["table"].as_str().unwrap()) {
            assert!(taken >= had * 3 / 4, "{table}");
        }
    }
    assert!(home.run(&["doctor", "--deep"]).status.success());
    let server = home.serve();
    if store == Store::Memory {
        let texts = exported_texts(home);
        assert!(texts.iter().all(|text| FILLED.texts.contains(text)));
        assert!(texts.len() as u64 + all_lost >= FILLED.texts.len() as u64, "{report}");
        let found = json_of(&home.run(&["recall", "--json", "--project", "*", "turn number"]));
        assert!(!found["hits"].as_array().unwrap().is_empty(), "the index was built again");
    } else {
        let path = format!("/sessions/{}", FILLED.session);
        assert_eq!(server.get(&path, Some(&FILLED.token)).status, 200);
    }
    assert!(server.stop().success());
}

macro_rules! damaged {
    ($($name:ident: $store:ident $damage:ident;)*) => {
        $(#[test]
        fn $name() {
            check_damage(Store::$store, Damage::$damage);
        })*

        /// Every combination has a test.
        #[test]
        fn every_damage_of_every_database_has_a_case() {
            let cases = [$((Store::$store, Damage::$damage)),*];
            for store in [Store::Ledger, Store::Memory] {
                for damage in DAMAGES {
                    assert!(cases.contains(&(store, damage)), "{store:?} {damage:?}");
                }
            }
        }
    };
}

damaged! {
    missing_memory: Memory Missing;
    empty_memory: Memory Empty;
    cut_memory: Memory Cut;
    flipped_header_of_the_memory: Memory FlippedHeader;
    flipped_middle_of_the_memory: Memory FlippedMiddle;
    flipped_end_of_the_memory: Memory FlippedEnd;
    text_in_place_of_the_memory: Memory ForeignText;
    another_homes_memory: Memory ForeignDatabase;
    older_memory: Memory OlderCopy;
    lost_log_of_the_memory: Memory LostLog;
    damaged_log_of_the_memory: Memory DamagedLog;
    missing_ledger: Ledger Missing;
    empty_ledger: Ledger Empty;
    cut_ledger: Ledger Cut;
    flipped_header_of_the_ledger: Ledger FlippedHeader;
    flipped_middle_of_the_ledger: Ledger FlippedMiddle;
    flipped_end_of_the_ledger: Ledger FlippedEnd;
    text_in_place_of_the_ledger: Ledger ForeignText;
    another_homes_ledger: Ledger ForeignDatabase;
    older_ledger: Ledger OlderCopy;
    lost_log_of_the_ledger: Ledger LostLog;
    damaged_log_of_the_ledger: Ledger DamagedLog;
}

/// Changes of the last moment, which no backup and no inventory has.
#[test]
fn lost_changes_of_the_last_moment() {
    for (store, file) in [(Store::Memory, "memory.db"), (Store::Ledger, "hob.db")] {
        let home = TestHome::new();
        let server = home.serve();
        let path = transcript(&home, "t.jsonl", &[said("s", 0, "user", "the last words")]);
        // A checkpoint now and then empties the log, as a start does here.
        assert!(server.stop().success());
        let server = home.serve();
        match store {
            Store::Memory => assert_eq!(capture(&home, &[], &path)["inserted"], 1),
            Store::Ledger => drop(home.app("late")),
        }
        server.kill();
        let log = home.hob_home().join(format!("{file}-wal"));
        assert!(fs::metadata(&log).unwrap().len() > 0);
        fs::remove_file(&log).unwrap();
        let _ = fs::remove_file(home.hob_home().join(format!("{file}-shm")));
        let output = home.run(&["serve", "--no-http"]);
        fails_saying(&output, &[file, "hob restore", "accept-loss"]);
        assert!(home.run(&["store", "accept-loss", "--yes"]).status.success());
        assert!(home.serve().stop().success());
    }
}

/// A copy of a home has its key, and is ahead by every number once it was used by itself.
#[track_caller]
fn check_database_of_a_copy(store: Store) {
    let (home, copy, file) = (FILLED.copy(), FILLED.copy(), store.file());
    for number in 0..3 {
        let server = copy.serve();
        let lines = [said("c", number, "user", &format!("said in the copy {number}"))];
        let path = transcript(&copy, &format!("c{number}.jsonl"), &lines);
        assert_eq!(capture(&copy, &[], &path)["inserted"], 1);
        copy.app(&format!("copied-{number}"));
        assert!(server.stop().success());
    }
    assert!(home.serve().stop().success());
    let path = home.hob_home().join(file);
    let own = fs::read(&path).unwrap();
    let logs = ["wal", "shm"].map(|end| home.hob_home().join(format!("{file}-{end}")));
    let replace = |content: &[u8]| {
        logs.iter().for_each(|log| drop(fs::remove_file(log)));
        fs::write(&path, content).unwrap();
    };
    let copied = fs::read(copy.hob_home().join(file)).unwrap();
    replace(&copied);
    does_not_serve(&home, &[file, "another copy of this home", "hob restore", "accept-loss"]);
    fails_saying(&home.run(&["doctor"]), &[file]);
    assert!(fs::read(&path).unwrap() == copied, "{file} is as it was");
    replace(&own);
    assert!(home.serve().stop().success());
    replace(&copied);
    assert!(home.run(&["store", "accept-loss", "--yes"]).status.success());
    assert!(home.serve().stop().success());
    assert!(home.serve().stop().success());
}

#[test]
fn ledger_of_a_copy_that_went_on_by_itself() {
    check_database_of_a_copy(Store::Ledger);
}

#[test]
fn memory_of_a_copy_that_went_on_by_itself() {
    check_database_of_a_copy(Store::Memory);
}

/// What a restore replaced must not come back unnoticed.
#[test]
fn memory_of_before_a_restore() {
    let home = FILLED.copy();
    let backup = home.folder().join("whole.backup").display().to_string();
    assert!(home.run(&["backup", &backup]).status.success());
    let memory = home.hob_home().join("memory.db");
    for number in 0..3 {
        let server = home.serve();
        let lines = [said("l", number, "user", &format!("said later {number}"))];
        let path = transcript(&home, &format!("l{number}.jsonl"), &lines);
        assert_eq!(capture(&home, &[], &path)["inserted"], 1);
        assert!(server.stop().success());
    }
    let own = fs::read(&memory).unwrap();
    assert!(home.run(&["restore", &backup, "--yes"]).status.success());
    assert!(home.serve().stop().success());
    let _ = fs::remove_file(home.hob_home().join("memory.db-mark"));
    fs::write(&memory, own).unwrap();
    does_not_serve(
        &home,
        &["memory.db", "another copy of this home", "hob restore", "accept-loss"],
    );
}

#[test]
fn lost_key() {
    let home = FILLED.copy();
    fs::remove_file(home.hob_home().join("key")).unwrap();
    does_not_serve(&home, &["/key is missing", "copy the key back", "hob restore"]);
    fails_saying(&home.run(&["doctor"]), &["/key is missing"]);
    assert!(!home.hob_home().join("key").exists());
}

#[test]
fn key_of_another_home() {
    let (home, other) = (FILLED.copy(), TestHome::new());
    other.app("other");
    fs::copy(other.hob_home().join("key"), home.hob_home().join("key")).unwrap();
    does_not_serve(&home, &["hob.db", "encrypted with another key", "`key`"]);
    fails_saying(&home.run(&["doctor"]), &["hob.db", "memory.db"]);
}

#[test]
fn damaged_key() {
    let home = FILLED.copy();
    fs::write(home.hob_home().join("key"), "{\"kind\":\"ra").unwrap();
    does_not_serve(&home, &["/key is damaged", "backup"]);
}

#[test]
fn damaged_inventory() {
    let home = FILLED.copy();
    fs::write(home.hob_home().join("stores.json"), "{\"ledger\":tr").unwrap();
    does_not_serve(&home, &["stores.json is damaged", "hob restore", "accept-loss"]);
    assert!(home.run(&["store", "accept-loss", "--yes"]).status.success());
    assert!(home.serve().stop().success());
    assert!(exported_texts(&home).len() >= TURNS);
}

#[test]
fn missing_inventory_and_memory() {
    let home = FILLED.copy();
    fs::remove_file(home.hob_home().join("stores.json")).unwrap();
    fs::remove_file(home.hob_home().join("memory.db")).unwrap();
    does_not_serve(&home, &["memory.db is missing", "hob restore", "accept-loss"]);
    fails_saying(&home.run(&["export"]), &["memory.db is missing"]);
    assert!(home.run(&["store", "accept-loss", "--yes"]).status.success());
    assert!(home.serve().stop().success());
}

#[test]
fn missing_inventory_and_ledger() {
    let home = FILLED.copy();
    fs::remove_file(home.hob_home().join("stores.json")).unwrap();
    fs::remove_file(home.hob_home().join("hob.db")).unwrap();
    does_not_serve(&home, &["hob.db is missing", "hob restore", "accept-loss"]);
}

#[test]
fn damaged_deferral() {
    let home = FILLED.copy();
    let later = transcript(&home, "u.jsonl", &[said("u", 0, "user", "said meanwhile")]);
    let (memory, aside) = (home.hob_home().join("memory.db"), home.folder().join("aside"));
    fs::rename(&memory, &aside).unwrap();
    assert_eq!(capture(&home, &[], &later)["status"], "deferred");
    fs::rename(&aside, &memory).unwrap();
    let file = crate::memory_setup::deferrals(&home).remove(0);
    let doctor = home.run(&["doctor", "--deep"]);
    assert!(doctor.status.success(), "{}", words(&doctor));
    fs::write(&file, "{\"version\":1,\"sess").unwrap();
    let name = file.file_name().unwrap().to_str().unwrap().to_owned();
    fails_saying(&home.run(&["doctor", "--deep"]), &[&name, "hob import"]);
    assert!(file.exists());
}

#[test]
fn at_least_forty_cases_are_checked() {
    let tests = |source: &str| source.matches("#[test]\nfn ").count();
    let own = include_str!("recovery_cases.rs");
    let rows = own.lines().filter(|line| line.ends_with(';') && !line.contains('"'));
    let rows = rows.filter(|line| line.contains(": Memory ") || line.contains(": Ledger "));
    let others =
        tests(include_str!("recovery_faults.rs")) + tests(include_str!("postgres/recovery.rs"));
    // This test is none.
    let cases = rows.count() + tests(own) + others - 1;
    println!("{cases} cases of recovery");
    assert!(cases >= 40, "{cases}");
}

/// A long text continues on pages that SQLite itself cannot check. A damaged one must not read as zeros.
#[test]
fn flipped_page_of_a_long_text() {
    const PAGE_BYTES: usize = 4096;
    const DAMAGES: usize = 12;
    let home = TestHome::new();
    let server = home.serve();
    // Hexadecimal digits of a product: a text that compresses only by half.
    let digit = |number: u64| format!("{:016x} ", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let long: String = (1..12_000).map(digit).collect();
    let path = transcript(&home, "t.jsonl", &[said("s", 0, "user", &long)]);
    capture(&home, &[], &path);
    assert!(server.stop().success());
    assert_eq!(exported_texts(&home), std::slice::from_ref(&long));
    let file = home.hob_home().join("memory.db");
    let whole = fs::read(&file).unwrap();
    let pages = whole.len() / PAGE_BYTES;
    let mut failures = 0;
    for number in 1..=DAMAGES {
        fs::write(&file, &whole).unwrap();
        flip(&file, pages * number / (DAMAGES + 1) * PAGE_BYTES + 1000);
        let output = home.run(&["export"]);
        if output.status.success() {
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(text.contains(&long), "the export lacks the text, without an error");
        } else {
            fails_saying(&output, &["memory.db", "damaged"]);
            failures += 1;
        }
    }
    assert!(failures >= 3, "{failures} of {DAMAGES} damages were in the text");
}
