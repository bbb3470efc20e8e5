//! Fields of `/v1` requests that have no effect, and those that are refused, on the scripted agent.

use serde_json::json;

use crate::api::*;

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
    ] {
        let mut body = json!({"messages": messages});
        body[name] = value;
        let answer = api.post(path, &body);
        assert_eq!(answer.status, 400, "{body}: {}", answer.text);
        assert!(answer.text.contains(name), "{}", answer.text);
    }
}
