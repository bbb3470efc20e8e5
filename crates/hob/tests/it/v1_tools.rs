//! Tools that a client of `/v1` runs itself, in both dialects and with both transports, on the scripted agent.

use std::time::Duration;

use hob_testkit::server::Answer;
use hob_testkit::{Stopwatch, wait_until};
use serde_json::{Value, json};

use crate::api::*;

const DRIVERS: [&str; 2] = ["claude-tui", "claude-stream"];

fn driver(name: &str) -> String {
    format!("[apps.tests]\ndriver = \"{name}\"\n")
}

/// A conversation of a client with the tool `add`.
struct Talk<'a> {
    api: &'a Api,
    messages: Vec<Value>,
    /// Further fields of every request.
    more: Value,
}

impl Api {
    fn talk_with_tools(&self) -> Talk<'_> {
        Talk { api: self, messages: Vec::new(), more: json!({}) }
    }
}

fn tools() -> Value {
    json!([{"name": "add", "description": "Adds numbers.",
        "input_schema": {"type": "object", "properties": {"a": {"type": "number"}}}}])
}

/// Returns a prompt for which the scripted agent calls the tool for every number, in one message.
fn calling(numbers: &[u32]) -> String {
    let calls = numbers.iter().enumerate().map(|(index, number)| {
        let verb = if index == 0 { "tool" } else { "also" };
        format!("[[{verb} mcp__app__add {}]]", json!({"a": number}))
    });
    format!("[[say Adding.]] {} [[say Last: {{result}}]]", calls.collect::<String>())
}

fn origin(answer: &Answer) -> String {
    answer.headers["x-hob-session"].to_str().unwrap().to_owned()
}

/// Returns the ids and inputs of the calls in an answer.
fn calls(message: &Value) -> Vec<(String, Value)> {
    let blocks = message["content"].as_array().unwrap().iter();
    blocks
        .filter(|block| block["type"] == "tool_use")
        .map(|block| {
            assert_eq!(block["name"], "add", "without the agent's prefix: {block}");
            (block["id"].as_str().unwrap().to_owned(), block["input"].clone())
        })
        .collect()
}

fn texts(message: &Value) -> String {
    let blocks = message["content"].as_array().unwrap().iter();
    blocks.filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("|")
}

fn result(id: &str, content: Value) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": content})
}

impl Talk<'_> {
    fn send(&self) -> Answer {
        let mut body = json!({"model": "claude", "max_tokens": 100, "messages": self.messages,
            "tools": tools()});
        body.as_object_mut().unwrap().extend(self.more.as_object().unwrap().clone());
        self.api.post("/v1/messages", &body)
    }

    /// Sends a user message, and adds the answer to the history.
    fn ask(&mut self, content: Value) -> (Value, String) {
        self.messages.push(json!({"role": "user", "content": content}));
        let answer = self.send();
        assert_eq!(answer.status, 200, "{}", answer.text);
        let message = answer.json();
        self.messages.push(json!({"role": "assistant", "content": message["content"]}));
        (message, origin(&answer))
    }

    /// Returns the results of all calls of the last answer, each the double of its argument.
    fn doubled(message: &Value) -> Value {
        let results = calls(message)
            .into_iter()
            .map(|(id, input)| result(&id, json!((input["a"].as_u64().unwrap() * 2).to_string())));
        results.collect()
    }
}

/// Runs tool rounds until the turn ends. Returns the last answer and the number of rounds.
fn finish(talk: &mut Talk<'_>, mut message: Value) -> (Value, usize) {
    let mut rounds = 0;
    while message["stop_reason"] == "tool_use" {
        rounds += 1;
        let (next, origin) = talk.ask(Talk::doubled(&message));
        assert_eq!(origin, "warm", "the result goes to the process that waits for it");
        message = next;
    }
    (message, rounds)
}

