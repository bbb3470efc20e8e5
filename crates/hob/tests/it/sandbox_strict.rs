//! An agent whose settings demand the whole sandbox, on a machine that lacks a part of it.

use std::process::{Command, Stdio};

use hob_testkit::{HobServer, TestHome};
use serde_json::json;

use crate::api::configure;

/// Starts a server that can create no namespaces. Where nobody can, it is a server like any other.
fn serve_without_namespaces(home: &TestHome) -> HobServer {
    let can = Command::new("unshare").args(["-Ur", "true"]).stderr(Stdio::null()).status();
    if !can.is_ok_and(|status| status.success()) {
        return home.serve();
    }
    let serve = home.command(&["serve", "--listen", "127.0.0.1:0"]);
    let mut command = Command::new("unshare");
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"";
    command.args(["-Ur", "sh", "-c", script, "sh"]).arg(serve.get_program()).args(serve.get_args());
    command.env_clear().stdin(Stdio::null());
    command.envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
    home.serve_by(command)
}

#[test]
fn strict_sandbox_refuses_to_run_without_namespaces() {
    let home = TestHome::new();
    let strict = |name: &str, driver: &str, arguments: &[&str]| {
        let entry = TestHome::scripted_agent(name, driver, arguments);
        entry.replacen('\n', "\nsandbox = \"strict\"\n", 1)
    };
    let agents = [strict("strict", "acp", &["acp"]), strict("printing", "claude-stream", &[])];
    configure(&home, &agents.concat());
    let token = home.app("tests");
    let server = serve_without_namespaces(&home);
    let client = server.client(&token);
    let lacks = "this machine lacks unprivileged user namespaces";
    for agent in ["strict", "printing"] {
        let id = client.create(&json!({"agent": agent}));
        let turn = client.turn(&id, "[[say hello]]");
        assert!(turn.status != 200 && turn.text.contains(lacks), "{agent}: {}", turn.text);
        assert_eq!(client.describe(&id)["sandbox"]["mode"], "strict");
        let run = client.post("/run", &json!({"agent": agent, "prompt": "[[say hello]]"}));
        assert_eq!(run.status, 502, "{agent}: {}", run.text);
        assert!(run.text.contains(lacks) && run.text.contains("hob doctor"), "{}", run.text);
    }
    // The default sandbox uses the layers that the machine has.
    let id = client.session();
    assert_eq!(client.ask(&id, "[[say hello]]"), "hello");
    let sandbox = client.describe(&id)["sandbox"].clone();
    assert_eq!(sandbox["mode"], "workspace");
    assert!(!sandbox["layers"].as_array().unwrap().contains(&json!("namespaces")), "{sandbox}");
    let run = client.post("/run", &json!({"agent": "acp", "prompt": "[[say hello]]"}));
    assert_eq!((run.status, &run.json()["result"]), (200, &json!("hello")), "{}", run.text);
}
