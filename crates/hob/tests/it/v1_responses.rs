//! `/v1/responses` on the scripted agent.

use hob_testkit::server::Answer;
use hob_testkit::wait_until;
use serde_json::{Value, json};

use crate::api::*;

const DRIVERS: [&str; 2] = ["claude-tui", "claude-stream"];

fn driver(name: &str) -> String {
    format!("[apps.tests]\ndriver = \"{name}\"\n")
}

fn origin(answer: &Answer) -> &str {
    answer.headers["x-hob-session"].to_str().unwrap()
}

fn add_tool() -> Value {
    json!([{"type": "function", "name": "add", "description": "Adds numbers.", "strict": true,
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}])
}

/// Returns the texts of a response.
fn text(response: &Value) -> String {
    let items = response["output"].as_array().unwrap().iter();
    items.filter_map(|item| item["content"][0]["text"].as_str()).collect()
}

/// Sends a request and adds its output to the conversation.
fn respond(api: &Api, items: &mut Vec<Value>, input: Value, more: &Value) -> (Value, String) {
    items.push(input);
    let mut body = json!({"model": "claude", "input": items, "store": false});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = api.post("/v1/responses", &body);
    assert_eq!(answer.status, 200, "{}", answer.text);
    let response = answer.json();
    assert_eq!(response["status"], "completed", "{response}");
    items.extend(response["output"].as_array().unwrap().clone());
    let origin = origin(&answer).to_owned();
    (response, origin)
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// What the agent thinks before its first text is a reasoning item, whole and streamed. A client may send it back.
#[test]
fn thinking_is_a_reasoning_item() {
    for name in DRIVERS {
        let api = api(&driver(name));
        let mut items = Vec::new();
        let prompt = user("[[think hm]] [[say Yes.]]");
        let (first, _) = respond(&api, &mut items, prompt.clone(), &json!({}));
        let summary = json!([{"type": "summary_text", "text": "hm"}]);
        assert_eq!(
            (&first["output"][0]["type"], &first["output"][0]["summary"]),
            (&json!("reasoning"), &summary)
        );
        assert_eq!((text(&first).as_str(), first["output"].as_array().unwrap().len()), ("Yes.", 2));
        let (second, origin) = respond(&api, &mut items, user("two"), &json!({}));
        assert_eq!((text(&second).as_str(), origin.as_str()), ("echo: two", "warm"));
        let body = json!({"model": "claude", "input": [prompt], "stream": true});
        let answer = api.post("/v1/responses", &body);
        let kinds: Vec<&str> =
            answer.text.lines().filter_map(|line| line.strip_prefix("event: response.")).collect();
        let expect = [
            "created",
            "in_progress",
            "output_item.added",
            "reasoning_summary_part.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.done",
            "reasoning_summary_part.done",
            "output_item.done",
            "output_item.added",
            "content_part.added",
        ];
        assert_eq!(kinds[..expect.len()], expect, "{name}");
    }
}

/// What the agent thinks between two texts is a reasoning item between two messages. All texts together read as one, and the
/// conversation goes on in its process: from the items, from the stored response, and from the texts as one message.
#[test]
fn thinking_between_texts_is_a_reasoning_item_between_messages() {
    let prompt =
        "[[think hm]] [[say A.]] [[tool Bash {\"command\":\"true\"}]] [[think well]] [[say B.]]";
    let kinds = |response: &Value| -> Vec<String> {
        let items = response["output"].as_array().unwrap().iter();
        items.map(|item| item["type"].as_str().unwrap().to_owned()).collect()
    };
    let order = ["reasoning", "message", "reasoning", "message"];
    for name in DRIVERS {
        let api = api(&driver(name));
        let mut items = Vec::new();
        let (first, _) = respond(&api, &mut items, user(prompt), &json!({}));
        assert_eq!(kinds(&first), order, "{name}");
        assert_eq!(first["output"][2]["summary"][0]["text"], "well", "{name}");
        assert_eq!(text(&first), "A.\n\nB.", "{name}");
        let (_, found) = respond(&api, &mut items, user("two"), &json!({}));
        assert_eq!(found, "warm", "{name}: from the items");

        let body = json!({"model": "claude", "input": prompt, "stream": true});
        let streamed = api.post("/v1/responses", &body).text;
        let data = streamed.lines().filter_map(|line| line.strip_prefix("data: "));
        let events: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
        let last = &events.last().unwrap()["response"];
        assert_eq!(last["status"], "completed", "{name}");
        assert_eq!(kinds(last), order, "{name}");
        assert_eq!(text(last), "A.\n\nB.", "{name}");
        let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
        let deltas: String = deltas.map(|event| event["delta"].as_str().unwrap()).collect();
        assert_eq!(deltas, "A.\n\nB.", "{name}");
        for (index, item) in last["output"].as_array().unwrap().iter().enumerate() {
            let done = events.iter().filter(|event| {
                event["type"] == "response.output_item.done" && event["output_index"] == index
            });
            assert_eq!(done.map(|event| &event["item"]).collect::<Vec<_>>(), [item], "{name}");
        }
        let next = json!({"model": "claude", "input": "two", "previous_response_id": last["id"]});
        let answer = api.post("/v1/responses", &next);
        assert_eq!((answer.status, origin(&answer)), (200, "warm"), "{name}: {}", answer.text);

        let joined =
            json!([user(prompt), {"role": "assistant", "content": "A.\n\nB."}, user("two")]);
        api.post("/v1/responses", &json!({"model": "claude", "input": prompt}));
        let answer = api.post("/v1/responses", &json!({"model": "claude", "input": joined}));
        assert_eq!((answer.status, origin(&answer)), (200, "warm"), "{name}: {}", answer.text);
    }
}

#[test]
fn conversation_of_responses_stays_in_one_process() {
    for name in DRIVERS {
        let api = api(&driver(name));
        let mut items = Vec::new();
        let more = json!({"instructions": "Be kind.", "metadata": {"k": "v"}});
        let (first, origin) = respond(&api, &mut items, user("one"), &more);
        assert_eq!((text(&first).as_str(), origin.as_str()), ("echo: one", "fresh"));
        assert_eq!((&first["object"], &first["store"]), (&json!("response"), &json!(false)));
        assert_eq!(first["metadata"], json!({"k": "v"}));
        assert!(first["id"].as_str().unwrap().starts_with("resp_"), "{first}");
        assert!(first["usage"]["total_tokens"].as_u64().unwrap() > 0, "{first}");
        let twice = "[[say A.]] [[tool Bash {\"command\":\"true\"}]] [[say B.]]";
        let (second, origin) = respond(&api, &mut items, user(twice), &more);
        assert_eq!((text(&second).as_str(), origin.as_str()), ("A.\n\nB.", "warm"));
        let (_, origin) = respond(&api, &mut items, user("three"), &more);
        assert_eq!(origin, "warm", "{name}");
        assert!(api.server.stop().success());
    }
}

#[test]
fn function_calls_of_responses_continue_their_turn() {
    for name in DRIVERS {
        let api = api(&driver(name));
        let mut items = Vec::new();
        let more = json!({"tools": add_tool()});
        let prompt = "[[say Adding.]] [[tool mcp__app__add {\"a\": 20}]] [[say Last: {result}]]";
        let (response, _) = respond(&api, &mut items, user(prompt), &more);
        let call = response["output"].as_array().unwrap().last().unwrap();
        assert_eq!((&call["type"], &call["name"]), (&json!("function_call"), &json!("add")));
        assert_eq!(call["arguments"], "{\"a\":20}");
        let output =
            json!({"type": "function_call_output", "call_id": call["call_id"], "output": "40"});
        let (response, origin) = respond(&api, &mut items, output, &more);
        assert_eq!((text(&response).as_str(), origin.as_str()), ("Last: 40", "warm"));
        let (_, origin) = respond(&api, &mut items, user("more"), &more);
        assert_eq!(origin, "warm", "{name}");
        assert!(api.server.stop().success());
    }
}

/// Every event has the fields that the SDK's types ask for, and the items of the last one are those of the events before.
#[test]
fn response_streams_its_events_in_order() {
    let api = api(&driver("claude-stream"));
    let prompt = "[[say Adding it.]] [[tool mcp__app__add {\"a\": 1}]]";
    let body = json!({"input": prompt, "stream": true, "tools": add_tool()});
    let answer = api.post("/v1/responses", &body);
    assert_eq!(answer.status, 200, "{}", answer.text);
    let mut kinds: Vec<String> = Vec::new();
    let mut done = Vec::new();
    let mut last = Value::Null;
    for (number, chunk) in answer.text.trim().split("\n\n").enumerate() {
        let (name, data) = chunk.split_once('\n').unwrap();
        let event: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(event["type"].as_str(), name.strip_prefix("event: "));
        assert_eq!(event["sequence_number"], number);
        let kind = event["type"].as_str().unwrap().to_owned();
        if kind == "response.output_item.done" {
            assert_eq!(event["output_index"], done.len());
            done.push(event["item"].clone());
        }
        if kinds.last() != Some(&kind) {
            kinds.push(kind);
        }
        last = event;
    }
    let expect = [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ];
    assert_eq!(kinds, expect.map(|kind| format!("response.{kind}")));
    assert_eq!(last["response"]["output"], json!(done));
    assert_eq!(done[0]["content"][0]["text"], "Adding it.");
}

/// A stream that fails ends its message, and the SDK's type knows the error's code.
#[test]
fn failed_stream_keeps_what_was_said() {
    let api = api(&driver("claude-stream"));
    let body = json!({"input": "[[say begun]] [[sleep 300]] [[crash]]", "stream": true});
    let answer = api.post("/v1/responses", &body);
    assert!(answer.text.contains("event: response.output_item.done"), "{}", answer.text);
    let last = answer.text.trim().rsplit("data: ").next().unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    let response = &last["response"];
    assert_eq!(
        (&last["type"], &response["error"]["code"]),
        (&json!("response.failed"), &json!("server_error")),
        "{last}"
    );
    assert_eq!(response["output"][0]["status"], "incomplete", "{last}");
    assert_eq!(text(response), "begun");
}

/// Calls without outputs, and outputs without calls, are refused wherever they are.
#[test]
fn unanswered_function_calls_are_refused() {
    let api = api(&driver("claude-stream"));
    let prompt = "[[tool mcp__app__add {\"a\": 1}]]";
    let first = stored(&api, json!({"input": prompt, "tools": add_tool()}));
    let body =
        json!({"input": "never mind", "tools": add_tool(), "previous_response_id": id(&first)});
    let refused = api.post("/v1/responses", &body);
    assert_eq!(refused.status, 400, "{}", refused.text);
    let unknown = json!({"type": "function_call_output", "call_id": "c9", "output": "1"});
    let body = json!({"input": [user("a"), unknown, json!({"role": "assistant", "content": "b"}), user("c")]});
    let refused = api.post("/v1/responses", &body);
    assert_eq!(refused.json()["error"]["param"], "input", "{}", refused.text);
}

#[test]
fn form_of_a_response_is_checked() {
    let api = api("");
    let schema =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let text = json!({"format": {"type": "json_schema", "name": "x", "schema": schema}});
    let ask = |prompt: &str| api.post("/v1/responses", &json!({"input": prompt, "text": text}));
    let good = ask("[[say {\"n\": 1}]]");
    assert_eq!((good.status, text_of(&good)), (200, "{\"n\": 1}".to_owned()));
    let bad = ask("[[say no]]");
    assert_eq!(bad.status, 500, "{}", bad.text);
}

fn text_of(answer: &Answer) -> String {
    text(&answer.json())
}

#[test]
fn what_a_response_cannot_honour_is_refused_by_name() {
    let api = api("");
    for (body, word) in [
        (json!({}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": 1}), "input"),
        (json!({"input": "x", "conversation": 1}), "conversation"),
        (json!({"input": "x", "prompt": {"id": "p"}}), "prompt"),
        (json!({"input": "x", "background": true, "store": false}), "background"),
        (json!({"input": [{"type": "item_reference", "id": "msg_1"}]}), "input[0].id"),
        (json!({"input": "x", "tools": [{"type": "web_search"}]}), "tools[0].type"),
        (json!({"input": [{"type": "computer_call"}]}), "computer_call"),
        (json!({"input": "x", "stream": "yes"}), "stream"),
        (json!({"input": "x", "text": {"format": {"type": "xml"}}}), "text.format"),
        (json!({"input": [{"role": "assistant", "content": "x"}]}), "last"),
        (json!([]), "object"),
    ] {
        let answer = api.post("/v1/responses", &body);
        let error = answer.json()["error"].clone();
        assert_eq!(
            (answer.status, &error["type"]),
            (400, &json!("invalid_request_error")),
            "{body}"
        );
        assert!(error["message"].as_str().unwrap().contains(word), "{body}: {error}");
    }
}

/// Asks for a stored response.
fn stored(api: &Api, body: Value) -> Value {
    let answer = api.post("/v1/responses", &body);
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

fn id(response: &Value) -> &str {
    response["id"].as_str().unwrap()
}

#[test]
fn stored_response_is_continued_listed_and_deleted() {
    let api = api(&driver("claude-stream"));
    let first = stored(&api, json!({"input": "one", "instructions": "Be kind."}));
    assert_eq!(first["store"], true);
    let path = format!("/v1/responses/{}", id(&first));
    assert_eq!(api.get(&path).json(), first);
    let body = json!({"input": "[[say Before: {history}]]", "previous_response_id": id(&first),
        "instructions": "Be kind."});
    let answer = api.post("/v1/responses", &body);
    assert_eq!(origin(&answer), "warm");
    let second = answer.json();
    assert!(text(&second).contains("echo: one"), "{second}");
    // An item that is only named is put in its place.
    let reference = json!({"type": "item_reference", "id": first["output"][0]["id"]});
    let body =
        json!({"input": [user("one"), reference, user("[[say {history}]]")], "store": false});
    assert!(text(&stored(&api, body)).contains("echo: one"));

    let listed = api.get(&format!("/v1/responses/{}/input_items", id(&second))).json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 1, "only its own: {listed}");
    assert_eq!(listed["data"][0]["content"][0]["type"], "input_text");
    let bad = api.get(&format!("{path}/input_items?limit=0"));
    assert_eq!(bad.status, 400, "{}", bad.text);
    let many = json!({"input": [user("a"), user("b"), user("c")]});
    let many = stored(&api, many);
    let items = |query: &str| {
        let answer = api.get(&format!("/v1/responses/{}/input_items?{query}", id(&many))).json();
        let texts = answer["data"].as_array().unwrap().iter();
        let text = |item: &Value| item["content"][0]["text"].as_str().unwrap().to_owned();
        (texts.map(text).collect::<String>(), answer["has_more"] == true, answer["last_id"].clone())
    };
    let (texts, has_more, last) = items("order=asc&limit=2");
    assert_eq!((texts.as_str(), has_more), ("ab", true));
    let (texts, has_more, _) = items(&format!("order=asc&after={}", last.as_str().unwrap()));
    assert_eq!((texts.as_str(), has_more), ("c", false));
    assert_eq!(items("include[]=x").0, "cba");
    let twice = json!({"id": "msg_same", "role": "user", "content": "a"});
    let twice = stored(&api, json!({"input": [twice, twice]}));
    let listed = api.get(&format!("/v1/responses/{}/input_items", id(&twice))).json();
    assert_ne!(listed["data"][0]["id"], listed["data"][1]["id"], "{listed}");
    // The events of a response that has ended can be read again.
    let events = events_of(&api.get(&format!("{path}?stream=true")));
    assert_eq!(events.last().unwrap()["response"], api.get(&path).json());

    let count = api.post(
        "/v1/responses/input_tokens",
        &json!({"input": "12345678", "previous_response_id": id(&first)}),
    );
    assert!(count.json()["input_tokens"].as_u64().unwrap() > 2, "{}", count.text);

    // Other apps do not have it.
    let other = api.server.client(&api.home.app("other"));
    assert_eq!(other.get(&path).status, 404);
    assert_eq!(other.delete(&path).status, 404);
    let body = json!({"input": "x", "previous_response_id": id(&first)});
    assert_eq!(other.post("/v1/responses", &body).status, 404);
    assert_eq!(api.delete(&path).json()["deleted"], true);
    assert_eq!(api.get(&path).status, 404);
    assert_eq!(api.post("/v1/responses", &body).status, 404);
    // What was not to be stored is not.
    let unstored = stored(&api, json!({"input": "x", "store": false}));
    assert_eq!(api.get(&format!("/v1/responses/{}", id(&unstored))).status, 404);
}

#[test]
fn streamed_response_is_stored_and_survives_a_crash() {
    let api = api(&driver("claude-stream"));
    let answer = api.post("/v1/responses", &json!({"input": "one", "stream": true}));
    let last = answer.text.trim().rsplit("data: ").next().unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    let first = last["response"].clone();
    let api = api.restart_after(|server| server.kill());
    let path = format!("/v1/responses/{}", id(&first));
    assert_eq!(api.get(&path).json(), first);
    let body = json!({"input": "[[say Before: {history}]]", "previous_response_id": id(&first)});
    let answer = api.post("/v1/responses", &body);
    assert_eq!(origin(&answer), "seeded");
    assert!(text_of(&answer).contains("echo: one"), "{}", answer.text);
}

#[test]
fn response_in_the_background_ends_is_cancelled_or_is_lost() {
    let api = api(&driver("claude-stream"));
    let get = |api: &Api, id: &str| api.get(&format!("/v1/responses/{id}")).json();
    let ended = |api: &Api, id: &str| {
        wait_until("the response to end", || {
            let now = get(api, id);
            let is_running = ["queued", "in_progress"].iter().any(|state| now["status"] == *state);
            (!is_running).then_some(now)
        })
    };
    let first = stored(&api, json!({"input": "one", "background": true}));
    assert_eq!(first["status"], "queued");
    let done = ended(&api, id(&first));
    assert_eq!((&done["status"], text(&done).as_str()), (&json!("completed"), "echo: one"));
    let failed = stored(&api, json!({"input": "[[crash]]", "background": true}));
    assert_eq!(ended(&api, id(&failed))["status"], "failed");

    let hanging = stored(&api, json!({"input": "[[hang]]", "background": true}));
    wait_until("the agent to run", || (!api.processes().is_empty()).then_some(()));
    let body = json!({"input": "x", "previous_response_id": id(&hanging)});
    assert_eq!(api.post("/v1/responses", &body).status, 400, "it is not complete");
    let path = format!("/v1/responses/{}/cancel", id(&hanging));
    assert_eq!(api.post(&path, &json!({})).json()["status"], "cancelled");
    assert_eq!(ended(&api, id(&hanging))["status"], "cancelled");
    // One that is deleted does not come back when it ends.
    let hanging = stored(&api, json!({"input": "[[hang]]", "background": true}));
    let path = format!("/v1/responses/{}", id(&hanging));
    assert_eq!(api.delete(&path).status, 200);
    assert_eq!(api.get(&path).status, 404);
    let sync = stored(&api, json!({"input": "x"}));
    assert_eq!(api.get(&path).status, 404);
    let path = format!("/v1/responses/{}/cancel", id(&sync));
    assert_eq!(api.post(&path, &json!({})).status, 400, "it is not in the background");

    let lost = stored(&api, json!({"input": "[[hang]]", "background": true}));
    let lost = id(&lost).to_owned();
    let api = api.restart_after(|server| server.kill());
    let found = get(&api, &lost);
    assert_eq!(found["status"], "failed", "{found}");
    assert!(found["error"]["message"].as_str().unwrap().contains("stopped"), "{found}");
}

/// Returns the events of a stream, whose numbers have no gap.
fn events_of(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    let data = answer.text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
    let numbers: Vec<u64> =
        events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    let first = numbers.first().copied().unwrap_or_default();
    assert_eq!(numbers, (first..first + numbers.len() as u64).collect::<Vec<_>>());
    events
}

/// A response in the background has one log of events for all readers, early and late ones.
#[test]
fn response_in_the_background_is_streamed_to_every_reader() {
    let api = api(&driver("claude-stream"));
    let prompt = "[[think Hm.]] [[say Begun.]] [[sleep 300]] [[say Done.]]";
    let body = json!({"input": prompt, "background": true, "stream": true});
    let whole = events_of(&api.post("/v1/responses", &body));
    let kinds: Vec<&str> = whole.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let first = ["response.created", "response.queued", "response.in_progress"];
    assert_eq!((&kinds[..3], kinds.last()), (&first[..], Some(&"response.completed")), "{kinds:?}");
    let last = whole.last().unwrap()["response"].clone();
    assert_eq!(text(&last), "Begun.\n\nDone.");
    let path = format!("/v1/responses/{}", id(&last));
    assert_eq!(api.get(&path).json(), last, "it is stored before its last event");

    // A late reader gets the same events.
    let late = events_of(&api.get(&format!("{path}?stream=true")));
    assert_eq!(late, whole);
    let deltas = |events: &[Value]| {
        let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
        deltas.map(|event| event["delta"].as_str().unwrap()).collect::<String>()
    };
    let rest = events_of(&api.get(&format!("{path}?stream=true&starting_after=2")));
    assert_eq!(rest, late[3..]);

    // An early reader gets the events as they come, and so does the next.
    let running = stored(&api, json!({"input": prompt, "background": true}));
    let early = events_of(&api.get(&format!("/v1/responses/{}?stream=true", id(&running))));
    assert_eq!(deltas(&early), deltas(&whole));

    let hanging = stored(&api, json!({"input": "[[say Begun.]] [[hang]]", "background": true}));
    let path = format!("/v1/responses/{}", id(&hanging));
    let events = std::thread::scope(|scope| {
        let reader = scope.spawn(|| events_of(&api.get(&format!("{path}?stream=true"))));
        wait_until("the response runs", || {
            (api.get(&path).json()["status"] == "in_progress").then_some(())
        });
        assert_eq!(api.post(&format!("{path}/cancel"), &json!({})).status, 200);
        reader.join().unwrap()
    });
    let last = events.last().unwrap();
    assert_eq!(
        (&last["type"], &last["response"]["status"]),
        (&json!("response.failed"), &json!("cancelled"))
    );

    // After a restart, the events are made again from what is stored.
    let api = api.restart_after(|server| server.kill());
    let again = events_of(&api.get(&format!("/v1/responses/{}?stream=true", id(&last_of(&whole)))));
    assert_eq!((deltas(&again), last_of(&again)), (deltas(&whole), last_of(&whole)));
    let path = format!("/v1/responses/{}?stream=true&starting_after=2", id(&last_of(&whole)));
    assert_eq!(api.get(&path).status, 400);
}

fn last_of(events: &[Value]) -> Value {
    events.last().unwrap()["response"].clone()
}
