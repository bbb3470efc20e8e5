//! `POST /run` on the scripted agent.

use std::io::Write;
use std::net::TcpStream;

use hob_testkit::leak::{files_below, processes_with};
use hob_testkit::{TestHome, wait_until};
use serde_json::{Value, json};

use crate::setup::{Setup, setup};

impl Setup {
    fn run(&self, body: &Value) -> hob_testkit::server::Answer {
        self.server.post("/run", Some(&self.token), body)
    }

    fn ask(&self, prompt: &str) -> hob_testkit::server::Answer {
        self.run(&json!({"prompt": prompt}))
    }

    /// The processes of agents: everything that has this home's folder as its `HOME`, but the server.
    fn agents(&self) -> Vec<i32> {
        let home = format!("HOME={}", self.home.user_home().display());
        let mut found = processes_with(&home);
        found.retain(|pid| *pid != self.server.pid());
        found
    }
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> =
        value.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// Seed 003: the exact shape of success.
#[test]
fn run_endpoint_unchanged() {
    let setup = setup("");
    let prompt = r#"Reply with JSON: [[say {"hello":"world"}]]"#;
    let answer = setup.run(&json!({"prompt": prompt, "model": "sonnet"}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let body = answer.json();
    assert_eq!(keys(&body), ["duration_ms", "ok", "result", "stop_reason"]);
    assert_eq!(body["ok"], true);
    assert_eq!(body["result"], json!({"hello": "world"}));
    assert_eq!(body["stop_reason"], "end_turn");
    assert!(body["duration_ms"].is_u64());
}

/// Seed 003: the shape of failure.
#[test]
fn run_endpoint_unchanged_error_shape() {
    let setup = setup("");
    let answer = setup.ask("[[stderr boom]] [[exit 1]]");
    assert_eq!(answer.status, 502, "{}", answer.text);
    let body = answer.json();
    assert_eq!(keys(&body), ["code", "duration_ms", "error", "ok", "stderr", "stop_reason"]);
    assert_eq!(body["ok"], false);
    assert_eq!(body["code"], "agent_failed");
    assert_eq!(body["error"], "the agent ended with exit code 1");
    assert_eq!(body["stderr"], "boom\n");
    assert_eq!(body["stop_reason"], "error");
}

#[test]
fn run_result_is_json_if_the_reply_is_an_object_or_array() {
    let setup = setup("");
    let result = |prompt: &str| setup.ask(prompt).json()["result"].clone();
    assert_eq!(result("hello there"), "echo: hello there");
    assert_eq!(result("[[say [1, 2]]] "), "[1, 2", "the words end at the first double bracket");
    assert_eq!(result("[[say [1, 2] ]]"), json!([1, 2]));
    assert_eq!(result("[[say 42]]"), "42");
    let long = result("[[big 60000]]");
    assert_eq!(long.as_str().map(str::len), Some(60_000));
}

#[test]
fn run_reports_an_api_error_in_the_agents_words() {
    let setup = setup("");
    let answer = setup.ask("[[error 529 Overloaded]]");
    assert_eq!(answer.status, 502);
    assert_eq!(answer.json()["error"], "API Error: 529 Overloaded");
}

#[test]
fn run_with_a_crashed_agent_answers_502() {
    let setup = setup("");
    let answer = setup.ask("[[crash]]");
    assert_eq!(
        (answer.status, &answer.json()["error"]),
        (502, &json!("the agent ended with signal 9"))
    );
    let answer = setup.ask("[[garbage no json here]] [[exit 0]]");
    assert_eq!(answer.json()["error"], "the agent ended without a result");
}

#[test]
fn run_passes_any_prompt_as_text() {
    let setup = setup("");
    let long = "x".repeat(300 << 10);
    for prompt in ["--help", "-p", "ünïcödé 日本 🎉", "a\nb\tc", "\"quoted\" $HOME `x`", &long]
    {
        let answer = setup.ask(prompt);
        assert_eq!(answer.json()["result"], format!("echo: {prompt}"), "{}", answer.status);
    }
    assert_eq!(setup.ask("/clear").json()["result"], "echo: \u{2800}/clear");
}

#[test]
fn run_without_its_agent_names_what_to_install() {
    let home = TestHome::new();
    home.configure("[agents.claude]\ncommand = [\"claude-is-not-here\"]\n");
    let token = home.app("tests");
    let server = home.serve();
    let answer = server.post("/run", Some(&token), &json!({"prompt": "hi"}));
    assert_eq!(answer.status, 502);
    let body = answer.json();
    assert_eq!(body["code"], "agent_not_installed");
    let error = body["error"].as_str().unwrap();
    assert!(error.contains("claude-is-not-here") && error.contains("npm install"), "{error}");
    assert_eq!(keys(&body), ["code", "duration_ms", "error", "ok", "stderr", "stop_reason"]);
    // The demo agent needs nothing, but is never taken silently.
    let demo = server.post("/run", Some(&token), &json!({"prompt": "hi", "agent": "demo"}));
    assert_eq!(demo.json()["result"], "This is Hob's demo agent. You said: hi");
}

#[test]
fn run_over_its_timeout_answers_504_and_ends_its_processes() {
    let setup = setup("");
    let body = json!({"prompt": "[[daemon]] [[stubborn]] [[hang]]", "timeout_secs": 1});
    let answer = setup.run(&body);
    assert_eq!(answer.status, 504, "{}", answer.text);
    assert_eq!(keys(&answer.json()), ["code", "error", "ok"]);
    assert_eq!(answer.json()["code"], "timeout");
    assert_eq!(setup.agents(), [0; 0], "gone before the answer is given");
    assert_eq!(files_below(&setup.home.hob_home().join("workspaces")).len(), 0);
}

#[test]
fn run_ends_when_its_client_goes_away() {
    let setup = setup("");
    let body = json!({"prompt": "[[daemon]] [[hang]]"}).to_string();
    let mut stream = TcpStream::connect(setup.server.address()).unwrap();
    write!(
        stream,
        "POST /run HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n{body}",
        setup.token,
        body.len()
    )
    .unwrap();
    wait_until("the agent and its daemon run", || (setup.agents().len() >= 2).then_some(()));
    drop(stream);
    wait_until("the tree is gone", || setup.agents().is_empty().then_some(()));
    let folder = setup.home.hob_home().join("workspaces");
    wait_until("its folder is gone", || {
        std::fs::read_dir(&folder).unwrap().next().is_none().then_some(())
    });
    assert_eq!(setup.ask("still there?").status, 200);
}

#[test]
fn run_leaves_no_process() {
    let setup = setup("");
    let answer = setup.ask("[[daemon]] [[daemon]] [[say done]]");
    assert_eq!(answer.json()["result"], "done");
    assert_eq!(setup.agents(), [0; 0]);
}

#[test]
fn run_in_a_full_pool_answers_503_with_retry_after() {
    let setup = setup("[sessions]\nmax_live = 1\n");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| setup.run(&json!({"prompt": "[[hang]]", "timeout_secs": 3})));
        wait_until("the first run occupies the slot", || {
            (!setup.agents().is_empty()).then_some(())
        });
        let second = setup.ask("hi");
        assert_eq!(second.status, 503, "{}", second.text);
        assert_eq!(second.json()["code"], "pool_full");
        assert_eq!(second.headers["retry-after"], "1");
        assert_eq!(first.join().unwrap().status, 504);
    });
    assert_eq!(setup.ask("hi").status, 200, "the place is free again");
}

