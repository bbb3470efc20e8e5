//! Seed 003, test by test, from outside.

use hob_testkit::wait_until;
use serde_json::{Value, json};

use crate::api::*;
use crate::backend::{Backend, backend_tests};

backend_tests!([file, postgres, cluster]: [
    create_session_requires_auth,
    create_session_returns_id,
    demo_agent_has_sessions,
    create_session_with_meta,
    create_with_a_bad_field_names_it,
    turn_round_trip,
    session_isolation_404,
    close_session_idempotent,
    turn_after_close_returns_410,
    list_sessions_filters_by_app_name,
    ttl_sweep_closes_stale,
    ttl_sweep_hard_deletes_old_closed,
    pool_full_returns_503,
    run_endpoint_unchanged,
    run_endpoint_unchanged_error_shape,
]);

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

fn create_session_requires_auth(backend: Backend) {
    let api = backend.api("");
    let body = json!({"agent": "claude"});
    let text = body.to_string();
    let without = api.server.request("POST", "/sessions", None, &[], text.as_bytes());
    assert_error(&without, 401, "unauthorized", "token");
    for token in ["hob_wrong", "", &api.token[..api.token.len() - 1]] {
        assert_eq!(api.call_as(token, "POST", "/sessions", &[], &body).status, 401);
    }
    assert_eq!(api.get("/sessions").json()["count"], 0);
}

