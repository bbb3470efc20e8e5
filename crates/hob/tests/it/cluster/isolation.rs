//! Apps keep apart on a cluster as on one machine: hostile names, hostile texts, and nothing of either in a statement.

use std::sync::{Arc, RwLock};

use hob_testkit::{Cluster, Postgres};
use serde_json::{Value, json};

use super::setup::*;

/// Words that would do something if they came into a statement, a notification or a path.
const HOSTILE: [&str; 9] = [
    "'; DROP TABLE hob.events; -- c4n4ry",
    "$1 c4n4ry $$; DELETE FROM hob.sessions; $$",
    "\"c4n4ry\" OR 1=1",
    "\\'; SELECT pg_sleep(100); -- c4n4ry",
    "%' UNION SELECT token_hash FROM hob.apps -- c4n4ry",
    "NOTIFY hob, 'c4n4ry'",
    "../../c4n4ry\u{0}\u{1a}\u{1a}0",
    "c4n4ry\u{202e}\u{feff}\u{10ffff}",
    "(&|! c4n4ry:* <-> '",
];

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Nothing of what a caller says is part of a statement: every statement of the nodes is in the server's log, without
/// its values, and the canary that all hostile words carry is in none.
#[test]
fn callers_words_never_become_part_of_a_statement() {
    let server = Arc::new(RwLock::new(Postgres::start()));
    let read = server.read().unwrap();
    read.sql(&read.url(), "ALTER SYSTEM SET log_statement = 'all'; ");
    read.sql(&read.url(), "ALTER SYSTEM SET log_parameter_max_length = 0");
    read.sql(&read.url(), "ALTER SYSTEM SET log_parameter_max_length_on_error = 0");
    read.sql(&read.url(), "SELECT pg_reload_conf()");
    drop(read);
    let cluster = Cluster::on(&server, &options(2, ""));
    let token = cluster.app("tests");
    let nodes = Nodes { cluster, token };
    let id = nodes.on(0).create(&json!({"agent": "acp", "meta": {"a": HOSTILE[0], HOSTILE[1]: 1}}));
    for (n, words) in HOSTILE.iter().enumerate() {
        let node = n % 2;
        let reply = nodes.on(node).turn_with(&id, &[], words);
        assert_eq!(reply.status, 200, "{}", reply.text);
        assert_eq!(reply.json()["text"], format!("echo: {words}"), "as it was said");
        let key: String = words.chars().filter(|c| c.is_ascii() && !c.is_ascii_control()).collect();
        let reply = nodes.on(1 - node).turn_with(&id, &[("idempotency-key", &key)], "hi");
        assert!(matches!(reply.status, 200 | 400), "{}", reply.text);
        let name = escaped(words);
        for (method, path) in [
            ("GET", format!("/sessions/{name}")),
            ("GET", format!("/sessions/{name}/events")),
            ("GET", format!("/sessions/{id}/events?after={name}")),
            ("GET", format!("/sessions/{id}/turns/{name}")),
            ("POST", format!("/sessions/{name}/cancel")),
            ("POST", format!("/sessions/{id}/permissions/{name}")),
            ("DELETE", format!("/sessions/{name}")),
        ] {
            let body =
                if path.contains("permissions") { json!({"option": words}) } else { Value::Null };
            let reply = nodes.on(1 - node).call(method, &path, &[], &body);
            assert!(matches!(reply.status, 400 | 404), "{method} {path}: {}", reply.text);
        }
        let admin = hob_testkit::cluster::ADMIN;
        let body = json!({"name": words});
        let made =
            nodes.on(node).with_token(admin).try_call("POST", "/admin/apps", &[], &body).unwrap();
        assert!((400..500).contains(&made.status), "{}", made.text);
        let gone = format!("/admin/apps/{name}");
        let gone =
            nodes.on(node).with_token(admin).try_call("DELETE", &gone, &[], &Value::Null).unwrap();
        assert!((400..500).contains(&gone.status), "{}", gone.text);
        let bad = escaped(words).replace('%', "");
        let refused = nodes
            .on(node)
            .with_token(&bad)
            .try_call("GET", "/sessions", &[], &Value::Null)
            .unwrap();
        assert_eq!(refused.status, 401);
    }
    let log = nodes.on(1).log(&id);
    assert_gapless(&log);
    let statements = nodes.cluster.database_log();
    assert!(statements.contains("hob.events"), "statements are in the log");
    let wrong: Vec<&str> = statements.lines().filter(|line| line.contains("c4n4ry")).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Names that look like each other's, like patterns or like the schema's own words are names of different apps.
#[test]
fn apps_with_similar_names_are_isolated() {
    let nodes = nodes(&options(2, ""));
    let names = ["a", "A", "a-", "a_", "a.b", "a_b", "public", "hob", "null", "0"];
    let tokens: Vec<String> = names.iter().map(|name| nodes.cluster.app(name)).collect();
    let body = json!({"agent": "acp"});
    let ids: Vec<String> = (0..names.len())
        .map(|n| {
            let made = nodes
                .on(n % 2)
                .with_token(&tokens[n])
                .try_call("POST", "/sessions", &[], &body)
                .unwrap();
            assert_eq!(made.status, 200, "{}", made.text);
            made.json()["session_id"].as_str().unwrap().to_owned()
        })
        .collect();
    for (n, token) in tokens.iter().enumerate() {
        for node in 0..2 {
            let list = nodes
                .on(node)
                .with_token(token)
                .try_call("GET", "/sessions", &[], &Value::Null)
                .unwrap();
            assert_eq!(list.json()["count"], 1, "{}: {}", names[n], list.text);
            assert_eq!(list.json()["sessions"][0]["session_id"], ids[n]);
            let other = &ids[(n + 1) % ids.len()];
            for (method, path, body) in [
                ("GET", format!("/sessions/{other}"), Value::Null),
                ("GET", format!("/sessions/{other}/events"), Value::Null),
                ("POST", format!("/sessions/{other}/turn"), json!({"prompt": "hi"})),
                ("POST", format!("/sessions/{other}/cancel"), Value::Null),
                ("DELETE", format!("/sessions/{other}"), Value::Null),
            ] {
                let reply =
                    nodes.on(node).with_token(token).try_call(method, &path, &[], &body).unwrap();
                assert_eq!(reply.status, 404, "{method} {path} as {}: {}", names[n], reply.text);
            }
        }
    }
    let untouched = "SELECT count(*) FROM hob.heads WHERE turn_count > 0 OR closed_at IS NOT NULL";
    assert_eq!(nodes.cluster.sql(untouched), "0");
}

/// A database role of one app sees only rows of that app, in every table, including what nodes have written for each
/// other.
#[test]
fn database_role_of_an_app_sees_only_its_rows() {
    let nodes = nodes(&options(2, "[limits]\napp_turns_per_minute = 100\n"));
    let other = nodes.cluster.app("other");
    for token in [&nodes.token, &other] {
        nodes.cluster.with(0, |server| server.upload(Some(token), "a.txt", b"secret")).json();
        let body = json!({"agent": "acp"});
        let made =
            nodes.on(0).with_token(token).try_call("POST", "/sessions", &[], &body).unwrap().json();
        let id = made["session_id"].as_str().expect("a name").to_owned();
        let turn = json!({"prompt": "hello"});
        let path = format!("/sessions/{id}/turn");
        assert_eq!(
            nodes.on(1).with_token(token).try_call("POST", &path, &[], &turn).unwrap().status,
            200
        );
    }
    // As if another node had not answered yet.
    nodes.cluster.sql(
        "INSERT INTO hob.commands (id, app, session, body) SELECT app, app, session, '{}' FROM hob.heads",
    );
    let role = format!("reader_{}", nodes.cluster.database().rsplit('/').next().unwrap());
    nodes.cluster.sql(&format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA hob TO {role};
         GRANT SELECT ON ALL TABLES IN SCHEMA hob TO {role};
         INSERT INTO hob.app_roles (role, app) VALUES ('{role}', 'tests')"
    ));
    let columns = nodes.cluster.sql(
        "SELECT t.table_name, coalesce(min(c.column_name), '') FROM information_schema.tables t
         LEFT JOIN information_schema.columns c ON c.table_schema = t.table_schema AND c.table_name = t.table_name
             AND (c.column_name IN ('app', 'speaker') OR t.table_name = 'apps' AND c.column_name = 'name')
         WHERE t.table_schema = 'hob' AND t.table_type = 'BASE TABLE' GROUP BY 1",
    );
    let mut seen = Vec::new();
    for line in columns.lines() {
        let (table, column) = line.split_once('|').expect("two columns");
        let rows = nodes.cluster.sql_as(&role, &format!("SELECT count(*) FROM hob.{table}"));
        if column.is_empty() {
            let all = nodes.cluster.sql(&format!("SELECT count(*) FROM hob.{table}"));
            // Rows that belong to no app may be seen by every role.
            assert!(rows == "0" || table == "migrations", "{table}: {rows} of {all}");
            continue;
        }
        let apps = format!("SELECT DISTINCT {column} FROM hob.{table}");
        let apps = nodes.cluster.sql_as(&role, &apps);
        assert!(apps.is_empty() || apps == "tests", "{table}: {apps}");
        if rows != "0" {
            seen.push(table.to_owned());
        }
    }
    for table in ["sessions", "heads", "turns", "events", "usage", "commands", "pace", "files"] {
        assert!(seen.iter().any(|seen| seen == table), "{table}: {seen:?}");
    }
}
