//! The console's pages of sessions, usage and health.

use hob_testkit::server::Answer;
use hob_testkit::{TestHome, wait_until};
use serde_json::{Value, json};

use crate::api::{Api, configure};
use crate::backend::Backend;
use crate::console::{ADMIN, serve};

fn api(extra: &str) -> Api {
    let home = TestHome::new();
    configure(&home, extra);
    let token = home.app("tests");
    let server = serve(&home);
    Api::new(Backend::File, server, home, &token)
}

fn get(api: &Api, path: &str) -> Value {
    let answer = api.server.get(path, Some(ADMIN));
    assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    let value = answer.json();
    assert_eq!(value["ok"], true, "{path}");
    value
}

fn post(api: &Api, path: &str, body: Value) -> Answer {
    api.server.post(path, Some(ADMIN), &body)
}

/// The actions of the audit log, oldest first.
fn actions(api: &Api) -> Vec<(String, String)> {
    let entries = get(api, "/admin/audit")["entries"].as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    entries.iter().rev().map(|entry| (text(&entry["action"]), text(&entry["target"]))).collect()
}

/// The private folders of a removed app stayed, and a later app of its name found them.
#[test]
fn removed_app_leaves_no_folders() {
    let api = api("");
    let id = api.create(&json!({"agent": "claude"}));
    assert_eq!(api.turn(&id, "[[say hello]]").status, 200);
    assert_eq!(api.server.upload(Some(&api.token), "x.txt", b"x").status, 200);
    let home = api.home.hob_home();
    let left = || -> Vec<String> {
        let named = hob_testkit::leak::files_below(&home).into_iter().filter(|path| {
            let below = path.strip_prefix(&home).unwrap();
            below.components().any(|part| part.as_os_str() == "tests" || *part.as_os_str() == *id)
        });
        named.map(|path| path.display().to_string()).collect()
    };
    assert!(left().iter().any(|path| path.contains("claude/apps/tests")), "{:?}", left());
    let removed = api.server.call("DELETE", "/admin/apps/tests", Some(ADMIN), None);
    assert_eq!(removed.status, 200, "{}", removed.text);
    wait_until("nothing of the app is left", || {
        let left = left();
        left.iter().all(|path| path.contains("/trash/")).then_some(())
    });
    assert!(!home.join("claude/apps/tests").exists() && !home.join("files/tests").exists());
    assert!(!home.join("agents/tests").exists());
}

