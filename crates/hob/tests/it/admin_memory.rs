//! The console's pages of the memory: search, facets, timeline, unsealing, correcting and forgetting.

use std::path::PathBuf;

use hob_testkit::server::Answer;
use hob_testkit::{HobServer, TestHome};
use serde_json::{Value, json};

use crate::console::{ADMIN, serve, sign_in};
use crate::memory_setup::*;

// In two parts, so that no scanner takes it for a real token.
const SECRET: &str = concat!("ghp_", "Zx9Kq2Lm7Rt4Vb8Nw3Pf6Hs1Jd5Gc0Ya2Xe7");

/// A server whose memory holds two sessions, `s1` of Claude Code in the project `shop` and `s2` of Codex in `farm`, and
/// the owner signed in to its console. The server comes first: it ends before its home is removed.
struct Console {
    server: HobServer,
    cookie: String,
    shop: PathBuf,
    farm: PathBuf,
    home: TestHome,
}

fn console() -> Console {
    let home = TestHome::new();
    let (shop, farm) = (folder(&home, "shop"), folder(&home, "farm"));
    let server = serve(&home);
    let shop_talk = [
        said("s1", 0, "user", "which database shall the shop have?"),
        said("s1", 1, "assistant", "the shop gets a marmalade database"),
        said("s1", 2, "user", &format!("deploy with {SECRET} please")),
        said("s1", 3, "assistant", "deployed the shop"),
    ];
    let path = transcript(&home, "s1.jsonl", &shop_talk);
    capture(&home, &["--cwd", shop.to_str().unwrap()], &path);
    let farm_talk = [
        ("user", "how many marmalade cows has the farm?".to_owned()),
        ("assistant", "forty cows".to_owned()),
    ];
    let path = transcript(&home, "s2.jsonl", &codex("s2", farm.to_str().unwrap(), &farm_talk));
    capture(&home, &["--cwd", farm.to_str().unwrap()], &path);
    let cookie = sign_in(&server);
    Console { server, cookie, shop, farm, home }
}

impl Console {
    #[track_caller]
    fn get(&self, path: &str) -> Value {
        let headers = [("cookie", self.cookie.as_str())];
        let answer = self.server.request("GET", path, None, &headers, b"");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.json()
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        let headers = [("cookie", self.cookie.as_str()), ("origin", self.server.url())];
        self.server.request("POST", path, None, &headers, body.to_string().as_bytes())
    }

