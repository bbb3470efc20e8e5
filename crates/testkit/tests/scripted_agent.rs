//! The scripted agent behaves like the real agents in every protocol.
#![allow(clippy::disallowed_methods, reason = "tests start the agent to look at it from outside")]

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use hob_child::sweep::Marker;
use hob_child::{ChildSpec, Children, ChildrenOptions, Exit, Size, Streams};
use hob_testkit::{ModelApi, program, wait_until};
use serde_json::{Value, json};

fn agent(home: &std::path::Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program("hob-scripted-agent"));
    command.args(arguments).env_clear().env("HOME", home).current_dir(home);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn print(prompt: &str) -> Output {
    let home = tempfile::tempdir().unwrap();
    let mut command = agent(home.path(), &["-p", prompt, "--output-format", "json"]);
    command.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn print_mode_answers_like_claude_p() {
    let result = |output: &Output| serde_json::from_slice::<Value>(&output.stdout).unwrap();
    let good = print("hi");
    assert!(good.status.success());
    assert_eq!(result(&good)["result"], "echo: hi");
    assert_eq!(result(&good)["stop_reason"], "end_turn");
    let bad = print("[[error 529 Overloaded]]");
    assert_eq!(bad.status.code(), Some(1));
    assert_eq!(result(&bad)["is_error"], true);
    assert_eq!(result(&bad)["subtype"], "success");
    assert!(bad.stderr.is_empty());
    assert_eq!(print("[[exit 4]]").status.code(), Some(4));
}

/// A line-by-line conversation with an agent on pipes.
struct Talk {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Talk {
    fn start(mut command: Command) -> Talk {
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Talk { child, stdin, stdout }
    }

    fn send(&mut self, message: Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    /// Returns the lines up to the first that satisfies, and that one.
    fn until(&mut self, done: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut seen = Vec::new();
        loop {
            let line = self.line();
            assert!(!line.is_empty(), "the agent ended; seen {seen:?}");
            let Ok(value) = serde_json::from_str::<Value>(&line) else {
                seen.push(json!({"garbage": line.trim_end()}));
                continue;
            };
            seen.push(value);
            if done(seen.last().unwrap()) {
                return seen;
            }
        }
    }

    fn call(&mut self, id: u64, method: &str, params: Value) -> Vec<Value> {
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        self.until(|value| value["id"] == id && value.get("method").is_none())
    }

    fn end(mut self) -> std::process::ExitStatus {
        drop(self.stdin.take());
        wait_until("the agent ends at end of file", || self.child.try_wait().unwrap())
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn prompt(session: &Value, text: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
}

#[test]
fn acp_agent_initializes_prompts_and_cancels() {
    let home = tempfile::tempdir().unwrap();
    let mut talk = Talk::start(agent(home.path(), &["acp"]));
    let init = talk.call(1, "initialize", json!({"protocolVersion": 1}));
    assert_eq!(init[0]["result"]["protocolVersion"], 1);
    let new = talk.call(2, "session/new", json!({"cwd": home.path(), "mcpServers": []}));
    let session = new[0]["result"]["sessionId"].clone();

    let turn = talk.call(
        3,
        "session/prompt",
        prompt(&session, "hi [[garbage {oops]] [[say a]] [[say b]]"),
    );
    assert_eq!(turn[0]["garbage"], "{oops");
    assert_eq!(turn[1]["params"]["update"]["content"]["text"], "a");
    assert_eq!(turn[2]["params"]["update"]["sessionUpdate"], "agent_message_chunk");
    assert_eq!(turn[3]["result"]["stopReason"], "end_turn");

    // A permission request goes out, the answer comes back, the turn goes on.
    talk.send(json!({"jsonrpc": "2.0", "id": 4, "method": "session/prompt",
        "params": prompt(&session, "[[permission rm -rf]] [[say after]]")}));
    let asked = talk.until(|value| value["method"] == "session/request_permission");
    let request = asked.last().unwrap();
    assert_eq!(request["params"]["options"][1]["kind"], "allow_once");
    talk.send(json!({"jsonrpc": "2.0", "id": request["id"],
        "result": {"outcome": {"outcome": "selected", "optionId": "yes"}}}));
    let rest = talk.until(|value| value["id"] == 4);
    assert_eq!(rest[0]["params"]["update"]["content"]["text"], "permission rm -rf: yes");

    // Cancel while it hangs, then while a tool runs.
    for (id, words) in [(5, "[[hang]]"), (6, r#"[[tool Bash {"command":"sleep 1000"}]]"#)] {
        talk.send(json!({"jsonrpc": "2.0", "id": id, "method": "session/prompt",
            "params": prompt(&session, &format!("[[say on]] {words}"))}));
        talk.until(|value| value["params"]["update"]["content"]["text"] == "on");
        talk.send(
            json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}),
        );
        let end = talk.until(|value| value["id"] == id);
        assert_eq!(end.last().unwrap()["result"]["stopReason"], "cancelled");
    }
    let failed = talk.call(7, "session/prompt", prompt(&session, "[[error 500 broken]]"));
    assert_eq!(failed.last().unwrap()["error"]["message"], "broken");
    assert!(talk.end().success());

    // Another process knows the session: load replays it, resume does not, other ids are unknown.
    let mut talk = Talk::start(agent(home.path(), &["acp"]));
    let params = json!({"sessionId": session, "cwd": home.path(), "mcpServers": []});
    assert!(talk.call(1, "session/load", params.clone()).len() > 5);
    assert_eq!(talk.call(2, "session/resume", params).len(), 1);
    let unknown = talk.call(3, "session/load", json!({"sessionId": "nope"}));
    assert_eq!(unknown[0]["error"]["code"], -32002);
    let turn = talk.call(4, "session/prompt", prompt(&session, "more"));
    assert_eq!(turn.last().unwrap()["result"]["stopReason"], "end_turn");
    assert!(talk.call(5, "session/close", json!({"sessionId": session}))[0]["result"].is_object());
}

#[test]
fn acp_agent_can_ignore_end_of_file() {
    let home = tempfile::tempdir().unwrap();
    let mut talk = Talk::start(agent(home.path(), &["acp"]));
    let new = talk.call(1, "session/new", json!({}));
    let session = new[0]["result"]["sessionId"].clone();
    talk.call(2, "session/prompt", prompt(&session, "[[stubborn]]"));
    drop(talk.stdin.take());
    let term = nix::sys::signal::Signal::SIGTERM;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(talk.child.id() as i32), term).unwrap();
    // It ignores end of file and TERM: its output stays open, and only KILL ends it.
    let mut stdout = talk.stdout.get_ref().try_clone_owned();
    let reader = std::thread::spawn(move || stdout.read(&mut [0; 1]));
    assert!(talk.child.try_wait().unwrap().is_none());
    talk.child.kill().unwrap();
    reader.join().unwrap().unwrap();
}

trait TryCloneOwned {
    fn try_clone_owned(&self) -> std::fs::File;
}

impl TryCloneOwned for ChildStdout {
    fn try_clone_owned(&self) -> std::fs::File {
        use std::os::fd::AsFd;
        self.as_fd().try_clone_to_owned().unwrap().into()
    }
}

#[test]
fn stream_json_agent_answers_like_claude() {
    let home = tempfile::tempdir().unwrap();
    let arguments = [
        "-p",
        "--input-format",
        "stream-json",
        "--output-format",
        "stream-json",
        "--verbose",
        "--include-partial-messages",
    ];
    let mut talk = Talk::start(agent(home.path(), &arguments));
    let user = |text: &str| json!({"type": "user", "message": {"role": "user", "content": text}});
    talk.send(user(r#"[[think hm]] [[tool Bash {"command":"echo out"}]] [[say done]]"#));
    let events = talk.until(|value| value["type"] == "result");
    let mut kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    kinds.dedup();
    // A message ends before its tools run.
    let first = ["system", "assistant", "stream_event", "assistant", "stream_event", "user"];
    let second = ["stream_event", "assistant", "stream_event", "result"];
    assert_eq!(kinds, [&first[..], &second].concat());
    let pieces = events.iter().filter_map(|event| event["event"]["delta"]["partial_json"].as_str());
    assert_eq!(pieces.collect::<String>(), r#"{"command":"echo out"}"#);
    let result = events.iter().position(|event| event["type"] == "user").unwrap();
    assert_eq!(events[result - 1]["event"]["type"], "message_stop");
    assert_eq!(events[result]["message"]["content"][0]["content"], "out");
    assert_eq!(events[events.len() - 1]["result"], "done");

    talk.send(user("[[say on]] [[hang]]"));
    talk.until(|value| value["message"]["content"][0]["text"] == "on");
    talk.send(
        json!({"type": "control_request", "request_id": "r1", "request": {"subtype": "interrupt"}}),
    );
    let end = talk.until(|value| value["type"] == "result");
    assert_eq!(end.last().unwrap()["subtype"], "error_during_execution");
    talk.send(user("again"));
    assert_eq!(
        talk.until(|value| value["type"] == "result").last().unwrap()["result"],
        "echo: again"
    );
    assert!(talk.end().success());
}

/// The scripted agent on a real pseudo-terminal.
struct Terminal {
    child: hob_child::Child,
    home: PathBuf,
    runtime: tokio::runtime::Runtime,
    _children: Children,
    _folder: Arc<tempfile::TempDir>,
}

const READY: &str = "❯\u{a0}";

impl Terminal {
    fn start(arguments: &[&str], env: &[(&str, &str)]) -> Terminal {
        Terminal::start_in(Arc::new(tempfile::tempdir().unwrap()), arguments, env)
    }

    fn start_in(
        folder: Arc<tempfile::TempDir>,
        arguments: &[&str],
        env: &[(&str, &str)],
    ) -> Terminal {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let home = folder.path().canonicalize().unwrap();
        let children = Children::new(ChildrenOptions {
            shim: program("hob-scripted-agent"),
            records: home.join("run"),
            marker: Marker::new("faces", "1"),
            umask: 0o022,
            control_groups: None,
        })
        .unwrap();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut variables: Vec<(OsString, OsString)> =
            vec![("PATH".into(), path), ("HOME".into(), home.clone().into())];
        variables.extend(env.iter().map(|(name, value)| (name.into(), value.into())));
        let spec = ChildSpec {
            program: program("hob-scripted-agent").into(),
            args: arguments.iter().map(OsString::from).collect(),
            env: variables,
            cwd: home.clone(),
            streams: Streams::Terminal { size: Size::default() },
            owner: None,
            confinement: None,
        };
        let child = runtime.block_on(children.spawn(spec)).unwrap();
        Terminal { child, home, runtime, _children: children, _folder: folder }
    }

    fn screen(&self) -> String {
        self.child.output().tail_text()
    }

    fn sees(&self, text: &str) {
        wait_until(&format!("the screen shows {text:?}"), || {
            self.screen().contains(text).then_some(())
        });
    }

    fn write(&self, bytes: &str) {
        self.runtime.block_on(self.child.write_terminal(bytes.as_bytes())).unwrap();
    }

    /// Pastes, waits until the box shows it, presses Enter.
    fn ask(&self, text: &str) {
        self.write(&format!("\x1b[200~{text}\x1b[201~"));
        self.sees(&format!("{READY}{text}"));
        self.write("\r");
    }

    fn records(&self) -> Vec<Value> {
        let files = hob_testkit::leak::files_below(&self.home.join(".claude"));
        let texts = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
        let lines = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
        lines.filter_map(|line| serde_json::from_str(&line).ok()).collect()
    }

    /// Waits for this many records that satisfy and returns all records.
    fn wait_for(&self, what: &str, count: usize, is: impl Fn(&Value) -> bool) -> Vec<Value> {
        wait_until(what, || {
            let records = self.records();
            (records.iter().filter(|record| is(record)).count() >= count).then_some(records)
        })
    }

    fn ends(&self) -> Exit {
        self.runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(20), self.child.exited())
                .await
                .expect("it ends")
        })
    }
}

fn turn_end(record: &Value) -> bool {
    record["subtype"] == "turn_duration"
}

fn kinds(records: &[Value]) -> Vec<&str> {
    records.iter().filter_map(|record| record["type"].as_str()).collect()
}

#[test]
fn terminal_agent_writes_transcript_records() {
    let terminal = Terminal::start(&["--session-id", "5b9d3b1e-0000-4000-8000-000000000001"], &[]);
    terminal.sees(READY);
    assert!(terminal.records().is_empty(), "nothing is written before the first prompt");
    terminal.ask("hello");
    let records = terminal.wait_for("the first turn", 1, turn_end);
    assert_eq!(
        kinds(&records),
        [
            "mode",
            "permission-mode",
            "file-history-snapshot",
            "user",
            "attachment",
            "assistant",
            "system"
        ]
    );
    assert_eq!(records[3]["message"]["content"], "hello");
    assert_eq!(records[5]["message"]["content"][0]["text"], "echo: hello");
    for pair in records[3..].windows(2) {
        assert_eq!(pair[1]["parentUuid"], pair[0]["uuid"], "each is parented on the one before");
    }
    terminal
        .ask(r#"[[think hm]] [[tool Bash {"command":"echo out"}]] [[also Read {}]] [[say end]]"#);
    let records = terminal.wait_for("the second turn", 2, turn_end);
    let second = &records[7..];
    assert_eq!(
        kinds(second),
        ["user", "assistant", "assistant", "assistant", "user", "user", "assistant", "system"]
    );
    assert_eq!(second[1]["message"]["id"], second[3]["message"]["id"], "one message, three blocks");
    assert_eq!(second[4]["message"]["content"][0]["content"], "out");
    terminal.ask("[[error 529 Overloaded]]");
    let records = terminal.wait_for("the error", 3, turn_end);
    let error = &records[records.len() - 2];
    assert_eq!(
        (&error["isApiErrorMessage"], &error["apiErrorStatus"]),
        (&json!(true), &json!(529))
    );
    terminal.ask("/nosuch");
    terminal.wait_for("the refused command", 1, |record| record["subtype"] == "informational");
    terminal.ask(" exit ");
    assert_eq!(terminal.ends(), Exit::Code(0));
}

#[test]
fn terminal_agent_swallows_enter_right_after_a_paste() {
    let terminal = Terminal::start(&[], &[]);
    terminal.sees(READY);
    terminal.write("\x1b[200~first\x1b[201~\r");
    terminal.sees(&format!("{READY}first"));
    terminal.write("\x1b[200~second\x1b[201~");
    terminal.sees("firstsecond");
    terminal.write("\r");
    let records = terminal.wait_for("one turn of both", 1, turn_end);
    assert_eq!(records[3]["message"]["content"], "firstsecond");
    // A tall paste is shown as a placeholder and sent whole.
    let tall = "row\n".repeat(50);
    terminal.write(&format!("\x1b[200~{tall}\x1b[201~"));
    terminal.sees("[Pasted text #1 +50 lines]");
    terminal.write("\r");
    let records = terminal.wait_for("the tall one", 2, turn_end);
    assert!(records.iter().any(|record| record["message"]["content"] == tall.trim_end()));
}

#[test]
fn terminal_agent_is_interrupted_by_escape() {
    let terminal = Terminal::start(&[], &[]);
    terminal.sees(READY);
    let users = |record: &Value| record["type"] == "user";
    // Before the first token: the prompt is back in the box and nothing is recorded.
    terminal.ask("one [[hang]]");
    terminal.wait_for("the prompt's record", 1, users);
    terminal.write("\x1b");
    wait_until("the prompt is back in the box", || {
        terminal.screen().ends_with("? for shortcuts").then_some(())?;
        let screen = terminal.screen();
        screen.rsplit("\x1b[2J").next()?.contains(&format!("{READY}one [[hang]]")).then_some(())
    });
    assert_eq!(terminal.records().iter().filter(|record| users(record)).count(), 1);
    terminal.write("\x03");
    // Mid-stream: the partial text and the note.
    terminal.ask("[[say part]] [[hang]]");
    terminal.sees("● part");
    terminal.write("\x1b");
    let interrupted = |record: &Value| {
        let text = record["message"]["content"][0]["text"].as_str().unwrap_or_default();
        text.starts_with("[Request interrupted by user")
    };
    let records = terminal.wait_for("the note", 1, interrupted);
    assert_eq!(records[records.len() - 2]["message"]["content"][0]["text"], "part");
    // In a tool, by Ctrl-C.
    terminal.ask(r#"[[tool Bash {"command":"sleep 1000"}]]"#);
    terminal.wait_for("the call's record", 1, |r| r["message"]["content"][0]["type"] == "tool_use");
    terminal.write("\x03");
    let records = terminal.wait_for("the note for a tool", 2, interrupted);
    assert!(
        records.last().unwrap()["message"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .ends_with("for tool use]")
    );
    // The session goes on, and none of the three interrupts wrote an end of turn.
    terminal.ask("still there");
    assert_eq!(
        terminal.wait_for("the last turn", 1, turn_end).iter().filter(|r| turn_end(r)).count(),
        1
    );
}

#[test]
fn terminal_agent_shows_permission_dialogs() {
    let terminal = Terminal::start(&[], &[]);
    terminal.sees(READY);
    terminal.ask("[[permission rm x]] [[say went on]]");
    terminal.sees("Do you want to proceed?");
    assert!(terminal.screen().contains("❯ 1. Yes"));
    terminal.write("1");
    terminal.wait_for("the turn", 1, turn_end);
    terminal.ask("[[permission rm y]] [[say never]]");
    terminal.sees("rm y\r\nThis command requires approval");
    terminal.write("\x1b");
    terminal.wait_for("the refusal", 1, |record| {
        record["message"]["content"][0]["text"] == "[Request interrupted by user for tool use]"
    });
    assert!(!terminal.records().iter().any(|r| r["message"]["content"][0]["text"] == "never"));
}

#[test]
fn terminal_agent_shows_the_real_ones_oddities() {
    // A dialog at the start.
    let terminal = Terminal::start(&[], &[("HOB_SCRIPT_DIALOG", "trust")]);
    terminal.sees("Yes, I trust this folder");
    assert!(!terminal.screen().contains(READY));
    terminal.write("\r");
    terminal.sees(READY);
    // A shuffled first batch: complete, but not in order.
    terminal.ask("[[shuffle]] [[say x]]");
    let records = terminal.wait_for("the batch", 1, |record| record["type"] == "user");
    let place = |kind: &str| records.iter().position(|record| record["type"] == kind).unwrap();
    assert!(place("assistant") < place("user"));
    // A crash in the middle of a turn.
    terminal.ask("[[say half]] [[crash]]");
    assert_eq!(terminal.ends(), Exit::Signal(9));
}

#[test]
fn terminal_agent_resumes_known_conversations_only() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let id = "5b9d3b1e-0000-4000-8000-000000000002";
    let terminal = Terminal::start_in(folder.clone(), &["--session-id", id], &[]);
    terminal.sees(READY);
    terminal.ask("my name is Beaver");
    terminal.wait_for("the turn", 1, turn_end);
    terminal.ask("exit");
    terminal.ends();
    let resumed = Terminal::start_in(folder.clone(), &["--resume", id], &[]);
    resumed.sees(READY);
    resumed.ask("[[say I know: {history}]]");
    let records = resumed.wait_for("the turn", 2, turn_end);
    let reply = records.iter().rev().find(|record| record["type"] == "assistant").unwrap();
    assert!(reply["message"]["content"][0]["text"].as_str().unwrap().contains("my name is Beaver"));
    let taken = Terminal::start_in(folder.clone(), &["--session-id", id], &[]);
    assert_eq!(taken.ends(), Exit::Code(1));
    taken.sees("already in use");
    let unknown =
        Terminal::start_in(folder, &["--resume", "5b9d3b1e-0000-4000-8000-00000000ffff"], &[]);
    assert_eq!(unknown.ends(), Exit::Code(1));
    unknown.sees("No conversation found");
}

#[test]
fn model_api_streams_and_fails_as_scripted() {
    let api = ModelApi::start();
    let call = |body: Value| {
        let agent: ureq::Agent =
            ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let mut response =
            agent.post(format!("{}/v1/messages?beta=true", api.url())).send_json(body).unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
    };
    let request = |text: &str, stream: bool| {
        json!({"model": "m", "stream": stream, "tools": [{"name": "Bash"}],
            "messages": [{"role": "user", "content": text}]})
    };
    let (status, text) = call(request("hi", false));
    assert_eq!(status, 200);
    assert!(text.contains("echo: hi") && text.contains("end_turn"), "{text}");
    let (_, text) = call(request(r#"[[think a]] [[tool Bash {"command":"x"}]]"#, true));
    for word in ["message_start", "thinking_delta", "input_json_delta", "tool_use", "message_stop"]
    {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert_eq!(call(request("[[error 529 1x then fine]]", false)).0, 529);
    assert_eq!(call(request("[[error 529 1x then fine]]", false)).0, 200);
    assert_eq!(call(json!({"model": "nonexist", "messages": []})).0, 404);
    assert_eq!(api.requests().len(), 4);
}
