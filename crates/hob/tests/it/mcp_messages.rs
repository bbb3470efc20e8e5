//! Messages that are no requests, or that are too long, over `hob mcp` and at `/mcp`.

use std::path::Path;

use hob_testkit::{TestHome, http};
use serde_json::{Value, json};

use crate::memory_setup::*;

/// The library answers such a request without its id, and the bridge answered it again when the server died.
#[test]
fn refused_requests_carry_their_id_and_are_answered_once() {
    let home = TestHome::new();
    let server = home.serve();
    // The leak check of servers finds processes by this variable.
    let mut command = home.command(&["mcp"]);
    command.env("HOME", "/");
    let mut bridge = Bridge::start(command);
    let ping = |id: Value| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    for (request, id) in [
        (json!({"jsonrpc": "2.0", "id": 77, "method": "ping", "params": "x"}), json!(77)),
        (json!({"jsonrpc": "1.0", "id": "a", "method": "ping"}), json!("a")),
        (json!({"jsonrpc": "2.0", "id": 78, "method": 5}), json!(78)),
        (json!({"jsonrpc": "2.0", "id": 79, "method": "ping", "params": {"_meta": 1}}), json!(79)),
        (ping(json!(1.5)), Value::Null),
        (ping(json!({})), Value::Null),
        (ping(Value::Null), Value::Null),
    ] {
        bridge.send(&request);
        let answer = bridge.next_message();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(-32600)), "{answer}");
    }
    // An integer may have a decimal point.
    bridge.send(&ping(json!(80.0)));
    assert_eq!(bridge.next_message()["id"], 80);
    server.kill();
    assert!(bridge.request("ping", json!({}))["result"].is_object());
    assert_eq!(bridge.finish(), [""; 0], "there is no second answer");
}

/// The versions of the protocol that begin with a handshake, on a live server.
#[test]
fn bridge_negotiates_every_version_with_a_handshake() {
    let home = TestHome::new();
    let _server = home.serve();
    let latest = "2025-11-25";
    for (asked, negotiated) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        (latest, latest),
        ("2031-01-01", latest),
    ] {
        let mut bridge = Bridge::silent(home.command(&["mcp"]));
        assert_eq!(bridge.initialize(asked), negotiated);
        let listed = bridge.request("tools/list", json!({}))["result"].clone();
        assert_eq!(listed["tools"].as_array().unwrap().len(), 6, "{asked}: {listed}");
        assert!(listed.get("resultType").is_none(), "a field of the later version: {listed}");
    }
}

/// The version without a handshake, on a live server and after its restart.
#[test]
fn bridge_answers_the_stateless_version() {
    let home = TestHome::new();
    let server = home.serve();
    // The leak check of servers finds processes by this variable.
    let mut command = home.command(&["mcp"]);
    command.env("HOME", "/");
    let mut bridge = Bridge::silent(command);
    let with_meta = |mut params: Value| {
        params["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {}});
        params
    };
    let ask = |bridge: &mut Bridge, method: &str, params: Value| {
        let result = bridge.request(method, with_meta(params))["result"].clone();
        assert_eq!(result["resultType"], "complete", "{method}: {result}");
        result
    };
    let found = ask(&mut bridge, "server/discover", json!({}));
    let versions = found["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")), "{found}");
    let listed = ask(&mut bridge, "tools/list", json!({}));
    assert_eq!(listed["tools"].as_array().unwrap().len(), 6, "{listed}");
    assert!(listed["ttlMs"].is_number() && listed["cacheScope"].is_string(), "{listed}");
    let note = json!({"name": "memory_capture", "arguments": {"text": "a heron on the pier"}});
    assert_eq!(ask(&mut bridge, "tools/call", note)["structuredContent"]["duplicate"], false);
    server.kill();
    let _server = home.serve();
    let recall = json!({"name": "memory_recall", "arguments": {"cue": "heron"}});
    let hits = ask(&mut bridge, "tools/call", recall)["structuredContent"]["hits"].clone();
    assert_eq!(hits[0]["text"], "a heron on the pier", "{hits}");
}

/// The server drops such a line, so the agent waited forever.
#[test]
fn requests_over_16_mib_are_refused() {
    let home = TestHome::new();
    let _server = home.serve();
    let mut bridge = Bridge::new(&home, Path::new("/"));
    let note = json!({"name": "memory_capture", "arguments": {"text": "x".repeat(17 << 20)}});
    let answer = bridge.request("tools/call", note);
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("16777216"), "{answer}");
    assert_eq!(bridge.call("memory_stats", json!({}))["turns"], 0);
}

/// The library takes a known method with wrong parameters for an unknown one.
#[test]
fn wrong_params_of_known_methods_are_invalid_params() {
    let home = TestHome::new();
    let token = home.app("tests");
    let server = home.serve();
    let mut bridge = Bridge::new(&home, Path::new("/"));
    let list = json!({"name": "memory_stats", "arguments": []});
    for (params, expect) in [
        (Value::Null, "params: missing"),
        (json!({"arguments": {}}), "name"),
        (list, "params.arguments"),
    ] {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let over_http = post(server.url(), &token, &body.to_string());
        assert_eq!(over_http.status, 200, "{}", over_http.text);
        for answer in [bridge.request("tools/call", params), over_http.json()] {
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains(expect), "{answer}");
        }
    }
    assert_eq!(bridge.request("tools/eat", json!({}))["error"]["code"], -32601);
}

/// The library calls them a wrong media type, in plain text.
#[test]
fn bodies_at_mcp_that_are_no_messages_are_json_rpc_errors() {
    let home = TestHome::new();
    let token = home.app("tests");
    let server = home.serve();
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for (body, code, id) in [
        (String::new(), -32700, Value::Null),
        ("{\"jsonrpc\":".to_owned(), -32700, Value::Null),
        (format!("[{ping}]"), -32600, Value::Null),
        (ping.replace("1,", "1.5,"), -32600, Value::Null),
        (ping.replace("2.0", "1.0"), -32600, json!(1)),
        (ping.replace('}', ",\"params\":\"x\"}"), -32600, json!(1)),
    ] {
        let reply = post(server.url(), &token, &body);
        assert_eq!(reply.status, 400, "{body}: {}", reply.text);
        let answer = reply.json();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(code)), "{body}");
        assert_eq!(answer["jsonrpc"], "2.0");
    }
    let reply = post(server.url(), &token, ping);
    assert_eq!((reply.status, &reply.json()["result"]), (200, &json!({})), "{}", reply.text);
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(post(server.url(), &token, initialized).status, 202);
}

fn post(url: &str, token: &str, body: &str) -> http::Answer {
    let headers =
        [("accept", "application/json, text/event-stream"), ("content-type", "application/json")];
    http::request("POST", &format!("{url}/mcp"), Some(token), &headers, body.as_bytes())
        .expect("the server answers")
}
