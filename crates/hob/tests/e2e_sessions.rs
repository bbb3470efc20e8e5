//! Sessions with real agents that speak ACP, over HTTP alone and offline against the scripted model
//! API: Claude Code through its adapter, opencode, Codex and Gemini CLI. They run in the strictest sandbox that the kernel allows.
//!
//! The agents come from `e2e/package.json`; `scripts/test` installs them. Without them this fails.
#![allow(clippy::disallowed_methods, reason = "tests start hob to look at it from outside")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use hob_child::landlock_version;
use hob_domain::Timestamp;
use hob_testkit::leak::{files_below, processes_with};
use hob_testkit::model_api::without_reminders;
use hob_testkit::{
    Cluster, ClusterOptions, HobServer, ModelApi, TestHome, proved_with_program, strictest_sandbox,
    wait_until,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// A real agent may take this long to start on a loaded machine.
const AGENT_TIMEOUT: Duration = Duration::from_secs(100);

/// Something below `e2e/`.
fn installed(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e").join(name);
    assert!(path.exists(), "{name} is not installed: run scripts/setup-e2e, or scripts/test");
    path.canonicalize().unwrap().display().to_string()
}

/// A server with one real agent, an app on it, and the model the agent talks to. The server comes
/// first: it ends before its home is removed.
struct Setup {
    server: Option<HobServer>,
    home: TestHome,
    token: String,
    api: ModelApi,
    agent: &'static str,
}

impl Setup {
    /// Claude Code through the official adapter, by the built-in entry.
    fn claude() -> Setup {
        let api = ModelApi::start();
        let mut env = api.claude_environment();
        // It would ask the model after every turn what the user might say next.
        env.push(("CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION", "false".to_owned()));
        let command = vec![installed("node_modules/.bin/claude-agent-acp")];
        Setup::new("claude-agent-acp", command, env, "", api)
    }

    /// Claude Code itself, by the built-in entry, with this driver.
    fn plain_claude(driver: &str) -> Setup {
        let api = ModelApi::start();
        let env = api.claude_environment();
        let command = vec![installed("node_modules/.bin/claude")];
        Setup::new("claude", command, env, &format!("driver = \"{driver}\"\n"), api)
    }

    /// The built-in entry with a model of our own.
    fn opencode() -> Setup {
        let api = ModelApi::start();
        let env = api.opencode_environment();
        let program = installed("node_modules/opencode-linux-x64-baseline/bin/opencode");
        Setup::new("opencode", vec![program, "acp".to_owned()], env, "", api)
    }

    /// The built-in entry with a model of our own, which Codex reads from its configuration.
    fn codex() -> Setup {
        let api = ModelApi::start();
        let config = format!(
            "model = \"scripted\"\nmodel_provider = \"scripted\"\n\n[model_providers.scripted]\nname = \"scripted\"\n\
             base_url = \"{}/v1\"\nenv_key = \"SCRIPTED_KEY\"\nwire_api = \"responses\"\n",
            api.url()
        );
        let env = vec![
            ("SCRIPTED_KEY", "sk-scripted".to_owned()),
            // As in the built-in entry, whose variables these replace.
            ("INITIAL_AGENT_MODE", "agent-full-access".to_owned()),
        ];
        let command = vec![installed("node_modules/.bin/codex-acp")];
        let files = [(".codex/config.toml", config)];
        Setup::with_files("codex", command, env, "", api, &files)
    }

    /// The built-in entry with a model of our own.
    fn gemini() -> Setup {
        let api = ModelApi::start();
        let env = vec![
            ("GOOGLE_GEMINI_BASE_URL", api.url().to_owned()),
            ("GEMINI_API_KEY", "scripted".to_owned()),
            ("GEMINI_MODEL", "gemini-2.5-pro".to_owned()),
            // As in the built-in entry.
            ("GEMINI_CLI_TRUST_WORKSPACE", "true".to_owned()),
        ];
        let command = vec![installed("node_modules/.bin/gemini"), "--acp".to_owned()];
        Setup::new("gemini", command, env, "", api)
    }

    fn new(
        agent: &'static str,
        command: Vec<String>,
        env: Vec<(&str, String)>,
        entry: &str,
        api: ModelApi,
    ) -> Setup {
        Setup::with_files(agent, command, env, entry, api, &[])
    }

    /// A server whose user has these files.
    fn with_files(
        agent: &'static str,
        command: Vec<String>,
        env: Vec<(&str, String)>,
        entry: &str,
        api: ModelApi,
        files: &[(&str, String)],
    ) -> Setup {
        let home = TestHome::new();
        for (name, text) in files {
            let path = home.user_home().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        // JSON's texts are TOML's.
        let env: Vec<String> =
            env.iter().map(|(name, value)| format!("{name} = {}", json!(value))).collect();
        let env = env.join(", ");
        home.configure(&format!(
            "[agents.{agent}]\ncommand = {command:?}\nenv = {{ {env} }}\nsandbox = {:?}\n{entry}",
            strictest_sandbox()
        ));
        let token = home.app("tests");
        let server = Some(home.serve());
        Setup { server, home, token, api, agent }
    }

    fn server(&self) -> &HobServer {
        self.server.as_ref().expect("it runs")
    }

    fn get(&self, path: &str) -> Value {
        let answer = self.server().get(path, Some(&self.token));
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.json()
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let answer = self.server().post(path, Some(&self.token), body);
        (answer.status, answer.json())
    }

    /// A turn that is not waited for: its answer is read as it comes, or not at all.
    fn begin(&self, session: &Session, prompt: &str, header: (&str, &str)) -> impl BufRead + use<> {
        let bearer = format!("Bearer {}", self.token);
        let kind = ("content-type", "application/json");
        let headers = [("authorization", bearer.as_str()), kind, header];
        let body = json!({"prompt": prompt}).to_string();
        let answer = self.server().send("POST", &session.at("/turn"), &headers, body.as_bytes());
        assert!(answer.status().is_success(), "{answer:?}");
        BufReader::new(answer.into_body().into_reader())
    }

    /// Starts a turn without waiting for it.
    fn leave(&self, session: &Session, prompt: &str) {
        drop(self.begin(session, prompt, ("prefer", "respond-async")));
    }

    /// A session with this besides its agent.
    fn session(&self, more: Value) -> Session {
        let mut body = more;
        body["agent"] = json!(self.agent);
        let (status, made) = self.post("/sessions", &body);
        assert_eq!(status, 200, "{made}");
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        Session { id: text("session_id"), cwd: PathBuf::from(text("cwd")) }
    }

    /// A turn that goes well.
    #[track_caller]
    fn turn(&self, session: &Session, prompt: &str) -> Value {
        let (status, turn) = self.post(&session.at("/turn"), &json!({"prompt": prompt}));
        assert_eq!((status, &turn["state"]), (200, &json!("finished")), "{prompt}: {turn}");
        assert_eq!(turn["stop_reason"], "end_turn", "{turn}");
        let last = turn["events"].as_array().unwrap().last().unwrap();
        assert_eq!(last["result"]["stopReason"], "end_turn", "{last}");
        turn
    }

    fn events(&self, session: &Session) -> Vec<Value> {
        self.get(&session.at("/events"))["events"].as_array().unwrap().clone()
    }

    /// The audit entries of this kind.
    fn audit(&self, session: &Session, kind: &str) -> Vec<Value> {
        let mut events = self.events(session);
        events.retain(|event| event["event"] == kind);
        events
    }

    /// Waits for the agent's question with this number in the session.
    fn question(&self, session: &Session, number: usize) -> Value {
        wait_for_agent("the agent asks", || {
            let mut asked = self.audit(session, "permission");
            asked.retain(|event| event["status"] == "asked");
            asked.get(number).cloned()
        })
    }

    fn answer(&self, session: &Session, question: &Value, option: &str) -> u16 {
        let request = question["request_id"].as_str().unwrap();
        self.post(&session.at(&format!("/permissions/{request}")), &json!({"option": option})).0
    }

    /// A turn once it is over.
    fn ended(&self, session: &Session, index: usize) -> Value {
        wait_for_agent("the turn ends", || {
            let turn = self.get(&session.at(&format!("/turns/{index}")));
            let open = ["queued", "running"].contains(&turn["state"].as_str().unwrap());
            (!open).then_some(turn)
        })
    }

    /// Waits until the agent has written this text in a turn.
    fn wait_for_words(&self, session: &Session, words: &str) {
        wait_for_agent("the agent says it", || {
            let mut events = self.events(session).into_iter();
            events.any(|event| chunk(&event["message"]) == Some(words)).then_some(())
        });
    }

    /// Returns the last request to the model: all messages so far, with their roles.
    fn conversation(&self) -> Vec<(String, String)> {
        said(&self.last_request())
    }

    fn last_request(&self) -> Value {
        self.api.requests().last().cloned().expect("a request reached the model")
    }

    fn stop(&mut self) {
        let status = self.server.take().unwrap().stop();
        assert!(status.success(), "{status}");
    }

    fn restart(&mut self) {
        self.stop();
        self.server = Some(self.home.serve());
    }

    /// Kills the server, and waits until its agents have followed it.
    fn kill_and_start(&mut self) {
        self.server.take().unwrap().kill();
        let home = format!("HOME={}", self.home.user_home().display());
        wait_until("the agents end with their server", || {
            processes_with(&home).is_empty().then_some(())
        });
        self.server = Some(self.home.serve());
    }

    /// Ends all in order, which leaves no process; and the agent has written nothing in the user's
    /// folder but below these.
    fn end(mut self, allowed: &[&str]) {
        self.stop();
        let user = self.home.user_home();
        for file in files_below(&user) {
            let place = file.strip_prefix(&user).unwrap();
            assert!(allowed.iter().any(|folder| place.starts_with(folder)), "{place:?}");
        }
    }
}

/// A session as its caller knows it.
struct Session {
    id: String,
    cwd: PathBuf,
}

impl Session {
    fn at(&self, rest: &str) -> String {
        format!("/sessions/{}{rest}", self.id)
    }

    fn file(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.cwd.join(name)).ok()
    }
}

/// Polls until there is an answer, for as long as a real agent may take.
#[track_caller]
fn wait_for_agent<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(start.elapsed() < AGENT_TIMEOUT, "not within {AGENT_TIMEOUT:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The text of a message that is a piece of an answer.
fn chunk(message: &Value) -> Option<&str> {
    let update = &message["params"]["update"];
    let is = update["sessionUpdate"] == "agent_message_chunk";
    is.then(|| update["content"]["text"].as_str()).flatten()
}

/// The words in a request to the model, without what agents add by themselves.
fn said(request: &Value) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for message in request["messages"].as_array().into_iter().flatten() {
        let role = message["role"].as_str().unwrap();
        let blocks = match &message["content"] {
            Value::String(text) => vec![json!({"text": text})],
            content => content.as_array().cloned().unwrap_or_default(),
        };
        let texts = blocks.iter().filter_map(|block| block["text"].as_str());
        let texts = texts.map(|text| without_reminders(text).trim().to_owned());
        let own = texts.filter(|text| !text.is_empty() && role != "system");
        all.extend(own.map(|text| (role.to_owned(), text)));
    }
    all
}

/// Returns the tool results in a request to the model.
fn tool_results(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().into_iter().flatten();
    let blocks = messages.filter_map(|message| message["content"].as_array()).flatten();
    blocks.filter(|block| block["type"] == "tool_result").map(Value::to_string).collect()
}

fn words(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(role, text)| (role.to_string(), text.to_string())).collect()
}

