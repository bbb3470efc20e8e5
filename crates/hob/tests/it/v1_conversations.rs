//! `/v1/conversations`, and responses that belong to one, on the scripted agent.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use hob_testkit::server::Answer;
use hob_testkit::wait_until;
use serde_json::{Value, json};

use crate::api::*;

fn call(api: &Api, method: &str, path: &str, body: &Value) -> Value {
    let answer = api.call(method, path, &[], body);
    assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text);
    answer.json()
}

fn post(api: &Api, path: &str, body: Value) -> Value {
    call(api, "POST", path, &body)
}

fn id(object: &Value) -> &str {
    object["id"].as_str().unwrap()
}

fn text_of(answer: &Answer) -> String {
    let response = answer.json();
    let items = response["output"].as_array().unwrap().iter();
    items.filter_map(|item| item["content"][0]["text"].as_str()).collect()
}

/// Returns the texts of a conversation's items, oldest first.
fn texts(api: &Api, conversation: &str) -> Vec<String> {
    let path = format!("/v1/conversations/{conversation}/items?order=asc&limit=100");
    let listed = api.get(&path).json();
    let items = listed["data"].as_array().unwrap_or_else(|| panic!("{listed}")).iter();
    items.filter_map(|item| item["content"][0]["text"].as_str().map(str::to_owned)).collect()
}

const STREAM: &str = "[apps.tests]\ndriver = \"claude-stream\"\n";

#[test]
fn conversations_are_kept_with_their_items() {
    let api = api("");
    let first = json!({"role": "user", "content": "one"});
    let made = post(
        &api,
        "/v1/conversations",
        json!({"items": [first, {"role": "assistant", "content": "two"}], "metadata": {"k": "v"}}),
    );
    assert_eq!((&made["object"], &made["metadata"]), (&json!("conversation"), &json!({"k": "v"})));
    assert!(made["created_at"].is_i64() && id(&made).starts_with("conv_"), "{made}");
    let path = format!("/v1/conversations/{}", id(&made));
    assert_eq!(api.get(&path).json(), made);
    let changed = post(&api, &path, json!({"metadata": {"k": "w"}}));
    assert_eq!(changed["metadata"], json!({"k": "w"}));
    let removed = post(&api, &path, json!({"metadata": null}));
    assert_eq!(removed["metadata"], json!({}));

    let items = format!("{path}/items");
    let added = post(&api, &items, json!({"items": [{"role": "user", "content": "three"}]}));
    assert_eq!((&added["object"], &added["has_more"]), (&json!("list"), &json!(false)));
    let item = &added["data"][0];
    assert_eq!(item["content"], json!([{"type": "input_text", "text": "three"}]));
    assert_eq!((&item["status"], &item["type"]), (&json!("completed"), &json!("message")));
    assert_eq!(texts(&api, id(&made)), ["one", "two", "three"]);
    let page = api.get(&format!("{items}?limit=2")).json();
    assert_eq!((page["data"].as_array().unwrap().len(), &page["has_more"]), (2, &json!(true)));
    let after = format!("{items}?after={}", page["last_id"].as_str().unwrap());
    assert_eq!(api.get(&after).json()["data"][0]["content"][0]["text"], "one");
    let item_path = format!("{items}/{}", id(item));
    assert_eq!(api.get(&item_path).json(), *item);
    assert_eq!(id(&call(&api, "DELETE", &item_path, &Value::Null)), id(&made));
    assert_eq!(api.get(&item_path).status, 404);
    assert_eq!(api.delete(&item_path).status, 404);
    // They survive a crash.
    let api = api.restart_after(|server| server.kill());
    assert_eq!(texts(&api, id(&made)), ["one", "two"]);

    for (body, word) in [
        (json!({"items": []}), "items"),
        (json!({}), "items"),
        (json!({"items": [{"role": "wizard", "content": "x"}]}), "items[0].role"),
        (json!({"items": [{"type": "computer_call"}]}), "computer_call"),
        (json!({"items": [{"type": "item_reference", "id": "msg_1"}]}), "items[0].id"),
        (json!({"items": vec![json!({"role": "user", "content": "x"}); 21]}), "20"),
    ] {
        let answer = api.post(&items, &body);
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status, &error["type"]), (400, &json!("invalid_request_error")));
        assert!(error["message"].as_str().unwrap().contains(word), "{body}: {error}");
    }
    assert_eq!(api.post(&path, &json!({"metadata": {"k": 1}})).status, 400);

    // Other apps do not have it, whatever they send.
    let other = api.server.client(&api.home.app("other"));
    for (method, path, body) in [
        ("GET", &path, Value::Null),
        ("POST", &path, json!({"metadata": {}})),
        ("POST", &path, json!("wrong")),
        ("DELETE", &path, Value::Null),
        ("GET", &items, Value::Null),
        ("POST", &items, json!({"items": [{"role": "user", "content": "x"}]})),
        ("POST", &items, json!("wrong")),
        ("POST", &"/v1/responses".to_owned(), json!({"input": "x", "conversation": id(&made)})),
    ] {
        assert_eq!(other.call(method, path, &[], &body).status, 404, "{method} {path} {body}");
    }
    assert_eq!(texts(&api, id(&made)), ["one", "two"]);
    let deleted = call(&api, "DELETE", &path, &Value::Null);
    assert_eq!(
        deleted,
        json!({"id": id(&made), "object": "conversation.deleted", "deleted": true})
    );
    assert_eq!(api.get(&path).status, 404);
    assert_eq!(api.get(&items).status, 404);
    assert_eq!(api.delete(&path).status, 404);
}