#[test]
fn client_tool_call_ends_the_answer_and_its_result_continues_the_turn() {
    for name in DRIVERS {
        let api = api(&driver(name));
        let mut talk = api.talk_with_tools();
        let (message, origin) = talk.ask(json!(calling(&[20])));
        assert_eq!((origin.as_str(), &message["stop_reason"]), ("fresh", &json!("tool_use")));
        assert_eq!((texts(&message).as_str(), calls(&message).len()), ("Adding.", 1), "{message}");
        assert_eq!(calls(&message)[0].1, json!({"a": 20}));
        assert!(message["usage"]["output_tokens"].as_u64().unwrap() > 0, "{message}");
        let agents = api.processes();
        let (message, origin) = talk.ask(Talk::doubled(&message));
        assert_eq!((texts(&message).as_str(), origin.as_str()), ("Last: 40", "warm"));
        assert_eq!(message["stop_reason"], "end_turn");
        let (message, origin) = talk.ask(json!("[[say And {history}]]"));
        assert_eq!(origin, "warm", "{name}");
        assert!(texts(&message).contains("Last: 40"), "{message}");
        assert_eq!(api.processes(), agents, "one process for the whole conversation");
        assert!(api.server.stop().success());
    }
}

#[test]
fn parallel_and_repeated_client_tool_calls_get_their_own_results() {
    for name in DRIVERS {
        let api = api(&driver(name));
        let mut talk = api.talk_with_tools();
        let (message, _) = talk.ask(json!(calling(&[1, 2, 3])));
        if name == "claude-tui" {
            assert_eq!(calls(&message).len(), 3, "{message}");
        }
        let (message, _) = finish(&mut talk, message);
        assert_eq!(texts(&message), "Last: 6");
        // Several rounds in one turn.
        let rounds: String = (1..=5)
            .map(|number| format!("[[tool mcp__app__add {}]]", json!({"a": number})))
            .collect::<Vec<_>>()
            .join("[[say {result}]]");
        let (message, _) = talk.ask(json!(format!("{rounds}[[say Last: {{result}}]]")));
        let (message, rounds) = finish(&mut talk, message);
        assert_eq!((texts(&message).as_str(), rounds), ("Last: 10", 5), "{name}");
    }
}

#[test]
fn client_that_wants_one_call_at_a_time_gets_one() {
    let api = api(&driver("claude-tui"));
    let mut talk = api.talk_with_tools();
    talk.more = json!({"tool_choice": {"type": "auto", "disable_parallel_tool_use": true}});
    let (message, _) = talk.ask(json!(calling(&[1, 2, 3])));
    assert_eq!(calls(&message).len(), 1, "{message}");
    let (message, rounds) = finish(&mut talk, message);
    assert_eq!((texts(&message).as_str(), rounds), ("Last: 6", 3));
}

#[test]
fn failed_client_tool_and_text_beside_a_result_reach_the_agent() {
    let api = api(&driver("claude-tui"));
    let mut talk = api.talk_with_tools();
    let (message, _) = talk.ask(json!(calling(&[1])));
    let id = calls(&message)[0].0.clone();
    let failed = json!({"type": "tool_result", "tool_use_id": id, "is_error": true,
        "content": [{"type": "text", "text": "no adder"}]});
    let beside = json!({"type": "text", "text": "try something else"});
    let (message, origin) = talk.ask(json!([failed, beside]));
    assert_eq!(origin, "warm");
    assert_eq!(texts(&message), "Last: no adder\nThe user adds: try something else");
}

