//! Claude Code at `/v1`, in the dialects of Anthropic and OpenAI, on the scripted agent.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use hob_testkit::leak::files_below;
use hob_testkit::server::Answer;
use hob_testkit::{TestHome, wait_until};
use serde_json::{Value, json};

use crate::api::*;
use crate::backend::Backend;

/// A conversation as a client keeps it.
struct Talk<'a> {
    api: &'a Api,
    token: &'a str,
    messages: Vec<Value>,
}

impl Api {
    fn talk(&self) -> Talk<'_> {
        self.talk_as(&self.token)
    }

    fn talk_as<'a>(&'a self, token: &'a str) -> Talk<'a> {
        Talk { api: self, token, messages: Vec::new() }
    }

    fn message(&self, body: &Value) -> Answer {
        self.post("/v1/messages", body)
    }

    fn metric(&self, name: &str) -> String {
        let admin = std::fs::read_to_string(self.home.hob_home().join("admin.token")).unwrap();
        let text = self.server.get("/metrics", Some(admin.trim())).text;
        let line = text.lines().find(|line| line.starts_with(name)).map(str::to_owned);
        line.unwrap_or_else(|| panic!("{name}: {text}")).rsplit_once(' ').unwrap().1.to_owned()
    }
}

/// How a client sends an answer back.
type Echo = fn(&Value) -> Value;

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn asking(text: &str) -> Value {
    json!({"model": "claude", "max_tokens": 100, "messages": [user(text)]})
}

fn origin(answer: &Answer) -> &str {
    answer.headers.get("x-hob-session").map_or("none", |value| value.to_str().unwrap())
}

impl Talk<'_> {
    /// Asks and adds the answer as the client got it, changed by `echo`.
    fn ask(&mut self, text: &str, echo: impl Fn(&Value) -> Value) -> (String, String) {
        self.messages.push(user(text));
        let body = json!({"model": "claude", "max_tokens": 100, "messages": self.messages});
        let answer = self.api.call_as(self.token, "POST", "/v1/messages", &[], &body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        let message = answer.json();
        self.messages.push(json!({"role": "assistant", "content": echo(&message["content"])}));
        let texts: Vec<&str> = message["content"]
            .as_array()
            .unwrap()
            .iter()
            .map(|b| b["text"].as_str().unwrap())
            .collect();
        (texts.join("|"), origin(&answer).to_owned())
    }
}

fn as_string(content: &Value) -> Value {
    let blocks = content.as_array().unwrap().iter().map(|b| b["text"].as_str().unwrap());
    json!(blocks.collect::<Vec<_>>().join("\n\n"))
}

/// Ten turns are one process and nine warm hits, however the client echoes.
#[test]
fn v1_conversation_of_ten_turns_uses_one_process() {
    // Idle processes do not delay the end.
    let api = api("shutdown_grace_secs = 600\n[apps.tests]\npermissions = \"allow\"\n");
    let echoes: [(&str, Echo); 3] = [
        ("as blocks", Value::clone),
        ("as a string", as_string),
        ("the last text alone", |content| json!([content.as_array().unwrap().last().unwrap()])),
    ];
    for (name, echo) in echoes {
        let mut talk = api.talk();
        for turn in 1..=10 {
            let prompt = format!(
                "[[say looking {turn}]] [[tool Bash {}]] [[say {name} {turn}]]",
                json!({"command": "echo $PPID"})
            );
            let (said, origin) = talk.ask(&prompt, echo);
            assert_eq!(said, format!("looking {turn}|{name} {turn}"));
            assert_eq!(origin, if turn == 1 { "fresh" } else { "warm" }, "{name}, turn {turn}");
        }
        let (said, origin) = talk.ask("[[say {history}]]", echo);
        assert_eq!(origin, "warm");
        for turn in 1..=10 {
            assert!(said.contains(&format!("{name} {turn}")), "{said}");
        }
    }
    assert_eq!(api.processes().len(), 3, "one process a conversation");
    assert_eq!(api.metric("hob_v1_turns_total{session=\"warm\"}"), "30");
    assert_eq!(api.metric("hob_v1_turns_total{session=\"fresh\"}"), "3");
    assert_eq!(api.metric("hob_v1_processes{state=\"idle\"}"), "3");
    assert!(api.server.stop().success());
    let left = files_below(&api.home.hob_home().join("claude"));
    let left: Vec<_> =
        left.iter().filter(|path| path.extension().is_some_and(|e| e == "jsonl")).collect();
    assert!(left.is_empty(), "unused transcripts are left: {left:?}");
}