/// Returns the total cost that the agent reports in a turn.
fn told_cost(turn: &Value) -> f64 {
    let events = turn["events"].as_array().unwrap().iter().rev();
    let mut amounts =
        events.filter_map(|event| event["params"]["update"]["cost"]["amount"].as_f64());
    amounts.next().expect("the agent tells its cost")
}

#[track_caller]
fn assert_same_cost(found: &Value, expected: f64) {
    let found = found["usage"]["cost_usd"].as_f64().unwrap();
    assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
}

/// A stream of events, up to where it ends.
struct Stream<R>(R);

impl<R: BufRead> Stream<R> {
    /// The next event: its id, its name and its data.
    fn next(&mut self) -> Option<(Option<u64>, String, Value)> {
        let (mut id, mut name, mut data) = (None, String::new(), None);
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            match line.trim_end().split_once(": ") {
                Some(("id", value)) => id = value.parse().ok(),
                Some(("event", value)) => name = value.to_owned(),
                Some(("data", value)) => data = serde_json::from_str(value).ok(),
                _ => {}
            }
            if line.trim_end().is_empty()
                && let Some(data) = data.take()
            {
                return Some((id, name, data));
            }
        }
    }
}

/// The model, the system prompt and the conversation survive the server, however it ends.
#[test]
fn a_conversation_goes_on_over_turns_a_restart_and_a_kill() {
    let mut setup = Setup::claude();
    let session = setup.session(json!({"model": "sonnet", "system": "You are Beaver."}));
    assert_eq!(setup.turn(&session, "one")["text"], "echo: one");
    let turn = setup.turn(&session, "two");
    assert_eq!(turn["text"], "echo: two");
    let two = [("user", "one"), ("assistant", "echo: one"), ("user", "two")];
    assert_eq!(setup.conversation(), words(&two));
    // Tokens are reported per turn, costs since the start of the session.
    assert_eq!(
        (&turn["usage"]["input_tokens"], &turn["usage"]["output_tokens"]),
        (&json!(10), &json!(5))
    );
    let now = setup.get(&session.at(""));
    assert_eq!((&now["usage"]["input_tokens"], &now["turn_count"]), (&json!(20), &json!(2)));
    assert_same_cost(&now, told_cost(&turn));

    setup.restart();
    assert_eq!(setup.turn(&session, "three")["text"], "echo: three");
    let three = [&two[..], &[("assistant", "echo: two"), ("user", "three")]].concat();
    assert_eq!(setup.conversation(), words(&three));
    let request = setup.last_request();
    assert!(request["model"].as_str().unwrap().contains("sonnet"), "{}", request["model"]);
    assert!(request["system"].to_string().contains("You are Beaver."), "{}", request["system"]);
    let resumed = setup.audit(&session, "resume");
    assert!(resumed.len() == 1 && resumed[0]["ok"] == true, "{resumed:?}");

    let broken = "[[say Halfway.]] [[hang]]";
    setup.leave(&session, broken);
    setup.wait_for_words(&session, "Halfway.");
    setup.kill_and_start();
    let turn = setup.get(&session.at("/turns/4"));
    assert_eq!((&turn["state"], &turn["ok"]), (&json!("interrupted"), &json!(false)), "{turn}");
    let mut messages = turn["events"].as_array().unwrap().iter();
    assert!(messages.any(|message| chunk(message) == Some("Halfway.")), "{turn}");
    assert_eq!(setup.turn(&session, "five")["text"], "echo: five");
    let all = setup.conversation();
    let four = [&three[..], &[("assistant", "echo: three"), ("user", broken)]].concat();
    assert_eq!(all[..four.len()], words(&four));
    assert_eq!(all.last(), words(&[("user", "five")]).last());
    assert_eq!(setup.get(&session.at(""))["usage"]["input_tokens"], 40);

    let closed = setup.server().call("DELETE", &session.at(""), Some(&setup.token), None);
    assert_eq!((closed.status, closed.json()), (200, json!({"ok": true})));
    setup.end(&[".claude"]);
    proved_with_program("claude-agent-acp", &["turns", "restart", "replay", "kill"]);
    proved_with_program("claude-agent-acp", &["usage", "cost"]);
}

