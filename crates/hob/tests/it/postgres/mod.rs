//! State in PostgreSQL: what is particular to it. Tests that run on every backend are next to their subjects.

mod memory;
mod migrate;
mod recovery;

use hob_testkit::server::folder_holds;
use hob_testkit::{TestHome, wait_until};
use serde_json::{Value, json};

use crate::api::*;
use crate::backend::{Backend, postgres as server};

fn doctor(home: &TestHome) -> Value {
    serde_json::from_slice(&home.run(&["doctor", "--json"]).stdout).expect("JSON")
}

/// Returns the doctor's check of the ledger.
fn ledger(home: &TestHome) -> Value {
    let said = doctor(home);
    let checks = said["checks"].as_array().expect("checks").clone();
    checks.into_iter().find(|check| check["name"] == "ledger").expect("a check of the ledger")
}

/// Returns the database's address in a home's settings.
fn address(home: &TestHome) -> String {
    let text = std::fs::read_to_string(home.hob_home().join("config.toml")).expect("config.toml");
    let (_, rest) = text.split_once("url = \"").expect("an address");
    rest.split('"').next().expect("its end").to_owned()
}

/// After a turn, a restart and a kill all answers are the same, and neither ledger nor memory is in the home.
#[test]
fn ledger_and_memory_are_in_the_database() {
    let api = Backend::Postgres.api("");
    let id = api.create(&json!({"agent": "acp", "meta": {"a": 1}}));
    assert_eq!(api.ask(&id, "remember the crane"), "echo: remember the crane");
    api.ask(&id, "[[chunks 20]] [[say \u{0} 🦀]]");
    let url = address(&api.home);
    let count = |table: &str| server().sql(&url, &format!("SELECT count(*) FROM hob.{table}"));
    assert_eq!(
        (count("apps"), count("sessions"), count("turns")),
        ("1".into(), "1".into(), "2".into())
    );
    wait_until("the memory has taken its share", || (count("outbox") == "0").then_some(()));
    for file in ["hob.db", "memory.db"] {
        assert!(!api.home.hob_home().join(file).exists(), "there is no {file}");
    }
    let (before, log) = (api.describe(&id), api.log(&id));
    assert_gapless(&log);
    let api = api.restart_after(|server| assert_eq!(server.stop().code(), Some(0)));
    assert_eq!((api.describe(&id), api.log(&id)), (before.clone(), log.clone()));
    let api = api.restart_after(|server| server.kill());
    assert_eq!((api.describe(&id), api.log(&id)), (before, log));
    assert_eq!(api.ask(&id, "[[say {history}]]").split('|').next(), Some("remember the crane"));
    assert_eq!(ledger(&api.home)["verdict"], "ok");
    // Created with the first fencing token, released by the first run and acquired by the last: tokens never decrease.
    let fences = "SELECT min(fence), max(fence), bool_and(grows) FROM (
         SELECT fence, fence >= lag(fence, 1, 0::bigint) OVER (ORDER BY seq) AS grows FROM hob.events) e";
    assert_eq!(server().sql(&url, fences), "1|2|t");
}

/// Prompts, answers, events, system prompts, MCP servers, uploads and documents were in clear in the database.
#[test]
fn nothing_that_was_said_is_in_clear_in_the_database() {
    const MARK: &str = "zx81-Lighthouse";
    let api = Backend::Postgres.api("");
    let servers = json!([{"name": "m", "command": "true", "args": [], "env": [{"name": "K", "value": MARK}]}]);
    let setup =
        json!({"agent": "acp", "meta": {"note": MARK}, "system": MARK, "mcp_servers": servers});
    let id = api.create(&setup);
    assert!(api.ask(&id, &format!("[[say {MARK}]]")).contains(MARK));
    let upload = api.server.upload(Some(&api.token), &format!("{MARK}.txt"), MARK.as_bytes());
    assert_eq!(upload.status, 200, "{upload:?}");
    let body = json!({"metadata": {"about": MARK}});
    let made = api.server.post("/v1/conversations", Some(&api.token), &body);
    assert_eq!(made.status, 200, "{made:?}");
    let url = address(&api.home);
    let names = "SELECT tablename FROM pg_tables WHERE schemaname = 'hob'";
    let hex: String = MARK.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut bytes = 0;
    for table in server().sql(&url, names).lines() {
        let rows = server().sql(&url, &format!("SELECT t::text FROM hob.{table} t"));
        assert!(!rows.contains(MARK) && !rows.contains(&hex), "in {table}: {rows}");
        bytes += rows.len();
    }
    assert!(bytes > 2000, "the tables are not empty");
    let described = api.describe(&id);
    assert_eq!(described["meta"]["note"], MARK, "{described}");
    let log = format!("{:?}", api.log(&id));
    assert!(log.contains(MARK), "{log}");
    let read = api.get(&format!("/v1/conversations/{}", made.json()["id"].as_str().unwrap()));
    assert_eq!(read.json()["metadata"]["about"], MARK, "{read:?}");
}