    /// Returns the id of the record whose text contains `part`.
    #[track_caller]
    fn record_id(&self, part: &str) -> String {
        let all = self.get("/admin/memory/search?limit=200");
        let mut hits = all["hits"].as_array().unwrap().iter();
        let hit = hits.find(|hit| hit["text"].as_str().unwrap().contains(part));
        hit.unwrap_or_else(|| panic!("no record with {part:?}"))["record_id"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Asserts the actions of the audit log since the sign-in, and that it holds none of these texts.
    #[track_caller]
    fn assert_audit(&self, expected: &[&str], texts: &[&str]) {
        let audit = self.get("/admin/audit");
        let entries = audit["entries"].as_array().unwrap().iter().rev();
        let actions: Vec<&str> = entries.map(|entry| entry["action"].as_str().unwrap()).collect();
        assert_eq!(actions[0], "login");
        assert_eq!(actions[1..], *expected);
        for text in texts {
            assert!(!audit.to_string().contains(text), "{text:?} is in the audit log");
        }
    }
}

fn texts_of(turns: &Value) -> Vec<&str> {
    turns.as_array().unwrap().iter().map(|turn| turn["text"].as_str().unwrap()).collect()
}

#[test]
fn memory_search_describes_its_hits() {
    let console = console();
    let found = console.get("/admin/memory/search?q=marmalade");
    let hits = found["hits"].as_array().unwrap();
    assert!(hits.len() >= 2, "{found}");
    let hit = hits.iter().find(|hit| hit["session_id"] == "s1").unwrap();
    let keys: Vec<&String> = hit.as_object().unwrap().keys().collect();
    let expected = [
        "record_id",
        "text",
        "role",
        "session_id",
        "project",
        "client",
        "ts",
        "score",
        "reason",
        "superseded",
        "masked",
    ];
    assert_eq!(keys, expected);
    assert_eq!((&hit["client"], &hit["masked"]), (&json!("claude"), &json!(false)));
    assert!(found["took_ms"].is_u64() && found["partial"] == false && found["omitted"].is_u64());
}

#[test]
fn memory_search_filters_by_project_client_session_and_time() {
    let console = console();
    let farm = console.farm.display();
    let only = console.get(&format!("/admin/memory/search?q=marmalade&project={farm}"));
    assert_eq!(texts_of(&only["hits"])[0], "how many marmalade cows has the farm?");
    assert!(only["hits"].as_array().unwrap().iter().all(|hit| hit["session_id"] == "s2"));
    let only = console.get("/admin/memory/search?q=marmalade&client=codex");
    assert!(only["hits"].as_array().unwrap().iter().all(|hit| hit["client"] == "codex"));
    assert_eq!(texts_of(&only["hits"])[0], "how many marmalade cows has the farm?");
    let only = console.get("/admin/memory/search?q=marmalade&session_id=s1");
    assert_eq!(texts_of(&only["hits"])[0], "the shop gets a marmalade database");
    let only = console.get("/admin/memory/search?q=marmalade&until=2026-01-31");
    assert_eq!(texts_of(&only["hits"])[0], "the shop gets a marmalade database");
    for wrong in ["since=yesterday", "limit=x", "colour=1"] {
        let path = format!("/admin/memory/search?q=x&{wrong}");
        assert_eq!(console.server.get(&path, Some(ADMIN)).status, 400, "{wrong}");
    }
}

#[test]
fn memory_search_without_a_question_lists_the_newest_turns() {
    let console = console();
    let newest = console.get("/admin/memory/search?limit=3");
    assert_eq!(
        texts_of(&newest["hits"])[..2],
        ["forty cows", "how many marmalade cows has the farm?"]
    );
    assert!(newest["hits"][0].get("score").is_none());
    let newest = console.get("/admin/memory/search?q=&client=claude&limit=1");
    assert_eq!(texts_of(&newest["hits"]), ["deployed the shop"]);
}

#[test]
fn memory_facets_and_stats_count_turns() {
    let console = console();
    let facets = console.get("/admin/memory/facets");
    let (farm, shop) = (console.farm.to_str().unwrap(), console.shop.to_str().unwrap());
    assert_eq!(facets["projects"][0]["name"], farm, "the latest first");
    assert_eq!(
        (&facets["projects"][1]["name"], &facets["projects"][1]["turns"]),
        (&json!(shop), &json!(4))
    );
    assert_eq!(
        facets["clients"],
        json!([{"name": "claude", "turns": 4}, {"name": "codex", "turns": 2}])
    );
    let stats = console.get("/admin/memory/stats");
    assert_eq!(
        (&stats["ok"], &stats["turns"], &stats["sealed"]),
        (&json!(true), &json!(6), &json!(1))
    );
    assert_eq!(
        console.get("/admin/overview")["memory"],
        json!({"turns": 6, "backlog_files": 0, "backlog_events": 0})
    );
}

#[test]
fn memory_timeline_shows_turns_around_a_record_or_of_a_session() {
    let console = console();
    let middle = console.record_id("marmalade database");
    let line = console.get(&format!("/admin/memory/timeline?around={middle}&limit=2"));
    assert_eq!(
        texts_of(&line["turns"]),
        ["which database shall the shop have?", "the shop gets a marmalade database"]
    );
    let line = console.get("/admin/memory/timeline?session_id=s2");
    assert_eq!(texts_of(&line["turns"]), ["how many marmalade cows has the farm?", "forty cows"]);
    let unknown = console.server.get("/admin/memory/timeline?around=nothing", Some(ADMIN));
    assert_eq!(unknown.status, 404);
}

/// The owner reads what an app remembers by the app's name; nothing of it is in the owner's own memory.
#[test]
fn memory_of_an_app_is_read_by_its_name() {
    let console = console();
    let token = console.home.app("kite");
    for text in ["the kite has a marmalade tail", "the kite flies at noon"] {
        let params = json!({"name": "memory_capture", "arguments": {"text": text}});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        let body = call.to_string();
        let stored =
            console.server.request("POST", "/mcp", Some(&token), &headers, body.as_bytes());
        assert_eq!(stored.status, 200, "{}", stored.text);
    }
    let found = console.get("/admin/memory/search?q=marmalade&app=kite");
    assert_eq!(texts_of(&found["hits"])[0], "the kite has a marmalade tail");
    let hits = found["hits"].as_array().unwrap();
    assert!(hits.iter().all(|hit| hit["app"] == "kite"), "{found}");
    let own = console.get("/admin/memory/search?q=marmalade&app=");
    let hits = own["hits"].as_array().unwrap();
    assert!(hits.len() >= 2 && hits.iter().all(|hit| hit.get("app").is_none()), "{own}");
    assert!(!own.to_string().contains("kite"), "{own}");

    let id = found["hits"][0]["record_id"].as_str().unwrap();
    let line = console.get(&format!("/admin/memory/timeline?app=kite&around={id}"));
    assert!(texts_of(&line["turns"]).contains(&"the kite has a marmalade tail"), "{line}");
    assert_eq!(line["turns"][0]["app"], "kite");
    let path = format!("/admin/memory/timeline?around={id}");
    assert_eq!(console.server.get(&path, Some(ADMIN)).status, 404);
    let facets = console.get("/admin/memory/facets?app=kite");
    let turns = facets["clients"].as_array().unwrap().iter().map(|client| &client["turns"]);
    assert_eq!(turns.filter_map(Value::as_u64).sum::<u64>(), 2, "{facets}");
    assert_eq!(console.get("/admin/memory/stats?app=kite")["turns"], 2);
    assert_eq!(console.get("/admin/memory/stats")["turns"], 6);

    for part in ["search", "timeline", "facets", "stats"] {
        let ask = |query: &str| {
            let path = format!("/admin/memory/{part}?{query}");
            console.server.get(&path, Some(ADMIN)).status
        };
        assert_eq!((ask("app=missing"), ask("app=%2E%2E"), ask("apps=kite")), (404, 400, 400));
    }
    // What changes a record knows only those of the owner.
    for (path, body) in [
        ("correct", json!({"record_id": id, "text": "no tail"})),
        ("unseal", json!({"record_id": id})),
    ] {
        let answer = console.post(&format!("/admin/memory/{path}"), &body);
        assert_eq!(answer.status, 404, "{path}");
    }
    let answer = console.post("/admin/memory/forget", &json!({"record_id": id}));
    assert_eq!(answer.json()["forgotten"], 0);
}

#[test]
fn memory_unseal_shows_the_secret_and_is_audited() {
    let console = console();
    let found = console.get("/admin/memory/search?q=deploy");
    assert!(!found.to_string().contains(SECRET));
    assert!(found["hits"].as_array().unwrap().iter().any(|hit| hit["masked"] == true));
    let sealed = console.record_id("deploy with");
    let clear = console.post("/admin/memory/unseal", &json!({"record_id": sealed}));
    assert_eq!(clear.json()["text"], format!("deploy with {SECRET} please"), "{}", clear.text);
    assert_eq!(clear.headers["cache-control"], "no-store");
    let unknown = console.post("/admin/memory/unseal", &json!({"record_id": "nothing"}));
    assert_eq!(unknown.status, 404);
    console.assert_audit(&["unseal"], &[SECRET]);
}

#[test]
fn memory_correct_supersedes_the_record_and_is_audited() {
    let console = console();
    let id = console.record_id("marmalade database");
    let correct = |id: &str, text: &str| {
        console.post("/admin/memory/correct", &json!({"record_id": id, "text": text}))
    };
    let corrected = correct(&id, "the shop gets PostgreSQL");
    assert_eq!(corrected.status, 200, "{}", corrected.text);
    let found = console.get("/admin/memory/search?q=marmalade%20database&session_id=s1");
    let mut hits = found["hits"].as_array().unwrap().iter();
    let old = hits.find(|hit| hit["record_id"] == id.as_str());
    assert_eq!(old.unwrap()["superseded"], true, "{found}");
    assert_eq!(correct(&id, " ").status, 400);
    assert_eq!(correct("nothing", "x").status, 404);
    console.assert_audit(&["correct"], &["PostgreSQL"]);
}

#[test]
fn memory_forget_hides_records_and_sessions_and_is_audited() {
    let console = console();
    let sealed = console.record_id("deploy with");
    let forget = |body: Value| console.post("/admin/memory/forget", &body);
    let gone = forget(json!({"record_id": sealed}));
    assert_eq!(gone.json(), json!({"ok": true, "forgotten": 1}));
    let unsealed = console.post("/admin/memory/unseal", &json!({"record_id": sealed}));
    assert_eq!(unsealed.status, 404);
    assert_eq!(forget(json!({"session_id": "s2"})).json()["forgotten"], 2);
    let found = console.get("/admin/memory/search?q=cows");
    assert!(texts_of(&found["hits"]).iter().all(|text| !text.contains("cows")), "{found}");
    for wrong in [json!({}), json!({"record_id": "a", "session_id": "b"}), json!({"id": 1})] {
        assert_eq!(forget(wrong).status, 400);
    }
    let restore = |body: Value| console.post("/admin/memory/restore", &body);
    assert_eq!(restore(json!({"session_id": "s2"})).json(), json!({"ok": true, "restored": 2}));
    let found = console.get("/admin/memory/search?q=cows");
    assert!(texts_of(&found["hits"]).iter().any(|text| text.contains("cows")), "{found}");
    assert_eq!(restore(json!({"session_id": "s2"})).json()["restored"], 0);
    assert_eq!(restore(json!({})).status, 400);
    console.assert_audit(&["forget", "forget", "undo_forget", "undo_forget"], &[SECRET]);
}
