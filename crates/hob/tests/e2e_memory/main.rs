//! Hob's memory with real clients: the official MCP SDKs, the MCP inspector, and the real `claude` with
//! Hob's hooks, offline against the scripted model API.
//!
//! The clients come from `e2e/package.json` and `e2e/requirements.txt`; `scripts/test` installs them.
//! Without them this fails.
#![allow(clippy::disallowed_methods, reason = "tests start hob and its clients from outside")]

mod recording;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hob_testkit::leak::{files_below, processes_with};
use hob_testkit::{HobServer, ModelApi, TestHome, program, proved_with_program, wait_until};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

const FACT: &str = "The harbour crane is painted vermilion.";

/// Returns a program below `e2e/`. Links are not resolved: the target of a link may not find its own files.
fn installed(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e").join(name);
    assert!(path.exists(), "{name} is not installed: run scripts/setup-e2e, or scripts/test");
    path
}

/// A user with a project, a server, and a `claude` that has Hob's hooks.
struct Setup {
    server: Option<HobServer>,
    home: TestHome,
    api: ModelApi,
}

impl Setup {
    fn new() -> Setup {
        let setup = Setup::without_hooks();
        let installed = setup.home.run(&["hooks", "install", "--client", "claude"]);
        assert!(installed.status.success(), "{installed:?}");
        let config = json!({"mcpServers": {"hob": {"command": program("hob"), "args": ["mcp"]}}});
        fs::write(setup.mcp_config(), config.to_string()).unwrap();
        setup
    }

    fn without_hooks() -> Setup {
        let setup = Setup { server: None, home: TestHome::new(), api: ModelApi::start() };
        fs::create_dir_all(setup.project().join(".git")).unwrap();
        fs::create_dir_all(setup.folder()).unwrap();
        setup
    }

    fn serve(&mut self) -> &HobServer {
        self.server = Some(self.home.serve());
        self.server.as_ref().unwrap()
    }

    fn kill_server(&mut self) {
        self.server.take().unwrap().kill();
    }

    /// The root of a repository, as Hob writes it.
    fn project(&self) -> PathBuf {
        self.home.user_home().canonicalize().unwrap().join("harbour")
    }

    /// Where the agent works: somewhere in the project.
    fn folder(&self) -> PathBuf {
        self.project().join("cranes/north")
    }

    fn mcp_config(&self) -> PathBuf {
        self.home.user_home().join("mcp.json")
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let home = self.home.user_home().display().to_string();
        vec![("HOME", home), ("HOB_HOME", self.home.hob_home().display().to_string())]
    }