#[test]
fn console_runs_a_session_of_the_owner() {
    let api = api("");
    let body = json!({"agent": "acp", "permissions": "ask", "meta": {"from": "console"}});
    let made = post(&api, "/admin/sessions", body);
    assert_eq!(made.status, 200, "{}", made.text);
    let made = made.json();
    assert_eq!(made["app"], "@owner");
    let id = made["session_id"].as_str().unwrap().to_owned();
    assert_eq!(api.get(&format!("/sessions/{id}")).status, 404, "no app sees it");
    let place = format!("/admin/sessions/{id}");
    let taken =
        post(&api, &format!("{place}/turn"), json!({"prompt": "[[permission rm]] [[say done]]"}));
    assert_eq!(taken.status, 202, "{}", taken.text);
    assert_eq!(taken.json()["turn_index"], 1);
    let request = wait_until("the agent asks", || {
        let log = get(&api, &format!("{place}/events"));
        let asked =
            log["events"].as_array().unwrap().iter().find(|e| e["status"] == "asked")?.clone();
        let id = &asked["request_id"];
        Some(id.as_str().map_or_else(|| id.to_string(), str::to_owned))
    });
    let overview = get(&api, "/admin/overview");
    assert_eq!(overview["sessions"], json!({"open": 1, "busy": 1, "waiting": 1}));
    assert_eq!(overview["live"], json!({"used": 1, "limit": 16}));
    // Lists say so, too: a session that waits for a person must not look like one at work.
    let waits = |api: &Api| {
        let (sessions, live) = (get(api, "/admin/sessions"), get(api, "/admin/live"));
        let listed = api.home.run(&["sessions", "list"]);
        let listed = String::from_utf8(listed.stdout).unwrap().contains("waiting");
        (sessions["sessions"][0]["waiting"].clone(), live["live"][0]["waiting"].clone(), listed)
    };
    assert_eq!(waits(&api), (json!(true), json!(true), true));
    let permission = format!("{place}/permissions/{request}");
    assert_eq!(post(&api, &permission, json!({"option": "maybe"})).status, 400);
    let answered = post(&api, &permission, json!({"option": "allow_once"}));
    assert_eq!(answered.status, 200, "{}", answered.text);
    assert_eq!(post(&api, &permission, json!({"option": "allow_once"})).status, 404);
    wait_until("the turn ends", || {
        let turns = get(&api, &format!("{place}/turns"));
        (turns["turns"][0]["state"] == "finished").then_some(())
    });
    assert_eq!(waits(&api), (json!(false), json!(false), false));
    let turns = get(&api, &format!("{place}/turns"));
    assert_eq!(turns["turns"][0]["prompt"], "[[permission rm]] [[say done]]");
    assert_eq!((turns["turns"].as_array().unwrap().len(), &turns["more"]), (1, &json!(false)));
    assert_eq!(post(&api, &format!("{place}/turn"), json!({"prompt": " "})).status, 400);
    let bad = post(&api, &format!("{place}/turn"), json!({"prompt": "x", "files": []}));
    assert_eq!(bad.status, 400, "strict: {}", bad.text);
    assert_eq!(post(&api, &format!("{place}/cancel"), json!({})).status, 200);
    assert_eq!(api.server.call("DELETE", &place, Some(ADMIN), None).status, 200);
    assert_eq!(post(&api, &format!("{place}/turn"), json!({"prompt": "x"})).status, 410);
    assert_eq!(post(&api, "/admin/sessions", json!({"agent": "nobody"})).status, 400);
    let none = format!("/admin/sessions/{}/turn", "0".repeat(32));
    assert_eq!(post(&api, &none, json!({"prompt": "x"})).status, 404);
    let expect =
        ["session_create", "session_turn", "permission", "session_cancel", "session_close"];
    let expect: Vec<(String, String)> =
        expect.iter().map(|action| (action.to_string(), id.clone())).collect();
    let created = ("app_create".to_owned(), "tests".to_owned());
    assert_eq!(actions(&api), [vec![created], expect].concat());
    let audit = api.server.get("/admin/audit", Some(ADMIN)).text;
    assert!(!audit.contains("say done"), "no words of a prompt");
    let usage = get(&api, "/admin/usage")["days"].clone();
    let day = &usage[0];
    assert_eq!(
        (&day["app"], &day["turns"], &day["failed"]),
        (&json!("@owner"), &json!(1), &json!(0))
    );
}

/// The log of an app's session, read from its end in pages.
#[test]
fn console_reads_a_long_log_in_pages() {
    let api = api("");
    let id = api.session();
    for word in ["one", "two", "three"] {
        api.ask(&id, &format!("[[say {word}]]"));
    }
    let place = format!("/admin/sessions/{id}/events");
    let all = get(&api, &place);
    let last = all["last_event"].as_u64().unwrap();
    let seqs = |page: &Value| -> Vec<u64> {
        page["events"].as_array().unwrap().iter().map(|e| e["seq"].as_u64().unwrap()).collect()
    };
    assert_eq!(seqs(&all), (1..=last).collect::<Vec<_>>());
    let mut before = last + 1;
    let mut collected = Vec::new();
    while before > 1 {
        let page = get(&api, &format!("{place}?before={before}&limit=2"));
        assert_eq!(page["last_event"].as_u64(), Some(last));
        let page = seqs(&page);
        assert!(page.len() <= 2 && page.is_sorted());
        before = page[0];
        collected.splice(0..0, page);
    }
    assert_eq!(collected, seqs(&all), "nothing twice and nothing left out");
    let next = get(&api, &format!("{place}?after=1&limit=2"));
    assert_eq!((seqs(&next), &next["more"]), (vec![2, 3], &json!(true)));
    assert_eq!(seqs(&get(&api, &format!("{place}?before=1"))), [0; 0]);
    for wrong in ["before=x", "limit=x", "after=x", "limit=-1", "colour=1"] {
        assert_eq!(api.server.get(&format!("{place}?{wrong}"), Some(ADMIN)).status, 400, "{wrong}");
    }
    let turns = get(&api, &format!("/admin/sessions/{id}/turns?before=3&limit=1"));
    assert_eq!((&turns["turns"][0]["turn_index"], &turns["more"]), (&json!(2), &json!(true)));
}

