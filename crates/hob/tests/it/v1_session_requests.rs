//! Requests to the vendors' session APIs: repeats, several messages at once, images, and streams that are resumed.

use hob_testkit::wait_until;
use serde_json::{Value, json};

use crate::api::*;
use crate::backend::{Backend, backend_tests};
use crate::v1_anthropic::*;

backend_tests!([file, cluster]: [
    repeated_message_makes_no_second_turn,
    result_is_returned_once,
    repeated_creation_makes_no_second_session,
    repeated_interrupt_ends_no_later_turn,
]);

/// An image whose bytes are `hello`.
const IMAGE: &str = "data:image/png;base64,aGVsbG8=";

/// Sends events to a session of OpenAI's API. An empty key is none.
fn send_openai(api: &Api, id: &str, key: &str, events: &Value) -> u16 {
    let headers = [("idempotency-key", key)];
    let headers = if key.is_empty() { &[][..] } else { &headers[..] };
    let path = format!("/v1/agents/sessions/{id}/events");
    api.call("POST", &path, headers, &json!({"events": events})).status
}

/// Sends events to a session of Anthropic's API.
fn send_anthropic(api: &Api, id: &str, key: &str, events: &Value) -> hob_testkit::server::Answer {
    let headers = [("anthropic-version", "2023-06-01"), ("idempotency-key", key)];
    api.call("POST", &format!("/v1/sessions/{id}/events"), &headers, &json!({"events": events}))
}

fn said(text: &str) -> Value {
    json!({"type": "user.message", "content": [{"type": "text", "text": text}]})
}

fn input(text: &str) -> Value {
    let content = json!([{"type": "input_text", "text": text}]);
    json!({"type": "agent.session.input.message", "input": [{"role": "user", "content": content}]})
}

fn turn_count(api: &Api, id: &str) -> Value {
    api.describe(id)["turn_count"].clone()
}

fn repeated_message_makes_no_second_turn(backend: Backend) {
    let api = backend.api("");
    let anthropic = Anthropic(&api);
    let id = anthropic.session("acp", &all_tools("always_allow"));
    let first = send_anthropic(&api, &id, "k1", &json!([said("one")]));
    assert_eq!(first.status, 200, "{}", first.text);
    anthropic.idle(&id, "end_turn");
    let again = send_anthropic(&api, &id, "k1", &json!([said("one")]));
    assert_eq!(again.status, 200, "{}", again.text);
    assert_eq!(again.json()["data"][0]["id"], first.json()["data"][0]["id"]);
    let other = send_anthropic(&api, &id, "k1", &json!([said("two")]));
    assert!(other.status == 400 && other.text.contains("Idempotency-Key"), "{}", other.text);
    assert_eq!(turn_count(&api, &id), 1);
    for _ in 0..2 {
        assert_eq!(send_openai(&api, &id, "k2", &json!([input("three")])), 204);
    }
    wait_until("the second turn is over", || {
        let session = api.describe(&id);
        (session["state"] == "idle" && session["turn_count"] == 2).then_some(())
    });
    // A repeated interrupt does not end the turn that its own request has started.
    let events =
        json!([{"type": "user.interrupt"}, said("[[say begun]] [[until go]] [[say gone on]]")]);
    assert_eq!(send_anthropic(&api, &id, "k3", &events).status, 200);
    let again = send_anthropic(&api, &id, "k3", &events);
    assert_eq!(again.status, 200, "{}", again.text);
    api.open_gate(&id);
    let events = wait_until("the third turn is over", || {
        let events = anthropic.events(&id);
        let ended = events.iter().filter(|event| event["type"] == "session.status_idle").count();
        (ended == 3).then_some(events)
    });
    assert_eq!((message(&events), turn_count(&api, &id)), ("begungone on".to_owned(), json!(3)));
    // The answer stays the same after the session has ended.
    assert_eq!(api.close(&id).status, 200);
    assert_eq!(send_openai(&api, &id, "k2", &json!([input("three")])), 204);
    assert_eq!(send_openai(&api, &id, "k4", &json!([input("three")])), 400);
}