    /// A client's command in the project, with nothing of the caller's environment but `PATH`.
    fn client(&self, program: PathBuf) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.envs(self.environment()).current_dir(self.folder()).stdin(Stdio::null());
        command
    }

    fn claude(&self) -> Command {
        let mut command = self.client(installed("node_modules/.bin/claude"));
        command.envs(self.api.claude_environment()).env("TERM", "xterm-256color");
        command
    }

    /// One prompt in print mode; returns the session's id and the answer.
    fn ask(&self, prompt: &str, more: &[&str]) -> (String, String) {
        self.ask_in(&self.folder(), prompt, more)
    }

    fn ask_in(&self, folder: &Path, prompt: &str, more: &[&str]) -> (String, String) {
        let mut command = self.claude();
        command.args(["-p", prompt, "--output-format", "json"]).args(more).current_dir(folder);
        let result = json_of(&command.output().unwrap());
        assert_eq!(result["is_error"], false, "{result}");
        let text = |name: &str| result[name].as_str().unwrap().to_owned();
        (text("session_id"), text("result"))
    }

    /// Claude Code's options that give it Hob's tools.
    fn tools(&self) -> [String; 4] {
        let config = self.mcp_config().display().to_string();
        ["--mcp-config".to_owned(), config, "--allowedTools".to_owned(), "mcp__hob".to_owned()]
    }

    /// A tool's result through the inspector, as the owner in the agent's folder.
    fn inspect(&self, tool: &str, arguments: &[&str]) -> Value {
        let result = json_of(&self.inspector(&self.bridge(), tool, arguments));
        result["structuredContent"].clone()
    }

    fn bridge(&self) -> Vec<String> {
        vec![program("hob").display().to_string(), "mcp".to_owned()]
    }

    fn inspector(&self, target: &[String], tool: &str, arguments: &[&str]) -> Output {
        let mut command = self.client(installed("node_modules/.bin/mcp-inspector"));
        command.arg("--cli").args(target);
        for (name, value) in self.environment() {
            command.arg("-e").arg(format!("{name}={value}"));
        }
        command.args(["--method", "tools/call", "--tool-name", tool]);
        for argument in arguments {
            command.args(["--tool-arg", argument]);
        }
        command.output().unwrap()
    }

    /// Returns all turns of agents in the order of the conversation: an answer may be stored before its prompt.
    fn turns(&self) -> Vec<Value> {
        let output = self.home.run(&["export", "--json"]);
        assert!(output.status.success(), "{output:?}");
        let lines = String::from_utf8(output.stdout).unwrap();
        let turns = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut turns: Vec<Value> = turns.filter(|turn| turn["tier"] == "episodic").collect();
        // Without the letter after it a shorter fraction sorts before a longer one.
        turns.sort_by_key(|turn| turn["ts"].as_str().unwrap().trim_end_matches('Z').to_owned());
        turns
    }

    /// Checks that exactly these turns of these sessions are there, each once and in order.
    #[track_caller]
    fn assert_turns(&self, expected: &[(&str, &str, &str)]) {
        let turns = self.turns();
        let found: Vec<(&str, &str, &str)> = turns
            .iter()
            .map(|turn| {
                let text = |name: &str| turn[name].as_str().unwrap();
                (text("session_id"), text("role"), text("text"))
            })
            .collect();
        assert_eq!(found, expected);
        for turn in &turns {
            assert_eq!(turn["project"], json!(self.project()), "{turn}");
            assert_eq!(turn["client"], "claude", "{turn}");
        }
    }

    /// Imports the transcripts of all sessions: every turn is known.
    #[track_caller]
    fn assert_import_adds_nothing(&self) {
        let before = self.turns();
        let imported = json_of(&self.home.run(&["import", "--json"]));
        assert_eq!(imported["inserted"], 0, "{imported}");
        assert_eq!(imported["errors"], 0, "{imported}");
        assert!(imported["files"].as_u64() > Some(0), "{imported}");
        assert!(imported["duplicates"].as_u64() >= Some(before.len() as u64), "{imported}");
        assert_eq!(self.turns(), before);
    }

    fn deferrals(&self) -> Vec<PathBuf> {
        files_below(&self.home.hob_home().join("deferred-captures"))
    }

    fn wait_for_drain(&self) {
        wait_until("the deferred captures are drained", || {
            self.deferrals().is_empty().then_some(())
        });
    }

    /// Checks that nothing of the user's runs any more: clients and bridges end with their work.
    fn assert_no_client_left(&self) {
        let server = self.server.as_ref().map(HobServer::pid);
        let home = format!("HOME={}", self.home.user_home().display());
        wait_until("no client is left", || {
            let left = processes_with(&home);
            left.into_iter().all(|pid| Some(pid) == server).then_some(())
        });
    }

    /// Returns the last request to the model.
    fn last_request(&self) -> Value {
        self.api.requests().last().cloned().expect("a request reached the model")
    }
}

