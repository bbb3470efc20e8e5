//! Limits and budgets of apps and sessions.

use serde_json::{Value, json};

use crate::api::*;
use crate::backend::{Backend, backend_tests};
use crate::v1_anthropic::{Anthropic, all_tools};

backend_tests!([file, cluster]: [
    app_sessions_limits_open_sessions,
    app_sessions_holds_for_concurrent_creates,
    app_turns_per_minute_limits_turns,
    idempotency_key_does_not_bypass_the_turn_rate,
    session_tokens_limits_a_session,
    idempotency_key_does_not_bypass_a_budget,
    app_tokens_per_day_limits_an_app,
    limits_hold_in_the_vendors_session_apis,
    sessions_are_listed_in_pages,
]);

fn limits(line: &str) -> String {
    format!("[limits]\n{line}\n")
}

fn retry_after(answer: &hob_testkit::server::Answer) -> u64 {
    answer.headers["retry-after"].to_str().unwrap().parse().unwrap()
}

fn app_sessions_limits_open_sessions(backend: Backend) {
    let api = backend.api(&limits("app_sessions = 2"));
    let other = api.home.app("other");
    let ids = [api.session(), api.session()];
    let third = api.post("/sessions", &json!({"agent": "acp"}));
    assert_error(&third, 429, "app_sessions", "2");
    assert!(retry_after(&third) >= 1);
    api.create_as(&other, &json!({"agent": "acp"}));
    assert_eq!(api.close(&ids[0]).status, 200);
    api.session();
}

/// However many ask at once.
fn app_sessions_holds_for_concurrent_creates(backend: Backend) {
    let api = backend.api(&limits("app_sessions = 1"));
    let body = json!({"agent": "acp"});
    let made = std::thread::scope(|scope| {
        let asks: Vec<_> =
            (0..6).map(|_| scope.spawn(|| api.post("/sessions", &body).status)).collect();
        asks.into_iter().map(|ask| ask.join().unwrap()).collect::<Vec<u16>>()
    });
    assert_eq!(made.iter().filter(|status| **status == 200).count(), 1, "{made:?}");
}

fn app_turns_per_minute_limits_turns(backend: Backend) {
    let api = backend.api(&limits("app_turns_per_minute = 2"));
    let other = api.home.app("other");
    let ids = [api.session(), api.session()];
    assert_eq!(api.turn(&ids[0], "hi").status, 200);
    assert_eq!(api.turn(&ids[1], "hi").status, 200);
    for id in &ids {
        let third = api.turn(id, "hi");
        assert_error(&third, 429, "app_pace", "2");
        assert!((1..=60).contains(&retry_after(&third)));
    }
    assert_eq!(api.describe(&ids[0])["turn_count"], 1);
    let theirs = api.create_as(&other, &json!({"agent": "acp"}));
    let path = format!("/sessions/{theirs}/turn");
    assert_eq!(api.call_as(&other, "POST", &path, &[], &json!({"prompt": "hi"})).status, 200);
}

/// An idempotency key does not bypass the limits; a repeat costs nothing.
fn idempotency_key_does_not_bypass_the_turn_rate(backend: Backend) {
    let api = backend.api(&limits("app_turns_per_minute = 2"));
    let id = api.session();
    let key = |n: &'static str| [("idempotency-key", n)];
    assert_eq!(api.turn_with(&id, &key("1"), "hi").status, 200);
    for _ in 0..3 {
        assert_eq!(api.turn_with(&id, &key("1"), "hi").json()["turn_index"], 1);
    }
    assert_eq!(api.turn_with(&id, &key("2"), "hi").status, 200);
    assert_error(&api.turn_with(&id, &key("3"), "hi"), 429, "app_pace", "2");
    assert_eq!(api.turn_with(&id, &key("1"), "hi").status, 200, "a repeat is no turn");
}

fn session_tokens_limits_a_session(backend: Backend) {
    let api = backend.api(&limits("session_tokens = 20"));
    let id = api.session();
    assert_eq!(api.turn(&id, "hi").status, 200, "15 tokens");
    assert_eq!(api.turn(&id, "hi").status, 200, "30 tokens: it is looked at before a turn");
    let over = api.turn(&id, "hi");
    assert_error(&over, 429, "session_budget", "session_tokens");
    assert!(retry_after(&over) >= 1);
    assert_eq!(api.turn(&api.session(), "hi").status, 200, "another one has its own");
    let api = api.restart_after(|server| server.kill());
    assert_eq!(api.turn(&id, "hi").status, 429, "the budget survives a restart");
}

fn idempotency_key_does_not_bypass_a_budget(backend: Backend) {
    let api = backend.api(&limits("session_tokens = 15"));
    let id = api.session();
    assert_eq!(api.turn_with(&id, &[("idempotency-key", "1")], "hi").status, 200);
    let over = api.turn_with(&id, &[("idempotency-key", "2")], "hi");
    assert_error(&over, 429, "session_budget", "session_tokens");
    assert_eq!(api.turn_with(&id, &[("idempotency-key", "1")], "hi").status, 200);
}

