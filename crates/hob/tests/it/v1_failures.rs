//! What `/v1` refuses or cannot do, and what the SDKs make of it, on the scripted agent.

use hob_testkit::TestHome;
use hob_testkit::wire::{Wire, WireRequest};
use serde_json::{Value, json};

use crate::api::*;

/// The endpoints for completions, each with a request for this model.
fn completions(model: &str) -> [(&'static str, Value); 3] {
    let messages = json!([{"role": "user", "content": "hi"}]);
    [
        ("/v1/messages", json!({"model": model, "max_tokens": 9, "messages": messages})),
        ("/v1/chat/completions", json!({"model": model, "messages": messages})),
        ("/v1/responses", json!({"model": model, "input": "hi"})),
    ]
}

#[test]
fn models_of_other_agents_are_refused_by_every_endpoint() {
    let api = api("");
    for name in ["acp", "acp/gpt-5", "codex/gpt-5"] {
        for (path, body) in completions(name) {
            let answer = api.post(path, &body);
            assert_eq!(answer.status, 400, "{path} {name}: {}", answer.text);
            let agent = name.split('/').next().unwrap();
            assert!(
                answer.text.contains(agent) && answer.text.contains("sessions"),
                "{}",
                answer.text
            );
        }
    }
    assert!(api.processes().is_empty(), "no agent was asked");
    assert_eq!(api.post("/v1/messages", &completions("claude/")[0].1).status, 400);
    // An agent's model without the agent is the model itself, and so its conversation.
    let user = |text: &str| json!({"role": "user", "content": text});
    let ask = |model: &str, messages: &[Value]| {
        let body = json!({"model": model, "max_tokens": 9, "messages": messages});
        api.post("/v1/messages", &body)
    };
    let mut messages = vec![user("[[say one]]")];
    let first = ask("claude/opus", &messages);
    assert_eq!(first.status, 200, "{}", first.text);
    messages.extend([json!({"role": "assistant", "content": first.json()["content"]}), user("x")]);
    let second = ask("opus", &messages);
    assert_eq!(second.headers["x-hob-session"], "warm", "{}", second.text);
}

/// A client that reuses its connection would find it closed.
#[test]
fn connection_survives_an_answer_that_comes_before_the_body_is_read() {
    let api = api("");
    let mut wire = Wire::connect(api.server.address()).unwrap();
    // More than any buffer takes that lies between.
    let body = format!("{{\"x\": \"{}\"}}", "x".repeat(12 << 20));
    for (method, path, status) in [
        ("POST", "/v1/embeddings", 404),
        ("PUT", "/v1/messages", 405),
        ("POST", "/v1/models", 405),
        ("POST", "/v1/models/nobody", 405),
        ("POST", "/nowhere", 404),
        ("PUT", "/sessions", 405),
        ("POST", "/v1/responses/resp_none/cancel", 404),
        ("DELETE", "/sessions/none", 404),
    ] {
        let token = Some(api.token.as_str());
        let body = Some(body.clone());
        let request = WireRequest { method, path, token, body, ..WireRequest::default() };
        let answer = wire.call(&request);
        let answer = answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        assert_eq!(answer.status(), status, "{method} {path}: {}", answer.body);
    }
    let request = WireRequest {
        method: "GET",
        path: "/v1/models",
        token: Some(&api.token),
        ..WireRequest::default()
    };
    assert_eq!(wire.call(&request).unwrap().status(), 200);
}

/// The SDKs repeat a request with a status from 500 on twice, unless this header says that it makes no sense.
#[test]
fn failure_that_a_repetition_repeats_says_so_to_the_sdks() {
    let retry = |answer: &hob_testkit::server::Answer| {
        answer.headers.get("x-should-retry").map(|value| value.to_str().unwrap().to_owned())
    };
    let no = Some("false".to_owned());
    for driver in ["claude-tui", "claude-stream"] {
        let api = api(&format!("[apps.tests]\ndriver = \"{driver}\"\n"));
        let messages = |text: &str| json!([{"role": "user", "content": text}]);
        let form = json!({"type": "json_schema", "schema": {"type": "object", "required": ["n"]}});
        let tools = json!([{"name": "add", "input_schema": {}}]);
        let answer = api.post(
            "/v1/messages",
            &json!({"messages": messages("[[say no]]"),
            "output_config": {"format": form}}),
        );
        assert_eq!((answer.status, retry(&answer)), (500, no.clone()), "{}", answer.text);
        let answer = api.post(
            "/v1/messages",
            &json!({"messages": messages("[[say no]]"),
            "tools": tools, "tool_choice": {"type": "any"}}),
        );
        assert_eq!((answer.status, retry(&answer)), (500, no.clone()), "{}", answer.text);
        // The model's API may answer next time.
        for text in ["[[error 529 overloaded]]", "[[error 500 broken]]", "[[crash]]"] {
            let answer = api.post("/v1/messages", &json!({"messages": messages(text)}));
            assert!(answer.status >= 500, "{text}: {}", answer.text);
            assert_eq!(retry(&answer), None, "{text}: {}", answer.text);
        }
    }
    let home = TestHome::new();
    home.configure(
        "[agents.claude]\ndriver = \"claude-stream\"\ncommand = [\"/nowhere/claude\"]\n",
    );
    let token = home.app("tests");
    let server = home.serve();
    let client = server.client(&token);
    for (path, body) in completions("claude") {
        let answer = client.post(path, &body);
        assert_eq!((answer.status, retry(&answer)), (500, no.clone()), "{path}: {}", answer.text);
    }
}