/// Apps are created, listed and revoked in the database, with and without a server.
#[test]
fn app_commands_work_on_the_database() {
    let api = Backend::Postgres.api("");
    let id = api.session();
    let token = api.home.app("other");
    assert_eq!(api.server.get("/sessions", Some(&token)).status, 200);
    let list = api.home.run(&["app", "list", "--json"]);
    let list: Value = serde_json::from_slice(&list.stdout).expect("JSON");
    let names: Vec<&str> =
        list["apps"].as_array().unwrap().iter().map(|app| app["app"].as_str().unwrap()).collect();
    assert_eq!(names, ["other", "tests"]);
    assert!(api.home.run(&["app", "revoke", "other", "--yes"]).status.success());
    assert_eq!(api.server.get("/sessions", Some(&token)).status, 401);
    assert!(api.home.run(&["app", "revoke", "tests", "--yes"]).status.success());
    assert_eq!(api.get(&format!("/sessions/{id}")).status, 401);
    let left = "SELECT count(*) FROM hob.sessions, hob.events, hob.heads, hob.turns";
    assert_eq!(server().sql(&address(&api.home), left), "0");
}

#[test]
fn doctor_warns_of_a_role_that_row_level_security_does_not_bind() {
    let home = TestHome::new();
    let superuser = server().database().replacen("//hob@", "//postgres@", 1);
    home.configure(&format!("[store]\nurl = {superuser:?}\n"));
    let running = home.serve();
    let says = ledger(&home);
    assert_eq!(says["verdict"], "warning", "{says}");
    assert!(says["says"].as_str().unwrap().contains("superuser"), "{says}");
    assert_eq!(running.stop().code(), Some(0));
}

/// The doctor describes the database, and the password is only in `config.toml`.
#[test]
fn doctor_checks_the_database_and_hides_its_password() {
    let home = TestHome::new();
    let folder = server().socket().parent().unwrap().display().to_string().replace('/', "%2F");
    let name = server().database();
    let name = name.rsplit('/').next().unwrap();
    let set = |folder: &str| {
        let url = format!("postgres://hob:s3cret-word@{folder}/{name}");
        home.configure(&format!("log = \"trace\"\n[store]\nurl = {url:?}\n"));
    };
    set(&folder);
    assert!(ledger(&home)["says"].as_str().unwrap().contains("PostgreSQL 18"));
    let running = home.serve();
    let says = ledger(&home);
    assert_eq!(says["verdict"], "ok", "{says}");
    let text =
        format!("{}{}", doctor(&home), String::from_utf8_lossy(&home.run(&["doctor"]).stdout));
    assert!(text.contains("store.url") && !text.contains("s3cret-word"), "{text}");
    assert_eq!(running.stop().code(), Some(0));
    set("%2Fno%2Fsuch%2Ffolder");
    assert_eq!(ledger(&home)["verdict"], "failed");
    let refused = home.run(&["serve", "--listen", "127.0.0.1:0"]);
    let said = format!("{refused:?}");
    assert!(!refused.status.success() && said.contains("/no/such/folder"), "{said}");
    assert!(!said.contains("s3cret-word"));
    std::fs::remove_file(home.hob_home().join("config.toml")).unwrap();
    assert!(!folder_holds(&home.hob_home(), "s3cret-word"), "it is in no log and no other file");
}