/// An agent that takes its conversation up again goes on counting where it was.
#[test]
fn usage_before_a_restart_is_not_counted_again() {
    let mut setup = Setup::claude();
    let session = setup.session(json!({}));
    setup.turn(&session, "one");
    setup.turn(&session, "two");
    setup.restart();
    let turn = setup.turn(&session, "three");
    assert_same_cost(&setup.get(&session.at("")), told_cost(&turn));
    setup.end(&[".claude"]);
}

/// A conversation that the agent had not written to disk before the kill is lost. One turn may fail for it, but the
/// session must go on: there is nothing to resume.
#[test]
fn session_survives_a_kill_during_its_first_words() {
    let mut setup = Setup::claude();
    let session = setup.session(json!({}));
    setup.leave(&session, "[[hang]]");
    wait_for_agent("the agent is being asked", || {
        let first = setup.audit(&session, "message").pop();
        first.filter(|message| message["turn_index"] == 1)
    });
    setup.kill_and_start();
    let (status, turn) = setup.post(&session.at("/turn"), &json!({"prompt": "Hello?"}));
    assert!(status == 200 || turn["code"] == "resume_failed", "{turn}");
    assert_eq!(setup.turn(&session, "And now?")["text"], "echo: And now?");
    setup.end(&[".claude"]);
}

/// An agent that dies costs its turn, which counts, and nothing more.
#[test]
fn dead_agent_is_restarted_with_its_conversation() {
    let setup = Setup::claude();
    let session = setup.session(json!({}));
    setup.turn(&session, "one");
    setup.leave(&session, "[[say Halfway.]] [[hang]]");
    setup.wait_for_words(&session, "Halfway.");
    let ours = processes_with(&format!("HOME={}", setup.home.user_home().display()));
    let mut adapters = processes_with("claude-agent-acp/dist/index.js");
    adapters.retain(|pid| ours.contains(pid));
    assert_eq!(adapters.len(), 1, "{adapters:?}");
    kill(Pid::from_raw(adapters[0]), Signal::SIGKILL).unwrap();
    let turn = setup.ended(&session, 2);
    assert_eq!(
        (&turn["code"], &turn["text"]),
        (&json!("agent_died"), &json!("Halfway.")),
        "{turn}"
    );
    // Its own child, which does the work, is gone with it.
    let left = processes_with(&format!("HOME={}", setup.home.user_home().display()));
    assert_eq!(left, [setup.server().pid()]);
    assert_eq!(setup.turn(&session, "three")["text"], "echo: three");
    assert_eq!(setup.get(&session.at(""))["turn_count"], 3);
    let first = words(&[("user", "one"), ("assistant", "echo: one")]);
    assert_eq!(setup.conversation()[..2], first);
    setup.end(&[".claude"]);
}

/// Words arrive while the turn runs; a cancel ends the turn and what it has started, and nothing else.
#[test]
fn a_turn_is_streamed_and_cancelled_and_the_session_goes_on() {
    let setup = Setup::claude();
    let session = setup.session(json!({"permissions": "allow"}));
    let accept = ("accept", "text/event-stream");
    let mut stream = Stream(setup.begin(&session, "[[say Working.]] [[hang]]", accept));
    let mut last = 0;
    loop {
        let (id, name, message) = stream.next().expect("the words come before the end");
        let id = id.expect("a message has a number");
        assert!(name == "message" && id > last, "{name} {id}");
        last = id;
        if chunk(&message) == Some("Working.") {
            break;
        }
    }
    assert_eq!(setup.get(&session.at(""))["state"], "running");
    let (status, cancelled) = setup.post(&session.at("/cancel"), &json!({}));
    assert_eq!((status, cancelled), (200, json!({"ok": true, "cancelled": true, "turn_index": 1})));
    let turn = loop {
        match stream.next().expect("the turn's answer is the last event") {
            (_, name, turn) if name == "turn" => break turn,
            (_, name, _) => assert_eq!(name, "message"),
        }
    };
    assert_eq!((&turn["stop_reason"], &turn["text"]), (&json!("cancelled"), &json!("Working.")));
    assert!(stream.next().is_none());

    assert_eq!(setup.turn(&session, "And now?")["text"], "echo: And now?");
    let mut spoken = setup.conversation().into_iter();
    assert!(spoken.any(|(role, text)| role == "assistant" && text == "Working."));

    // A tool at work is ended with its turn.
    let log = format!("log-{}.txt", session.id);
    let command = format!("touch {log}; tail -f {log}");
    setup.leave(&session, &format!("[[tool Bash {}]]", json!({"command": command})));
    let at_work = || !processes_with(&log).is_empty();
    wait_for_agent("the tool runs", || (session.file(&log).is_some() && at_work()).then_some(()));
    setup.post(&session.at("/cancel"), &json!({}));
    assert_eq!(setup.ended(&session, 3)["stop_reason"], "cancelled");
    wait_until("the tool is ended", || (!at_work()).then_some(()));
    assert_eq!(setup.turn(&session, "Still there?")["text"], "echo: Still there?");
    assert!(setup.audit(&session, "resume").is_empty(), "it is the same process all the time");
    setup.end(&[".claude"]);
    proved_with_program("claude-agent-acp", &["cancel"]);
}

#[test]
fn session_permissions_decide_what_an_agent_may_do() {
    let setup = Setup::claude();
    // All three start at once.
    let deny = setup.session(json!({}));
    let allow = setup.session(json!({"permissions": "allow"}));
    let ask = setup.session(json!({"permissions": "ask"}));

    let write = |session: &Session| {
        let input = json!({"file_path": session.cwd.join("note.txt"), "content": "words"});
        format!("[[tool Write {input}]] [[say After.]]")
    };
    // The turn goes on without it.
    assert_eq!(setup.turn(&deny, &write(&deny))["text"], "After.");
    assert_eq!(deny.file("note.txt"), None);
    let denied = setup.audit(&deny, "permission");
    assert!(denied.len() == 1 && denied[0]["by"] == "policy", "{denied:?}");

    assert_eq!(setup.turn(&allow, &write(&allow))["text"], "After.");
    assert_eq!(allow.file("note.txt").as_deref(), Some("words"));
    // The sandbox still confines what the caller allows.
    let outside = setup.home.user_home().join("outside.txt");
    let secret = setup.home.hob_home().join("admin.token");
    let command =
        format!("echo in > in.txt; echo out > {}; cat {}", outside.display(), secret.display());
    setup.turn(&allow, &format!("[[tool Bash {}]] [[say After.]]", json!({"command": command})));
    assert_eq!(allow.file("in.txt").as_deref(), Some("in\n"));
    if landlock_version().is_some() {
        assert!(!outside.exists());
        let seen = tool_results(&setup.last_request()).join("\n");
        let secret = fs::read_to_string(secret).unwrap();
        let errors = ["Permission denied", "Read-only file system"];
        assert!(errors.iter().any(|error| seen.contains(error)), "{seen}");
        assert!(!seen.contains(secret.trim()), "{seen}");
    }

    let make = |name: &str| {
        format!("[[tool Bash {}]] [[say After.]]", json!({"command": format!("echo hi > {name}")}))
    };
    setup.leave(&ask, &make("yes.txt"));
    let question = setup.question(&ask, 0);
    assert_eq!(question["title"], "echo hi > yes.txt");
    assert_eq!(ask.file("yes.txt"), None, "it waits");
    assert_eq!(setup.answer(&ask, &question, "perhaps"), 400);
    assert_eq!(setup.answer(&ask, &question, "allow_once"), 200);
    assert_eq!(setup.ended(&ask, 1)["text"], "After.");
    assert_eq!(ask.file("yes.txt").as_deref(), Some("hi\n"));
    assert_eq!(setup.answer(&ask, &question, "allow_once"), 404, "it is answered");

    setup.leave(&ask, &make("no.txt"));
    assert_eq!(setup.answer(&ask, &setup.question(&ask, 1), "reject_once"), 200);
    assert_eq!(setup.ended(&ask, 2)["text"], "After.");
    assert_eq!(ask.file("no.txt"), None);

    // A cancel takes the question back, and the session is free.
    setup.leave(&ask, &make("never.txt"));
    setup.question(&ask, 2);
    setup.post(&ask.at("/cancel"), &json!({}));
    assert_eq!(setup.ended(&ask, 3)["stop_reason"], "cancelled");
    assert_eq!(setup.turn(&ask, "Well?")["text"], "echo: Well?");
    assert_eq!(ask.file("never.txt"), None);
    setup.end(&[".claude"]);
    proved_with_program("claude-agent-acp", &["permissions", "question"]);
}

