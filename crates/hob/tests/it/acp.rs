//! `hob acp`: an editor's view of Hob's sessions.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use hob_testkit::{TestHome, wait_until};
use serde_json::{Value, json};

use crate::api::*;

const ANSWER: Duration = Duration::from_secs(60);

/// An editor that has started `hob acp`. Dropping it ends it.
struct EditorClient {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    last: u64,
    /// The kind of option that it chooses when it is asked for permission.
    permits: &'static str,
    /// The titles that it was asked about.
    asked: Vec<String>,
    /// The parameters of the latest permission request.
    request: Value,
    /// How it answers forms.
    form: Value,
}

impl EditorClient {
    fn start(home: &TestHome, agent: &str) -> EditorClient {
        let mut command = home.command(&["acp", "--agent", agent]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().expect("hob acp starts");
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (said, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).expect("only JSON on standard output");
                if said.send(message).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        let (permits, asked) = ("reject_once", Vec::new());
        let (request, form) = (Value::Null, Value::Null);
        let mut editor =
            EditorClient { child, stdin, lines, last: 0, permits, asked, request, form };
        let capabilities = json!({"fs": {"readTextFile": false, "writeTextFile": false}});
        editor.introduce(capabilities);
        editor
    }

    fn introduce(&mut self, capabilities: Value) {
        let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        let (answer, _) = self.call("initialize", params);
        assert_eq!(answer["result"]["protocolVersion"], 1, "{answer}");
        assert_eq!(answer["result"]["agentCapabilities"]["loadSession"], true);
    }

    fn send(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(format!("{message}\n").as_bytes()).expect("hob acp reads");
    }

    fn ask(&mut self, method: &str, params: Value) {
        self.last += 1;
        let id = self.last;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    /// Returns the answer to the latest request, and the updates before it.
    fn answer(&mut self) -> (Value, Vec<Value>) {
        let mut updates = Vec::new();
        loop {
            let message = self.lines.recv_timeout(ANSWER).expect("hob acp answers in time");
            match message["method"].as_str() {
                Some("session/update") => updates.push(message["params"].clone()),
                Some("session/request_permission") => {
                    let params = &message["params"];
                    self.asked.push(params["toolCall"]["title"].to_string());
                    let mut options = params["options"].as_array().unwrap().iter();
                    let option = options.find(|option| option["kind"] == self.permits).unwrap();
                    let outcome = json!({"outcome": "selected", "optionId": option["optionId"]});
                    let result = json!({"outcome": outcome});
                    self.request = params.clone();
                    self.send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
                }
                Some("elicitation/create") => {
                    let params = &message["params"];
                    assert_eq!(params["mode"], "form", "{params}");
                    assert!(params["requestedSchema"]["properties"].is_object(), "{params}");
                    self.asked.push(params["message"].to_string());
                    let result = self.form.clone();
                    self.send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
                }
                Some(other) => panic!("unknown method {other}"),
                None => {
                    assert_eq!(message["id"], self.last, "{message}");
                    return (message, updates);
                }
            }
        }
    }

    fn call(&mut self, method: &str, params: Value) -> (Value, Vec<Value>) {
        self.ask(method, params);
        self.answer()
    }

    fn new_session(&mut self, home: &TestHome) -> String {
        let cwd = home.user_home().display().to_string();
        let (answer, _) = self.call("session/new", json!({"cwd": cwd, "mcpServers": []}));
        answer["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    fn prompt(&mut self, session: &str, text: &str) -> (Value, Vec<Value>) {
        self.call("session/prompt", prompt(session, text))
    }
}

impl Drop for EditorClient {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let status = self.child.wait().expect("hob acp ends with its input");
        if !std::thread::panicking() {
            assert!(status.success(), "{status}");
        }
    }
}

fn prompt(session: &str, text: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
}

/// Returns the words by which the scripted agent asks for permission to change a file, its tool call and its options.
pub fn permission_with_a_diff() -> (String, Value, Value) {
    let diff = json!({"type": "diff", "path": "/w/a.rs", "oldText": "old", "newText": "new"});
    let call = json!({"toolCallId": "toolu_7", "kind": "edit", "title": "Edit a.rs", "content": [diff],
        "status": "pending", "locations": [{"path": "/w/a.rs", "line": 3}],
        "rawInput": {"file_path": "/w/a.rs", "old_string": "old", "new_string": "new"}});
    let options = json!([{"optionId": "a", "name": "Always", "kind": "allow_always"},
        {"optionId": "o", "name": "Once", "kind": "allow_once"},
        {"optionId": "n", "name": "Never", "kind": "reject_always"}]);
    let params = json!({"options": options, "toolCall": call});
    (format!("[[request session/request_permission {params}]]"), call, options)
}

/// The texts of updates of one kind.
fn texts(updates: &[Value], kind: &str) -> String {
    let of_kind = updates.iter().filter(|params| params["update"]["sessionUpdate"] == kind);
    of_kind.map(|params| params["update"]["content"]["text"].as_str().unwrap_or_default()).collect()
}

#[test]
fn editor_prompts_a_session_and_loads_it_again() {
    for agent in ["acp", "claude"] {
        let api = api("");
        let mut editor = EditorClient::start(&api.home, agent);
        let session = editor.new_session(&api.home);
        let (answer, updates) = editor.prompt(&session, "[[say Hello there.]]");
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        assert!(updates.iter().all(|params| params["sessionId"] == session.as_str()));
        assert_eq!(texts(&updates, "agent_message_chunk"), "Hello there.");
        drop(editor);

        // The session outlives the editor and the server. (The scripted `claude` cannot resume a session that asks.)
        let api = match agent {
            "acp" => api.restart_after(|server| server.kill()),
            _ => api,
        };
        let mut editor = EditorClient::start(&api.home, agent);
        let (listed, _) = editor.call("session/list", json!({}));
        let listed = &listed["result"]["sessions"];
        assert_eq!(
            (&listed[0]["sessionId"], &listed[0]["title"]),
            (&json!(session), &json!("[[say Hello there.]]")),
            "{listed}"
        );
        let cwd = api.home.user_home().display().to_string();
        let params = json!({"sessionId": session, "cwd": cwd, "mcpServers": []});
        let (loaded, updates) = editor.call("session/load", params);
        assert!(loaded["result"].is_object(), "{loaded}");
        assert_eq!(texts(&updates, "user_message_chunk"), "[[say Hello there.]]");
        assert_eq!(texts(&updates, "agent_message_chunk"), "Hello there.");
        let (answer, updates) = editor.prompt(&session, "[[say I said: {history}]]");
        let said = texts(&updates, "agent_message_chunk");
        assert!(said.contains("Hello there."), "{agent}: {answer} {updates:?}");
        let (closed, _) = editor.call("session/close", json!({"sessionId": session}));
        assert!(closed["result"].is_object(), "{closed}");
        let (answer, _) = editor.prompt(&session, "[[say Still here.]]");
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        let (deleted, _) = editor.call("session/delete", json!({"sessionId": session}));
        assert!(deleted["result"].is_object(), "{deleted}");
        let (refused, _) = editor.prompt(&session, "more");
        assert!(refused["error"]["message"].as_str().unwrap().contains("closed"), "{refused}");
    }
}

#[test]
fn editor_answers_permission_requests_and_cancels() {
    let api = api("");
    let mut editor = EditorClient::start(&api.home, "acp");
    let session = editor.new_session(&api.home);
    for (permits, expect) in [("reject_once", "it: no"), ("allow_once", "it: yes")] {
        editor.permits = permits;
        let (answer, updates) = editor.prompt(&session, "[[permission touch it]]");
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        let said = texts(&updates, "agent_message_chunk");
        assert!(said.contains(expect), "{permits}: {said}");
    }
    assert_eq!(editor.asked.len(), 2);
    editor.ask("session/prompt", prompt(&session, "[[say Begun.]] [[hang]]"));
    // The agent has begun.
    let begun = editor.lines.recv_timeout(ANSWER).unwrap();
    assert_eq!(begun["method"], "session/update", "{begun}");
    editor.send(
        &json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}),
    );
    let (answer, _) = editor.answer();
    assert_eq!(answer["result"]["stopReason"], "cancelled", "{answer}");
}

