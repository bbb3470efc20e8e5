//! Hob with the real agents, offline against the scripted model API, in the strictest sandbox that the kernel allows.
//!
//! The agents come from `e2e/package.json`; `scripts/test` installs them. Without them this fails.
#![allow(clippy::disallowed_methods, reason = "tests start hob to look at it from outside")]

use std::path::PathBuf;

use hob_testkit::leak::processes_with;
use hob_testkit::{HobServer, ModelApi, TestHome, strictest_sandbox};
use serde_json::{Value, json};

fn real(name: &str) -> PathBuf {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../e2e/node_modules/.bin").join(name);
    assert!(path.exists(), "{name} is not installed: run `npm ci` in e2e/, or scripts/test");
    path.canonicalize().unwrap()
}

struct Setup {
    home: TestHome,
    server: HobServer,
    token: String,
    api: ModelApi,
}

impl Setup {
    fn new(extra_env: &[(&str, &str)]) -> Setup {
        let api = ModelApi::start();
        let home = TestHome::new();
        let mut env: Vec<(String, String)> = api
            .claude_environment()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        for (name, value) in extra_env {
            env.retain(|(known, _)| known != name);
            env.push((name.to_string(), value.to_string()));
        }
        let env: Vec<String> =
            env.iter().map(|(name, value)| format!("{name} = {value:?}")).collect();
        home.configure(&format!(
            "[agents.claude]\ncommand = [{:?}, \"--dangerously-skip-permissions\"]\nenv = {{ {} }}\nsandbox = {:?}\n",
            real("claude").display().to_string(),
            env.join(", "),
            strictest_sandbox(),
        ));
        let token = home.app("tests");
        let server = home.serve();
        Setup { home, server, token, api }
    }

    fn run(&self, body: &Value) -> (u16, Value) {
        let answer = self.server.post("/run", Some(&self.token), body);
        (answer.status, answer.json())
    }

    fn last_request(&self) -> Value {
        self.api.requests().last().cloned().expect("a request reached the model")
    }
}

#[test]
fn run_through_the_real_claude() {
    let setup = Setup::new(&[]);
    let prompt = r#"Reply with JSON: [[say {"hello":"world"}]]"#;
    let (status, body) = setup.run(&json!({"prompt": prompt, "model": "sonnet"}));
    assert_eq!(status, 200, "{body}");
    let keys: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["ok", "result", "duration_ms", "stop_reason"]);
    assert_eq!(body["result"], json!({"hello": "world"}));
    assert_eq!(body["stop_reason"], "end_turn");
    assert!(setup.last_request()["model"].as_str().unwrap().contains("sonnet"));

    let (status, body) = setup.run(&json!({"prompt": "hi", "system": "You are Beaver."}));
    assert_eq!((status, &body["result"]), (200, &json!("echo: hi")));
    assert!(setup.last_request()["system"].to_string().contains("You are Beaver."));
}

/// Text is text: nothing in it is a flag or a command, however long it is.
#[test]
fn any_prompt_reaches_the_model_as_text() {
    let setup = Setup::new(&[]);
    let long = format!("{} end", "many words ".repeat(20_000));
    for prompt in ["--version", "/help me", "!ls", "exit", "日本語 🎉", &long] {
        let (status, body) = setup.run(&json!({"prompt": prompt}));
        assert_eq!(status, 200, "{prompt:.40}: {body}");
        let request = setup.last_request();
        let messages = request["messages"].to_string();
        let sent = serde_json::to_string(prompt).unwrap();
        assert!(messages.contains(sent.trim_matches('"')), "{prompt:.40}");
    }
}

#[test]
fn tools_run_in_the_runs_own_folder() {
    let setup = Setup::new(&[]);
    let prompt = r#"[[tool Bash {"command":"pwd"}]] [[say fine]]"#;
    let (status, body) = setup.run(&json!({"prompt": prompt}));
    assert_eq!((status, &body["result"]), (200, &json!("fine")), "{body}");
    let messages = setup.last_request()["messages"].to_string();
    assert!(
        messages.contains("tool_result") && messages.contains("/workspaces/run-"),
        "{messages}"
    );
}

#[test]
fn real_agent_failures_answer_502_with_the_agents_message() {
    let setup = Setup::new(&[("CLAUDE_CODE_MAX_RETRIES", "0")]);
    for (prompt, words) in [("[[error 400 bad input]]", "400"), ("[[error 529 Overloaded]]", "529")]
    {
        let (status, body) = setup.run(&json!({"prompt": prompt}));
        assert_eq!(status, 502, "{body}");
        assert_eq!(body["code"], "agent_failed");
        assert!(body["error"].as_str().unwrap().contains(words), "{body}");
    }
    let (status, body) = setup.run(&json!({"prompt": "hi", "model": "nonexistent"}));
    assert_eq!(status, 502, "{body}");
}

/// Retries stay silent, so only the time limit ends them; a tool's children go with the tree.
#[test]
fn real_run_over_its_timeout_answers_504_and_ends_its_processes() {
    let setup = Setup::new(&[]);
    let command = r#"[[tool Bash {"command":"setsid sleep 4711 & sleep 4712"}]]"#;
    for prompt in [command, "[[error 529 always]]", "[[hang]]"] {
        let (status, body) = setup.run(&json!({"prompt": prompt, "timeout_secs": 5}));
        assert_eq!(status, 504, "{body}");
        let home = format!("HOME={}", setup.home.user_home().display());
        let mut left = processes_with(&home);
        left.retain(|pid| *pid != setup.server.pid());
        assert_eq!(left, [0; 0], "{prompt}");
    }
}