/// After a restart of Hob the next turn is given the history, and the one after finds its process.
#[test]
fn v1_conversation_is_seeded_after_a_restart() {
    for history in ["native_jsonl", "concat_message"] {
        let api = api(&format!("[claude]\nhistory = \"{history}\"\n"));
        let mut talk = api.talk();
        talk.ask("[[say the word is swordfish]]", Value::clone);
        talk.ask("[[say and a number is 42]]", Value::clone);
        let messages = talk.messages;
        let api = api.restart_after(|server| assert!(server.stop().success()));
        let mut talk = Talk { api: &api, token: &api.token, messages };
        let (said, origin) = talk.ask("what was it? [[say now {history}]]", Value::clone);
        assert_eq!(origin, "seeded");
        assert!(said.contains("swordfish") && said.contains("42"), "{history}: {said}");
        assert_eq!(talk.ask("[[say on]]", as_string), ("on".to_owned(), "warm".to_owned()));
    }
}

/// An app's settings: without a terminal a text comes in pieces, in a folder of the app's choice.
#[test]
fn v1_conversations_follow_the_apps_settings() {
    let home = TestHome::new();
    let folder = home.user_home().join("project");
    std::fs::create_dir_all(&folder).unwrap();
    let folder = folder.canonicalize().unwrap();
    let setup = format!(
        "[apps.tests]\ndriver = \"claude-stream\"\ncwd = {:?}\npermissions = \"allow\"\n",
        folder.display().to_string()
    );
    configure(&home, &setup);
    let token = home.app("tests");
    let api = Backend::File.start(home, &token);
    let mut talk = api.talk();
    let bash = json!({"command": "pwd -P > where"});
    talk.ask(&format!("[[tool Bash {bash}]] [[say done]]"), Value::clone);
    let wrote = std::fs::read_to_string(folder.join("where")).unwrap();
    assert_eq!(wrote.trim(), folder.display().to_string());
    assert_eq!(talk.ask("[[say again]]", Value::clone), ("again".to_owned(), "warm".to_owned()));
    let body =
        json!({"stream": true, "max_tokens": 9, "messages": [user("[[say one two three four]]")]});
    let events = stream(&api, "/v1/messages", &body);
    let pieces = events.iter().filter(|(_, data)| data["delta"]["type"] == "text_delta").count();
    assert!(pieces > 1, "token by token: {events:?}");
    // A client without a terminal is cancelled and found again like any other.
    let messages = talk.messages.clone();
    let api = api.restart_after(|server| assert!(server.stop().success()));
    let mut talk = Talk { api: &api, token: &api.token, messages };
    assert_eq!(talk.ask("[[say seeded]]", Value::clone).1, "seeded");
}

/// Claude Code calls it an API error. Without a terminal, the answer was lost.
#[test]
fn v1_answer_that_reaches_the_output_limit_is_an_answer() {
    for driver in ["claude-tui", "claude-stream"] {
        let api = api(&format!("[apps.tests]\ndriver = \"{driver}\"\n"));
        let prompt = "[[say the first part]] [[stop max_tokens]]";
        let answer = api.message(&asking(prompt));
        assert_eq!(answer.status, 200, "{driver}: {}", answer.text);
        let message = answer.json();
        assert_eq!(message["stop_reason"], "max_tokens", "{driver}: {message}");
        assert_eq!(message["content"][0]["text"], "the first part", "{driver}: {message}");
        assert_eq!(message["content"].as_array().unwrap().len(), 1, "{driver}: {message}");
        let body = json!({"model": "claude", "messages": [user(prompt)]});
        let completion = api.post("/v1/chat/completions", &body).json();
        let choice = &completion["choices"][0];
        assert_eq!(choice["finish_reason"], "length", "{driver}: {completion}");
        assert_eq!(choice["message"]["content"], "the first part", "{driver}: {completion}");
    }
}

/// Reads a whole stream: the names of events and their data.
fn stream(api: &Api, path: &str, body: &Value) -> Vec<(String, Value)> {
    let answer = api.post(path, body);
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.headers["content-type"], "text/event-stream");
    assert!(["warm", "fresh", "seeded"].contains(&origin(&answer)));
    let mut events = Vec::new();
    for block in answer.text.split("\n\n") {
        let line = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
        if let Some(data) = line("data: ") {
            let data = serde_json::from_str(data).unwrap_or(json!(data));
            events.push((line("event: ").unwrap_or_default().to_owned(), data));
        }
    }
    events
}