fn result_is_returned_once(backend: Backend) {
    let api = backend.api("");
    let mut tool = add_tool();
    tool["type"] = json!("custom");
    let anthropic = Anthropic(&api);
    let id = anthropic.session("acp", &json!([tool]));
    anthropic.say(&id, CALL);
    let called = anthropic.idle(&id, "requires_action");
    let called = called.iter().rfind(|event| event["type"] == "agent.custom_tool_use").unwrap();
    let result = json!([{"type": "user.custom_tool_result", "custom_tool_use_id": called["id"],
        "content": [{"type": "text", "text": "42"}]}]);
    let first = send_anthropic(&api, &id, "r1", &result);
    assert_eq!(first.status, 200, "{}", first.text);
    let events = anthropic.idle(&id, "end_turn");
    assert_eq!(message(&events), "Got 42");
    let logged = events.iter().find(|event| event["type"] == "user.custom_tool_result").unwrap();
    assert_eq!(first.json()["data"][0]["id"], logged["id"], "the log has it under this id");
    let again = send_anthropic(&api, &id, "r1", &result);
    assert_eq!(again.status, 200, "{}", again.text);
    assert_eq!(
        anthropic
            .call("POST", &format!("/v1/sessions/{id}/events"), Some(&json!({"events": result})))
            .status,
        404,
        "without a key nothing waits for it"
    );
    let other = json!([{"type": "user.custom_tool_result", "custom_tool_use_id": called["id"],
        "content": "43"}]);
    assert_eq!(send_anthropic(&api, &id, "r2", &other).status, 404, "it has another result");
    // OpenAI's API takes images as results.
    anthropic.say(&id, CALL);
    let called = anthropic.idle(&id, "requires_action");
    assert!(called.len() > events.len());
    let session = api.get(&format!("/v1/agents/sessions/{id}")).json();
    let call = &session["required_actions"][0];
    let result = |image: &str| {
        json!([{"type": "agent.session.input.tool_result", "call_id": call["call_id"],
            "turn_id": call["turn_id"], "success": true,
            "output": [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": image}]}])
    };
    assert_eq!(send_openai(&api, &id, "", &result("http://example.org/a.png")), 400);
    for _ in 0..2 {
        assert_eq!(send_openai(&api, &id, "r3", &result(IMAGE)), 204);
    }
    anthropic.idle(&id, "end_turn");
    assert_eq!(send_openai(&api, &id, "", &result(IMAGE)), 404);
    let log = api.log(&id);
    let is_answer = |event: &&Value| event["event"] == "tool_call" && event["status"] == "answered";
    let passed = &log.iter().rfind(is_answer).unwrap()["content"];
    assert_eq!(passed[1]["source"]["media_type"], "image/png", "{passed}");
    let items = api.get(&format!("/v1/agents/sessions/{id}/items?limit=100")).json();
    let items = items["data"].as_array().unwrap().clone();
    let shown = items.iter().find(|item| item["type"] == "function_call_output").unwrap();
    assert_eq!(shown["output"][1], json!({"type": "input_image", "image_url": IMAGE}));
}

fn repeated_creation_makes_no_second_session(backend: Backend) {
    let api = backend.api("");
    let anthropic = Anthropic(&api);
    let place = anthropic.post("/v1/environments", &json!({"name": "here"}));
    let agent = json!({"name": "a", "model": "acp", "tools": all_tools("always_allow")});
    let agent = anthropic.post("/v1/agents", &agent);
    let managed = |text: &str| {
        json!({"agent": agent["id"], "environment_id": place["id"],
            "initial_events": [said(text)]})
    };
    let agents_api = |is_streamed: bool| {
        json!({"environment": {"type": "none"}, "agent": {"model": "acp"}, "input": "two",
            "stream": is_streamed})
    };
    let create = |path: &str, key: &str, body: &Value| {
        let headers = [("anthropic-version", "2023-06-01"), ("idempotency-key", key)];
        let headers = if path == "/v1/sessions" { &headers[..] } else { &headers[1..] };
        api.call("POST", path, headers, body)
    };
    let id = |path: &str, key: &str, body: &Value| {
        let answer = create(path, key, body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()["id"].as_str().unwrap().to_owned()
    };
    let mut made = Vec::new();
    for (path, key, body) in
        [("/v1/sessions", "c1", managed("one")), ("/v1/agents/sessions", "c2", agents_api(false))]
    {
        let first = id(path, key, &body);
        assert_eq!(id(path, key, &body), first, "{path}");
        api.wait_for_turn(&first, 1, "finished");
        assert_eq!(id(path, key, &body), first, "{path}");
        assert_eq!(turn_count(&api, &first), 1, "{path}");
        made.push(first);
    }
    let other = create("/v1/sessions", "c1", &managed("two"));
    assert!(other.status == 400 && other.text.contains("Idempotency-Key"), "{}", other.text);
    // A stream begins again.
    let streamed = || {
        let answer = create("/v1/agents/sessions", "c3", &agents_api(true));
        let data = answer.text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).unwrap()).collect::<Vec<Value>>()
    };
    let ids = |events: &[Value]| -> Vec<Value> {
        events.iter().map(|event| event["event_id"].clone()).collect()
    };
    let (first, again) = (streamed(), streamed());
    assert_eq!(types(&first)[0], "agent.session.created");
    assert_eq!(ids(&first), ids(&again));
    assert_eq!(first[0]["session"]["id"], again[0]["session"]["id"]);
    // It ends with the first turn, also if there are later ones.
    api.ask(first[0]["session"]["id"].as_str().unwrap(), "[[say three]]");
    assert_eq!(ids(&streamed()), ids(&first));
    assert_ne!(id("/v1/sessions", "c4", &managed("one")), made[0], "another key");
    let sessions = || anthropic.get("/v1/sessions?limit=100")["data"].as_array().unwrap().len();
    assert_eq!(sessions(), 4);
    // A session that the caller deleted is not created again.
    let path = format!("/v1/sessions/{}", made[0]);
    assert_eq!(anthropic.call("DELETE", &path, None).status, 200);
    assert_eq!(create("/v1/sessions", "c1", &managed("one")).status, 404);
    assert_eq!(sessions(), 3);
}

fn repeated_interrupt_ends_no_later_turn(backend: Backend) {
    let api = backend.api("");
    let anthropic = Anthropic(&api);
    let id = anthropic.session("acp", &all_tools("always_allow"));
    let interrupt = json!([{"type": "user.interrupt"}]);
    anthropic.say(&id, "[[say begun]] [[hang]]");
    wait_until("the first turn has begun", || {
        api.log(&id).iter().any(|event| event.to_string().contains("begun")).then_some(())
    });
    let first = send_anthropic(&api, &id, "i1", &interrupt);
    assert_eq!(first.status, 200, "{}", first.text);
    api.wait_for_turn(&id, 1, "cancelled");
    // OpenAI's API knows the key of a cancel that found nothing to do.
    let cancel = json!([{"type": "agent.session.input.cancel"}]);
    assert_eq!(send_openai(&api, &id, "i2", &cancel), 204);
    anthropic.say(&id, "[[say second]] [[until go]] [[say done]]");
    wait_until("the second turn has begun", || {
        api.log(&id).iter().any(|event| event.to_string().contains("second")).then_some(())
    });
    let again = send_anthropic(&api, &id, "i1", &interrupt);
    assert_eq!(again.status, 200, "{}", again.text);
    assert_eq!(again.json()["data"][0]["id"], first.json()["data"][0]["id"]);
    assert_eq!(send_openai(&api, &id, "i2", &cancel), 204);
    let other = send_anthropic(&api, &id, "i1", &json!([said("x")]));
    assert!(other.status == 400 && other.text.contains("Idempotency-Key"), "{}", other.text);
    api.open_gate(&id);
    assert_eq!(api.wait_for_turn(&id, 2, "finished")["text"], "seconddone");
    assert_eq!(turn_count(&api, &id), 2);
    assert_eq!(api.close(&id).status, 200);
    assert_eq!(send_anthropic(&api, &id, "i1", &interrupt).status, 200);
}

#[test]
fn messages_of_one_request_are_one_turn() {
    let api = api("");
    let anthropic = Anthropic(&api);
    let id = anthropic.session("acp", &all_tools("always_allow"));
    let sent = send_anthropic(&api, &id, "k", &json!([said("one"), said("two")])).json();
    assert_eq!(sent["data"].as_array().unwrap().len(), 1, "{sent}");
    let events = anthropic.idle(&id, "end_turn");
    assert!(message(&events).ends_with("one\n\ntwo"), "{}", message(&events));
    assert_eq!(types(&events).iter().filter(|kind| **kind == "user.message").count(), 1);
    let user =
        |text: &str| json!({"role": "user", "content": [{"type": "input_text", "text": text}]});
    let several = json!([{"type": "agent.session.input.message", "input": [user("a"), user("b")]},
        input("c")]);
    assert_eq!(send_openai(&api, &id, "", &several), 204);
    let body = json!({"environment": {"type": "none"}, "agent": {"model": "acp"},
        "input": [user("d"), user("e")]});
    let made = api.post("/v1/agents/sessions", &body);
    assert_eq!(made.status, 200, "{}", made.text);
    let made = made.json()["id"].as_str().unwrap().to_owned();
    for (id, turn, text) in [(&id, 2, "echo: a\n\nb\n\nc"), (&made, 1, "echo: d\n\ne")] {
        assert_eq!(api.wait_for_turn(id, turn, "finished")["text"], text);
        assert_eq!(turn_count(&api, id), turn);
    }
}

#[test]
fn images_need_no_text() {
    let api = api("[apps.tests]\npermissions = \"allow\"\n");
    let source = json!({"type": "base64", "media_type": "image/png", "data": "aGVsbG8="});
    let image = json!({"type": "image", "source": source});
    let anthropic = Anthropic(&api);
    let id = anthropic.session("acp", &all_tools("always_allow"));
    let sent = anthropic.send(&id, json!({"type": "user.message", "content": [image]}));
    assert_eq!(sent["data"][0]["content"][0]["type"], "image", "{sent}");
    let events = anthropic.idle(&id, "end_turn");
    assert!(message(&events).trim_end().ends_with("image.png"), "{}", message(&events));
    let again = json!({"type": "user.message", "content": events[0]["content"]});
    anthropic.send(&id, again);
    let part = json!([{"type": "input_image", "image_url": IMAGE}]);
    let event = json!([{"type": "agent.session.input.message",
        "input": [{"role": "user", "content": part}]}]);
    assert_eq!(send_openai(&api, &id, "", &event), 204);
    for turn in [2, 3] {
        let ended = api.wait_for_turn(&id, turn, "finished");
        assert!(ended["text"].as_str().unwrap().contains("image.png"), "{ended}");
    }
    let items = api.get(&format!("/v1/agents/sessions/{id}/items?order=asc&limit=1")).json();
    assert_eq!(items["data"][0]["content"][0]["type"], "input_image", "{items}");
    let nothing =
        json!({"events": [{"type": "user.message", "content": [{"type": "text", "text": " "}]}]});
    let refused = anthropic.call("POST", &format!("/v1/sessions/{id}/events"), Some(&nothing));
    assert_eq!(refused.status, 400, "{}", refused.text);
    // The stateless APIs take it as well.
    let url = json!({"type": "image_url", "image_url": {"url": IMAGE}});
    for (path, body) in [
        (
            "/v1/messages",
            json!({"max_tokens": 9, "messages": [{"role": "user", "content": [image]}]}),
        ),
        ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": [url]}]})),
        ("/v1/responses", json!({"input": [{"role": "user", "content": part}]})),
    ] {
        let answer = api.post(path, &body);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        assert!(answer.text.contains("image.png"), "{path}: {}", answer.text);
    }
    // An image that is only named would be lost, also in the history.
    let far =
        json!({"type": "image", "source": {"type": "url", "url": "http://example.org/a.png"}});
    let messages = json!([{"role": "user", "content": [far]}, {"role": "assistant", "content": "x"},
        {"role": "user", "content": "and?"}]);
    let refused = api.post("/v1/messages", &json!({"max_tokens": 9, "messages": messages}));
    assert_eq!(refused.status, 400, "{}", refused.text);
    assert!(refused.text.contains("messages[0].content[0].source"), "{}", refused.text);
}

#[test]
fn streams_can_be_resumed_after_any_event() {
    let api = api("");
    let anthropic = Anthropic(&api);
    let id = anthropic.session("acp", &all_tools("always_allow"));
    let version = ("anthropic-version", "2023-06-01");
    for (path, headers, field, last) in [
        (format!("/v1/sessions/{id}/events/stream"), vec![version], "id", "session.status_idle"),
        (format!("/v1/agents/sessions/{id}/events"), vec![], "event_id", "agent.session.idle"),
    ] {
        let ids = |events: &[StreamEvent]| -> Vec<String> {
            let id = |event: &StreamEvent| event.json()[field].as_str().unwrap().to_owned();
            events.iter().map(id).collect()
        };
        let follow = |after: Option<&str>| {
            let mut headers = headers.clone();
            headers.extend(after.map(|after| ("last-event-id", after)));
            let mut stream = api.stream("GET", &path, &headers, &Value::Null);
            assert_eq!(stream.status(), 200);
            move || ids(&stream.until(|event| event.kind == last))
        };
        let mut first = follow(None);
        anthropic.say(&id, "[[think hm]] [[say one]] [[say begun]] [[until go]] [[say two]]");
        wait_until("the turn has begun", || {
            api.log(&id).iter().any(|event| event.to_string().contains("begun")).then_some(())
        });
        // This one comes while the turn runs.
        let mut late = follow(None);
        api.open_gate(&id);
        let first = first();
        let late = late();
        assert!(first.ends_with(&late), "{first:?} {late:?}");
        for (index, seen) in first.iter().enumerate().take(first.len() - 1) {
            assert_eq!(follow(Some(seen))(), first[index + 1..], "after {seen}");
        }
        let mut unknown = headers.clone();
        unknown.push(("last-event-id", "nothing"));
        assert_eq!(api.call("GET", &path, &unknown, &Value::Null).status, 400);
        std::fs::remove_file(api.workspace(&id).join("go")).unwrap();
    }
}
