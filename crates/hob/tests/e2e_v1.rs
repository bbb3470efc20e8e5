//! The official SDKs, unchanged, against `/v1`: Anthropic's and OpenAI's, in Python and TypeScript, on the
//! scripted agent and on the real `claude`, in both drivers.
//!
//! The SDKs come from `e2e/package.json` and `e2e/requirements.txt`; `scripts/test` installs them. Without
//! them this fails. The cases are in `e2e/sdk_*`: a script talks to Hob through its SDK alone and asks
//! this side, over its standard input and output, for what no client can know or do: which processes
//! live, what the model was sent, a restart of the server.
#![allow(clippy::disallowed_methods, reason = "tests start hob and its clients from outside")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hob_child::tree;
use hob_testkit::leak::processes_with;
use hob_testkit::model_api::without_reminders;
use hob_testkit::script;
use hob_testkit::{HobServer, ModelApi, TestHome, is_campaign, program, wait_until};
use serde_json::{Value, json};

/// Returns a path below `e2e/`. Links are not resolved: the target of a link may not find its own files.
fn installed(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e").join(name);
    assert!(path.exists(), "{name} is not installed: run scripts/setup-e2e, or scripts/test");
    path
}

/// The interpreter of a script below `e2e/`.
fn interpreter(script: &str) -> PathBuf {
    match script.ends_with(".py") {
        true => installed(".venv/bin/python"),
        false => PathBuf::from("node"),
    }
}

/// The agent that serves `/v1`.
#[derive(Clone, Copy, PartialEq)]
enum Agent {
    Scripted,
    Real,
}

/// A server whose apps are named after what they are for. The server comes first: it ends before its
/// home is removed.
struct Setup {
    server: Option<HobServer>,
    home: TestHome,
    agent: Agent,
    api: ModelApi,
    /// The rest of `config.toml`.
    more: &'static str,
    apps: Vec<App>,
}

#[derive(Clone)]
struct App {
    name: String,
    driver: &'static str,
    token: String,
    cwd: PathBuf,
}

impl Setup {
    /// For every SDK an app in each driver, and one more whose turns are broken off: of it nothing may be
    /// left.
    fn new(agent: Agent, sdks: &[&str], more: &'static str) -> Setup {
        let home = TestHome::new();
        let root = home.user_home().canonicalize().unwrap();
        let mut apps = Vec::new();
        for sdk in sdks {
            let name = sdk.replace(['_', '.'], "-");
            for (driver, kind) in [("claude-tui", "terminal"), ("claude-stream", "stream")] {
                for ending in ["", "-broken"] {
                    let name = format!("{name}-{kind}{ending}");
                    let cwd = root.join(&name);
                    fs::create_dir(&cwd).unwrap();
                    apps.push(App { name, driver, token: String::new(), cwd });
                }
            }
        }
        let api = ModelApi::start();
        let mut setup = Setup { server: None, home, agent, api, more, apps };
        setup.configure("native_jsonl");
        setup.serve();
        let admin = fs::read_to_string(setup.home.hob_home().join("admin.token")).unwrap();
        for index in 0..setup.apps.len() {
            let body = json!({"app": setup.apps[index].name});
            let answer = setup.server().post("/admin/apps", Some(admin.trim()), &body);
            assert_eq!(answer.status, 200, "{}", answer.text);
            setup.apps[index].token = answer.json()["token"].as_str().unwrap().to_owned();
        }
        setup
    }

    fn configure(&self, history: &str) {
        let mut env = self.api.claude_environment();
        env.push(("CLAUDE_CODE_MAX_RETRIES", "0".to_owned()));
        // A file of this name in an app's folder tells the scripted agent what to answer.
        env.push((script::VARIABLE, "script".to_owned()));
        let command = match self.agent {
            Agent::Scripted => program("hob-scripted-agent"),
            Agent::Real => installed("node_modules/.bin/claude"),
        };
        // JSON's texts are TOML's.
        let env: Vec<String> =
            env.iter().map(|(name, value)| format!("{name} = {}", json!(value))).collect();
        let mut config = format!(
            "{}\n[claude]\nhistory = \"{history}\"\n[agents.claude]\ncommand = [{}]\nenv = {{ {} }}\n",
            self.more,
            json!(command),
            env.join(", ")
        );
        for App { name, driver, cwd, .. } in &self.apps {
            config.push_str(&format!(
                "[apps.{name}]\ndriver = \"{driver}\"\ncwd = {}\npermissions = \"allow\"\n",
                json!(cwd)
            ));
        }
        self.home.configure(&config);
    }