#[test]
fn openai_tool_calls_whole_and_streamed() {
    for name in DRIVERS {
        let api = api(&driver(name));
        let functions = json!([{"type": "function", "function": {"name": "add",
            "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}]);
        let mut messages = vec![json!({"role": "user", "content": calling(&[4])})];
        let body = |messages: &[Value], more: Value| {
            let mut body = json!({"model": "claude", "messages": messages, "tools": functions});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        let answer = api.post("/v1/chat/completions", &body(&messages, json!({})));
        assert_eq!(answer.status, 200, "{}", answer.text);
        let choice = answer.json()["choices"][0].clone();
        assert_eq!(choice["finish_reason"], "tool_calls");
        let call = &choice["message"]["tool_calls"][0];
        assert_eq!((&call["type"], &call["function"]["name"]), (&json!("function"), &json!("add")));
        assert_eq!(call["function"]["arguments"], "{\"a\":4}");
        messages.push(choice["message"].clone());
        messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "8"}));
        let answer = api.post("/v1/chat/completions", &body(&messages, json!({})));
        assert_eq!(origin(&answer), "warm", "{}", answer.text);
        let choice = answer.json()["choices"][0].clone();
        assert_eq!(choice["message"]["content"], "Last: 8");
        messages.push(choice["message"].clone());
        messages.push(json!({"role": "user", "content": calling(&[5])}));
        let answer = api.post("/v1/chat/completions", &body(&messages, json!({"stream": true})));
        assert_eq!(origin(&answer), "warm", "{}", answer.text);
        let data = answer.text.lines().filter_map(|line| line.strip_prefix("data: "));
        let chunks: Vec<Value> = data.filter_map(|data| serde_json::from_str(data).ok()).collect();
        let pieces: Vec<&Value> = chunks
            .iter()
            .map(|chunk| &chunk["choices"][0]["delta"]["tool_calls"][0])
            .filter(|piece| !piece.is_null())
            .collect();
        assert_eq!(pieces[0]["function"]["name"], "add");
        let arguments: String =
            pieces.iter().filter_map(|piece| piece["function"]["arguments"].as_str()).collect();
        assert_eq!(arguments, "{\"a\":5}");
        let ends: Vec<&Value> = chunks.iter().map(|c| &c["choices"][0]["finish_reason"]).collect();
        assert!(ends.contains(&&json!("tool_calls")), "{ends:?}");
    }
}

#[test]
fn streamed_tool_use_matches_anthropics_events() {
    let api = api("");
    let mut talk = api.talk_with_tools();
    talk.messages.push(json!({"role": "user", "content": calling(&[7])}));
    talk.more = json!({"stream": true});
    let answer = talk.send();
    assert_eq!(answer.status, 200, "{}", answer.text);
    let data = answer.text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
    let of_call: Vec<&Value> = events.iter().filter(|event| event["index"] == 1).collect();
    assert_eq!(of_call.len(), 3, "{events:?}");
    assert_eq!(of_call[0]["content_block"]["type"], "tool_use");
    assert_eq!(of_call[0]["content_block"]["input"], json!({}));
    assert_eq!(of_call[1]["delta"]["partial_json"], "{\"a\":7}");
    assert_eq!(of_call[2]["type"], "content_block_stop");
    let end = events.iter().find(|event| event["type"] == "message_delta").unwrap();
    assert_eq!(end["delta"]["stop_reason"], "tool_use");
}

/// A result for which no process waits any more is given to a new one with the history.
#[test]
fn result_after_a_timeout_or_a_crash_is_seeded() {
    for name in DRIVERS {
        let api = api(&format!("[claude]\ntool_result_timeout_secs = 1\n{}", driver(name)));
        let mut talk = api.talk_with_tools();
        let (message, _) = talk.ask(json!(calling(&[21])));
        let stopwatch = Stopwatch::start();
        api.wait_for_no_process();
        stopwatch
            .assert_within(Duration::from_secs(20), "a client that does not return is given up");
        let (message, origin) = talk.ask(json!([
            Talk::doubled(&message)[0],
            {"type": "text", "text": "[[say Now {history}]]"}
        ]));
        assert_eq!(origin, "seeded");
        assert!(texts(&message).contains("Adding."), "{message}");
        let messages = talk.messages.clone();
        // The server dies while a call waits.
        let mut talk = Talk { api: &api, messages, more: json!({}) };
        let (message, _) = talk.ask(json!(calling(&[22])));
        let messages = talk.messages.clone();
        let api = api.restart_after(hob_testkit::HobServer::kill);
        let mut talk = Talk { api: &api, messages, more: json!({}) };
        let (message, origin) = talk.ask(Talk::doubled(&message));
        assert_eq!(origin, "seeded", "{message}");
        assert_eq!(message["stop_reason"], "end_turn");
        let (_, origin) = talk.ask(json!("[[say on]]"));
        assert_eq!(origin, "warm");
    }
}

#[test]
fn wrong_tool_results_are_refused_and_the_turn_goes_on_waiting() {
    let api = api("");
    let mut talk = api.talk_with_tools();
    let (message, _) = talk.ask(json!(calling(&[1, 2])));
    let ids: Vec<String> = calls(&message).into_iter().map(|(id, _)| id).collect();
    let mut refused = |content: Value, word: &str| {
        talk.messages.push(json!({"role": "user", "content": content}));
        let answer = talk.send();
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.text.contains(word), "{}", answer.text);
        talk.messages.pop();
    };
    refused(json!([result(&ids[0], json!("2"))]), &ids[1]);
    refused(json!([result("toolu_other", json!("2"))]), "toolu_other");
    let (message, _) = finish(&mut talk, message);
    assert_eq!(texts(&message), "Last: 4");
}

#[test]
fn required_call_is_asked_for_again_and_then_failed() {
    let api = api(&driver("claude-stream"));
    let mut talk = api.talk_with_tools();
    talk.more = json!({"tool_choice": {"type": "any"}});
    talk.messages.push(json!({"role": "user", "content": "[[say no]]"}));
    let answer = talk.send();
    assert_eq!(answer.status, 500, "{}", answer.text);
    assert!(answer.text.contains("tool_choice"), "{}", answer.text);
    api.wait_for_no_process();
    talk.messages = vec![json!({"role": "user", "content": calling(&[3])})];
    let answer = talk.send();
    assert_eq!(answer.json()["stop_reason"], "tool_use", "{}", answer.text);
}

/// Equal conversations of two clients keep their own processes, and a removed app leaves none.
#[test]
fn paused_turns_of_equal_conversations_and_removed_apps() {
    let api = api("");
    let mut one = api.talk_with_tools();
    let mut two = api.talk_with_tools();
    let (first, _) = one.ask(json!(calling(&[1])));
    let (second, _) = two.ask(json!(calling(&[1])));
    let answer = |talk: &mut Talk<'_>, message: &Value, text: &str| {
        let id = calls(message)[0].0.clone();
        let (message, origin) = talk.ask(json!([result(&id, json!(text))]));
        assert_eq!(origin, "warm");
        texts(&message)
    };
    assert_eq!(answer(&mut two, &second, "two"), "Last: two");
    assert_eq!(answer(&mut one, &first, "one"), "Last: one");
    one.ask(json!(calling(&[2])));
    let admin = std::fs::read_to_string(api.home.hob_home().join("admin.token")).unwrap();
    let removed = api.server.request("DELETE", "/admin/apps/tests", Some(admin.trim()), &[], b"");
    assert_eq!(removed.status, 200, "{}", removed.text);
    api.wait_for_no_process();
}

