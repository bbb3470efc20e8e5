//! Editors at `/acp`, over WebSocket and streamable HTTP.

use hob_testkit::wait_until;
use hob_testkit::web_socket::SocketMessage;
use hob_testkit::{TestHome, WebSocket};
use serde_json::{Value, json};

use crate::acp::permission_with_a_diff;
use crate::api::*;

/// An editor with a WebSocket.
struct Editor {
    socket: WebSocket,
    next_id: u64,
}

impl Editor {
    fn connect(api: &Api, query: &str) -> Editor {
        let token = format!("Bearer {}", api.token);
        let headers = [("authorization", token.as_str())];
        let socket = WebSocket::open(api.address(), &format!("/acp{query}"), &headers).unwrap();
        Editor { socket, next_id: 0 }
    }

    fn next(&mut self) -> Value {
        match self.socket.next() {
            SocketMessage::Json(message) => message,
            other => panic!("a message: {other:?}"),
        }
    }

    fn start(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.socket.send_json(&message);
        id
    }

    /// Reads messages up to the answer to a request, allows what is asked, and returns the others and the answer.
    fn finish(&mut self, id: u64) -> (Vec<Value>, Value) {
        let mut others = Vec::new();
        loop {
            let message = self.next();
            if message["method"] == "session/request_permission" {
                let option = &message["params"]["options"][1]["optionId"];
                let outcome = json!({"outcome": {"outcome": "selected", "optionId": option}});
                self.socket
                    .send_json(&json!({"jsonrpc": "2.0", "id": message["id"], "result": outcome}));
            } else if message["method"] == "elicitation/create" {
                let filled = json!({"action": "accept", "content": {"port": 1}});
                self.socket
                    .send_json(&json!({"jsonrpc": "2.0", "id": message["id"], "result": filled}));
            } else if message["id"] == id && message["method"].is_null() {
                return (others, message);
            }
            others.push(message);
        }
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.start(method, params);
        let (_, answer) = self.finish(id);
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    fn prompt(&mut self, session: &Value, text: &str) -> (Vec<Value>, Value) {
        let prompt = json!([{"type": "text", "text": text}]);
        let id = self.start("session/prompt", json!({"sessionId": session, "prompt": prompt}));
        self.finish(id)
    }
}

/// Returns the text of the agent's chunks.
fn said(messages: &[Value]) -> String {
    let updates = messages.iter().map(|message| &message["params"]["update"]);
    let chunks = updates.filter(|update| update["sessionUpdate"] == "agent_message_chunk");
    chunks.filter_map(|chunk| chunk["content"]["text"].as_str()).collect()
}

#[test]
fn editor_works_over_a_web_socket() {
    let api = api("");
    let mut editor = Editor::connect(&api, "?agent=acp");
    let capabilities = json!({"elicitation": {"form": {}}});
    let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
    let ready = editor.call("initialize", params);
    assert_eq!(
        (&ready["protocolVersion"], &ready["agentInfo"]["name"]),
        (&json!(1), &json!("hob"))
    );
    // The editor's folder is not one of this machine, so the session has its own.
    let made = editor.call("session/new", json!({"cwd": "/home/elsewhere", "mcpServers": []}));
    let session = &made["sessionId"];
    assert!(made["_meta"]["cwd"].as_str().unwrap().contains("workspaces"), "{made}");
    let (messages, answer) = editor.prompt(session, "[[say one]] [[permission touch x]]");
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert!(said(&messages).starts_with("onepermission touch x: yes"), "{}", said(&messages));
    assert!(messages.iter().all(|message| message["params"]["sessionId"] == *session));
    // The agent has the memory of the app.
    let file = std::fs::read_dir(api.conversations()).unwrap().next().unwrap().unwrap().path();
    let record = std::fs::read_to_string(file).unwrap();
    let record: Value = serde_json::from_str(record.lines().next().unwrap()).unwrap();
    let server = &record["mcpServers"][0];
    assert_eq!((&server["name"], &server["args"]), (&json!("hob"), &json!(["mcp"])), "{record}");
    let form = r#"[[request elicitation/create {"mode":"form","message":"Which port?","requestedSchema":{"type":"object","properties":{"port":{"type":"integer"}}}}]]"#;
    let (messages, _) = editor.prompt(session, form);
    assert_eq!(said(&messages), r#"{"action":"accept","content":{"port":1}}"#);
    // The session is one of the app's sessions.
    assert_eq!(api.ask(session.as_str().unwrap(), "two"), "echo: two");
    let listed = editor.call("session/list", json!({}));
    assert_eq!(&listed["sessions"][0]["sessionId"], session, "{listed}");
    for (method, params, code) in [
        ("session/dance", json!({}), -32601),
        ("session/load", json!({"sessionId": "x"}), -32002),
        ("session/prompt", json!({"sessionId": session, "prompt": []}), -32602),
    ] {
        let id = editor.start(method, params);
        assert_eq!(editor.finish(id).1["error"]["code"], code, "{method}");
    }
    // Another app does not see the session.
    let other = api.home.app("other");
    let headers = format!("Bearer {other}");
    let socket = WebSocket::open(api.address(), "/acp", &[("authorization", &headers)]).unwrap();
    let mut stranger = Editor { socket, next_id: 0 };
    let id = stranger.start("session/load", json!({"sessionId": session}));
    assert_eq!(stranger.finish(id).1["error"]["code"], -32002);
    let refused = WebSocket::open(api.address(), "/acp", &[]);
    assert_eq!(refused.err(), Some(401));
}

#[test]
fn editor_that_comes_back_loses_nothing() {
    let api = api("");
    let mut editor = Editor::connect(&api, "?agent=acp");
    let session = editor.call("session/new", json!({"cwd": "/"}))["sessionId"].clone();
    editor.prompt(&session, "[[say one]]");
    let prompt = json!([{"type": "text", "text": "[[say two]] [[until gate]] [[say three]]"}]);
    editor.start("session/prompt", json!({"sessionId": session, "prompt": prompt}));
    assert_eq!(said(&[editor.next()]), "two");
    drop(editor);
    let mut again = Editor::connect(&api, "?agent=acp");
    let id = again.start("session/load", json!({"sessionId": session}));
    let (past, _) = again.finish(id);
    assert_eq!(said(&past), "onetwo");
    let prompts = past
        .iter()
        .filter(|message| message["params"]["update"]["sessionUpdate"] == "user_message_chunk");
    assert_eq!(prompts.count(), 2);
    // The turn went on, and the rest of it arrives here.
    std::fs::write(api.workspace(session.as_str().unwrap()).join("gate"), "").unwrap();
    assert_eq!(said(&[again.next()]), "three");
    // A question that waits is asked again.
    let id = session.as_str().unwrap().to_owned();
    wait_until("the turn is over", || (api.describe(&id)["state"] == "idle").then_some(()));
    let prompt = json!([{"type": "text", "text": "[[permission touch it]]"}]);
    again.start("session/prompt", json!({"sessionId": session, "prompt": prompt}));
    while again.next()["method"] != "session/request_permission" {}
    drop(again);
    let mut again = Editor::connect(&api, "?agent=acp");
    again.call("session/resume", json!({"sessionId": session}));
    let (messages, _) = again.prompt(&session, "[[say four]]");
    let heard = said(&messages);
    assert!(heard.contains("it: yes") && heard.ends_with("four"), "{heard}");
    // A session outlives the server.
    wait_until("the turn is over", || (api.describe(&id)["state"] == "idle").then_some(()));
    let api = api.restart_after(|server| server.kill());
    let mut third = Editor::connect(&api, "");
    let id = third.start("session/load", json!({"sessionId": session}));
    let past = said(&third.finish(id).0);
    assert!(past.starts_with("onetwothree") && past.ends_with("four"), "{past}");
    let (messages, _) = third.prompt(&session, "[[say {history}]]");
    assert!(said(&messages).contains("three"), "{}", said(&messages));
}

#[test]
fn editor_changes_modes_over_a_web_socket() {
    let agent = TestHome::scripted_agent("moded", "acp", &["acp", "--settings"]);
    let api = api(&format!("{agent}\n"));
    let mut editor = Editor::connect(&api, "?agent=moded");
    let made = editor.call("session/new", json!({"cwd": "/"}));
    let session = &made["sessionId"];
    assert_eq!(made["modes"]["currentModeId"], "ask", "{made}");
    assert_eq!(made["configOptions"][0]["currentValue"], "small", "{made}");
    let named = editor.next();
    let update = &named["params"]["update"];
    assert_eq!(update["availableCommands"][0]["name"], "review", "{named}");
    editor.call("session/set_mode", json!({"sessionId": session, "modeId": "code"}));
    let option = json!({"sessionId": session, "configId": "model", "value": "large"});
    let changed = editor.call("session/set_config_option", option);
    assert_eq!(changed["configOptions"][0]["currentValue"], "large", "{changed}");
    let (messages, _) = editor.prompt(session, "[[say {mode} {model}]]");
    assert_eq!(said(&messages), "code large");
    // A change over HTTP reaches the editor between turns.
    let path = format!("/sessions/{}/settings", session.as_str().unwrap());
    assert_eq!(api.post(&path, &json!({"mode": "ask"})).status, 200);
    while editor.next()["params"]["update"]["currentModeId"] != "ask" {}
    for (params, code) in [
        (json!({"sessionId": session, "modeId": "dance"}), -32602),
        (json!({"sessionId": session}), -32602),
        (json!({"sessionId": "x", "modeId": "code"}), -32002),
    ] {
        let id = editor.start("session/set_mode", params);
        assert_eq!(editor.finish(id).1["error"]["code"], code);
    }
    let api = api.restart_after(|server| server.kill());
    let mut editor = Editor::connect(&api, "");
    let loaded = editor.call("session/load", json!({"sessionId": session}));
    assert_eq!(loaded["modes"]["currentModeId"], "ask", "{loaded}");
    assert_eq!(loaded["configOptions"][0]["currentValue"], "large", "{loaded}");
}

#[test]
fn editor_works_over_streamable_http() {
    let api = api("");
    let send = |headers: &[(&str, &str)], message: Value| {
        api.call("POST", "/acp?agent=acp", headers, &message)
    };
    let request = |id: u64, method: &str, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let opened = send(&[], request(1, "initialize", json!({"protocolVersion": 1})));
    assert_eq!((opened.status, &opened.json()["result"]["protocolVersion"]), (200, &json!(1)));
    let connection = opened.headers["acp-connection-id"].to_str().unwrap().to_owned();
    let own = [("acp-connection-id", connection.as_str())];
    // What is sent before the stream is open waits for it.
    let made = send(&own, request(2, "session/new", json!({"cwd": "/"})));
    assert_eq!((made.status, made.text.as_str()), (202, ""));
    let headers = [own[0], STREAM];
    let mut stream = api.stream("GET", "/acp", &headers, &Value::Null);
    assert_eq!(stream.status(), 200);
    let answer = stream.until(|event| event.json()["id"] == 2).pop().unwrap().json();
    let session = answer["result"]["sessionId"].as_str().unwrap().to_owned();
    // A second stream shows this session alone.
    let headers = [own[0], STREAM, ("acp-session-id", session.as_str())];
    let mut of_session = api.stream("GET", "/acp", &headers, &Value::Null);
    assert_eq!(of_session.status(), 200);
    let prompt = json!([{"type": "text", "text": "[[permission touch x]]"}]);
    send(&own, request(3, "session/prompt", json!({"sessionId": session, "prompt": prompt})));
    let asked = of_session.until(|event| event.json()["method"] == "session/request_permission");
    let asked = asked.last().unwrap().json();
    let outcome = json!({"outcome": {"outcome": "selected", "optionId": "no"}});
    send(&own, json!({"jsonrpc": "2.0", "id": asked["id"], "result": outcome}));
    let events = of_session.until(|event| event.json()["id"] == 3);
    let messages: Vec<Value> = events.iter().map(StreamEvent::json).collect();
    assert!(said(&messages).starts_with("permission touch x: no"), "{messages:?}");
    assert_eq!(messages.last().unwrap()["result"]["stopReason"], "end_turn");
    // The client is asked about the agent's own tool call, with the change that it makes.
    let (words, call, options) = permission_with_a_diff();
    let prompt = json!([{"type": "text", "text": words}]);
    send(&own, request(5, "session/prompt", json!({"sessionId": session, "prompt": prompt})));
    let asked = of_session.until(|event| event.json()["method"] == "session/request_permission");
    let asked = asked.last().unwrap().json();
    let expect = json!({"sessionId": session, "toolCall": call, "options": options});
    assert_eq!(asked["params"], expect);
    let outcome = json!({"outcome": {"outcome": "selected", "optionId": "n"}});
    send(&own, json!({"jsonrpc": "2.0", "id": asked["id"], "result": outcome}));
    let events = of_session.until(|event| event.json()["id"] == 5);
    let messages: Vec<Value> = events.iter().map(StreamEvent::json).collect();
    assert!(said(&messages).contains(r#""optionId":"n""#), "{messages:?}");
    // Another app does not see the connection, and nobody does after its end.
    let other = api.home.app("other");
    let ping = request(4, "session/list", json!({}));
    assert_eq!(api.call_as(&other, "POST", "/acp", &own, &ping).status, 404);
    assert_error(&send(&[], ping.clone()), 400, "bad_request", "Acp-Connection-Id");
    assert_eq!(api.call("DELETE", "/acp", &own, &Value::Null).status, 202);
    assert_eq!(send(&own, ping).status, 404);
    assert_eq!(api.call("GET", "/acp", &[STREAM], &Value::Null).status, 400);
}

/// What the server had sent into a stream that broke is sent again.
#[test]
fn broken_stream_of_an_editor_is_resumed() {
    let api = api("");
    let request = |id: u64, method: &str, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let opened = api.post("/acp?agent=acp", &request(1, "initialize", json!({})));
    let connection = opened.headers["acp-connection-id"].to_str().unwrap().to_owned();
    let own = ("acp-connection-id", connection.as_str());
    let send = |message: &Value| {
        let sent = api.call("POST", "/acp", &[own], message);
        assert_eq!(sent.status, 202, "{}", sent.text);
    };
    let mut stream = api.stream("GET", "/acp", &[own, STREAM], &Value::Null);
    send(&request(2, "session/new", json!({"cwd": "/"})));
    let made = stream.until(|event| event.json()["id"] == 2).pop().unwrap();
    let session = made.json()["result"]["sessionId"].as_str().unwrap().to_owned();
    // The turn runs to its end while the client reads nothing.
    let prompt = json!([{"type": "text", "text": "[[say one]] [[say two]]"}]);
    send(&request(3, "session/prompt", json!({"sessionId": session, "prompt": prompt})));
    wait_until("the turn is over", || {
        let shown = api.describe(&session);
        (shown["turn_count"] == 1 && shown["state"] == "idle").then_some(())
    });
    drop(stream);
    let open = |received: &str| {
        let headers = [own, STREAM, ("last-event-id", received)];
        api.stream("GET", "/acp", &headers, &Value::Null)
    };
    let mut again = open(&made.id.to_string());
    let events = again.until(|event| event.json()["id"] == 3);
    let messages: Vec<Value> = events.iter().map(StreamEvent::json).collect();
    assert_eq!(said(&messages), "onetwo", "{messages:?}");
    assert_eq!(messages.last().unwrap()["result"]["stopReason"], "end_turn");
    // A stream that takes the place of another one ends it.
    let mut third = open(&events.last().unwrap().id.to_string());
    assert_eq!(again.next(), None);
    send(&request(4, "session/list", json!({})));
    assert_eq!(third.until(|event| event.json()["id"] == 4).len(), 1);
    for (received, status) in [("x", 400), ("1000000", 404)] {
        assert_eq!(open(received).status(), status, "{received}");
    }
}

#[test]
fn requests_in_another_form_are_refused_as_the_protocol_says() {
    let api = api("");
    let opened = api.post("/acp", &json!({"jsonrpc": "2.0", "id": 1, "method": "initialize"}));
    let connection = opened.headers["acp-connection-id"].to_str().unwrap().to_owned();
    let own = ("acp-connection-id", connection.as_str());
    let get = |accept: &str| api.stream("GET", "/acp", &[own, ("accept", accept)], &Value::Null);
    for (accept, status) in [
        ("application/json", 406),
        ("text/event-stream-of-another-kind", 406),
        ("application/json, Text/Event-Stream; q=0.9", 200),
        ("*/*", 200),
    ] {
        assert_eq!(get(accept).status(), status, "{accept}");
    }
    let message = json!({"jsonrpc": "2.0", "id": 2, "method": "session/list"});
    let post = |kind: &str, body: &Value| {
        let headers = [own, ("content-type", kind)];
        let body = body.to_string();
        api.server.request("POST", "/acp", Some(&api.token), &headers, body.as_bytes())
    };
    assert_error(&post("text/plain", &message), 415, "unsupported_media_type", "Content-Type");
    assert_eq!(post("application/json; charset=utf-8", &message).status, 202);
    assert_error(&post("application/json", &json!([message])), 400, "bad_request", "batches");
}

#[test]
fn pages_of_unknown_hosts_are_refused_at_mcp_and_acp() {
    let api = api("");
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list",
        "params": {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {}}}});
    let usual = [
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/list"),
    ];
    let status = |path: &str, origin: Option<&str>| {
        let origin = origin.map(|origin| ("origin", origin));
        let headers: Vec<(&str, &str)> = usual.into_iter().chain(origin).collect();
        api.call("POST", path, &headers, &list).status
    };
    for (origin, expect) in [
        (None, 200),
        (Some("http://localhost:6274"), 200),
        (Some("http://evil.example"), 403),
        (Some("null"), 403),
    ] {
        assert_eq!(status("/mcp", origin), expect, "{origin:?}");
        // The message needs a connection at /acp.
        let expect = if expect == 200 { 400 } else { expect };
        assert_eq!(status("/acp", origin), expect, "{origin:?}");
    }
    // A client that knows only OAuth finds a description of the resource.
    let refused = api.call_as("wrong", "POST", "/mcp", &usual, &list);
    let challenge = refused.headers["www-authenticate"].to_str().unwrap();
    let url = challenge.split('"').nth(1).unwrap();
    let path = url.split_once(api.address()).unwrap().1;
    let described = api.get(path).json();
    assert!(described["resource"].as_str().unwrap().ends_with("/mcp"), "{described}");
}