#[test]
fn console_shows_usage_by_app() {
    let api = api("[limits]\napp_sessions = 7\n");
    let id = api.session();
    api.ask(&id, "[[usage 10 5]] [[say one]]");
    assert_eq!(api.turn(&id, "[[exit 3]]").status, 502);
    let days = get(&api, "/admin/usage?days=1&app=tests")["days"].clone();
    let day = days.as_array().unwrap().last().unwrap();
    let ended = api.describe(&id)["last_turn_at"].as_str().unwrap().to_owned();
    assert_eq!(day["day"], ended[..10], "{day}");
    assert_eq!(
        (&day["app"], &day["turns"], &day["failed"]),
        (&json!("tests"), &json!(2), &json!(1))
    );
    assert_eq!(get(&api, "/admin/usage?app=nobody")["days"], json!([]));
    for wrong in ["days=0", "days=367", "days=x", "app=a%20b", "x=1"] {
        let answer = api.server.get(&format!("/admin/usage?{wrong}"), Some(ADMIN));
        assert_eq!(answer.status, 400, "{wrong}");
    }
    let apps = get(&api, "/admin/apps")["apps"].clone();
    assert_eq!((&apps[0]["sessions_open"], &apps[0]["turns_today"]), (&json!(1), &json!(2)));
    assert!(apps[0]["tokens_today"].is_u64() && apps[0]["cost_today"].is_number());
    let limits = get(&api, "/admin/limits");
    assert_eq!(limits["limits"]["app_sessions"], 7);
    assert_eq!(limits["sessions"]["ttl_secs"], 3600);
    let overview = get(&api, "/admin/overview");
    assert_eq!(
        (&overview["turns"]["finished"], &overview["turns"]["died"]),
        (&json!(1), &json!(1))
    );
    // Usage stays after its session is deleted.
    api.close(&id);
    assert_eq!(get(&api, "/admin/usage")["days"][0]["turns"], 2);
}

#[test]
fn console_shows_the_doctors_checks() {
    let api = api(
        "colour = 1\n[agents.gone]\ndriver = \"acp\"\ncommand = [\"no-such-program\", \"--api-key=sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ\"]\ninstall = \"get it\"\nenv = { TOKEN = \"very-secret-value\" }\n",
    );
    let answer = api.server.get("/admin/health", Some(ADMIN));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let health = answer.json();
    let checks = health["checks"].as_array().unwrap();
    let find = |name: &str, words: &str| {
        checks
            .iter()
            .find(|check| check["name"] == name && check["text"].as_str().unwrap().contains(words))
            .unwrap_or_else(|| panic!("{name} {words}: {checks:?}"))
    };
    let open = find("home", "lets other users read it");
    assert_eq!(open["status"], "warn");
    assert!(open["text"].as_str().unwrap().contains("/hob/config.toml "), "{open}");
    assert_eq!(find("server", "running (pid")["status"], "ok");
    assert_eq!(find("settings", "colour")["status"], "warn");
    let gone = find("agent", "no-such-program");
    assert_eq!((&gone["status"], &gone["fix"]), (&json!("warn"), &json!("get it")));
    let settings = health["settings"].as_array().unwrap();
    let row = settings.iter().find(|row| row["key"] == "admin_token").unwrap();
    assert_eq!((&row["value"], &row["source"]), (&json!("(set)"), &json!("$HOB_ADMIN_TOKEN")));
    for secret in [ADMIN, "very-secret-value", "abcdefghijklmnopqrstuvwxyz0123456789"] {
        assert!(!answer.text.contains(secret), "{secret}");
    }
    let me = get(&api, "/admin/me");
    let gone = me["agents"].as_array().unwrap().iter().find(|agent| agent["name"] == "gone");
    assert_eq!(gone.unwrap()["installed"], false);
}
