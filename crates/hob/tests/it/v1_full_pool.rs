//! Calls of a client's tools whose results never come, and the places that they hold, on the scripted agent.

use hob_testkit::server::Answer;
use hob_testkit::wait_until;
use serde_json::{Value, json};

use crate::api::*;

const CALLS: &str =
    "[[tool mcp__app__add {\"a\": 1}]] [[tool mcp__app__add {\"a\": 2}]] [[say Last: {result}]]";

/// Asks for a call. Every conversation has another system prompt.
fn ask(api: &Api, number: u32, choice: &str) -> (Answer, Value) {
    let body = json!({"model": "claude", "max_tokens": 9, "system": format!("Talk {number}."),
        "tools": [{"name": "add", "input_schema": {"type": "object", "properties": {}}}],
        "tool_choice": {"type": choice},
        "messages": [{"role": "user", "content": CALLS}]});
    (api.post("/v1/messages", &body), body)
}

/// Adds the result of the call to a conversation, and sends it.
fn go_on(api: &Api, mut body: Value, answer: &Answer) -> Answer {
    let content = answer.json()["content"].clone();
    let id = content.as_array().unwrap().last().unwrap()["id"].clone();
    let result = json!([{"type": "tool_result", "tool_use_id": id, "content": "2"}]);
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": content}));
    messages.push(json!({"role": "user", "content": result}));
    api.post("/v1/messages", &body)
}

fn origin(answer: &Answer) -> String {
    answer.headers["x-hob-session"].to_str().unwrap().to_owned()
}

fn settings(driver: &str) -> String {
    format!("{}[apps.tests]\ndriver = \"{driver}\"\n", sessions("max_live = 2"))
}

/// Layers that want structured output require a call and never bring its result.
#[test]
fn required_calls_without_results_do_not_fill_the_pool() {
    for driver in ["claude-tui", "claude-stream"] {
        let api = api(&settings(driver));
        let mut asked: Vec<(Answer, Value)> = Vec::new();
        for number in 0..6 {
            let (answer, body) = ask(&api, number, "any");
            assert_eq!(answer.status, 200, "{driver}, {number}: {}", answer.text);
            asked.push((answer, body));
        }
        // The one that waited longest made room. Its result is right all the same.
        let [(first, left), .., (last, stays)] = &asked[..] else { panic!("six answers") };
        let again = go_on(&api, stays.clone(), last);
        assert_eq!(origin(&again), "warm", "{}", again.text);
        assert_eq!(again.json()["stop_reason"], "tool_use", "{}", again.text);
        let mut left = left.clone();
        left["tool_choice"] = json!({"type": "auto"});
        let late = go_on(&api, left, first);
        assert_eq!((late.status, origin(&late)), (200, "seeded".to_owned()), "{}", late.text);
    }
}

/// A client that was free to call may be about to return, so that its turn waits a moment.
#[test]
fn client_that_left_during_a_call_gives_up_its_place_when_retry_after_says() {
    let api = api(&settings("claude-stream"));
    let (first, left) = ask(&api, 0, "auto");
    let (second, stays) = ask(&api, 1, "auto");
    assert_eq!((first.status, second.status), (200, 200), "{} {}", first.text, second.text);
    let begun = std::time::Instant::now();
    let answer = wait_until("a place", || {
        let (answer, _) = ask(&api, 2, "auto");
        if answer.status == 200 {
            return Some(answer);
        }
        assert_eq!(answer.status, 529, "{}", answer.text);
        let seconds: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=2).contains(&seconds), "{seconds}");
        None
    });
    assert!(begun.elapsed().as_secs() < 10, "{}", answer.text);
    let second = go_on(&api, stays, &second);
    assert_eq!(origin(&second), "warm", "the one that waited longest was ended: {}", second.text);
    let late = wait_until("a place for the late result", || {
        Some(go_on(&api, left.clone(), &first)).filter(|answer| answer.status != 529)
    });
    assert_eq!(origin(&late), "seeded", "{}", late.text);
}