    fn serve(&mut self) {
        self.server = Some(self.home.serve());
    }

    fn server(&self) -> &HobServer {
        self.server.as_ref().expect("it runs")
    }

    fn stop(&mut self) {
        let status = self.server.take().expect("it runs").stop();
        assert!(status.success(), "{status}");
    }

    /// Runs one script to its end and answers what it asks.
    fn run(&mut self, script: &str, case: &str) {
        let name = script.replace(['_', '.'], "-");
        let apps: serde_json::Map<String, Value> = self
            .apps
            .iter()
            .filter_map(|app| {
                let kind = app.name.strip_prefix(&format!("{name}-"))?;
                let told = json!({"name": app.name, "token": app.token, "cwd": app.cwd});
                Some((kind.to_owned(), told))
            })
            .collect();
        let told = json!({"url": self.server().url(), "apps": apps, "case": case,
            "real": self.agent == Agent::Real});
        let mut command = Command::new(interpreter(script));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.envs(std::env::var_os("HOB_SEED").map(|seed| ("HOB_SEED", seed)));
        command.arg(installed(script)).arg(told.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut done = false;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let Ok(asked) = serde_json::from_str::<Value>(&line) else {
                println!("{script}: {line}");
                continue;
            };
            if asked["ok"] == true {
                done = true;
                continue;
            }
            let answer = self.answer(&asked);
            // A script that has given up is known by its end.
            let _ = writeln!(stdin, "{answer}");
        }
        let status = child.wait().unwrap();
        assert!(status.success() && done, "{script} {case}: {status}");
    }

    fn answer(&mut self, asked: &Value) -> Value {
        let text = |name: &str| asked[name].as_str().unwrap_or_default();
        match text("ask") {
            "agents" => json!(self.agents(text("app"))),
            "gone" => {
                let pids: Vec<i32> = serde_json::from_value(asked["pids"].clone()).unwrap();
                let home = format!("HOME={}", self.home.user_home().display());
                wait_until("the processes are gone", || {
                    let mut numbers = processes_with(&home).into_iter().flat_map(numbers_of);
                    (!numbers.any(|number| pids.contains(&number))).then_some(())
                });
                Value::Null
            }
            "nothing left" => {
                let app = text("app");
                wait_until("nothing of the app is left", || {
                    self.processes(app).is_empty().then_some(())
                });
                Value::Null
            }
            "request" => self.request(text("holding")),
            "restart" => {
                self.stop();
                self.configure(asked["history"].as_str().unwrap_or("native_jsonl"));
                self.serve();
                json!(self.server().url())
            }
            "crash" => {
                self.server.take().expect("it runs").kill();
                self.serve();
                json!(self.server().url())
            }
            other => panic!("unknown request {other:?}"),
        }
    }

    /// Everything that works in an app's folder.
    fn processes(&self, app: &str) -> Vec<i32> {
        let app = self.apps.iter().find(|known| known.name == app).expect("an app");
        let home = format!("HOME={}", self.home.user_home().display());
        let mut pids = processes_with(&home);
        pids.retain(|pid| {
            fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == app.cwd)
        });
        pids
    }

    /// The agents of an app: their pids and command lines.
    fn agents(&self, app: &str) -> Vec<Value> {
        let all = self.processes(app);
        let parent = |pid: i32| tree::all().into_iter().find(|p| p.pid == pid).map(|p| p.parent);
        let roots = all.iter().filter(|pid| parent(**pid).is_some_and(|p| !all.contains(&p)));
        roots
            .map(|pid| {
                let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).replace('\0', " ");
                json!({"pid": pid, "command": line})
            })
            .collect()
    }

    /// Returns the last request to the model with these words: the messages with their roles, without the CLI's additions.
    fn request(&self, holding: &str) -> Value {
        let requests = self.api.requests();
        let found = requests.iter().rev().find(|request| {
            let words = json!(holding).to_string();
            request["messages"].to_string().contains(words.trim_matches('"'))
        });
        let Some(request) = found else { return Value::Null };
        let mut said = Vec::new();
        for message in request["messages"].as_array().into_iter().flatten() {
            let blocks = match &message["content"] {
                Value::String(text) => vec![json!({"type": "text", "text": text})],
                content => content.as_array().cloned().unwrap_or_default(),
            };
            for block in blocks.iter().filter(|_| message["role"] != "system") {
                let text =
                    block["text"].as_str().map(|text| without_reminders(text).trim().to_owned());
                let text = text.unwrap_or_else(|| format!("({})", block["type"].as_str().unwrap()));
                if !text.is_empty() {
                    said.push(json!([message["role"], text]));
                }
            }
        }
        let tools: Vec<&Value> =
            request["tools"].as_array().into_iter().flatten().map(|tool| &tool["name"]).collect();
        json!({"said": said, "model": request["model"], "system": request["system"].to_string(),
            "tools": tools})
    }
}

