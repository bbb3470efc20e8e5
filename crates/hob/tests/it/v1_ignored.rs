//! What `/v1` requests may contain beside a plain conversation, on the scripted agent: fields without effect, fields that
//! are refused, and messages with the role `system`.

use serde_json::json;

use crate::api::*;

const IMAGE: &str = "data:image/png;base64,aGVsbG8=";

#[test]
fn fields_without_effect_are_named_in_a_header() {
    let api = api("");
    let messages = json!([{"role": "user", "content": "hi"}]);
    for (path, body, expect) in [
        ("/v1/messages", json!({"messages": messages}), ""),
        (
            "/v1/messages",
            json!({"messages": messages, "max_tokens": 10, "temperature": 0.5,
            "top_k": null, "metadata": {"user_id": "me"}, "output_config": {"effort": "low"}}),
            "temperature, metadata, max_tokens, output_config.effort",
        ),
        (
            "/v1/messages",
            json!({"messages": messages, "stop_sequences": ["x"], "stream": true}),
            "stop_sequences",
        ),
        ("/v1/chat/completions", json!({"messages": messages, "stream": false, "n": 1}), ""),
        (
            "/v1/chat/completions",
            json!({"messages": messages, "top_p": 1, "seed": 3, "user": "me",
            "stream": true, "stream_options": {"include_usage": true, "include_obfuscation": false}}),
            "top_p, seed, user, stream_options.include_obfuscation",
        ),
        ("/v1/chat/completions", json!({"messages": messages, "modalities": ["text"]}), ""),
        ("/v1/responses", json!({"input": "hi", "metadata": {"k": "v"}}), ""),
        (
            "/v1/responses",
            json!({"input": "hi", "temperature": 0, "text": {"verbosity": "low"}}),
            "temperature, text.verbosity",
        ),
        ("/v1/responses", json!({"input": "hi", "seed": 1, "background": true}), "seed"),
        (
            "/v1/messages",
            json!({"messages": messages, "tools": [{"name": "f", "input_schema": {}, "strict": true}]}),
            "tools.strict",
        ),
        (
            "/v1/chat/completions",
            json!({"messages": messages,
                "tools": [{"type": "function", "function": {"name": "f", "strict": true}}]}),
            "tools.strict",
        ),
        (
            "/v1/responses",
            json!({"input": "hi", "tools": [{"type": "function", "name": "f", "strict": true},
                {"type": "function", "name": "g", "strict": false}]}),
            "tools.strict",
        ),
        (
            "/v1/messages",
            json!({"messages": messages, "tools": [
                {"name": "f", "input_schema": {}, "allowed_callers": ["direct"], "strict": false,
                    "cache_control": {"type": "ephemeral"}},
                {"name": "g", "input_schema": {}, "allowed_callers": ["code_execution_20260120"],
                    "defer_loading": true, "input_examples": [{}], "eager_input_streaming": true},
                {"name": "h", "input_schema": {}, "defer_loading": true}]}),
            "tools.allowed_callers, tools.defer_loading, tools.input_examples, tools.eager_input_streaming",
        ),
        (
            "/v1/messages",
            json!({"messages": [{"role": "user", "content": [{"type": "document", "title": "T",
                "context": "C", "citations": {"enabled": true}, "source": {"type": "text", "data": "d"}}]}]}),
            "messages.citations",
        ),
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "name": "me", "content": [
                {"type": "image_url", "image_url": {"url": IMAGE, "detail": "high"}}]}]}),
            "messages.name, messages.detail",
        ),
        (
            "/v1/responses",
            json!({"input": [{"role": "user", "content": [
                {"type": "input_image", "image_url": IMAGE, "detail": "auto"},
                {"type": "input_image", "image_url": IMAGE, "detail": "low"}]}]}),
            "input.detail",
        ),
    ] {
        let answer = api.post(path, &body);
        assert_eq!(answer.status, 200, "{body}: {}", answer.text);
        let header = answer.headers.get("x-hob-ignored");
        assert_eq!(header.map_or("", |value| value.to_str().unwrap()), expect, "{path} {body}");
    }
    for (path, name, value) in [
        ("/v1/messages", "mcp_servers", json!([{"type": "url", "url": "http://x", "name": "x"}])),
        ("/v1/messages", "container", json!("x")),
        ("/v1/chat/completions", "audio", json!({"voice": "x"})),
        ("/v1/chat/completions", "web_search_options", json!({})),
        ("/v1/chat/completions", "modalities", json!(["audio"])),
        ("/v1/chat/completions", "modalities", json!(["text", "audio"])),
    ] {
        let mut body = json!({"messages": messages});
        body[name] = value;
        let answer = api.post(path, &body);
        assert_eq!(answer.status, 400, "{body}: {}", answer.text);
        assert!(answer.text.contains(name), "{}", answer.text);
    }
}