/// A caller's own server and Hob's memory, side by side.
#[test]
fn agent_calls_the_tools_of_its_mcp_servers() {
    let setup = Setup::claude();
    let adder = json!({"command": "python3", "args": [installed("mcp_adder.py")]});
    let servers = json!({"adder": adder, "hob": "memory"});
    let session = setup.session(json!({"permissions": "allow", "mcp_servers": servers}));
    setup.turn(&session, r#"[[tool mcp__adder__add {"a":40,"b":2}]] [[say Added.]]"#);
    let results = tool_results(&setup.last_request());
    assert!(results.last().unwrap().contains("the sum is 42"), "{results:?}");
    let fact = "The harbour crane is painted vermilion.";
    let capture = format!("[[tool mcp__hob__memory_capture {}]]", json!({"text": fact}));
    let recall = r#"[[tool mcp__hob__memory_recall {"cue":"harbour crane"}]]"#;
    setup.turn(&session, &format!("{capture} {recall} [[say Known.]]"));
    let results = tool_results(&setup.last_request());
    assert!(results.last().unwrap().contains(fact), "{results:?}");
    setup.end(&[".claude"]);
    proved_with_program("claude-agent-acp", &["mcp"]);
}

/// A model that the agent does not have, and a run instead of a session.
#[test]
fn wrong_model_is_an_error_and_a_run_is_a_session_of_one_turn() {
    let setup = Setup::claude();
    let session = setup.session(json!({"model": "marble"}));
    let (status, run) = setup.post("/run", &json!({"prompt": "hi", "agent": setup.agent}));
    assert_eq!((status, &run["result"]), (200, &json!("echo: hi")), "{run}");
    let (status, refused) = setup.post(&session.at("/turn"), &json!({"prompt": "hi"}));
    assert_eq!((status, &refused["code"]), (502, &json!("agent_failed")), "{refused}");
    assert!(refused["error"].as_str().unwrap().contains("marble"), "{refused}");
    setup.end(&[".claude"]);
    let setup = Setup::codex();
    let session = setup.session(json!({"model": "marble"}));
    let (_, refused) = setup.post(&session.at("/turn"), &json!({"prompt": "hi"}));
    let error = refused["error"].as_str().unwrap();
    assert!(error.contains("refuses the model \"marble\""), "{refused}");
    assert!(error.contains("it offers scripted, gpt-"), "{refused}");
    setup.end(&[".codex"]);
}

/// opencode is an independent implementation: what holds for it holds for the protocol.
#[test]
fn opencode_is_driven_like_any_other_agent() {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        println!("skipped: opencode is installed for Linux on x86-64 alone");
        return;
    }
    let mut setup = Setup::opencode();
    let session = setup.session(json!({"permissions": "ask", "system": "You are Beaver."}));
    assert_eq!(setup.turn(&session, "one [[say First.]]")["text"], "First.");
    let turn = setup.turn(&session, "two");
    assert_eq!(turn["text"], "echo: two");
    assert_same_cost(&setup.get(&session.at("")), told_cost(&turn));
    let spoken = setup.conversation();
    assert_eq!(spoken.len(), 3, "{spoken:?}");
    // It takes no system prompt, so that goes before the first words.
    assert!(spoken[0].1.contains("You are Beaver.") && spoken[0].1.contains("one"), "{spoken:?}");
    assert_eq!(spoken[1..], words(&[("assistant", "First."), ("user", "two")]));

    let make = |name: &str| {
        let input = json!({"command": format!("echo hi > {name}"), "description": "makes a file"});
        format!("[[tool bash {input}]] [[say After.]]")
    };
    setup.leave(&session, &make("yes.txt"));
    assert_eq!(setup.answer(&session, &setup.question(&session, 0), "allow_once"), 200);
    assert_eq!(setup.ended(&session, 3)["text"], "After.");
    assert_eq!(session.file("yes.txt").as_deref(), Some("hi\n"));
    // A file is written through hob's own callback. A no ends opencode's turn.
    let input = json!({"filePath": session.cwd.join("note.txt"), "content": "words"});
    let write = format!("[[tool write {input}]] [[say After.]]");
    setup.leave(&session, &write);
    assert_eq!(setup.answer(&session, &setup.question(&session, 1), "reject_once"), 200);
    assert_eq!(setup.ended(&session, 4)["stop_reason"], "end_turn");
    assert_eq!(session.file("note.txt"), None);
    setup.leave(&session, &write);
    assert_eq!(setup.answer(&session, &setup.question(&session, 2), "allow_once"), 200);
    let turn = setup.ended(&session, 5);
    assert!(turn["events"].to_string().contains("fs/write_text_file"), "{turn}");
    assert_eq!(session.file("note.txt").as_deref(), Some("words"));

    setup.leave(&session, "[[say Working.]] [[hang]]");
    setup.wait_for_words(&session, "Working.");
    assert_eq!(setup.post(&session.at("/cancel"), &json!({})).1["turn_index"], 6);
    assert_eq!(setup.ended(&session, 6)["stop_reason"], "cancelled");
    assert_eq!(setup.turn(&session, "seven")["text"], "echo: seven");

    setup.restart();
    assert_eq!(setup.turn(&session, "eight")["text"], "echo: eight");
    let spoken = setup.conversation();
    for (role, text) in [("user", "two"), ("assistant", "Working."), ("assistant", "echo: seven")] {
        assert!(spoken.contains(&(role.to_owned(), text.to_owned())), "{text}: {spoken:?}");
    }
    let resumed = setup.audit(&session, "resume");
    assert!(resumed.len() == 1 && resumed[0]["ok"] == true, "{resumed:?}");
    setup.end(&[
        ".config/opencode",
        ".local/share/opencode",
        ".local/state/opencode",
        ".cache/opencode",
    ]);
    proved_with_program("opencode-acp", &["turns", "cancel", "restart", "replay"]);
    proved_with_program("opencode-acp", &["usage", "cost"]);
}