/// Returns the numbers by which a script may know a process: the one that it has here and, of a tool that sleeps, those
/// inside of its namespaces. (There, processes of two agents may have one number.)
fn numbers_of(pid: i32) -> Vec<i32> {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if !command.starts_with(b"sleep") {
        return vec![pid];
    }
    tree::numbers(pid)
}

/// Every case of two SDKs on one server.
fn all_cases(agent: Agent, sdks: [&str; 2]) {
    let mut setup = Setup::new(agent, &sdks, "");
    for sdk in sdks {
        setup.run(sdk, "all");
    }
    setup.stop();
}

#[test]
fn the_python_sdks_on_the_scripted_agent() {
    all_cases(Agent::Scripted, ["sdk_anthropic.py", "sdk_openai.py"]);
}

#[test]
fn the_typescript_sdks_on_the_scripted_agent() {
    all_cases(Agent::Scripted, ["sdk_anthropic.mjs", "sdk_openai.mjs"]);
}

#[test]
fn the_python_sdks_on_the_real_claude() {
    all_cases(Agent::Real, ["sdk_anthropic.py", "sdk_openai.py"]);
}

#[test]
fn the_typescript_sdks_on_the_real_claude() {
    all_cases(Agent::Real, ["sdk_anthropic.mjs", "sdk_openai.mjs"]);
}

/// Limits of one live agent and six turns per minute.
#[test]
fn refusals_raise_each_sdks_own_exceptions() {
    let sdks = ["sdk_anthropic.py", "sdk_openai.py", "sdk_anthropic.mjs", "sdk_openai.mjs"];
    let narrow = "sessions.max_live = 1\nlimits.app_turns_per_minute = 6";
    let mut setup = Setup::new(Agent::Scripted, &sdks, narrow);
    for sdk in sdks {
        setup.run(sdk, "limits");
    }
    setup.stop();
}

/// Random turns through every face that streams: each event is one of the SDK's types. `HOB_SEED` repeats a run.
#[test]
fn random_turns_have_events_of_the_sdks_types() {
    // The compiler that checks the events of the TypeScript SDKs.
    installed("../console/node_modules/.bin/tsc");
    let sdks = ["sdk_events.py", "sdk_events.mjs"];
    let mut setup = Setup::new(Agent::Scripted, &sdks, "");
    for sdk in sdks {
        setup.run(sdk, if is_campaign() { "2000" } else { "25" });
    }
    setup.stop();
}

/// The server is killed in the middle of a turn through every face of `/v1`, and each client goes on.
#[test]
fn clients_go_on_after_a_kill_in_the_middle_of_a_turn() {
    for sdk in ["sdk_crash.py", "sdk_crash.mjs"] {
        let mut setup = Setup::new(Agent::Scripted, &[sdk], "");
        setup.run(sdk, "all");
        setup.stop();
    }
}