/// A turn with calls is one turn in the memory, with all its texts.
#[test]
fn turn_with_client_tools_is_remembered_once() {
    let api = api("");
    let mut talk = api.talk_with_tools();
    let prompt = format!("Where is the heron? {}", calling(&[1]));
    let (message, _) = talk.ask(json!(prompt));
    finish(&mut talk, message);
    let found = wait_until("the turn is remembered", || {
        let turns = api.tool(&api.token, "memory_timeline", json!({"project": "*"}));
        turns["turns"].as_array().filter(|turns| turns.len() >= 3).cloned()
    });
    let said: Vec<&str> = found.iter().map(|turn| turn["text"].as_str().unwrap()).collect();
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said[0].contains("heron"), "{said:?}");
    assert_eq!(said[1..], ["Adding.", "Last: 2"]);
}

/// An answer without the required form is asked for once more, and is then an error.
#[test]
fn structured_answer_is_checked_and_asked_for_again() {
    for name in DRIVERS {
        let api = api(&driver(name));
        let ask = |messages: &[Value], schema: Value, stream: bool| {
            let format =
                json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
            api.post(
                "/v1/chat/completions",
                &json!({"model": "claude", "messages": messages,
                "response_format": format, "stream": stream}),
            )
        };
        let user = |text: &str| json!({"role": "user", "content": text});
        let schema = json!({"type": "object", "required": ["n"]});
        let mut messages =
            vec![user("[[say Let me see.]] [[tool Bash {}]] [[say ```json\n{\"n\": 1}\n```]]")];
        let answer = ask(&messages, schema.clone(), false);
        assert_eq!(answer.status, 200, "{}", answer.text);
        let message = answer.json()["choices"][0]["message"].clone();
        assert_eq!(message["content"], "{\"n\": 1}", "the last message alone, without its fence");
        // The error names the allowed values, and the scripted agent does what it reads.
        let allowed = json!({"enum": [1, "[[say 1]]"]});
        messages = vec![user("[[say 2]]")];
        let answer = ask(&messages, allowed.clone(), false);
        assert_eq!(answer.status, 200, "{}", answer.text);
        let message = answer.json()["choices"][0]["message"].clone();
        assert_eq!(message["content"], "1");
        messages.extend([message, user("[[say 1]]")]);
        let answer = ask(&messages, allowed, true);
        assert_eq!(origin(&answer), "warm");
        let data = answer.text.lines().filter_map(|line| line.strip_prefix("data: "));
        let chunks = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
        let said: String = chunks
            .filter_map(|c| c["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
            .collect();
        assert_eq!(said, "1");
        let answer = ask(&[user("[[say no]]")], schema.clone(), false);
        assert_eq!(answer.status, 500, "{}", answer.text);
        assert!(answer.text.contains("required form"), "{}", answer.text);
        let body = json!({"max_tokens": 9, "messages": [user("[[say {\"n\": 2}]]")],
            "output_config": {"format": {"type": "json_schema", "schema": schema}}});
        let answer = api.post("/v1/messages", &body);
        assert_eq!(answer.json()["content"][0]["text"], "{\"n\": 2}", "{}", answer.text);
    }
}

#[test]
fn tokens_of_a_request_are_estimated() {
    let api = api("");
    let count = |body: Value| api.post("/v1/messages/count_tokens", &body);
    let body =
        json!({"model": "claude", "messages": [{"role": "user", "content": "x".repeat(400)}]});
    assert_eq!(count(body.clone()).json()["input_tokens"], 104);
    let mut with_tools = body;
    with_tools["tools"] = tools();
    assert!(count(with_tools).json()["input_tokens"].as_u64().unwrap() > 120);
    assert_eq!(count(json!({"messages": [[null]]})).status, 400);
    assert_eq!(
        count(json!({"messages": [{"role": "user", "content": "x"}], "system": 3})).status,
        400
    );
    let wrong = count(json!({"messages": []}));
    assert_eq!((wrong.status, wrong.json()["type"].as_str()), (400, Some("error")));
    assert!(wrong.headers.contains_key("request-id"));
}

/// A client that wants the server to hold its conversation must not get an answer without its history.
#[test]
fn conversation_held_by_the_server_is_refused_by_name() {
    let api = api("");
    let body = json!({"max_tokens": 9, "messages": [{"role": "user", "content": "and then?"}],
        "thread": {"type": "continue", "previous_message_id": "msg_1"}});
    let answer = api.post("/v1/messages", &body);
    assert_eq!(answer.status, 400, "{}", answer.text);
    let error = answer.json()["error"].clone();
    assert_eq!(error["details"]["error_code"], "thread_unsupported_request", "{error}");
}

fn two_tools() -> Value {
    let (one, two) = (tools(), json!({"name": "divide", "input_schema": {"type": "object"}}));
    json!([one[0], two])
}

/// A request whose tools differ from those of the paused turn gets a process of its own.
#[test]
fn changed_tools_start_another_process() {
    for name in DRIVERS {
        let api = api(&driver(name));
        let mut talk = api.talk_with_tools();
        let (message, _) = talk.ask(json!(calling(&[1])));
        talk.more = json!({"tools": two_tools()});
        let (message, origin) = talk.ask(Talk::doubled(&message));
        assert_eq!((origin.as_str(), &message["stop_reason"]), ("seeded", &json!("end_turn")));
        wait_until("the process that waited has ended", || {
            (api.processes().len() == 1).then_some(())
        });
    }
}

/// A choice holds for one answer: the prompt says it, and the process stays.
#[test]
fn changed_choice_keeps_the_process() {
    for name in DRIVERS {
        let api = api(&driver(name));
        let mut talk = api.talk_with_tools();
        for choice in [json!({"type": "any"}), json!({"type": "tool", "name": "add"})] {
            talk.more = json!({"tool_choice": choice});
            let (message, _) = talk.ask(json!(calling(&[1])));
            assert_eq!(message["stop_reason"], "tool_use", "{message}");
            talk.more = json!({"tool_choice": {"type": "auto"}});
            let (message, origin) = talk.ask(Talk::doubled(&message));
            assert_eq!((texts(&message).as_str(), origin.as_str()), ("Last: 2", "warm"));
        }
        let (message, origin) = talk.ask(json!("[[say {history}]]"));
        let told = texts(&message);
        assert_eq!(origin, "warm");
        assert!(told.contains("You must answer by calling one of these tools"), "{told}");
        assert!(told.contains("You must answer by calling the tool add"), "{told}");
        assert_eq!(told.matches("You must answer").count(), 2, "{told}");
    }
}

/// Calls that the request's choice rules out are answered by Hob, whatever the model does.
#[test]
fn calls_against_the_choice_do_not_reach_the_client() {
    for name in DRIVERS {
        let api = api(&driver(name));
        let mut talk = api.talk_with_tools();
        let words = "[[tool mcp__app__divide {}]] [[say It said: {result}]]";
        talk.more = json!({"tools": two_tools(), "tool_choice": {"type": "tool", "name": "add"}});
        let (message, _) = talk.ask(json!(format!("{words} {}", calling(&[1]))));
        assert_eq!(calls(&message).len(), 1, "{message}");
        assert!(texts(&message).contains("must not be called"), "{message}");
        // With the results, the client forbids further calls.
        talk.more = json!({"tools": two_tools(), "tool_choice": {"type": "none"}});
        let (message, origin) = talk.ask(Talk::doubled(&message));
        assert_eq!((origin.as_str(), &message["stop_reason"]), ("warm", &json!("end_turn")));
        let (message, origin) = talk.ask(json!(words));
        assert_eq!((origin.as_str(), &message["stop_reason"]), ("warm", &json!("end_turn")));
        assert!(texts(&message).contains("must not be called"), "{message}");
    }
}

/// Calls that the client cannot run are answered by Hob, and equal results are refused.
#[test]
fn unknown_tools_and_repeated_results_do_not_reach_anyone() {
    for name in DRIVERS {
        let api = api(&driver(name));
        let mut talk = api.talk_with_tools();
        let prompt = format!(
            "[[tool mcp__app__nothing {{}}]] [[say It said: {{result}}]] {}",
            calling(&[1])
        );
        let (message, _) = talk.ask(json!(prompt));
        assert_eq!(calls(&message).len(), 1, "{message}");
        assert!(texts(&message).contains("there is no tool"), "{message}");
        let id = calls(&message)[0].0.clone();
        talk.messages.push(
            json!({"role": "user", "content": [result(&id, json!("a")), result(&id, json!("b"))]}),
        );
        let answer = talk.send();
        assert_eq!(answer.status, 400, "{}", answer.text);
        talk.messages.pop();
        let (message, origin) = talk.ask(json!([result(&id, json!("a"))]));
        assert_eq!((texts(&message).as_str(), origin.as_str()), ("Last: a", "warm"));
    }
}