fn app_tokens_per_day_limits_an_app(backend: Backend) {
    let api = backend.api(&limits("app_tokens_per_day = 15"));
    let other = api.home.app("other");
    assert_eq!(api.turn(&api.session(), "hi").status, 200);
    let over = api.turn(&api.session(), "hi");
    assert_error(&over, 429, "app_budget", "app_tokens_per_day");
    assert!((1..=86_400).contains(&retry_after(&over)));
    let theirs = api.create_as(&other, &json!({"agent": "acp"}));
    let path = format!("/sessions/{theirs}/turn");
    assert_eq!(api.call_as(&other, "POST", &path, &[], &json!({"prompt": "hi"})).status, 200);
    assert_eq!(api.call_as(&other, "GET", "/sessions", &[], &Value::Null).json()["count"], 1);
}

/// A session counts once, whichever API creates it, and so do its turns.
fn limits_hold_in_the_vendors_session_apis(backend: Backend) {
    let api = backend.api(&limits("app_sessions = 2\napp_turns_per_minute = 2"));
    let anthropic = Anthropic(&api);
    let one = anthropic.session("acp", &all_tools("always_allow"));
    let hello = json!({"type": "user.message", "content": [{"type": "text", "text": "hi"}]});
    anthropic.send(&one, hello.clone());
    let opened = json!({"agent": {"model": "acp"}, "environment": {"type": "none"}});
    let two = api.post("/v1/agents/sessions", &opened);
    assert_eq!(two.status, 200, "{}", two.text);
    let two = two.json()["id"].as_str().unwrap().to_owned();
    let input = json!([{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]);
    let message = json!({"events": [{"type": "agent.session.input.message", "input": input}]});
    let of_openai = format!("/v1/agents/sessions/{two}/events");
    assert_eq!(api.post(&of_openai, &message).status, 204);
    // The third session and the third turn are refused in each vendor's words.
    let of_anthropic = format!("/v1/sessions/{one}/events");
    let session = anthropic.get(&format!("/v1/sessions/{one}"));
    let third =
        json!({"agent": session["agent"]["id"], "environment_id": session["environment_id"]});
    for (path, body, word) in [
        ("/v1/sessions", third, "sessions"),
        (of_anthropic.as_str(), json!({"events": [hello]}), "turns"),
    ] {
        let refused = anthropic.call("POST", path, Some(&body));
        assert_eq!(refused.status, 429, "{path}: {}", refused.text);
        let error = refused.json()["error"].clone();
        assert_eq!(error["type"], "rate_limit_error", "{path}: {error}");
        assert!(error["message"].as_str().unwrap().contains(word), "{path}: {error}");
        assert!(retry_after(&refused) >= 1);
    }
    for (path, body, word) in
        [("/v1/agents/sessions", opened, "sessions"), (of_openai.as_str(), message, "turns")]
    {
        let refused = api.post(path, &body);
        assert_eq!(refused.status, 429, "{path}: {}", refused.text);
        let error = refused.json()["error"].clone();
        assert_eq!(error["code"], "rate_limit_exceeded", "{path}: {error}");
        assert!(error["message"].as_str().unwrap().contains(word), "{path}: {error}");
        assert!(retry_after(&refused) >= 1);
    }
    assert_eq!(api.get("/sessions").json()["count"], 2);
}

/// Without `limit` all sessions are listed; with it, `next` leads from page to page.
fn sessions_are_listed_in_pages(backend: Backend) {
    let api = backend.api("");
    let ids: Vec<String> = (0..5).map(|_| api.session()).collect();
    assert_eq!(api.close(&ids[1]).status, 200);
    let list = |query: &str| {
        let answer = api.get(&format!("/sessions{query}"));
        assert_eq!(answer.status, 200, "{}", answer.text);
        let answer = answer.json();
        let sessions = answer["sessions"].as_array().unwrap().clone();
        assert_eq!((&answer["ok"], &answer["count"]), (&json!(true), &json!(sessions.len())));
        let found: Vec<String> =
            sessions.iter().map(|one| one["session_id"].as_str().unwrap().to_owned()).collect();
        (found, answer["next"].as_str().map(str::to_owned))
    };
    assert_eq!(list(""), (ids.clone(), None));
    assert_eq!(list("?limit=5"), (ids.clone(), None), "there is no further page");
    assert_eq!(list("?limit=2"), (ids[..2].to_vec(), Some(ids[1].clone())));
    let second = format!("?limit=2&after={}", ids[1]);
    assert_eq!(list(&second), (ids[2..4].to_vec(), Some(ids[3].clone())));
    assert_eq!(list(&format!("?after={}", ids[3])), (ids[4..].to_vec(), None));
    for (query, named) in [
        ("limit=0", "limit"),
        ("limit=x", "limit"),
        ("after=no-session", "after"),
        ("size=2", "size"),
    ] {
        let answer = api.get(&format!("/sessions?{query}"));
        assert_error(&answer, 400, "bad_request", named);
    }
}