/// The real `claude`, with its base URL at Hob, as a client of the scripted agent: it runs the tools that the agent calls.
#[test]
fn the_real_claude_is_a_client() {
    let setup = Setup::new(Agent::Scripted, &["outer"], "");
    let home = setup.home.user_home().join("outer-home");
    fs::create_dir(&home).unwrap();
    let claude = |arguments: &[&str]| {
        let mut command = Command::new(installed("node_modules/.bin/claude"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", &home).current_dir(&home);
        command.env("ANTHROPIC_BASE_URL", setup.server().url());
        command.env("ANTHROPIC_AUTH_TOKEN", &setup.apps[2].token);
        command.envs([
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("CLAUDE_CODE_MAX_RETRIES", "0"),
        ]);
        let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(claude(&["-p", "[[say Hello.]]"]), "Hello.");
    let command = json!({"command": "echo out-$((40+2)) > made; cat made"});
    let prompt = format!("[[tool mcp__app__Bash {command}]] [[say Got {{result}}.]]");
    assert_eq!(claude(&["-p", "--allowedTools", "Bash", "--", &prompt]), "Got out-42.");
    let made = fs::read_to_string(home.join("made")).unwrap();
    assert_eq!(made, "out-42\n", "the client ran it, where the client is");
    let again = claude(&["-p", "--continue", "[[say {history}]]"]);
    assert!(again.contains("echo out-"), "the agent knows the conversation: {again}");
}

/// The snippets of `docs/v1.md` run as they are, except for the address.
#[test]
fn snippets_of_the_docs_run() {
    let sdk = "docs";
    let mut setup = Setup::new(Agent::Scripted, &[sdk], "");
    let docs = fs::read_to_string(installed("../docs/v1.md")).unwrap();
    let mut run = Vec::new();
    for block in docs.split("```").skip(1).step_by(2) {
        let (kind, code) = block.split_once('\n').unwrap();
        let (program, arguments) = match kind {
            "sh" => (PathBuf::from("sh"), vec!["-ec"]),
            "python" => (installed(".venv/bin/python"), vec!["-c"]),
            "ts" => (PathBuf::from("node"), vec!["--input-type=module", "-e"]),
            "toml" => continue,
            other => panic!("no interpreter for {other:?}"),
        };
        if code.starts_with("hob ") {
            continue;
        }
        let code = code.replace("http://127.0.0.1:7717", setup.server().url());
        let app = &setup.apps[2 * (run.len() % 2)];
        let mut command = Command::new(program);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        // Node finds packages from where it is.
        command.current_dir(installed("package.json").parent().unwrap());
        let output =
            command.args(arguments).arg(&code).env("HOB_TOKEN", &app.token).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let expect = if code.contains("memory_stores") { "/deploy.md" } else { "echo: " };
        assert!(output.status.success() && said.contains(expect), "{block}\n{output:?}");
        run.push(kind);
    }
    let first = ["sh", "sh", "sh", "python", "python", "ts", "ts", "python", "sh"];
    assert_eq!((&run[..9], &run[9..]), (&first[..], &["python"; 4][..]));
    setup.stop();
}

/// Layers on top of the SDKs that `scripts/test` runs, and those that only `scripts/campaign` runs.
const LAYERS: [&str; 2] = ["layer_ai.mjs", "layer_agents.py"];
/// Each with its environment.
const CAMPAIGN_LAYERS: [(&str, &str); 8] = [
    ("examples_anthropic.py", ".venv"),
    ("examples_openai.py", ".venv"),
    ("layer_langchain.py", ".venv-layers"),
    ("layer_pydantic_ai.py", ".venv-layers"),
    ("layer_llm.py", ".venv-layers"),
    ("layer_litellm.py", ".venv-layers-openai2"),
    ("layer_instructor.py", ".venv-layers-openai2"),
    ("layer_llamaindex.py", ".venv-layers-openai2"),
];

/// Layers run unchanged. Each prints its line of the table in `docs/v1.md`, and the table has no other lines.
#[test]
fn layers_run_as_the_table_in_the_docs_says() {
    let mut setup = Setup::new(Agent::Scripted, &["layers"], "");
    let mut lines = Vec::new();
    let usual = LAYERS.iter().map(|script| (*script, "`scripts/test`", interpreter(script)));
    let campaign = CAMPAIGN_LAYERS.iter().filter(|_| is_campaign()).map(|(script, environment)| {
        (*script, "`scripts/campaign`", installed(environment).join("bin/python"))
    });
    for (script, place, program) in usual.chain(campaign) {
        // The app that streams.
        let app = &setup.apps[2];
        let mut command = Command::new(program);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
            .env("HOME", setup.home.user_home())
            .current_dir(installed("package.json").parent().unwrap());
        command.arg(installed(script)).arg(setup.server().url()).arg(&app.token).arg(&app.cwd);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = said.lines().last().filter(|line| line.starts_with("| `"));
        assert!(output.status.success() && line.is_some(), "{script}: {output:?}");
        lines.push(format!("{} {place} |", line.unwrap_or_default()));
    }
    let docs = fs::read_to_string(installed("../docs/v1.md")).unwrap();
    let known = |line: &&str| {
        line.starts_with("| `")
            && (line.ends_with("`scripts/test` |")
                || (is_campaign() && line.ends_with("`scripts/campaign` |")))
    };
    let known: Vec<&str> = docs.lines().filter(known).collect();
    assert_eq!(known, lines, "docs/v1.md should have\n{}", lines.join("\n"));
    setup.stop();
}