/// An agent with a model API of another vendor: turns with their history, a tool, a cancel that keeps the session, and a
/// server that is killed. What it said before is not said again.
fn agent_of_another_vendor_serves_a_session(mut setup: Setup, tool: &str, left: &[&str]) {
    let minute = || Timestamp::now().to_string()[..16].to_owned();
    let session = setup.session(json!({"permissions": "allow"}));
    assert!(setup.turn(&session, "begin")["text"].is_string());
    let began = minute();
    let text_of = |turn: &Value| turn["text"].as_str().unwrap().to_owned();
    // Codex warns of a model that it does not know, in every answer.
    let is_answer = |text: &str, expected: &str| {
        text == expected || text.starts_with("Warning: Model metadata") && text.ends_with(expected)
    };
    let says = |setup: &Setup, prompt: &str| {
        let turn = setup.turn(&session, prompt);
        assert!(is_answer(&text_of(&turn), &format!("echo: {prompt}")), "{turn}");
        assert_eq!(
            (&turn["usage"]["input_tokens"], &turn["usage"]["output_tokens"]),
            (&json!(10), &json!(5))
        );
    };
    says(&setup, "one");
    let turn = setup.turn(&session, &format!("[[tool {tool}]] [[say After.]]"));
    assert!(is_answer(&text_of(&turn), "After."), "{turn}");
    assert_eq!(session.file("made.txt").as_deref(), Some("hi\n"));
    setup.leave(&session, "[[say Working.]] [[hang]]");
    setup.wait_for_words(&session, "Working.");
    assert_eq!(setup.post(&session.at("/cancel"), &json!({})).1["turn_index"], 4);
    assert_eq!(setup.ended(&session, 4)["stop_reason"], "cancelled");
    says(&setup, "five");
    // Gemini CLI names the file of a conversation by the minute, and empties it if it resumes in that minute.
    if setup.agent == "gemini" {
        wait_until("the next minute", || (minute() != began).then_some(()));
    }
    setup.restart();
    says(&setup, "six");
    let last = setup.api.requests().last().cloned().unwrap().to_string();
    for words in ["echo: one", "made.txt", "echo: five"] {
        assert!(last.contains(words), "{words}: {last}");
    }
    let resumed = setup.audit(&session, "resume");
    assert!(resumed.len() == 1 && resumed[0]["ok"] == true, "{resumed:?}");
    let usage = setup.get(&session.at(""))["usage"].clone();
    assert!(usage["input_tokens"].as_u64().unwrap() >= 50, "{usage}");
    setup.end(left);
}

#[test]
fn codex_serves_a_session() {
    let tool = json!({"cmd": "echo hi > made.txt"});
    let setup = Setup::codex();
    agent_of_another_vendor_serves_a_session(setup, &format!("exec_command {tool}"), &[".codex"]);
    proved_with_program("codex-acp", &["turns", "cancel", "restart", "replay", "usage"]);
}

#[test]
fn gemini_serves_a_session() {
    let tool = json!({"command": "echo hi > made.txt", "description": "makes a file"});
    let setup = Setup::gemini();
    let left = [".gemini", ".npm", ".cache"];
    agent_of_another_vendor_serves_a_session(setup, &format!("run_shell_command {tool}"), &left);
    proved_with_program("gemini-acp", &["turns", "cancel", "restart", "replay", "usage"]);
}

/// A real agent calls the caller's own tool, waits for its result, and goes on with it. Each agent has a name of its own
/// for the tool.
fn agent_calls_a_tool_of_the_caller(setup: Setup, name: &str, left: &[&str]) {
    let schema = json!({"type": "object", "properties": {"a": {"type": "number"}}});
    let tools = json!([{"name": "add_two", "description": "Adds two.", "input_schema": schema}]);
    let session = setup.session(json!({"permissions": "allow", "tools": tools}));
    setup.leave(&session, &format!("[[tool {name} {{\"a\": 40}}]] [[say After.]]"));
    let called = wait_for_agent("the agent calls the tool", || {
        let turn = setup.get(&session.at("/turns/1"));
        assert_ne!(turn["state"], "finished", "{turn} {}", setup.last_request());
        setup.audit(&session, "tool_call").into_iter().find(|call| call["status"] == "asked")
    });
    assert_eq!((&called["name"], &called["input"]), (&json!("add_two"), &json!({"a": 40})));
    let call = called["call_id"].as_str().unwrap();
    let result = json!({"content": "the sum is 42"});
    assert_eq!(setup.post(&session.at(&format!("/tool_results/{call}")), &result).0, 200);
    let turn = setup.ended(&session, 1);
    assert!(turn["text"].as_str().unwrap().ends_with("After."), "{turn}");
    assert!(setup.last_request().to_string().contains("the sum is 42"), "{turn}");
    setup.end(left);
}

#[test]
fn codex_calls_a_tool_of_the_caller() {
    agent_calls_a_tool_of_the_caller(Setup::codex(), "mcp__app/add_two", &[".codex"]);
}

#[test]
fn gemini_calls_a_tool_of_the_caller() {
    agent_calls_a_tool_of_the_caller(
        Setup::gemini(),
        "mcp_app_add_two",
        &[".gemini", ".npm", ".cache"],
    );
}

#[test]
fn opencode_calls_a_tool_of_the_caller() {
    agent_calls_a_tool_of_the_caller(Setup::opencode(), "app_add_two", &[]);
}

#[test]
fn claude_over_its_adapter_calls_a_tool_of_the_caller() {
    agent_calls_a_tool_of_the_caller(Setup::claude(), "mcp__app__add_two", &[".claude"]);
}

/// `deny`, `ask` and `allow` decide what agents of other vendors may do, which by themselves ask for less or for nothing.
#[test]
fn policies_reach_agents_of_other_vendors() {
    let mut setups = vec![(Setup::codex(), "exec_command"), (Setup::gemini(), "run_shell_command")];
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        setups.push((Setup::opencode(), "bash"));
    }
    for (setup, shell) in setups {
        let name = setup.agent;
        let command = "echo hi > made.txt";
        let input = match name {
            // Codex asks if the model says that its own sandbox is in the way.
            "codex" => json!({"cmd": command, "sandbox_permissions": "require_escalated",
                "justification": "makes a file"}),
            _ => json!({"command": command, "description": "makes a file"}),
        };
        let prompt = format!("[[tool {shell} {input}]] [[say After.]]");
        let deny = setup.session(json!({}));
        setup.leave(&deny, &prompt);
        let turn = setup.ended(&deny, 1);
        let denied = setup.audit(&deny, "permission");
        assert!(denied.len() == 1 && denied[0]["by"] == "policy", "{name}: {denied:?} {turn}");
        assert_eq!(deny.file("made.txt"), None, "{name}");
        assert_eq!(setup.turn(&deny, "two")["state"], "finished", "{name}: the session goes on");
        let ask = setup.session(json!({"permissions": "ask"}));
        setup.leave(&ask, &prompt);
        let question = setup.question(&ask, 0);
        assert!(question.to_string().contains(command), "{name}: says for what: {question}");
        assert_eq!(ask.file("made.txt"), None, "{name}: it waits");
        assert_eq!(setup.answer(&ask, &question, "allow_once"), 200);
        assert!(setup.ended(&ask, 1)["text"].as_str().unwrap().ends_with("After."), "{name}");
        assert_eq!(ask.file("made.txt").as_deref(), Some("hi\n"), "{name}");
        let allow = setup.session(json!({"permissions": "allow"}));
        let plain = json!({"cmd": command, "command": command, "description": "makes a file"});
        let plain = format!("[[tool {shell} {plain}]] [[say After.]]");
        setup.turn(&allow, &plain);
        assert_eq!(allow.file("made.txt").as_deref(), Some("hi\n"), "{name}");
        if name == "codex" {
            // A command for which it does not ask is not run at all, and the caller is told.
            setup.turn(&deny, &plain);
            assert_eq!(deny.file("made.txt"), None);
            let notices = setup.audit(&deny, "notice");
            let text = notices[0]["message"].as_str().unwrap();
            assert!(notices.len() == 1 && text.contains("Codex runs no commands"), "{notices:?}");
            assert!(setup.audit(&allow, "notice").is_empty());
        }
        let left = [".codex", ".gemini", ".npm", ".cache", ".config/opencode", ".local"];
        setup.end(&left);
    }
    proved_with_program("codex-acp", &["permissions", "question"]);
    proved_with_program("gemini-acp", &["permissions", "question"]);
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        proved_with_program("opencode-acp", &["permissions", "question"]);
    }
}