fn create_session_returns_id(backend: Backend) {
    let api = backend.api("");
    let answer = api.post("/sessions", &json!({"agent": "acp"}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let body = answer.json();
    assert_eq!((&body["ok"], &body["agent"]), (&json!(true), &json!("acp")));
    let id = body["session_id"].as_str().unwrap();
    assert!(id.len() >= 16, "{id}");
    let session = api.describe(id);
    for key in ["session_id", "agent", "meta", "created_at", "closed_at", "turn_count"] {
        assert!(session.get(key).is_some(), "{key}: {session}");
    }
    assert_eq!((&session["state"], &session["turn_count"]), (&json!("idle"), &json!(0)));
    assert_eq!((&session["closed_at"], &session["last_turn_at"]), (&Value::Null, &Value::Null));
    assert!(session["created_at"].as_str().unwrap().ends_with('Z'), "{session}");
    assert_ne!(api.session(), id, "every session has a name of its own");
}

/// The demo agent needs nothing installed.
fn demo_agent_has_sessions(backend: Backend) {
    let api = backend.api("");
    let id = api.create(&json!({"agent": "demo"}));
    let answer = api.turn(&id, "hello");
    assert_eq!(answer.status, 200, "{}", answer.text);
    let body = answer.json();
    assert!(body["text"].as_str().unwrap().contains("hello"), "{body}");
    assert_eq!(
        body["events"].as_array().unwrap().last().unwrap()["result"]["stopReason"],
        "end_turn"
    );
}

fn create_session_with_meta(backend: Backend) {
    let api = backend.api("");
    let meta = json!({"purpose": "smoke", "nested": {"list": [1, null, "ü"]}});
    let id = api.create(&json!({"agent": "acp", "meta": meta}));
    assert_eq!(api.describe(&id)["meta"], meta);
    assert_eq!(api.get("/sessions").json()["sessions"][0]["meta"], meta);
    for wrong in [json!("text"), json!([1])] {
        let answer = api.post("/sessions", &json!({"agent": "acp", "meta": wrong}));
        assert_error(&answer, 400, "bad_request", "meta");
    }
}

/// An error names the bad field of a request.
fn create_with_a_bad_field_names_it(backend: Backend) {
    let api = backend.api("");
    for (body, code, words) in [
        (json!({}), "bad_request", "agent"),
        (json!({"agent": 1}), "bad_request", "agent"),
        (json!({"agent": "nobody"}), "unknown_agent", "nobody"),
        (json!({"agent": "acp", "permissions": "maybe"}), "bad_request", "permissions"),
        (json!({"agent": "acp", "model": ""}), "bad_request", "model"),
        (json!({"agent": "acp", "colour": "red"}), "bad_request", "colour"),
        (json!({"agent": "acp", "mcp_servers": 7}), "bad_request", "mcp_servers"),
        (
            json!({"agent": "acp", "mcp_servers": {"db": {"command": "db", "colour": "red"}}}),
            "bad_request",
            "mcp_servers.db: colour",
        ),
        (
            json!({"agent": "acp", "tools": [{"name": "add", "colour": "red"}]}),
            "bad_request",
            "tools[0].colour",
        ),
    ] {
        assert_error(&api.post("/sessions", &body), 400, code, words);
    }
    let token = Some(api.token.as_str());
    let broken = api.server.request("POST", "/sessions", token, &[], b"{");
    assert_error(&broken, 400, "bad_json", "JSON");
    assert_eq!(api.get("/sessions").json()["count"], 0, "nothing is left of them");
}

fn turn_round_trip(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let answer = api.turn(&id, "[[say hello]]");
    assert_eq!(answer.status, 200, "{}", answer.text);
    let body = answer.json();
    assert_eq!(body["ok"], true);
    assert_eq!(body["session_id"], id.as_str());
    assert_eq!(body["stop_reason"], "end_turn");
    assert_eq!(body["turn_index"], 1);
    assert_eq!(body["text"], "hello");
    assert!(body["duration_ms"].is_u64());
    let events = body["events"].as_array().unwrap();
    assert_eq!(events.len(), 2, "{body}");
    assert_eq!(events[0]["method"], "session/update");
    assert_eq!(events[0]["params"]["update"]["content"]["text"], "hello");
    assert_eq!(events[1]["result"]["stopReason"], "end_turn");
    let session = api.describe(&id);
    assert_eq!(session["turn_count"], 1);
    assert!(session["last_turn_at"].is_string(), "{session}");
}

/// 404, never 403, and nothing of it happens.
fn session_isolation_404(backend: Backend) {
    let api = backend.api("");
    let other = api.home.app("other");
    let id = api.create(&json!({"agent": "acp", "permissions": "ask"}));
    assert_eq!(api.turn(&id, "hi").status, 200);
    let missing = "0".repeat(32);
    let prompt = json!({"prompt": "hi", "files": ["no-such-file"]});
    for (method, path, body) in [
        ("GET", "", &Value::Null),
        ("POST", "/turn", &prompt),
        ("GET", "/turns/1", &Value::Null),
        ("GET", "/events", &Value::Null),
        ("POST", "/cancel", &Value::Null),
        ("POST", "/permissions/1", &json!({"option": "yes"})),
        ("DELETE", "", &Value::Null),
    ] {
        let theirs = |id: &str| {
            let path = format!("/sessions/{id}{path}");
            api.call_as(&other, method, &path, &[], body)
        };
        let (foreign, none) = (theirs(&id), theirs(&missing));
        assert_error(&foreign, 404, "not_found", "");
        assert_eq!(foreign.json(), none.json(), "{method} {path}: as if it did not exist");
        assert_eq!(theirs("..%2f..%2fetc").status, 404, "{method} {path}");
    }
    let stream = api.with_token(&other).follow(&id, 0);
    assert_eq!(stream.status(), 404);
    assert_eq!(api.describe(&id)["state"], "idle", "nothing has happened to it");
    assert_eq!(api.describe(&id)["turn_count"], 1);
}

fn close_session_idempotent(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let first = api.close(&id);
    assert_eq!((first.status, first.json()), (200, json!({"ok": true})));
    let second = api.close(&id);
    assert_eq!((second.status, second.json()), (200, json!({"ok": true, "already_closed": true})));
    let session = api.describe(&id);
    assert_eq!(session["state"], "closed");
    assert!(session["closed_at"].is_string());
    assert_eq!(api.audit_kinds(&id), ["create", "close"]);
    api.wait_for_no_process();
}

fn turn_after_close_returns_410(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    assert_eq!(api.close(&id).status, 200);
    assert_error(&api.turn(&id, "hi"), 410, "session_closed", "closed");
    assert_eq!(api.turn_with(&id, &[STREAM], "hi").status, 410);
    assert_eq!(api.turn_with(&id, &[ASYNC], "hi").status, 410);
    let cancelled = api.cancel(&id);
    assert_eq!((cancelled.status, &cancelled.json()["ok"]), (200, &json!(true)));
    assert_eq!(api.describe(&id)["turn_count"], 0);
}

fn list_sessions_filters_by_app_name(backend: Backend) {
    let api = backend.api("");
    let other = api.home.app("other");
    let mine = [api.session(), api.session()];
    let theirs = api.create_as(&other, &json!({"agent": "acp"}));
    let list = |token: &str| {
        let answer = api.call_as(token, "GET", "/sessions", &[], &Value::Null);
        assert_eq!((answer.status, &answer.json()["ok"]), (200, &json!(true)));
        let body = answer.json();
        let sessions = body["sessions"].as_array().unwrap().clone();
        assert_eq!(body["count"], sessions.len());
        let name = |session: &Value| session["session_id"].as_str().unwrap().to_owned();
        sessions.iter().map(name).collect::<Vec<String>>()
    };
    assert_eq!(list(&api.token), mine);
    assert_eq!(list(&other), [theirs]);
    assert_eq!(api.close(&mine[0]).status, 200);
    assert_eq!(list(&api.token), mine, "closed ones stay until they are deleted");
}

fn ttl_sweep_closes_stale(backend: Backend) {
    let api = backend.api(&sessions("ttl_secs = 1\nsweep_interval_secs = 1"));
    let (idle, busy) = (api.session(), api.session());
    api.start_gated_turn(&busy);
    wait_until("the idle one is closed", || {
        (api.describe(&idle)["state"] == "closed").then_some(())
    });
    assert!(api.describe(&idle)["closed_at"].is_string());
    assert_eq!(api.audit_kinds(&idle), ["create", "sweep_close"]);
    assert_eq!(api.turn(&idle, "hi").status, 410);
    assert_eq!(api.describe(&busy)["state"], "running", "what works is not idle");
    api.open_gate(&busy);
    wait_until("then so is the other", || (api.describe(&busy)["state"] == "closed").then_some(()));
    assert_eq!(api.audit_kinds(&busy), ["create", "turn", "sweep_close"]);
    api.wait_for_no_process();
}

fn ttl_sweep_hard_deletes_old_closed(backend: Backend) {
    let api = backend.api(&sessions("hard_ttl_secs = 1\nsweep_interval_secs = 1"));
    let (id, open) = (api.session(), api.session());
    let folder = api.workspace(&id);
    assert_eq!(api.turn(&id, "hi").status, 200);
    assert_eq!(api.close(&id).status, 200);
    wait_until("it is deleted", || {
        (api.get(&format!("/sessions/{id}")).status == 404).then_some(())
    });
    assert_eq!(api.get(&format!("/sessions/{id}/events")).status, 404);
    assert_eq!(api.turn(&id, "hi").status, 404);
    wait_until("so is its folder", || (!folder.exists()).then_some(()));
    assert_eq!(api.get("/sessions").json()["count"], 1);
    assert_eq!(api.turn(&open, "hi").status, 200, "an open one is not touched");
}

fn pool_full_returns_503(backend: Backend) {
    let api = backend.api(&sessions("max_live = 2"));
    let ids = [api.session(), api.session()];
    let third = api.post("/sessions", &json!({"agent": "acp"}));
    assert_error(&third, 503, "pool_full", "2");
    assert!(third.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
    let run = api.post("/run", &json!({"prompt": "hi", "agent": "demo"}));
    assert_error(&run, 503, "pool_full", "2");
    assert_eq!(api.turn(&ids[0], "hi").status, 200, "open sessions continue");
    assert_eq!(api.close(&ids[0]).status, 200);
    api.session();
    assert_eq!(api.get("/sessions").json()["count"], 3);
}

/// The shape of `/run`, for an agent with a Claude driver and for any other.
fn run_endpoint_unchanged(backend: Backend) {
    let api = backend.api("");
    for agent in ["claude", "acp"] {
        let prompt = r#"Reply with JSON: [[say {"hello":"world"}]]"#;
        let answer = api.post("/run", &json!({"prompt": prompt, "agent": agent}));
        assert_eq!(answer.status, 200, "{agent}: {}", answer.text);
        let body = answer.json();
        assert_eq!(keys(&body), ["duration_ms", "ok", "result", "stop_reason"], "{agent}");
        assert_eq!(body["result"], json!({"hello": "world"}), "{agent}");
        assert_eq!((&body["ok"], &body["stop_reason"]), (&json!(true), &json!("end_turn")));
        assert!(body["duration_ms"].is_u64());
        let text = api.post("/run", &json!({"prompt": "just text", "agent": agent}));
        assert_eq!(text.json()["result"], "echo: just text", "{agent}");
    }
    assert_eq!(api.get("/sessions").json()["count"], 0, "a run is no session");
    assert_eq!(api.processes(), [0; 0]);
    let left = std::fs::read_dir(api.home.hob_home().join("workspaces")).unwrap().count();
    assert_eq!(left, 0);
}

fn run_endpoint_unchanged_error_shape(backend: Backend) {
    let api = backend.api("");
    let shape = ["code", "duration_ms", "error", "ok", "stderr", "stop_reason"];
    for agent in ["claude", "acp"] {
        let prompt = "[[stderr boom]] [[exit 1]]";
        let answer = api.post("/run", &json!({"prompt": prompt, "agent": agent}));
        assert_eq!(answer.status, 502, "{agent}: {}", answer.text);
        let body = answer.json();
        assert_eq!(keys(&body), shape, "{agent}");
        assert_eq!((&body["ok"], &body["code"]), (&json!(false), &json!("agent_failed")));
        assert!(body["stderr"].as_str().unwrap().contains("boom"), "{agent}: {body}");
        assert_eq!(body["stop_reason"], "error");
        let prompt = "[[error 529 Overloaded]]";
        let answer = api.post("/run", &json!({"prompt": prompt, "agent": agent}));
        assert_eq!((answer.status, keys(&answer.json()).as_slice()), (502, &shape[..]), "{agent}");
        assert!(answer.json()["error"].as_str().unwrap().contains("Overloaded"));
        let late = json!({"prompt": "[[hang]]", "agent": agent, "timeout_secs": 1});
        assert_error(&api.post("/run", &late), 504, "timeout", "");
        assert_eq!(api.processes(), [0; 0], "{agent}: gone before the answer is given");
    }
}