/// The JSON a program printed.
#[track_caller]
fn json_of(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// The results of tools in a request to the model.
fn tool_results(request: &Value) -> Vec<&Value> {
    let messages = request["messages"].as_array().into_iter().flatten();
    let blocks = messages.filter_map(|message| message["content"].as_array()).flatten();
    blocks.filter(|block| block["type"] == "tool_result").collect()
}

/// A `claude` in stream-json mode: many turns in one process.
struct Conversation {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    session: String,
    /// What `claude` said about its tools and MCP servers before the last turn.
    init: Value,
}

impl Conversation {
    fn start(setup: &Setup) -> Conversation {
        let mut command = setup.claude();
        command.args(setup.tools());
        Conversation::of(command)
    }

    fn of(mut command: Command) -> Conversation {
        command.args(["-p", "--input-format", "stream-json", "--output-format", "stream-json"]);
        command.arg("--verbose");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).unwrap_or_default());
            }
        });
        let stdin = child.stdin.take();
        Conversation { stdin, child, lines, session: String::new(), init: Value::Null }
    }

    /// Says something and returns the answer.
    fn say(&mut self, prompt: &str) -> String {
        let message = json!({"type": "user", "message": {"role": "user", "content": prompt}});
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
        loop {
            let line = self.lines.recv_timeout(Duration::from_secs(60)).expect("an answer");
            if line["subtype"] == "init" {
                self.init = line.clone();
            }
            if line["type"] == "result" {
                assert_eq!(line["is_error"], false, "{line}");
                self.session = line["session_id"].as_str().unwrap().to_owned();
                return line["result"].as_str().unwrap().to_owned();
            }
        }
    }

    fn end(mut self) -> String {
        drop(self.stdin.take());
        let status = wait_until("claude ends", || self.child.try_wait().unwrap());
        assert!(status.success(), "{status}");
        std::mem::take(&mut self.session)
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Answers what `claude` asks at its first start, for work in this folder.
fn answer_first_questions(home: &TestHome, api: &ModelApi, folder: &Path) {
    let key = api.claude_environment().into_iter().find(|(name, _)| *name == "ANTHROPIC_API_KEY");
    let key = key.unwrap().1;
    let known = json!({"hasCompletedOnboarding": true,
        "customApiKeyResponses": {"approved": [&key[key.len() - 20..]], "rejected": []},
        "projects": {folder.to_str().unwrap(): {"hasTrustDialogAccepted": true}}});
    fs::write(home.user_home().join(".claude.json"), known.to_string()).unwrap();
}

/// Starts a program in a new terminal. Returns it and the other end of the terminal.
fn in_terminal(mut command: Command, size: Winsize) -> (Child, File) {
    let ends = openpty(&size, None).unwrap();
    for end in [&ends.master, &ends.slave] {
        fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
    }
    command.stdin(ends.slave.try_clone().unwrap());
    command.stdout(ends.slave.try_clone().unwrap()).stderr(ends.slave);
    (command.spawn().unwrap(), File::from(ends.master))
}

/// A `claude` on a terminal, as a person uses it. Its answers reach the transcript only after the hook
/// has reported them.
struct Terminal {
    child: Child,
    keys: File,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Starts it with a first prompt, which it submits by itself.
    fn start(setup: &Setup, prompt: &str) -> Terminal {
        answer_first_questions(&setup.home, &setup.api, &setup.folder());
        let mut command = setup.claude();
        command.arg(prompt);
        let (child, keys) =
            in_terminal(command, Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 });
        let screen = Arc::new(Mutex::new(Vec::new()));
        let (mut master, shown) = (keys.try_clone().unwrap(), screen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The end of the terminal is an error.
            while let Ok(length @ 1..) = master.read(&mut bytes) {
                shown.lock().unwrap().extend_from_slice(&bytes[..length]);
            }
        });
        Terminal { child, keys, screen }
    }

    /// Types a prompt and submits it once its last word is on the screen.
    fn say(&mut self, prompt: &str) {
        let from = self.screen.lock().unwrap().len();
        self.keys.write_all(prompt.as_bytes()).unwrap();
        let word = prompt.split(' ').next_back().unwrap();
        wait_until("what is typed is shown", || {
            let screen = self.screen.lock().unwrap();
            String::from_utf8_lossy(&screen[from..]).contains(word).then_some(())
        });
        self.keys.write_all(b"\r").unwrap();
    }

    fn end(mut self) {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT).unwrap();
        let status = wait_until("claude ends", || self.child.try_wait().unwrap());
        assert!(status.success(), "{status}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a client of an official SDK, and returns what it says.
fn sdk_client(interpreter: PathBuf, client: &str) -> Value {
    let mut setup = Setup::new();
    let token = setup.home.app("client");
    let url = format!("{}/mcp", setup.serve().url());
    let environment: serde_json::Map<String, Value> = setup
        .environment()
        .into_iter()
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect();
    let told = json!({"command": setup.bridge(), "env": environment, "cwd": setup.folder(),
        "url": url, "token": token});
    let mut command = setup.client(interpreter);
    let said = json_of(&command.arg(installed(client)).arg(told.to_string()).output().unwrap());
    assert_eq!((&said["ok"], &said["tools"]), (&json!(true), &json!(6)), "{said}");
    setup.assert_no_client_left();
    said
}

#[test]
fn python_mcp_sdk_calls_every_tool() {
    let said = sdk_client(installed(".venv/bin/python"), "mcp_client.py");
    // The client itself asserts the version of the handshake. This is what both sides choose without one.
    assert_eq!(said["protocol"], "2026-07-28", "{said}");
}

#[test]
fn typescript_mcp_sdk_calls_every_tool() {
    sdk_client(PathBuf::from("node"), "mcp_client.mjs");
}

#[test]
fn mcp_inspector_lists_and_calls_every_tool() {
    let mut setup = Setup::new();
    let token = setup.home.app("inspector");
    let url = format!("{}/mcp", setup.serve().url());
    let header = format!("Authorization: Bearer {token}");
    let over_http = [url, "--header".to_owned(), header];
    for target in [&setup.bridge()[..], &over_http[..]] {
        let mut command = setup.client(installed("node_modules/.bin/mcp-inspector"));
        command.arg("--cli").args(target);
        let listed = command.args(["--method", "tools/list", "--strict"]).output().unwrap();
        let tools = json_of(&listed);
        assert_eq!(tools["tools"].as_array().unwrap().len(), 6, "{tools}");
        let call = |tool: &str, arguments: &[&str]| {
            json_of(&setup.inspector(target, tool, arguments))["structuredContent"].clone()
        };
        let text = format!("text={FACT}");
        let first = call("memory_capture", &[&text, "role=assistant"]);
        let id = first["record_id"].as_str().unwrap();
        let hits = call("memory_recall", &["cue=harbour crane", "limit=5", "budget_tokens=500"]);
        assert_eq!(hits["hits"][0]["text"], FACT, "{hits}");
        let by_id = format!("record_id={id}");
        let second = call("memory_correct", &[&by_id, "text=The harbour crane is blue."]);
        assert_eq!(second["superseded"], *id, "{second}");
        let turns = call("memory_timeline", &["limit=10"]);
        assert_eq!(turns["turns"].as_array().unwrap().len(), 2, "{turns}");
        let forgotten = call("memory_forget", &[&by_id]);
        let is_request = forgotten["request_id"].is_string();
        let (count, left) = if is_request { (0, 2) } else { (1, 1) };
        assert_eq!(forgotten["count"], count, "an agent of the owner only asks: {forgotten}");
        assert_eq!(call("memory_stats", &[])["turns"], left);
        let wrong = setup.inspector(target, "memory_timeline", &["around=never"]);
        let said = String::from_utf8_lossy(&wrong.stdout) + String::from_utf8_lossy(&wrong.stderr);
        assert!(said.contains("around: never is neither"), "{said}");
    }
    setup.assert_no_client_left();
}

/// The memory reaches the model when a session starts, and every turn is stored once.
#[test]
fn sessions_of_the_real_claude_are_remembered_once() {
    let mut setup = Setup::new();
    setup.serve();
    setup.inspect("memory_capture", &[&format!("text={FACT}")]);

    let question = "Which colour? [[say Vermilion.]]";
    let (session, answer) = setup.ask(question, &[]);
    assert_eq!(answer, "Vermilion.");
    let request = setup.last_request().to_string();
    assert!(request.contains("What Hob remembers of this project"), "{request}");
    assert!(request.contains(FACT), "{request}");
    let first = [(&*session, "user", question), (&*session, "assistant", "Vermilion.")];
    setup.assert_turns(&first);

    // Repeated words are new turns. Texts before and after a tool call are remembered, too.
    let work = r#"Work. [[say Looking.]] [[tool Bash {"command":"echo hi"}]] [[say Found it.]]"#;
    let resumed = ["--resume", &session, "--allowedTools", "Bash"];
    assert_eq!(setup.ask(work, &resumed), (session.clone(), "Found it.".to_owned()));
    assert_eq!(setup.ask(question, &["-c"]), (session.clone(), "Vermilion.".to_owned()));
    let mut all = first.to_vec();
    all.push((&session, "user", work));
    all.push((&session, "assistant", "Looking."));
    all.push((&session, "assistant", "Found it."));
    all.extend(first);
    setup.assert_turns(&all);

    // A new session hears how the last one ended. Another project hears nothing.
    let (second, _) = setup.ask("And now?", &[]);
    let request = setup.last_request().to_string();
    assert!(request.contains(&format!("session {session}")), "{request}");
    let elsewhere = setup.home.user_home().join("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    setup.ask_in(&elsewhere, "Hello.", &[]);
    let request = setup.last_request().to_string();
    assert!(!request.contains("What Hob remembers") && !request.contains(FACT), "{request}");
    let turns = setup.turns();
    let last = turns.last().unwrap();
    assert_eq!(last["project"], json!(elsewhere.canonicalize().unwrap()), "{last}");
    assert_eq!(turns[turns.len() - 3]["session_id"], json!(second));
    setup.assert_import_adds_nothing();
    // Another memory gets all of them from the transcripts.
    let mut import = setup.home.command(&["import", "--json"]);
    import.env("HOB_HOME", setup.home.user_home().join("other-hob"));
    let imported = json_of(&import.output().unwrap());
    assert_eq!(imported["inserted"], turns.len(), "{imported}");
    setup.assert_no_client_left();
    proved_with_program("claude", &["live", "import", "once"]);
}

/// OpenCode has no hooks, so Hob's plugin does the same: the memory reaches the model, and every turn is stored once.
#[test]
fn sessions_of_the_real_opencode_are_remembered_once() {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        println!("skipped: opencode is installed for Linux on x86-64 alone");
        return;
    }
    let mut setup = Setup::without_hooks();
    let done = setup.home.run(&["hooks", "install", "--client", "opencode", "--json"]);
    let script = json_of(&done)["clients"][0]["file"].as_str().unwrap().to_owned();
    setup.serve();
    setup.inspect("memory_capture", &[&format!("text={FACT}")]);
    let ask = |prompt: &str, more: &[&str]| {
        let opencode = installed("node_modules/opencode-linux-x64-baseline/bin/opencode");
        let mut command = setup.client(opencode);
        command.envs(setup.api.opencode_environment()).arg("run").args(more).arg(prompt);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let remembered = |expected: &[&str]| {
        let texts = || -> Vec<String> {
            let turns = setup.turns();
            turns.iter().map(|turn| turn["text"].as_str().unwrap().to_owned()).collect()
        };
        wait_until("the turns are remembered", || (texts() == expected).then_some(()));
    };
    let (crane, mast) = ("Which colour? [[say Vermilion.]]", "And the mast? [[say Ochre.]]");
    ask(crane, &[]);
    let asked = |words: &str| {
        let requests = setup.api.requests();
        requests.iter().rev().map(Value::to_string).find(|request| request.contains(words)).unwrap()
    };
    assert!(asked("Which colour?").contains(FACT), "the plugin tells what Hob remembers");
    // `opencode run` puts words with spaces into quotes.
    let [first, second] = [crane, mast].map(|prompt| format!("\"{prompt}\""));
    remembered(&[&first, "Vermilion."]);
    ask(mast, &["--continue"]);
    remembered(&[&first, "Vermilion.", &second, "Ochre."]);
    for turn in setup.turns() {
        assert_eq!((&turn["client"], &turn["source"]), (&json!("opencode"), &json!("hook")));
        assert_eq!(turn["project"], json!(setup.project()), "{turn}");
    }
    setup.assert_import_adds_nothing();
    let mut import = setup.home.command(&["import", "--json"]);
    import.env("HOB_HOME", setup.home.user_home().join("other-hob"));
    let imported = json_of(&import.output().unwrap());
    assert_eq!(imported["inserted"], 4, "{imported}");
    let removed = setup.home.run(&["hooks", "uninstall", "--client", "opencode"]);
    assert!(removed.status.success() && !Path::new(&script).exists(), "{removed:?}");
    setup.assert_no_client_left();
    proved_with_program("opencode", &["live", "import", "once"]);
}

/// Runs a real client with Hob's hooks for two prompts, the second in the conversation of the first. What was said is stored
/// once, live and by an import, and what Hob remembers reaches the model.
fn sessions_of_a_client_are_remembered_once(
    client: &str,
    setup: &mut Setup,
    ask: impl Fn(&Setup, &str, bool) -> Command,
) {
    let installed = setup.home.run(&["hooks", "install", "--client", client]);
    assert!(installed.status.success(), "{installed:?}");
    setup.serve();
    setup.inspect("memory_capture", &[&format!("text={FACT}")]);
    let say = |prompt: &str, continues: bool| {
        let output = ask(setup, prompt, continues).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        format!("{output:?}")
    };
    let remembered = |expected: &[&str], what: &str| {
        let texts = || -> Vec<String> {
            let turns = setup.turns();
            turns.iter().map(|turn| turn["text"].as_str().unwrap().to_owned()).collect()
        };
        wait_until(&format!("{expected:?} of {client}: {what}"), || {
            (texts() == expected).then_some(())
        });
    };
    let (crane, mast) = ("Which colour? [[say Vermilion.]]", "And the mast? [[say Ochre.]]");
    let said = say(crane, false);
    let requests = setup.api.requests();
    let told = requests.iter().any(|request| request.to_string().contains(FACT));
    assert!(told, "the hooks tell what Hob remembers: {said}");
    remembered(&[crane, "Vermilion."], &said);
    let said = say(mast, true);
    remembered(&[crane, "Vermilion.", mast, "Ochre."], &said);
    for turn in setup.turns() {
        assert_eq!((&turn["client"], &turn["source"]), (&json!(client), &json!("hook")));
        assert_eq!(turn["project"], json!(setup.project()), "{turn}");
    }
    setup.assert_import_adds_nothing();
    let mut import = setup.home.command(&["import", "--json"]);
    import.env("HOB_HOME", setup.home.user_home().join("other-hob"));
    let imported = json_of(&import.output().unwrap());
    assert_eq!(imported["inserted"], 4, "{imported}");
    setup.assert_no_client_left();
}

#[test]
fn sessions_of_the_real_codex_are_remembered_once() {
    let mut setup = Setup::without_hooks();
    let folder = setup.home.user_home().join(".codex");
    fs::create_dir_all(&folder).unwrap();
    let config = format!(
        "model = \"scripted\"\nmodel_provider = \"scripted\"\n\n[model_providers.scripted]\nname = \"scripted\"\n\
         base_url = \"{}/v1\"\nenv_key = \"SCRIPTED_KEY\"\nwire_api = \"responses\"\n",
        setup.api.url()
    );
    fs::write(folder.join("config.toml"), config).unwrap();
    sessions_of_a_client_are_remembered_once("codex", &mut setup, |setup, prompt, continues| {
        let mut command = setup.client(installed("node_modules/.bin/codex"));
        command.env("SCRIPTED_KEY", "sk-scripted").arg("exec");
        if continues {
            command.args(["resume", "--last"]);
        }
        // People trust the hooks in Codex's own dialog.
        command.args(["--skip-git-repo-check", "--dangerously-bypass-hook-trust", prompt]);
        command
    });
    proved_with_program("codex", &["live", "import", "once"]);
}

#[test]
fn sessions_of_the_real_gemini_are_remembered_once() {
    let mut setup = Setup::without_hooks();
    let folder = setup.home.user_home().join(".gemini");
    fs::create_dir_all(&folder).unwrap();
    let settings = json!({"security": {"auth": {"selectedType": "gemini-api-key"}}});
    fs::write(folder.join("settings.json"), settings.to_string()).unwrap();
    sessions_of_a_client_are_remembered_once("gemini", &mut setup, |setup, prompt, continues| {
        let mut command = setup.client(installed("node_modules/.bin/gemini"));
        command.env("GOOGLE_GEMINI_BASE_URL", setup.api.url()).env("GEMINI_API_KEY", "scripted");
        command.env("GEMINI_MODEL", "gemini-2.5-pro").env("GEMINI_CLI_TRUST_WORKSPACE", "true");
        if continues {
            command.args(["--resume", "latest"]);
        }
        command.args(["-p", prompt]);
        command
    });
    proved_with_program("gemini", &["live", "import", "once"]);
}

/// Without a server the agent is unharmed, and what it did is remembered when one comes.
#[test]
fn captures_without_a_server_are_stored_later() {
    let mut setup = Setup::new();
    setup.serve();
    setup.kill_server();
    let question = "Which colour? [[say Vermilion.]]";
    let (session, answer) = setup.ask(question, &[]);
    assert_eq!(answer, "Vermilion.");
    assert!(!setup.deferrals().is_empty());
    assert_eq!(setup.ask(question, &["--resume", &session]), (session.clone(), answer));
    let (other, _) = setup.ask("Another session.", &[]);

    setup.serve();
    setup.wait_for_drain();
    let once = [(&*session, "user", question), (&*session, "assistant", "Vermilion.")];
    let mut all = [once, once].concat();
    all.push((&other, "user", "Another session."));
    all.push((&other, "assistant", "echo: Another session."));
    setup.assert_turns(&all);
    setup.ask(question, &["--resume", &session]);
    all.extend(once);
    setup.assert_turns(&all);
    setup.assert_import_adds_nothing();
    setup.assert_no_client_left();
}

/// The model asks the memory, and one bridge lives through a restart of the server.
#[test]
fn model_recalls_across_a_server_restart() {
    let mut setup = Setup::new();
    setup.serve();
    setup.inspect("memory_capture", &[&format!("text={FACT}")]);
    let recall =
        r#"[[tool mcp__hob__memory_recall {"cue":"colour of the crane"}]] [[say Thanks.]]"#;

    let mut conversation = Conversation::start(&setup);
    assert_eq!(conversation.say("Ready? [[say Yes.]]"), "Yes.");
    assert_eq!(conversation.say(recall), "Thanks.");
    let request = setup.last_request();
    let result = tool_results(&request).last().copied().unwrap().to_string();
    assert!(result.contains(FACT) && !result.contains("is_error\":true"), "{result}");

    setup.kill_server();
    let down = recall.replace("Thanks", "A pity");
    assert_eq!(conversation.say(&down), "A pity.");
    let request = setup.last_request();
    let result = tool_results(&request).last().copied().unwrap().to_string();
    let socket = setup.home.hob_home().join("hob.sock").display().to_string();
    assert!(result.contains(&socket) && result.contains("hob serve"), "{result}");

    setup.serve();
    let again = recall.replace("Thanks", "Thanks again");
    assert_eq!(conversation.say(&again), "Thanks again.");
    let request = setup.last_request();
    let result = tool_results(&request).last().copied().unwrap().to_string();
    assert!(result.contains(FACT), "{result}");

    let session = conversation.end();
    setup.wait_for_drain();
    let turns = setup.turns();
    let texts: Vec<&str> = turns.iter().map(|turn| turn["text"].as_str().unwrap()).collect();
    let expected = [
        "Ready? [[say Yes.]]",
        "Yes.",
        recall,
        "Thanks.",
        &down,
        "A pity.",
        &again,
        "Thanks again.",
    ];
    assert_eq!(texts, expected, "{turns:#?}");
    assert!(turns.iter().all(|turn| turn["session_id"] == *session));
    setup.assert_import_adds_nothing();
    setup.assert_no_client_left();
}

/// On a terminal the hook hears of an answer before the transcript has it. Told once by the hook and
/// once by the record, live or deferred, it is still one turn.
#[test]
fn terminal_session_is_captured_once() {
    let mut setup = Setup::new();
    setup.serve();
    let answered = |setup: &Setup, count: usize| {
        let answers = || setup.turns().iter().filter(|turn| turn["role"] == "assistant").count();
        wait_until("the answer is remembered", || (answers() == count).then_some(()));
    };
    let crane = ["[[say Vermilion.]] And the crane?", "Vermilion."];
    let mast = ["[[say Ochre.]] And the mast?", "Ochre."];
    let boat = ["[[say Marigold.]] And the boat?", "Marigold."];
    let flag = ["[[say Marigold.]] And the flag?", "Marigold."];
    let mut terminal = Terminal::start(&setup, crane[0]);
    answered(&setup, 1);
    terminal.say(mast[0]);
    answered(&setup, 2);
    setup.kill_server();
    terminal.say(boat[0]);
    wait_until("the turn is deferred", || {
        let text = |path: &PathBuf| fs::read_to_string(path).unwrap_or_default();
        setup.deferrals().iter().any(|path| text(path).contains("\"Marigold.\"")).then_some(())
    });
    setup.serve();
    terminal.say(flag[0]);
    wait_until("the transcript has the last turn", || {
        let files = files_below(&setup.home.user_home().join(".claude/projects"));
        let text = fs::read_to_string(files.first()?).ok()?;
        (text.matches("\"turn_duration\"").count() == 4).then_some(())
    });
    terminal.end();
    setup.wait_for_drain();
    let turns = setup.turns();
    let texts: Vec<&str> = turns.iter().map(|turn| turn["text"].as_str().unwrap()).collect();
    assert_eq!(texts, [crane, mast, boat, flag].concat(), "{turns:#?}");
    setup.assert_import_adds_nothing();
    setup.assert_no_client_left();
}

/// Texts that Claude Code adds by itself are not remembered: the body of a command, the summary after a
/// compaction, its own copies of requests.
#[test]
fn memory_holds_only_what_was_said() {
    let mut setup = Setup::new();
    setup.serve();
    let commands = setup.folder().join(".claude/commands");
    fs::create_dir_all(&commands).unwrap();
    fs::write(commands.join("dance.md"), "Dance the tango with $ARGUMENTS. [[say Done.]]").unwrap();
    fs::write(setup.folder().join("note.txt"), "words in a file\n").unwrap();
    setup.ask("/dance Eve", &[]);
    setup.ask("Look at @note.txt please. [[say Seen.]]", &[]);
    let (session, _) = setup.ask("The cat is Mortimer. [[say Noted.]]", &[]);
    setup.ask("/compact", &["--resume", &session]);
    setup.ask("Go on. [[say Fine.]]", &["--resume", &session]);
    let said = |turns: &[Value]| -> Vec<String> {
        let texts = turns.iter().map(|turn| turn["text"].as_str().unwrap().to_owned());
        // Whether a typed command is a turn is another question.
        texts.filter(|text| !text.starts_with("/dance")).collect()
    };
    let expected = [
        "Done.",
        "Look at @note.txt please. [[say Seen.]]",
        "Seen.",
        "The cat is Mortimer. [[say Noted.]]",
        "Noted.",
        "Go on. [[say Fine.]]",
        "Fine.",
    ];
    assert_eq!(said(&setup.turns()), expected);
    setup.assert_import_adds_nothing();
    setup.assert_no_client_left();
}

/// A `claude` with the plugin of this repository.
struct Plugin {
    setup: Setup,
    /// The `PATH` on which the plugin finds `hob`.
    path: String,
}

impl Plugin {
    fn install() -> Plugin {
        let setup = Setup::without_hooks();
        let folder = program("hob").parent().unwrap().display().to_string();
        let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
        let plugin = Plugin { setup, path };
        let repository =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        for path in [repository.clone(), repository.join("plugins/claude-code")] {
            plugin.manage(&["plugin", "validate", "--strict", path.to_str().unwrap()]);
        }
        plugin.manage(&["plugin", "marketplace", "add", repository.to_str().unwrap()]);
        plugin.manage(&["plugin", "install", "hob@hob"]);
        plugin
    }

    fn claude(&self) -> Command {
        let mut command = self.setup.claude();
        command.env("PATH", &self.path);
        command
    }

    fn manage(&self, arguments: &[&str]) {
        let output = self.claude().args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }

    /// The result of a `hob` command that finds `hob` on its `PATH`.
    fn hob(&self, arguments: &[&str]) -> Value {
        let mut command = self.setup.home.command(arguments);
        json_of(&command.env("PATH", &self.path).output().unwrap())
    }

    /// Recalls the fact with the plugin's command through a tool. Returns the session and the names of Hob's tools.
    fn recall(&self, tool: &str) -> (String, Vec<String>) {
        let setup = &self.setup;
        let mut conversation = Conversation::of(self.claude());
        assert_eq!(conversation.say("Ready? [[say Yes.]]"), "Yes.");
        let starts = setup.last_request().to_string().matches(SESSION_START).count();
        assert_eq!(starts, 1, "the memory is injected once");
        let prompt = format!(
            r#"/hob:recall colour of the crane [[tool {tool} {{"cue":"colour of the crane"}}]] [[say Thanks.]]"#
        );
        assert_eq!(conversation.say(&prompt), "Thanks.");
        let request = setup.last_request();
        let result = tool_results(&request).last().copied().unwrap().to_string();
        assert!(result.contains(FACT) && !result.contains("is_error\":true"), "{result}");
        let init = &conversation.init;
        let servers = init["mcp_servers"].as_array().unwrap();
        assert!(servers.iter().all(|server| server["status"] == "connected"), "{servers:?}");
        let mut tools: Vec<String> = serde_json::from_value(init["tools"].clone()).unwrap();
        tools.retain(|name| name.contains("memory_"));
        (conversation.end(), tools)
    }

    /// Checks that a session's turns are stored once.
    fn assert_remembered(&self, session: &str) {
        self.setup.wait_for_drain();
        let mut turns = self.setup.turns();
        turns.retain(|turn| turn["session_id"] == session);
        let texts: Vec<&str> = turns.iter().map(|turn| turn["text"].as_str().unwrap()).collect();
        let commands = texts.iter().filter(|text| text.starts_with("/hob:recall")).count();
        assert!(commands <= 1, "{texts:?}");
        let said: Vec<&&str> = texts.iter().filter(|text| !text.starts_with("/hob:")).collect();
        // The model hears the arguments of a command twice, so it says everything twice.
        let expected = [&"Ready? [[say Yes.]]", &"Yes.", &"Thanks.", &"Thanks."];
        assert_eq!(said, expected, "{turns:#?}");
    }
}

const SESSION_START: &str = "What Hob remembers of this project";

/// The plugin needs no settings, and with Hob's hooks and MCP entry in the settings everything still happens once.
#[test]
fn plugin_of_claude_works_alone_and_next_to_hobs_settings() {
    let mut plugin = Plugin::install();
    plugin.setup.serve();
    plugin.setup.inspect("memory_capture", &[&format!("text={FACT}")]);
    let settings = plugin.setup.home.user_home().join(".claude/settings.json");
    let before = fs::read(&settings).unwrap();
    let installed = plugin.hob(&["hooks", "install", "--client", "claude", "--json"]);
    let installed = &installed["clients"][0];
    assert_eq!(installed["state"], "plugin", "{installed}");
    assert_eq!(installed["plugin"], "hob@hob", "{installed}");
    assert_eq!(fs::read(&settings).unwrap(), before);

    let (session, tools) = plugin.recall("mcp__plugin_hob_hob__memory_recall");
    assert_eq!(tools.len(), 6, "{tools:?}");
    plugin.assert_remembered(&session);
    plugin.setup.assert_import_adds_nothing();

    // The hooks and the server of the settings take over, one event at a time.
    let bin = plugin.setup.home.user_home().join("bin");
    fs::create_dir_all(&bin).unwrap();
    for shell in ["sh", "bash"] {
        std::os::unix::fs::symlink(format!("/bin/{shell}"), bin.join(shell)).unwrap();
    }
    let installed = plugin
        .setup
        .home
        .command(&["hooks", "install", "--client", "claude", "--json"])
        .env("PATH", &bin)
        .output()
        .unwrap();
    let installed = json_of(&installed)["clients"][0].clone();
    assert_eq!(installed["state"], "installed", "{installed}");
    let hob = program("hob").display().to_string();
    plugin.manage(&["mcp", "add", "--scope", "user", "hob", "--", &hob, "mcp"]);
    let (session, tools) = plugin.recall("mcp__hob__memory_recall");
    assert!(tools.iter().all(|name| name.starts_with("mcp__hob__")), "{tools:?}");
    assert_eq!(tools.len(), 6, "{tools:?}");
    plugin.assert_remembered(&session);

    // Without a `hob` to run, the plugin is silent.
    assert!(plugin.setup.home.run(&["hooks", "uninstall"]).status.success());
    let mut claude = plugin.claude();
    claude.env("PATH", &bin).args(["-p", "Alone? [[say Yes.]]", "--output-format", "json"]);
    assert_eq!(json_of(&claude.output().unwrap())["result"], "Yes.");
    assert!(!plugin.setup.last_request().to_string().contains("hob: "));
    plugin.setup.assert_no_client_left();
}

/// The server scenarios of the official conformance suite, in both eras of the protocol.
#[test]
fn the_conformance_suite_passes() {
    let home = TestHome::new();
    let server = home.serve();
    let token = home.app("conformance");
    let mut command = Command::new("node");
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.arg(installed("mcp_conformance.mjs")).arg(server.url()).arg(token);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(server.stop().success());
}