/// What a session asks for reaches agents that speak ACP: a system prompt, a model, the tools of an MCP server. What they
/// offer is listed.
#[test]
fn agents_take_what_a_session_asks_for() {
    let mut setups = vec![
        (Setup::claude(), "sonnet", "sonnet", "mcp__adder__add"),
        (Setup::codex(), "gpt-5.5", "gpt-5.5", "mcp__adder/add"),
        (Setup::gemini(), "gemini-2.5-flash", "gemini-2.5-flash", "mcp_adder_add"),
    ];
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        setups.push((Setup::opencode(), "anthropic/claude-opus-5", "claude-opus-5", "adder_add"));
    }
    for (setup, model, named, tool) in setups {
        let name = setup.agent;
        let adder = json!({"command": "python3", "args": [installed("mcp_adder.py")]});
        let session = setup.session(json!({"permissions": "allow", "system": "You are Beaver.",
            "mcp_servers": {"adder": adder}, "model": model}));
        setup.turn(&session, "one");
        setup.turn(&session, &format!(r#"[[tool {tool} {{"a":40,"b":2}}]] [[say Added.]]"#));
        let last = setup.last_request().to_string();
        assert!(last.contains("the sum is 42"), "{name}: {last}");
        let last = setup.last_request();
        assert!(last.to_string().contains("You are Beaver."), "{name}");
        assert!(last["model"].as_str().unwrap_or_default().contains(named), "{name}");
        let settings = wait_for_agent("it names its commands", || {
            let settings = setup.get(&session.at("/settings"));
            settings["commands"][0]["name"].is_string().then_some(settings)
        });
        let offers = [&settings["modes"], &settings["config_options"]];
        assert!(offers.iter().any(|offer| !offer.is_null()), "{name}: {settings}");
        setup.end(&[
            ".claude",
            ".codex",
            ".gemini",
            ".npm",
            ".cache",
            ".config/opencode",
            ".local",
        ]);
    }
    proved_with_program("claude-agent-acp", &["system", "model", "settings"]);
    proved_with_program("codex-acp", &["system", "model", "settings", "mcp"]);
    proved_with_program("gemini-acp", &["system", "model", "settings", "mcp"]);
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        proved_with_program("opencode-acp", &["system", "model", "settings", "mcp"]);
    }
}

/// The modes and models of the real program, and a command of its project.
#[test]
fn claude_without_a_terminal_takes_modes_and_commands() {
    let mut setup = Setup::plain_claude("claude-stream");
    let session = setup.session(json!({"permissions": "allow"}));
    let write =
        "mkdir -p .claude/commands && echo 'Say $ARGUMENTS now.' > .claude/commands/ship.md";
    let write = json!({"command": write});
    setup.turn(&session, &format!("[[tool Bash {write}]] [[say Written.]]"));
    setup.restart();
    let settings = setup.get(&session.at("/settings"));
    assert_eq!(settings["modes"]["currentModeId"], "bypassPermissions", "{settings}");
    assert_eq!(settings["commands"][0]["name"], "ship", "{settings}");
    setup.turn(&session, "/ship it");
    let last = setup.last_request().to_string();
    assert!(last.contains("Say it now."), "{last}");
    for change in [json!({"mode": "plan"}), json!({"option": "model", "value": "sonnet"})] {
        let (status, answer) = setup.post(&session.at("/settings"), &change);
        assert_eq!(status, 200, "{answer}");
    }
    setup.turn(&session, "on");
    let last = setup.last_request();
    assert!(last["model"].as_str().unwrap().contains("sonnet"), "{}", last["model"]);
    setup.restart();
    let settings = setup.get(&session.at("/settings"));
    assert_eq!(settings["modes"]["currentModeId"], "plan", "{settings}");
    assert_eq!(settings["config_options"][0]["currentValue"], "sonnet", "{settings}");
    let (status, answer) = setup.post(&session.at("/settings"), &json!({"mode": "dance"}));
    assert_eq!(status, 400, "{answer}");
    setup.end(&[".claude", ".claude.json", ".npm", ".cache", ".local"]);
    proved_with_program("claude-stream", &["settings"]);
}

/// Claude Code in its terminal, and without one, serve the same sessions: turns with their history, a
/// cancel that keeps the session, permissions, a restart and a kill.
fn claude_serves_a_session(driver: &str) {
    let mut setup = Setup::plain_claude(driver);
    let session = setup.session(json!({}));
    assert_eq!(setup.turn(&session, "one")["text"], "echo: one");
    let turn = setup.turn(&session, "two");
    assert_eq!((&turn["text"], &turn["stop_reason"]), (&json!("echo: two"), &json!("end_turn")));
    let events = turn["events"].as_array().unwrap();
    let update = &events[0]["params"]["update"];
    assert_eq!(update["sessionUpdate"], "agent_message_chunk");
    assert!(update["_meta"]["raw"].is_object(), "the native record: {update}");
    assert_eq!(events.last().unwrap()["result"]["stopReason"], "end_turn");
    assert_eq!(turn["usage"]["input_tokens"], 10);
    wait_for_agent("the turns have a cost", || {
        let cost = |turn: u32| {
            setup.get(&session.at(&format!("/turns/{turn}")))["usage"]["cost_usd"].as_f64()
        };
        (cost(1)? + cost(2)? > 0.0).then_some(())
    });
    let two = [("user", "one"), ("assistant", "echo: one"), ("user", "two")];
    assert_eq!(setup.conversation(), words(&two));

    // The turn continues without the tool that was denied.
    let input = json!({"command": "touch made.txt"});
    let denied = setup.turn(&session, &format!("[[tool Bash {input}]] [[say After.]]"));
    assert_eq!(denied["text"], "After.");
    assert_eq!(session.file("made.txt"), None);

    setup.leave(&session, "[[say Working.]] [[hang]]");
    if driver == "claude-stream" {
        setup.wait_for_words(&session, "Working.");
    } else {
        wait_for_agent("the model is asked", || {
            setup.conversation().last().filter(|(_, text)| text.contains("Working."))?;
            Some(())
        });
    }
    let (status, _) = setup.post(&session.at("/cancel"), &json!({}));
    assert_eq!((status, &setup.ended(&session, 4)["stop_reason"]), (200, &json!("cancelled")));
    assert_eq!(setup.turn(&session, "five")["text"], "echo: five");

    setup.restart();
    assert_eq!(setup.turn(&session, "six")["text"], "echo: six");
    let said = setup.conversation();
    assert_eq!(said[..3], words(&two));
    assert!(said.contains(&("user".to_owned(), "five".to_owned())), "{said:?}");

    setup.leave(&session, "[[hang]]");
    wait_for_agent("it is asked again", || {
        setup.conversation().last().filter(|(_, text)| text == "[[hang]]")?;
        Some(())
    });
    setup.kill_and_start();
    assert_eq!(setup.get(&session.at("/turns/7"))["state"], "interrupted");
    assert_eq!(setup.turn(&session, "eight")["text"], "echo: eight");
    let resumed = setup.audit(&session, "resume");
    assert!(resumed.len() == 2 && resumed.iter().all(|event| event["ok"] == true), "{resumed:?}");

    // The permission request goes to the caller.
    let asking = setup.session(json!({"permissions": "ask"}));
    setup.leave(&asking, &format!("[[tool Bash {input}]] [[say After.]]"));
    let question = setup.question(&asking, 0);
    assert!(question.to_string().contains("touch made.txt"), "it says for what: {question}");
    assert_eq!(setup.answer(&asking, &question, "allow_once"), 200);
    assert_eq!(setup.ended(&asking, 1)["text"], "After.");
    assert!(asking.file("made.txt").is_some());
    let adder = json!({"command": "python3", "args": [installed("mcp_adder.py")]});
    let allowed = setup.session(json!({"permissions": "allow", "model": "sonnet",
        "system": "You are Beaver.", "mcp_servers": {"adder": adder}}));
    let add = r#"[[tool mcp__adder__add {"a":40,"b":2}]]"#;
    setup.turn(&allowed, &format!("[[tool Bash {input}]] {add} [[say After.]]"));
    assert!(allowed.file("made.txt").is_some());
    let last = setup.last_request();
    assert!(last["model"].as_str().unwrap().contains("sonnet"), "{}", last["model"]);
    assert!(last["system"].to_string().contains("You are Beaver."), "{}", last["system"]);
    assert!(tool_results(&last).join("").contains("the sum is 42"), "{last}");
    setup.end(&[".claude", ".claude.json", ".npm", ".cache", ".local"]);
}