#[test]
fn responses_continue_and_extend_their_conversation() {
    let api = api(STREAM);
    let made = post(&api, "/v1/conversations", json!({}));
    let conversation = id(&made).to_owned();
    let ask = |more: Value| {
        let mut body = json!({"conversation": conversation});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = api.post("/v1/responses", &body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer
    };
    let first = ask(json!({"input": "one"}));
    assert_eq!(first.json()["conversation"], json!({"id": conversation}));
    let second = ask(json!({"input": "[[say Before: {history}]]",
        "conversation": {"id": conversation}, "stream": true}));
    assert_eq!(second.headers["x-hob-session"], "warm");
    assert!(second.text.contains("echo: one"), "{}", second.text);
    // A response that is not stored belongs to the conversation as well.
    let third = ask(json!({"input": "three", "store": false}));
    assert_eq!(third.headers["x-hob-session"], "warm");
    let all = texts(&api, &conversation);
    assert_eq!(all.len(), 6, "{all:?}");
    assert_eq!((all[0].as_str(), all[1].as_str()), ("one", "echo: one"));
    assert_eq!((all[4].as_str(), all[5].as_str()), ("three", "echo: three"));

    // In the background.
    let begun = ask(json!({"input": "four", "background": true})).json();
    wait_until("the response to end", || {
        let now = api.get(&format!("/v1/responses/{}", id(&begun))).json();
        (now["status"] == "completed").then_some(())
    });
    assert_eq!(texts(&api, &conversation).last().unwrap(), "echo: four");
    // The prompt may be in the conversation already.
    let path = format!("/v1/conversations/{conversation}/items");
    post(&api, &path, json!({"items": [{"role": "user", "content": "five"}]}));
    assert_eq!(text_of(&ask(json!({}))), "echo: five");
    assert_eq!(texts(&api, &conversation).len(), 10);
    // A failed response adds nothing.
    let body = json!({"input": "[[crash]]", "conversation": conversation});
    assert_eq!(api.post("/v1/responses", &body).status, 500);
    assert_eq!(texts(&api, &conversation).len(), 10);
    let count = json!({"input": "12345678", "conversation": conversation});
    let counted = post(&api, "/v1/responses/input_tokens", count);
    assert!(counted["input_tokens"].as_u64().unwrap() > 30, "{counted}");

    let previous = first.json();
    for (body, status, word) in [
        (
            json!({"input": "x", "conversation": conversation, "previous_response_id": id(&previous)}),
            400,
            "together",
        ),
        (json!({"input": "x", "previous_response_id": id(&previous)}), 400, "belongs"),
        (json!({"input": "x", "conversation": 1}), 400, "conversation"),
        (json!({"input": "x", "conversation": {}}), 400, "conversation"),
        (json!({"input": "x", "conversation": "conv_1"}), 404, "conv_1"),
    ] {
        let answer = api.post("/v1/responses", &body);
        assert_eq!(answer.status, status, "{body}: {}", answer.text);
        assert!(answer.text.contains(word), "{body}: {}", answer.text);
    }
}

#[test]
fn function_calls_go_on_in_their_conversation() {
    let api = api(STREAM);
    let made = post(&api, "/v1/conversations", json!({}));
    let tools = json!([{"type": "function", "name": "add", "description": "Adds numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}]);
    let prompt = "[[tool mcp__app__add {\"a\": 20}]] [[say Last: {result}]]";
    let body = json!({"input": prompt, "conversation": id(&made), "tools": tools});
    let response = post(&api, "/v1/responses", body);
    let call = response["output"].as_array().unwrap().last().unwrap();
    assert_eq!(call["type"], "function_call", "{response}");
    let unanswered = json!({"input": "x", "conversation": id(&made), "tools": tools});
    assert_eq!(api.post("/v1/responses", &unanswered).status, 400);
    let output =
        json!({"type": "function_call_output", "call_id": call["call_id"], "output": "42"});
    let body = json!({"input": [output], "conversation": id(&made), "tools": tools});
    let answer = api.post("/v1/responses", &body);
    assert_eq!(answer.headers["x-hob-session"], "warm", "{}", answer.text);
    assert_eq!(text_of(&answer), "Last: 42");
    let path = format!("/v1/conversations/{}/items?order=asc", id(&made));
    let listed = api.get(&path).json();
    let kinds: Vec<&Value> =
        listed["data"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["message", "function_call", "function_call_output", "message"]);
}

#[test]
fn requests_at_once_lose_no_items() {
    let api = api(STREAM);
    let made = post(&api, "/v1/conversations", json!({}));
    let items = format!("/v1/conversations/{}/items", id(&made));
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (api, items, made) = (&api, &items, &made);
            scope.spawn(move || {
                let body = json!({"input": format!("asked {number}"), "conversation": id(made)});
                post(api, "/v1/responses", body);
            });
            scope.spawn(move || {
                for again in 0..5 {
                    let text = format!("added {number}.{again}");
                    post(api, items, json!({"items": [{"role": "user", "content": text}]}));
                }
            });
        }
    });
    let all = texts(&api, id(&made));
    assert_eq!(all.len(), 4 * 2 + 20, "{all:?}");
    for number in 0..4 {
        let asked = all.iter().position(|text| *text == format!("asked {number}")).unwrap();
        assert!(all[asked + 1].contains(&format!("asked {number}")), "{all:?}");
        for again in 0..5 {
            assert!(all.contains(&format!("added {number}.{again}")), "{all:?}");
        }
    }
}

/// Opens a stream of a response, and reads its first event.
fn begin_stream(api: &Api, body: &Value) -> (BufReader<TcpStream>, Value) {
    let mut stream = TcpStream::connect(api.server.address()).unwrap();
    let body = body.to_string();
    write!(
        stream,
        "POST /v1/responses HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-length: {}\r\n\r\n{body}",
        api.token,
        body.len()
    )
    .unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    loop {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the stream ended");
        if let Some(event) = line.strip_prefix("data: ") {
            let event: Value = serde_json::from_str(event).unwrap();
            return (reader, event["response"].clone());
        }
    }
}

#[test]
fn streamed_response_can_be_read_while_it_is_made() {
    let api = api(STREAM);
    let made = post(&api, "/v1/conversations", json!({}));
    let body =
        json!({"input": "[[say Half.]] [[hang]]", "stream": true, "conversation": id(&made)});
    let (stream, response) = begin_stream(&api, &body);
    let path = format!("/v1/responses/{}", id(&response));
    assert_eq!(api.get(&path).json()["status"], "in_progress");
    // A client that leaves ends it, and nothing is added to the conversation.
    drop(stream);
    let ended = wait_until("the response to end", || {
        let now = api.get(&path).json();
        (now["status"] != "in_progress").then_some(now)
    });
    assert_eq!(ended["status"], "failed", "{ended}");
    assert!(texts(&api, id(&made)).is_empty());
    // One that is deleted while it is made does not come back.
    let (stream, response) = begin_stream(&api, &body);
    let path = format!("/v1/responses/{}", id(&response));
    assert_eq!(api.delete(&path).status, 200);
    drop(stream);
    api.wait_for_no_process();
    assert_eq!(api.get(&path).status, 404);
}

#[test]
fn refused_background_response_leaves_nothing() {
    let api = api(&format!("[limits]\napp_turns_per_minute = 1\n{STREAM}"));
    let body = json!({"input": "one", "background": true});
    let first = post(&api, "/v1/responses", body.clone());
    assert_eq!(first["status"], "queued");
    let answer = api.post("/v1/responses", &body);
    assert_eq!(answer.status, 429, "{}", answer.text);
    assert!(answer.headers.contains_key("retry-after"));
}