/// Claude Code as a client sends messages of this role between the others.
#[test]
fn system_messages_between_the_others_reach_the_agent() {
    let api = api("");
    let mut messages =
        json!([{"role": "user", "content": "hi"}, {"role": "system", "content": "be brief"}]);
    let first = api.post("/v1/messages", &json!({"messages": messages}));
    assert_eq!(first.status, 200, "{}", first.text);
    let text = first.json()["content"][0]["text"].as_str().unwrap().to_owned();
    let expected = "echo: hi\n<system-reminder>\nbe brief\n</system-reminder>";
    assert_eq!(text.replace("\n\n", "\n"), expected);
    let more = [
        json!({"role": "assistant", "content": text}),
        json!({"role": "system", "content": [{"type": "text", "text": "be kind"}]}),
        json!({"role": "user", "content": "again"}),
    ];
    messages.as_array_mut().unwrap().extend(more);
    let second = api.post("/v1/messages", &json!({"messages": messages}));
    assert_eq!(second.headers["x-hob-session"], "warm", "{}", second.text);
    assert!(second.text.contains("be kind") && second.text.contains("again"), "{}", second.text);
    let counted = api.post("/v1/messages/count_tokens", &json!({"messages": messages}));
    assert_eq!(counted.status, 200, "{}", counted.text);
    let wrong = json!({"messages": [{"role": "clown", "content": "hi"}]});
    assert_eq!(api.post("/v1/messages", &wrong).status, 400);
}

/// Parts of the vendors' APIs that Hob does not serve are 404 in the vendor's shape, and the error names them.
#[test]
fn unsupported_parts_of_the_vendors_are_named() {
    let api = api("");
    let anthropic = ("anthropic-version", "2023-06-01");
    for (headers, method, path, part) in [
        (vec![], "GET", "/v1/agents/environments", "environments outside of a session"),
        (vec![], "POST", "/v1/agents/environments/x/files", "environments outside of a session"),
        (vec![], "POST", "/v1/agents/automations", "automations"),
        (vec![], "GET", "/v1/agents/sessions/x/subagents", "subagents"),
        (vec![], "GET", "/v1/vaults", "vaults"),
        (vec![], "POST", "/v1/embeddings", "embeddings"),
        (vec![], "POST", "/v1/fine_tuning/jobs", "fine tuning"),
        (vec![], "POST", "/v1/responses/compact", "compaction of responses"),
        (vec![anthropic], "GET", "/v1/skills", "skills"),
        (vec![anthropic], "GET", "/v1/sessions/x/threads", "threads"),
        (vec![anthropic], "POST", "/v1/dreams", "dreams"),
        (vec![anthropic], "POST", "/v1/messages/elsewhere", "no such path"),
    ] {
        let answer = api.call(method, path, &headers, &json!({}));
        assert_eq!(answer.status, 404, "{path}: {}", answer.text);
        let error = &answer.json()["error"];
        assert!(error["message"].as_str().unwrap().contains(part), "{path}: {error}");
        let kind = if headers.is_empty() { "invalid_request_error" } else { "not_found_error" };
        assert_eq!(error["type"], kind, "{path}");
    }
    let upgrade = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let refused = api.call("GET", "/v1/responses", &upgrade, &json!(null));
    assert_eq!(refused.status, 404, "{}", refused.text);
    let error = &refused.json()["error"];
    assert!(error["message"].as_str().unwrap().contains("WebSocket"), "{error}");
    assert_eq!(api.call("GET", "/v1/responses", &[], &json!(null)).status, 405);
}