#[test]
fn claude_in_its_terminal_serves_a_session() {
    claude_serves_a_session("claude-tui");
    proved_with_program("claude-tui", &["turns", "cancel", "permissions", "question"]);
    proved_with_program("claude-tui", &["restart", "replay", "kill", "usage", "cost"]);
    proved_with_program("claude-tui", &["system", "model", "mcp"]);
}

#[test]
fn claude_without_a_terminal_serves_a_session() {
    claude_serves_a_session("claude-stream");
    proved_with_program("claude-stream", &["turns", "cancel", "permissions", "question"]);
    proved_with_program("claude-stream", &["restart", "replay", "kill", "usage", "cost"]);
    proved_with_program("claude-stream", &["system", "model", "mcp"]);
}

/// Every agent works in the strict sandbox, its shell included, and stays inside.
#[test]
fn every_agent_works_in_the_strict_sandbox() {
    if strictest_sandbox() != "strict" {
        println!("skipped: this kernel does not allow the strict sandbox");
        return;
    }
    let mut setups = vec![
        (Setup::plain_claude("claude-tui"), "Bash"),
        (Setup::plain_claude("claude-stream"), "Bash"),
        (Setup::claude(), "Bash"),
        (Setup::codex(), "exec_command"),
        (Setup::gemini(), "run_shell_command"),
    ];
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        setups.push((Setup::opencode(), "bash"));
    }
    for (setup, shell) in setups {
        let user = setup.home.user_home();
        fs::create_dir_all(user.join(".ssh")).unwrap();
        fs::write(user.join(".ssh/id_ed25519"), "the key").unwrap();
        let session = setup.session(json!({"permissions": "allow"}));
        let name = format!("{} {}", setup.agent, session.id);
        for prompt in ["one", "two"] {
            // Codex warns of a model that it does not know.
            let turn = setup.turn(&session, prompt);
            let text = turn["text"].as_str().unwrap();
            assert!(text.ends_with(&format!("echo: {prompt}")), "{name}: {text}");
        }
        let sandbox = setup.get(&session.at(""))["sandbox"].clone();
        assert_eq!(sandbox["mode"], "strict", "{name}");
        assert_eq!(sandbox["layers"], json!(["namespaces", "landlock", "limits"]), "{name}");
        let script = "pwd > made.txt; git init -q . && git status --short > git.txt; \
            cat ~/.ssh/id_ed25519 > key.txt; echo x > ~/outside.txt; ls /proc > processes.txt; echo over > over.txt";
        let input = match shell {
            "exec_command" => json!({"cmd": script}),
            _ => json!({"command": script, "description": "looks around"}),
        };
        let turn = setup.turn(&session, &format!("[[tool {shell} {input}]] [[say After.]]"));
        assert!(turn["text"].as_str().unwrap().ends_with("After."), "{name}: {turn}");
        assert_eq!(session.file("over.txt").as_deref(), Some("over\n"), "{name}");
        let folder = session.file("made.txt").unwrap();
        assert_eq!(Path::new(folder.trim()), session.cwd, "{name}");
        assert!(session.file("git.txt").is_some_and(|text| text.contains("made.txt")), "{name}");
        assert!(session.file("key.txt").is_none_or(|text| text.is_empty()), "{name}");
        assert!(!user.join("outside.txt").exists(), "{name}");
        let server = format!("{}\n", setup.server().pid());
        assert!(!session.file("processes.txt").unwrap().contains(&server), "{name}");
        fs::remove_dir_all(user.join(".ssh")).unwrap();
        let left =
            [".claude", ".claude.json", ".npm", ".cache", ".local", ".config/opencode", ".codex"];
        setup.end(&left);
    }
    proved_with_program("claude-tui", &["sandbox", "shell"]);
    proved_with_program("claude-stream", &["sandbox", "shell"]);
    proved_with_program("claude-agent-acp", &["sandbox", "shell"]);
    proved_with_program("codex-acp", &["sandbox", "shell"]);
    proved_with_program("gemini-acp", &["sandbox", "shell"]);
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        proved_with_program("opencode-acp", &["sandbox", "shell"]);
    }
}

/// Tells the model that what stands before it is not to be answered: Claude Code sends the prompt of a turn that was killed
/// together with the next one.
const NEXT: &str = "[Request interrupted by user]";

/// Servers of real agents are killed again and again in the middle of a turn. What an agent said is in the log once and in
/// the memory once. In the campaign every agent but Gemini CLI is killed eight times, 41 kills in all.
#[test]
fn restart_storm_repeats_nothing() {
    let is_campaign = std::env::var_os("HOB_CAMPAIGN").is_some();
    let (rounds, mut setups) = match is_campaign {
        false => (1, vec![Setup::codex()]),
        true => {
            let all = [
                Setup::plain_claude("claude-tui"),
                Setup::plain_claude("claude-stream"),
                Setup::claude(),
                Setup::codex(),
                Setup::gemini(),
            ];
            (8, Vec::from(all))
        }
    };
    if is_campaign && cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        setups.push(Setup::opencode());
    }
    let minute = || Timestamp::now().to_string()[..16].to_owned();
    for mut setup in setups {
        let session = setup.session(json!({"permissions": "allow"}));
        let name = setup.agent;
        // Gemini CLI finds a conversation only the first time that it resumes it.
        let rounds = if name == "gemini" { 1 } else { rounds };
        let mark = |round: usize, part: &str| format!("mark-{round:02}-{part}.");
        for round in 0..rounds {
            let whole = mark(round, "whole");
            let turn = setup.turn(&session, &format!("{NEXT} [[say {whole}]]"));
            assert!(turn["text"].as_str().unwrap().ends_with(&whole), "{name}: {turn}");
            let began = minute();
            let half = mark(round, "half");
            setup.leave(&session, &format!("[[say {half}]] [[hang]]"));
            // A turn that has not begun would run after the kill.
            wait_for_agent("the model is asked", || {
                let last = setup.api.requests().last().cloned().unwrap_or_default();
                last.to_string().contains(&half).then_some(())
            });
            if name == "gemini" {
                // It would empty a conversation that it resumes in the minute in which it began.
                wait_until("the next minute", || (minute() != began).then_some(()));
            }
            setup.kill_and_start();
        }
        let turn = setup.turn(&session, &format!("{NEXT} [[say the end]]"));
        assert!(turn["text"].as_str().unwrap().ends_with("the end"), "{name}: {turn}");
        let texts: Vec<String> = (setup.events(&session).iter())
            .filter_map(|event| chunk(&event["message"]).map(str::to_owned))
            .collect();
        let texts = texts.join("\n");
        for round in 0..rounds {
            let (whole, half) = (mark(round, "whole"), mark(round, "half"));
            assert_eq!(texts.matches(&whole).count(), 1, "{name}: {whole} in {texts}");
            assert!(texts.matches(&half).count() <= 1, "{name}: {half} in {texts}");
        }
        // The last answer comes last. A recall would show equal texts once.
        let (asked, stored) = wait_for_agent("the last turn is remembered", || {
            let arguments = ["timeline", "--json", "--app", "tests", "--limit", "500"];
            let found: Value =
                serde_json::from_slice(&setup.home.run(&arguments).stdout).unwrap_or_default();
            let turns = found["turns"].as_array().cloned().unwrap_or_default();
            let texts_of = |role: &str| -> Vec<String> {
                let of_role = turns.iter().filter(|turn| turn["role"] == role);
                of_role.filter_map(|turn| turn["text"].as_str().map(str::to_owned)).collect()
            };
            let texts = texts_of("assistant");
            let is_over = texts.iter().any(|text| text.ends_with("the end"));
            is_over.then(|| (texts_of("user").join("\n"), texts.join("\n")))
        });
        for round in 0..rounds {
            let (whole, half) = (mark(round, "whole"), mark(round, "half"));
            for texts in [&asked, &stored] {
                assert_eq!(texts.matches(&whole).count(), 1, "{name}: {whole} in {texts}");
                assert!(texts.matches(&half).count() <= 1, "{name}: {half} in {texts}");
            }
        }
        println!("{name}: {rounds} kills, nothing said or remembered twice");
        setup.stop();
    }
    proved_with_program("codex-acp", &["kill", "once"]);
    if is_campaign {
        proved_with_program("claude-tui", &["once"]);
        proved_with_program("claude-stream", &["once"]);
        proved_with_program("claude-agent-acp", &["once"]);
        proved_with_program("gemini-acp", &["kill", "once"]);
        if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            proved_with_program("opencode-acp", &["kill", "once"]);
        }
    }
}