/// The editor is asked about the agent's own tool call, with the change that it makes, also when it comes back later.
#[test]
fn editor_is_asked_about_the_agents_own_call() {
    let api = api("");
    let mut editor = EditorClient::start(&api.home, "acp");
    editor.permits = "reject_always";
    let session = editor.new_session(&api.home);
    let (words, call, options) = permission_with_a_diff();
    editor.prompt(&session, &words);
    let own = json!({"sessionId": session, "toolCall": call, "options": options});
    assert_eq!(editor.request, own);
    // Another editor is asked in the same words.
    editor.ask("session/prompt", prompt(&session, &words));
    while editor.lines.recv_timeout(ANSWER).unwrap()["method"] != "session/request_permission" {}
    drop(editor);
    let mut editor = EditorClient::start(&api.home, "acp");
    editor.permits = "allow_always";
    let cwd = api.home.user_home().display().to_string();
    editor.call("session/load", json!({"sessionId": session, "cwd": cwd, "mcpServers": []}));
    let (answer, _) = editor.prompt(&session, "[[say On.]]");
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert_eq!(editor.request, own);
}

/// An agent's form is the editor's form. An editor that shows none can decline it, or allow it if nothing is required.
#[test]
fn editor_fills_in_forms() {
    let api = api("");
    let mut editor = EditorClient::start(&api.home, "acp");
    let session = editor.new_session(&api.home);
    let form = |required: &str| {
        format!(
            r#"[[request elicitation/create {{"mode":"form","message":"Which port?","requestedSchema":{{"type":"object","properties":{{"port":{{"type":"integer"}}}},"required":{required}}}}}]]"#
        )
    };
    let ask = |editor: &mut EditorClient, required: &str| {
        let (answer, updates) = editor.prompt(&session, &form(required));
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        let said = texts(&updates, "agent_message_chunk");
        serde_json::from_str::<Value>(&said).unwrap_or_else(|_| panic!("{said}"))
    };
    assert_eq!(ask(&mut editor, r#"["port"]"#), json!({"action": "decline"}));
    editor.permits = "allow_once";
    assert_eq!(ask(&mut editor, "[]"), json!({"action": "accept", "content": {}}));
    editor.introduce(json!({"elicitation": {"form": {}}}));
    for (answer, expect) in [
        (
            json!({"action": "accept", "content": {"port": 1}}),
            json!({"action": "accept", "content": {"port": 1}}),
        ),
        (json!({"action": "decline"}), json!({"action": "decline"})),
        (json!({"action": "cancel"}), json!({"action": "decline"})),
        // It does not fit the form.
        (json!({"action": "accept", "content": {"port": "x"}}), json!({"action": "decline"})),
    ] {
        editor.form = answer.clone();
        assert_eq!(ask(&mut editor, r#"["port"]"#), expect, "{answer}");
    }
    assert_eq!(editor.asked.len(), 6);
}

/// The agent's modes, options and commands are those of the editor, also after a restart.
#[test]
fn editor_changes_modes_and_options() {
    let agent = TestHome::scripted_agent("moded", "acp", &["acp", "--settings"]);
    let api = api(&format!("{agent}\n"));
    let mut editor = EditorClient::start(&api.home, "moded");
    let cwd = api.home.user_home().display().to_string();
    let (answer, _) = editor.call("session/new", json!({"cwd": cwd, "mcpServers": []}));
    let made = &answer["result"];
    let session = made["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(made["modes"]["currentModeId"], "ask", "{answer}");
    assert_eq!(made["configOptions"][0]["id"], "model", "{answer}");
    let named = editor.lines.recv_timeout(ANSWER).unwrap();
    let update = &named["params"]["update"];
    assert_eq!(named["params"]["sessionId"], session.as_str());
    assert_eq!(update["availableCommands"][0]["name"], "review", "{named}");
    let mode = |mode: &str| json!({"sessionId": session, "modeId": mode});
    let (answer, _) = editor.call("session/set_mode", mode("code"));
    assert!(answer["result"].is_object(), "{answer}");
    let option = json!({"sessionId": session, "configId": "model", "value": "large"});
    let (answer, _) = editor.call("session/set_config_option", option);
    assert_eq!(answer["result"]["configOptions"][0]["currentValue"], "large", "{answer}");
    let (_, updates) = editor.prompt(&session, "[[say {mode} {model}]]");
    assert_eq!(texts(&updates, "agent_message_chunk"), "code large");
    for (method, params, code) in [
        ("session/set_mode", mode("dance"), -32602),
        ("session/set_mode", json!({"sessionId": session}), -32602),
        ("session/set_mode", json!({"sessionId": "0000", "modeId": "code"}), -32002),
    ] {
        let (answer, _) = editor.call(method, params.clone());
        assert_eq!(answer["error"]["code"], code, "{method} {params}: {answer}");
    }
    // Another client changes the mode, and the editor shows it.
    let own = |update: &Value| update["update"]["sessionUpdate"] == "current_mode_update";
    let mut other = EditorClient::start(&api.home, "moded");
    other.call("session/resume", json!({"sessionId": session, "cwd": cwd, "mcpServers": []}));
    other.call("session/set_mode", mode("ask"));
    loop {
        let shown = editor.lines.recv_timeout(ANSWER).unwrap()["params"].clone();
        if own(&shown) && shown["update"]["currentModeId"] == "ask" {
            break;
        }
    }
    drop((editor, other));
    let api = api.restart_after(|server| server.kill());
    let mut editor = EditorClient::start(&api.home, "moded");
    let params = json!({"sessionId": session, "cwd": cwd, "mcpServers": []});
    let (loaded, _) = editor.call("session/load", params);
    assert_eq!(loaded["result"]["modes"]["currentModeId"], "ask", "{loaded}");
    assert_eq!(loaded["result"]["configOptions"][0]["currentValue"], "large", "{loaded}");
}

/// An agent without modes answers as the protocol has it.
#[test]
fn agents_without_modes_have_none_for_the_editor() {
    let api = api("");
    let mut editor = EditorClient::start(&api.home, "acp");
    let cwd = api.home.user_home().display().to_string();
    let (answer, _) = editor.call("session/new", json!({"cwd": cwd, "mcpServers": []}));
    assert!(answer["result"]["modes"].is_null(), "{answer}");
    let session = &answer["result"]["sessionId"];
    let params = json!({"sessionId": session, "modeId": "plan"});
    let (answer, _) = editor.call("session/set_mode", params);
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
}

/// An editor that left while a turn ran, and comes back, sees the rest of it and is asked what is still open.
#[test]
fn editor_that_comes_back_follows_the_turn_and_is_asked_again() {
    let api = api("");
    let mut editor = EditorClient::start(&api.home, "acp");
    let session = editor.new_session(&api.home);
    editor.ask("session/prompt", prompt(&session, "[[say Begun.]] [[permission touch it]]"));
    while editor.lines.recv_timeout(ANSWER).unwrap()["method"] != "session/request_permission" {}
    drop(editor);
    let mut editor = EditorClient::start(&api.home, "acp");
    editor.permits = "allow_once";
    let cwd = api.home.user_home().display().to_string();
    let params = json!({"sessionId": session, "cwd": cwd, "mcpServers": []});
    let (_, mut updates) = editor.call("session/load", params);
    // The next turn begins after the first.
    let (answer, rest) = editor.prompt(&session, "[[say On.]]");
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    updates.extend(rest);
    // The end of the first turn may arrive a moment later than the second turn.
    while !texts(&updates, "agent_message_chunk").contains("it: yes") {
        updates.push(editor.lines.recv_timeout(ANSWER).unwrap()["params"].clone());
    }
    let said = texts(&updates, "agent_message_chunk");
    assert!(said.starts_with("Begun.") && said.contains("On."), "{said}");
    assert_eq!(editor.asked.len(), 1);
}

/// A turn that is interrupted by the end of the server ends with the server's own words.
#[test]
fn editor_is_told_when_the_server_is_killed() {
    let api = api("");
    let mut editor = EditorClient::start(&api.home, "acp");
    let session = editor.new_session(&api.home);
    editor.ask("session/prompt", prompt(&session, "[[say Begun.]] [[hang]]"));
    let begun = editor.lines.recv_timeout(ANSWER).unwrap();
    assert_eq!(begun["method"], "session/update", "{begun}");
    let api = api.restart_after(|server| server.kill());
    let (answer, _) = editor.answer();
    assert!(answer["error"]["message"].is_string(), "{answer}");
    let (answer, _) = editor.prompt(&session, "[[say On.]]");
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    drop(editor);
    assert!(api.server.stop().success());
}

/// Two prompts with equal texts are two turns: after the server was killed, each has the answer of its own turn.
#[test]
fn equal_prompts_have_their_own_answers_after_a_kill() {
    let api = api("");
    let mut editor = EditorClient::start(&api.home, "acp");
    let session = editor.new_session(&api.home);
    let gate = api.home.user_home().join("gate");
    let text = "[[say Begun.]] [[until gate]] [[say Done.]]";
    // The first ends, the second is cut, and the third still waits in the queue.
    std::fs::write(&gate, "").unwrap();
    let (answer, _) = editor.prompt(&session, text);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    std::fs::remove_file(&gate).unwrap();
    editor.ask("session/prompt", prompt(&session, text));
    let cut = editor.last;
    let admin = std::fs::read_to_string(api.home.hob_home().join("admin.token")).unwrap();
    let path = format!("/admin/sessions/{session}/turns");
    let wait_for = |state: &str, count: usize| {
        wait_until(&format!("turn {count} is {state}"), || {
            let turns = api.server.get(&path, Some(admin.trim())).json();
            let turns = turns["turns"].as_array()?;
            (turns.len() == count && turns[count - 1]["state"] == state).then_some(())
        });
    };
    wait_for("running", 2);
    editor.ask("session/prompt", prompt(&session, text));
    let queued = editor.last;
    wait_for("queued", 3);
    let api = api.restart_after(|server| {
        server.kill();
        std::fs::write(&gate, "").unwrap();
    });
    let mut answers = std::collections::BTreeMap::new();
    let mut said = String::new();
    while answers.len() < 2 {
        let message = editor.lines.recv_timeout(ANSWER).expect("hob acp answers in time");
        match message["id"].as_u64() {
            Some(id) => drop(answers.insert(id, message)),
            None => said.push_str(&texts(&[message["params"].clone()], "agent_message_chunk")),
        }
    }
    assert!(answers[&cut]["error"]["message"].is_string(), "{answers:?}");
    assert_eq!(answers[&queued]["result"]["stopReason"], "end_turn", "{answers:?}");
    assert!(said.ends_with("Begun.Done."), "{said}");
    drop(editor);
    assert!(api.server.stop().success());
}

#[test]
fn wrong_requests_of_an_editor_are_refused_by_name() {
    let api = api("");
    let mut editor = EditorClient::start(&api.home, "acp");
    let session = editor.new_session(&api.home);
    for (method, params, code) in [
        ("session/fork", json!({}), -32601),
        ("session/new", json!({}), -32602),
        ("session/prompt", json!({"sessionId": session}), -32602),
        ("session/prompt", json!({"sessionId": session, "prompt": [{"type": "image"}]}), -32602),
        ("session/prompt", prompt("0000", "x"), -32002),
        ("session/prompt", prompt("../admin", "x"), -32002),
        ("session/load", json!({"sessionId": "0000", "cwd": "/", "mcpServers": []}), -32002),
        ("session/new", json!({"cwd": "not/absolute"}), -32603),
    ] {
        let (answer, _) = editor.call(method, params.clone());
        assert_eq!(answer["error"]["code"], code, "{method} {params}: {answer}");
    }
    drop(editor);
    let home = api.end_with(|server| assert!(server.stop().success())).0;
    let mut editor = EditorClient::start(&home, "acp");
    let (answer, _) = editor.call("session/new", json!({"cwd": "/", "mcpServers": []}));
    assert!(answer["error"]["message"].as_str().unwrap().contains("hob serve"), "{answer}");
}
