//! Faults of disks under a database, and of the disk that a migration writes to.

use std::fs;

use hob_testkit::{Postgres, TestHome, output_in_time};

use crate::backend::postgres as server;
use crate::recovery_faults::full_disk;
use crate::recovery_setup::*;

#[test]
fn full_disk_during_a_migration() {
    if !can_mount() {
        return;
    }
    let home = FILLED.copy();
    let url = server().database();
    let migrate =
        |from: &'static str, to: &'static str| ["store", "migrate", "--from", from, "--to", to];
    let to_database = home.command(&migrate("sqlite", "postgres")).args(["--url", &url]).output();
    assert!(to_database.unwrap().status.success());
    let mut back = migrate("postgres", "sqlite").to_vec();
    back.extend(["--url", &url]);
    let script = full_disk(&home, 0);
    let output = output_in_time(mounted(&home, &script, &back));
    fails_saying(&output, &["full"]);
    // What was there is in its place, and the migration can be resumed elsewhere.
    let script = format!("{script}; ! \"$1\" {}", back.join(" "));
    let export = output_in_time(mounted(&home, &script, &["export"]));
    let exported = String::from_utf8_lossy(&export.stdout).lines().count();
    assert_eq!(exported, FILLED.texts.len(), "{}", words(&export));
    let output = home.run(&back);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(crate::memory_setup::exported_texts(&home), FILLED.texts);
}

#[test]
fn damaged_table_is_found_by_the_deep_doctor() {
    let mut server = Postgres::start();
    let url = server.database();
    let home = TestHome::new();
    home.configure(&format!("[store]\nurl = \"{url}\"\n"));
    let config = home.hob_home().join("config.toml");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(config, private).unwrap();
    home.app("tests");
    assert!(home.serve().stop().success());
    let doctor = home.run(&["doctor", "--deep"]);
    assert!(
        doctor.status.success() && words(&doctor).contains("tables can be read"),
        "{}",
        words(&doctor)
    );
    server.sql(&url, "CHECKPOINT");
    let path = server.sql(&url, "SELECT pg_relation_filepath('hob.apps')");
    let folder = server.socket().parent().unwrap().join("data");
    server.crash();
    flip(&folder.join(path), 4000);
    server.start_again();
    fails_saying(&home.run(&["doctor", "--deep"]), &["table hob.apps", "restore its backup"]);
}

/// A database that was emptied or created again was used as a new one.
#[test]
fn emptied_database_is_refused() {
    let url = server().database();
    let home = TestHome::new();
    home.configure(&format!("[store]\nurl = \"{url}\"\n"));
    // A new database holds nothing, either.
    assert!(home.serve().stop().success());
    for damage in ["DROP SCHEMA hob CASCADE", "TRUNCATE hob.apps, hob.sessions, hob.audit CASCADE"]
    {
        home.app("tests");
        assert!(home.serve().stop().success());
        server().sql(&url, damage);
        does_not_serve(&home, &["is empty, but it held", "accept-loss", "store.url"]);
        fails_saying(&home.run(&["app", "create", "other"]), &["is empty, but it held"]);
        assert!(home.run(&["store", "accept-loss", "--yes"]).status.success());
        assert!(home.serve().stop().success());
    }
}