/// A node dies, and nodes share only the database: on the other node Claude Code continues the conversation from a
/// transcript that is written from the log, with both drivers.
#[test]
fn conversation_continues_on_another_node() {
    for driver in ["claude-tui", "claude-stream"] {
        let api = ModelApi::start();
        let env: Vec<String> = api
            .claude_environment()
            .iter()
            .map(|(name, value)| format!("{name} = {}", json!(value)))
            .collect();
        let command = [installed("node_modules/.bin/claude")];
        let agent = format!(
            "[agents.claude]\ncommand = {command:?}\nenv = {{ {} }}\ndriver = \"{driver}\"\n",
            env.join(", ")
        );
        let cluster = Cluster::start(&ClusterOptions {
            nodes: 2,
            lease_secs: 3,
            config: agent,
            separate_disks: true,
            proxied: false,
        });
        let token = cluster.app("tests");
        let post = |node: usize, path: &str, body: Value| {
            let answer = cluster.with(node, |server| server.post(path, Some(&token), &body));
            assert_eq!(answer.status, 200, "{driver}: {}", answer.text);
            answer.json()
        };
        let made = post(0, "/sessions", json!({"agent": "claude"}));
        let turn = format!("/sessions/{}/turn", made["session_id"].as_str().unwrap());
        assert_eq!(post(1, &turn, json!({"prompt": "one"}))["text"], "echo: one", "{driver}");
        cluster.kill(0);
        assert_eq!(post(1, &turn, json!({"prompt": "two"}))["text"], "echo: two", "{driver}");
        let asked = api.requests().last().cloned().expect("a request reached the model");
        let all = [("user", "one"), ("assistant", "echo: one"), ("user", "two")];
        assert_eq!(said(&asked), words(&all), "{driver}");
        let log = format!("/sessions/{}/events?limit=100", made["session_id"].as_str().unwrap());
        let log = cluster.with(1, |server| server.get(&log, Some(&token)));
        assert!(log.text.contains("rebuilt from the ledger"), "{driver}: {}", log.text);
        // The transcript on the first node ends before that turn: it must not be resumed there.
        cluster.restart(0);
        cluster.kill(1);
        assert_eq!(post(0, &turn, json!({"prompt": "three"}))["text"], "echo: three", "{driver}");
        let asked = api.requests().last().cloned().expect("a request reached the model");
        let since = [("assistant", "echo: two"), ("user", "three")];
        assert_eq!(said(&asked), words(&[&all[..], &since].concat()), "{driver}");
    }
    proved_with_program("claude-tui", &["other-node"]);
    proved_with_program("claude-stream", &["other-node"]);
}

/// The protocol's own client library uses `hob acp` and `/acp` as editors do: prompts, permissions, forms, lists, loads and
/// cancels, by each of its transports. It goes on after the server was killed in the middle of a turn.
#[test]
fn library_of_editors_works_by_every_transport() {
    let home = TestHome::new();
    home.configure(&TestHome::scripted_agent("acp", "acp", &["acp"]));
    let mut server = home.serve();
    let (folder, hob, token) = (home.user_home(), hob_testkit::program("hob"), home.app("editor"));
    for transport in ["stdio", "http", "ws"] {
        let mut command = std::process::Command::new("node");
        command.arg(installed("acp_editor.mjs")).arg(transport).arg(&folder);
        match transport {
            "stdio" => command.arg(&hob),
            _ => command.args([server.url(), &token]),
        };
        command.env("HOME", home.user_home()).env("HOB_HOME", home.hob_home());
        let mut editor = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = editor.stdin.take().unwrap();
        let mut said = Vec::new();
        for line in BufReader::new(editor.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            if line == r#"{"ask":"crash"}"# {
                server.kill();
                server = home.serve();
                writeln!(stdin, "{}", json!(server.url())).unwrap();
            }
            said.push(line);
        }
        assert!(editor.wait().unwrap().success(), "{transport}: {said:?}");
        let end = said.last().map(String::as_str);
        assert_eq!(end, Some(r#"{"ok":true}"#), "{transport}: {said:?}");
    }
    assert!(server.stop().success());
}

/// acpx, a client of the protocol for the command line, uses `hob acp`: one prompt, a session that it resumes, a permission.
#[test]
fn acpx_works_with_hob_acp() {
    let home = TestHome::new();
    home.configure(&TestHome::scripted_agent("acp", "acp", &["acp"]));
    let server = home.serve();
    let hob = format!("{} acp --agent acp", hob_testkit::program("hob").display());
    let mark = format!("ACPX_OF_TEST={}", home.user_home().display());
    let acpx = |arguments: &[&str]| {
        let mut command = std::process::Command::new(installed("bench/node_modules/.bin/acpx"));
        command.args(["--agent", &hob, "--approve-all", "--ttl", "1"]).args(arguments);
        command.env("HOME", home.user_home()).env("HOB_HOME", home.hob_home());
        command.env("ACPX_OF_TEST", home.user_home()).current_dir(home.user_home());
        // The process that acpx keeps for a session ends a second after its last prompt, and then refuses a new one.
        let output = wait_until("acpx takes the command", || {
            let output = command.output().unwrap();
            let is_ending = String::from_utf8_lossy(&output.stdout).contains("shutting down");
            (!is_ending).then_some(output)
        });
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let said = acpx(&["exec", "[[say Hello.]]"]);
    assert!(said.contains("Hello.") && said.contains("end_turn"), "{said}");
    let session = acpx(&["sessions", "new"]).trim().to_owned();
    let said = acpx(&["[[permission touch it]]"]);
    assert!(said.contains("permission touch it: yes"), "{said}");
    assert!(acpx(&["[[say Again.]]"]).contains("Again."));
    let turns = home.run(&["sessions", "tail", "--no-follow", &session]);
    let turns = String::from_utf8(turns.stdout).unwrap();
    assert!(turns.contains("turn 2 finished"), "one session had both prompts: {turns}");
    acpx(&["sessions", "close"]);
    wait_until("acpx has ended", || processes_with(&mark).is_empty().then_some(()));
    assert!(server.stop().success());
}