#[test]
fn v1_messages_stream_matches_anthropics_events() {
    let api = api("");
    let prompt = "[[think hm]] [[say first]] [[tool Bash {\"command\": \"true\"}]] [[say second]]";
    let mut body = asking(prompt);
    body["stream"] = json!(true);
    let events = stream(&api, "/v1/messages", &body);
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    let block = ["content_block_start", "content_block_delta", "content_block_stop"];
    let mut expect = vec!["message_start", "ping"];
    expect.extend(block.iter().chain(&block));
    expect.extend(["message_delta", "message_stop"]);
    assert_eq!(names, expect);
    assert!(events.iter().all(|(name, data)| data["type"] == name.as_str()));
    assert_eq!(events[0].1["message"]["role"], "assistant");
    assert_eq!(events[3].1["delta"]["text"], "first");
    assert_eq!(
        (&events[6].1["index"], &events[6].1["delta"]["text"]),
        (&json!(1), &json!("second"))
    );
    let last = &events[events.len() - 2].1;
    assert_eq!(last["delta"]["stop_reason"], "end_turn");
    assert!(last["usage"]["output_tokens"].as_u64().unwrap() > 0, "{last}");
}

#[test]
fn v1_chat_completions_match_openais_shapes() {
    let api = api("");
    let chat = |messages: &Value, more: Value| {
        let mut body =
            json!({"model": "claude", "messages": messages, "temperature": 0.2, "seed": 7});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let mut messages = vec![
        json!({"role": "system", "content": "Be kind."}),
        user("[[say one]] [[tool Bash {\"command\": \"true\"}]] [[say two]]"),
    ];
    let answer = api.post("/v1/chat/completions", &chat(&json!(messages), json!({})));
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(origin(&answer), "fresh");
    let completion = answer.json();
    assert_eq!(completion["object"], "chat.completion");
    let choice = &completion["choices"][0];
    assert_eq!(choice["message"]["content"], "one\n\ntwo");
    assert_eq!(choice["finish_reason"], "stop");
    let usage = &completion["usage"];
    let sum =
        usage["prompt_tokens"].as_u64().unwrap() + usage["completion_tokens"].as_u64().unwrap();
    assert_eq!(usage["total_tokens"].as_u64().unwrap(), sum);
    messages.extend([choice["message"].clone(), user("[[say three]] [[stop max_tokens]]")]);
    let more = json!({"stream": true, "stream_options": {"include_usage": true}});
    let answer = api.post("/v1/chat/completions", &chat(&json!(messages), more));
    assert_eq!(origin(&answer), "warm", "{}", answer.text);
    let data: Vec<&str> = answer.text.lines().filter_map(|l| l.strip_prefix("data: ")).collect();
    assert_eq!(data.last(), Some(&"[DONE]"));
    let chunks: Vec<Value> =
        data[..data.len() - 1].iter().map(|data| serde_json::from_str(data).unwrap()).collect();
    assert!(chunks.iter().all(|chunk| chunk["object"] == "chat.completion.chunk"));
    let said: String =
        chunks.iter().filter_map(|c| c["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(said, "three");
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let ends: Vec<&Value> = chunks.iter().map(|c| &c["choices"][0]["finish_reason"]).collect();
    assert!(ends.contains(&&json!("length")), "{ends:?}");
    assert!(chunks.last().unwrap()["usage"]["total_tokens"].is_u64());
}

#[test]
fn v1_errors_have_each_dialects_shape() {
    let api = api("max_body_bytes = 4096\n");
    let ask = |path: &str, token: Option<&str>, body: &str| {
        api.server.request("POST", path, token, &[], body.as_bytes())
    };
    let token = Some(api.token.as_str());
    let cases: Vec<(Option<&str>, String, u16, &str, &str)> = vec![
        (None, "{}".into(), 401, "authentication_error", "token"),
        (Some("wrong"), "{}".into(), 401, "authentication_error", "token"),
        (token, "{".into(), 400, "invalid_request_error", "JSON"),
        (token, "{}".into(), 400, "invalid_request_error", "messages"),
        (token, r#"{"messages": []}"#.into(), 400, "invalid_request_error", "empty"),
        (token, r#"{"messages": [{"role": "assistant", "content": "x"}]}"#.into(), 400,
            "invalid_request_error", "user"),
        (token, r#"{"messages": [{"role": "user", "content": 3}]}"#.into(), 400,
            "invalid_request_error", "messages[0].content"),
        (token, r#"{"messages": "x"}"#.into(), 400, "invalid_request_error", "messages"),
        (token, r#"{"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "web_search", "name": "t"}]}"#.into(),
            400, "invalid_request_error", "tools"),
        (token, r#"{"model": 3, "messages": [{"role": "user", "content": "x"}]}"#.into(), 400,
            "invalid_request_error", "model"),
        (token, r#"{"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url"}}]}]}"#.into(),
            400, "invalid_request_error", "base64"),
        (token, format!(r#"{{"messages": "{}"}}"#, "x".repeat(5000)), 413, "request_too_large", "4096"),
        (token, asking("[[error 429 slow down]]").to_string(), 429, "rate_limit_error", "slow down"),
        (token, asking("[[error 529 busy]]").to_string(), 529, "overloaded_error", "busy"),
        (token, asking("[[error 404 no such model]]").to_string(), 404, "not_found_error", "model"),
        (token, asking("[[error 401 bad key]]").to_string(), 500, "api_error", "bad key"),
        (token, asking("[[crash]]").to_string(), 500, "api_error", "claude ended"),
    ];
    for (token, body, status, kind, words) in cases {
        let answer = ask("/v1/messages", token, &body);
        let error = answer.json();
        assert_eq!(answer.status, status, "{body}: {}", answer.text);
        assert_eq!(
            (&error["type"], &error["error"]["type"]),
            (&json!("error"), &json!(kind)),
            "{body}"
        );
        assert!(error["error"]["message"].as_str().unwrap().contains(words), "{}", answer.text);
        assert!(answer.headers.contains_key("request-id"));
        // Also in the other dialect.
        let answer = ask("/v1/chat/completions", token, &body);
        let error = answer.json()["error"].clone();
        let expect = if status == 529 { 503 } else { status };
        assert_eq!(answer.status, expect, "{body}: {}", answer.text);
        assert!(error["message"].is_string() && error["type"].is_string(), "{}", answer.text);
        assert!(error["param"].is_string() || error["param"].is_null());
    }
    let answer = api.get("/v1/nothing");
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (404, Some("not_found")));
    for headers in [&[("anthropic-version", "2023-06-01")][..], &[]] {
        let answer = api.call("GET", "/v1/messages", headers, &Value::Null);
        assert_eq!((answer.status, answer.json()["type"].as_str()), (405, Some("error")));
    }
    api.wait_for_no_process();
}

#[test]
fn v1_models_are_listed_in_both_dialects() {
    let api = api("");
    let openai = api.get("/v1/models").json();
    assert_eq!((&openai["object"], &openai["data"][0]["id"]), (&json!("list"), &json!("claude")));
    let version = [("anthropic-version", "2023-06-01")];
    let anthropic = api.call("GET", "/v1/models", &version, &Value::Null).json();
    assert_eq!(
        (&anthropic["data"][0]["type"], &anthropic["has_more"]),
        (&json!("model"), &json!(false))
    );
    assert_eq!(api.get("/v1/models/sonnet").json()["object"], "model");
    assert_eq!(api.get("/v1/models/nobody").status, 404);
    // Other agents are for sessions.
    let names =
        openai["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap());
    assert!(names.clone().any(|name| name == "acp") && names.count() >= 6, "{openai}");
    let messages = json!([{"role": "user", "content": "x"}]);
    let body = json!({"model": "acp", "max_tokens": 9, "messages": messages});
    let refused = api.post("/v1/messages", &body);
    assert!(refused.status == 400 && refused.text.contains("sessions"), "{}", refused.text);
    assert_eq!(api.server.get("/v1/models", None).status, 401);
}

/// Idle processes are evicted for sessions, runs and other conversations; busy ones are not.
#[test]
fn v1_pool_keeps_within_max_live() {
    let api = api(&sessions("max_live = 1"));
    assert_eq!(api.message(&asking("one")).status, 200);
    assert_eq!(api.message(&asking("two")).status, 200);
    wait_until("one process at a time", || (api.processes().len() == 1).then_some(()));
    let id = api.session();
    assert_eq!(api.metric("hob_v1_processes{state=\"idle\"}"), "0");
    let full = api.message(&asking("three"));
    assert_eq!(
        (full.status, full.json()["error"]["type"].as_str()),
        (529, Some("overloaded_error"))
    );
    assert!(full.headers.contains_key("retry-after"));
    let full = api.post("/v1/chat/completions", &asking("three"));
    assert_eq!(full.status, 503, "{}", full.text);
    assert_eq!(api.close(&id).status, 200);
    assert_eq!(api.message(&asking("four")).status, 200);
    let run = api.post("/run", &json!({"prompt": "hi"}));
    assert_eq!(run.status, 200, "{}", run.text);
    assert_eq!(api.metric("hob_live "), "0", "the conversation made way for the run");
}

/// A client that goes away ends its turn, streaming or not.
#[test]
fn v1_turn_ends_when_its_client_leaves() {
    let api = api("[apps.tests]\npermissions = \"allow\"\n");
    let sleeps = json!({"command": "setsid sleep 1000"});
    for path in ["/v1/messages", "/v1/chat/completions"] {
        for streaming in [true, false] {
            let mut body = asking(&format!("[[say begun]] [[tool Bash {sleeps}]]"));
            body["stream"] = json!(streaming);
            let body = body.to_string();
            let mut connection = TcpStream::connect(api.server.address()).unwrap();
            connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            write!(
                connection,
                "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
                 content-length: {}\r\n\r\n{body}",
                api.token,
                body.len()
            )
            .unwrap();
            let mut reader = BufReader::new(connection);
            if streaming {
                let mut line = String::new();
                while !line.contains("begun") {
                    line.clear();
                    assert_ne!(reader.read_line(&mut line).unwrap(), 0, "{path}");
                }
            } else {
                wait_until("the turn has begun", || (api.processes().len() > 1).then_some(()));
            }
            drop(reader);
            api.wait_for_no_process();
        }
    }
    assert_eq!(api.message(&asking("on")).status, 200);
}

/// Equal histories of two apps are two processes, and what an app leaves goes with it.
#[test]
fn v1_pool_never_crosses_apps() {
    let api = api("");
    let other = api.home.app("other");
    let mut one = api.talk();
    assert_eq!(one.ask("[[say same]]", Value::clone).1, "fresh");
    let mut two = api.talk_as(&other);
    two.messages = one.messages.clone();
    assert_eq!(two.ask("[[say more]]", Value::clone).1, "seeded");
    assert_eq!(one.ask("[[say more]]", Value::clone).1, "warm");
    let agents = api.processes();
    assert_eq!(agents.len(), 2);
    let admin = std::fs::read_to_string(api.home.hob_home().join("admin.token")).unwrap();
    let answer = api.server.call("DELETE", "/admin/apps/other", Some(admin.trim()), None);
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(api.processes().len(), 1, "its processes are gone once its removal is answered");
    assert!(!api.home.hob_home().join("workspaces/v1-other").exists());
    assert_eq!(one.ask("[[say still here]]", Value::clone).1, "warm");
}

/// An app that was revoked by the command is forgotten by the server that runs, too.
#[test]
fn v1_processes_of_a_revoked_app_end() {
    let api = api(&sessions("sweep_interval_secs = 1"));
    let other = api.home.app("other");
    let mut talk = api.talk_as(&other);
    talk.ask("[[say mine]]", Value::clone);
    assert!(api.home.run(&["app", "revoke", "other", "--yes"]).status.success());
    assert!(!api.home.hob_home().join("workspaces/v1-other").exists());
    let again = api.home.app("other");
    let mut taken = api.talk_as(&again);
    taken.messages = talk.messages.clone();
    assert_eq!(taken.ask("[[say hers]]", Value::clone).1, "seeded", "another app of that name");
    assert!(api.home.run(&["app", "revoke", "other", "--yes"]).status.success());
    api.wait_for_no_process();
}

/// Nothing a caller writes is a command or names a file for the program to read by itself.
#[test]
fn v1_prompt_text_is_never_a_command() {
    let api = api("");
    for prompt in ["/clear", "exit", "!ls", "see @/etc/passwd", "@~/.ssh/id_rsa"] {
        let answer = api.message(&asking(prompt));
        assert_eq!(answer.status, 200, "{}", answer.text);
        let said = answer.json()["content"][0]["text"].as_str().unwrap().to_owned();
        assert_eq!(said.replace('\u{2800}', ""), format!("echo: {prompt}"));
        assert!(!prompt.contains('@') || said.contains("\u{2800}@"), "{said}");
    }
    let empty = api.message(&asking("  \n"));
    assert_eq!(empty.status, 400, "{}", empty.text);
}

/// Agents at `/v1` have the sandbox of sessions.
#[test]
fn v1_conversations_are_sandboxed() {
    let api = api("[apps.tests]\npermissions = \"allow\"\n");
    let home = api.home.hob_home();
    let mut talk = api.talk();
    let command = format!(
        "cat {0}/key {0}/admin.token; ls {0}; echo x > ~/made; echo inside > here; cat here",
        home.display()
    );
    let prompt = format!("[[tool Bash {}]] [[say {{history}}]]", json!({"command": command}));
    talk.ask(&prompt, Value::clone);
    let (said, _) = talk.ask("[[say {history}]]", Value::clone);
    let key = std::fs::read_to_string(home.join("admin.token")).unwrap();
    assert!(!said.contains(key.trim()), "{said}");
    assert!(!api.home.user_home().join("made").exists());
    let own = home.join("workspaces/v1-tests/here");
    assert_eq!(std::fs::read_to_string(own).unwrap().trim(), "inside");
}

/// Turns at `/v1` count for the app's limits and are stored in its memory.
#[test]
fn v1_turns_count_and_are_remembered() {
    let api = api("[limits]\napp_turns_per_minute = 2\n");
    assert_eq!(api.message(&asking("[[say the kettle is blue]]")).status, 200);
    let answer = api.post("/v1/chat/completions", &asking("[[say fine]]"));
    assert_eq!(answer.status, 200);
    let limited = api.message(&asking("[[say no]]"));
    assert_eq!(
        (limited.status, limited.json()["error"]["type"].as_str()),
        (429, Some("rate_limit_error"))
    );
    assert!(limited.headers.contains_key("retry-after"));
    wait_until("the turn is remembered", || {
        let found = api.recalled(&api.token, "which colour has the kettle");
        found.iter().any(|text| text == "the kettle is blue").then_some(())
    });
    let other = api.home.app("other");
    assert!(api.recalled(&other, "kettle").is_empty());
}

/// An image becomes a file that the agent can read.
#[test]
fn v1_images_become_files() {
    let api = api("[apps.tests]\npermissions = \"allow\"\n");
    let image = json!({"type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}});
    let content = json!([image, {"type": "text", "text": "what is it?"}]);
    let messages = json!([{"role": "user", "content": content}]);
    let answer = api.message(&json!({"max_tokens": 9, "messages": messages}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let said = answer.json()["content"][0]["text"].as_str().unwrap().to_owned();
    let path = said.split_whitespace().find(|word| word.ends_with("image.png")).expect("a path");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "hello");
    assert!(said.ends_with("what is it?"), "{said}");
    // The conversation goes on with the image in its history.
    let mut messages = messages.as_array().unwrap().clone();
    messages.push(json!({"role": "assistant", "content": answer.json()["content"]}));
    let cat = json!({"command": format!("cat {path} > copy")});
    messages.push(user(&format!("[[tool Bash {cat}]] [[say done]]")));
    let answer = api.message(&json!({"max_tokens": 9, "messages": messages}));
    assert_eq!((answer.status, origin(&answer)), (200, "warm"), "{}", answer.text);
    let copy = api.home.hob_home().join("workspaces/v1-tests/copy");
    assert_eq!(std::fs::read_to_string(copy).unwrap(), "hello");
    let url = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}});
    let parts = json!([{"type": "text", "text": "and this?"}, url]);
    let body = json!({"messages": [{"role": "user", "content": parts}]});
    let answer = api.post("/v1/chat/completions", &body);
    assert!(answer.text.contains("image.png"), "{}", answer.text);
}

#[test]
fn v1_without_claude_names_what_to_install() {
    let home = TestHome::new();
    home.configure("[agents.claude]\ncommand = [\"claude-is-not-here\"]\n");
    let token = home.app("tests");
    let api = Backend::File.start(home, &token);
    let answer = api.message(&asking("hi"));
    assert_eq!(answer.status, 500, "{}", answer.text);
    assert!(answer.text.contains("npm install"), "{}", answer.text);
    drop(api);
    let home = TestHome::new();
    home.configure("[claude]\nagent = \"demo\"\n");
    let token = home.app("tests");
    let api = Backend::File.start(home, &token);
    let answer = api.message(&asking("hi"));
    assert!(answer.status == 500 && answer.text.contains("claude-tui"), "{}", answer.text);
}