#[test]
fn run_gives_its_agent_a_cleaned_environment() {
    let home = TestHome::new();
    let agent = TestHome::scripted_agent("claude", "claude-tui", &[]);
    home.configure(&format!("{agent}env = {{ GIVEN = \"yes\" }}\nenv_pass = [\"PASSED_*\"]\n"));
    let token = home.app("tests");
    let server = home.serve_with(|command| {
        command.env("HOB_ADMIN_TOKEN", "the-admin").env("PASSED_ON", "p").env("OTHER", "o");
        command.env("LC_ALL", "C");
    });
    let value = |name: &str| {
        let prompt = format!("[[env {name}]]");
        let answer = server.post("/run", Some(&token), &json!({"prompt": prompt}));
        answer.json()["result"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(value("GIVEN"), "yes");
    assert_eq!(value("PASSED_ON"), "p");
    assert_eq!(value("LC_ALL"), "C");
    assert_eq!(value("HOME"), home.user_home().display().to_string());
    for name in ["OTHER", "HOB_ADMIN_TOKEN", "HOB_HOME", "ANTHROPIC_API_KEY"] {
        assert_eq!(value(name), "(unset)", "{name}");
    }
}

#[test]
fn run_gives_its_agent_the_users_umask_and_a_folder() {
    let setup = setup("");
    let prompt = concat!(
        r#"[[tool Bash {"command":"cd $HOME/.hob-scripted && umask > umask && cd $OLDPWD && "#,
        r#"pwd > $HOME/.hob-scripted/pwd; ls -A > $HOME/.hob-scripted/ls"}]]"#
    );
    assert_eq!(setup.ask(prompt).status, 200);
    let read = |name: &str| {
        std::fs::read_to_string(setup.home.user_home().join(".hob-scripted").join(name)).unwrap()
    };
    assert_ne!(read("umask").trim(), "0077");
    let folder = read("pwd");
    assert!(folder.contains("/workspaces/run-"), "{folder}");
    assert_eq!(read("ls"), "");
    assert!(!std::path::Path::new(folder.trim()).exists());
}

/// Runs that succeed, fail and time out leave no descriptor open in the server.
#[test]
fn runs_leak_no_descriptor_in_the_server() {
    let setup = setup("");
    let round = || {
        for prompt in ["hi", "[[exit 3]]", "[[daemon]] [[crash]]"] {
            setup.ask(prompt);
        }
        setup.run(&json!({"prompt": "[[hang]]", "timeout_secs": 1}));
    };
    // The first round opens what stays open.
    round();
    let count = || hob_testkit::leak::descriptors(setup.server.pid());
    let before = count();
    round();
    round();
    wait_until("the descriptors are as many as before", || (count() <= before).then_some(()));
}

/// Runs did not count against an app's limits, and were missing in its usage.
#[test]
fn runs_count_against_the_limits_of_their_app() {
    let home = TestHome::new();
    let token = home.app("tests");
    let server = home.serve_with(|command| {
        command.env("HOB_LIMITS_APP_TURNS_PER_MINUTE", "2").env("HOB_ADMIN_TOKEN", "admin");
    });
    let body = json!({"prompt": "hello", "agent": "demo"});
    let run = || server.post("/run", Some(&token), &body);
    assert_eq!([run().status, run().status], [200, 200]);
    crate::api::assert_error(&run(), 429, "app_pace", "limit");
    let usage = server.get("/admin/usage", Some("admin")).json();
    assert_eq!(usage["days"][0]["turns"], 2, "{usage}");
}
