//! Modes, options and commands of agents over the Agent Client Protocol.

use hob_testkit::{TestHome, wait_until};
use serde_json::{Value, json};

use crate::api::*;
use crate::backend::{Backend, backend_tests};

backend_tests!([file, cluster]: [
    agent_offers_settings_and_takes_changes,
    agents_without_settings_refuse_changes,
]);

/// The agent that has settings, in the settings of a server.
fn agent() -> String {
    let agent = TestHome::scripted_agent("moded", "acp", &["acp", "--settings"]);
    format!("{agent}\n")
}

fn settings(api: &Api, id: &str) -> Value {
    let answer = api.get(&format!("/sessions/{id}/settings"));
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

fn change(api: &Api, id: &str, body: Value) -> hob_testkit::server::Answer {
    api.post(&format!("/sessions/{id}/settings"), &body)
}

fn agent_offers_settings_and_takes_changes(backend: Backend) {
    let api = backend.api(&agent());
    let id = api.create(&json!({"agent": "moded"}));
    let offered = settings(&api, &id);
    assert_eq!(offered["modes"]["currentModeId"], "ask", "{offered}");
    assert_eq!(offered["modes"]["availableModes"][1]["id"], "code", "{offered}");
    assert_eq!(offered["config_options"][0]["currentValue"], "small", "{offered}");
    wait_until("the agent names its commands", || {
        (settings(&api, &id)["commands"][0]["name"] == "review").then_some(())
    });
    assert_eq!(api.ask(&id, "[[say {mode} {model}]]"), "ask small");
    let changed = change(&api, &id, json!({"mode": "code"})).json();
    assert_eq!(changed["modes"]["currentModeId"], "code", "{changed}");
    let changed = change(&api, &id, json!({"option": "model", "value": "large"})).json();
    assert_eq!(changed["config_options"][0]["currentValue"], "large", "{changed}");
    assert_eq!(api.ask(&id, "[[say {mode} {model}]]"), "code large");
    // A change is an entry of the log, and no message of the agent.
    let log = api.log(&id);
    let changes = log.iter().filter(|event| event["event"] == "setting").collect::<Vec<_>>();
    assert_eq!((&changes[0]["mode"], &changes[1]["value"]), (&json!("code"), &json!("large")));
    let results = log.iter().filter(|event| event["message"]["result"].is_object()).count();
    assert_eq!(results, 2, "one for each turn: {log:?}");
    assert_gapless(&log);
    for (body, code, part) in [
        (json!({}), "bad_request", "mode"),
        (json!({"mode": "code", "value": true}), "bad_request", "mode"),
        (json!({"mode": 1}), "bad_request", "mode"),
        (json!({"option": "model", "value": 1}), "bad_request", "value"),
        (json!({"mode": "dance"}), "setting_refused", "no such mode"),
        (json!({"option": "model", "value": "huge"}), "setting_refused", "value"),
        (json!({"option": "none", "value": "large"}), "setting_refused", "option"),
    ] {
        assert_error(&change(&api, &id, body), 400, code, part);
    }
    // A running turn does not keep a change waiting.
    let turn = api.start_gated_turn(&id);
    assert_eq!(change(&api, &id, json!({"mode": "ask"})).status, 200);
    api.open_gate(&id);
    api.wait_for_turn(&id, turn, "finished");
    let log = api.log(&id);
    let results = log.iter().filter(|event| event["message"]["result"].is_object()).count();
    assert_eq!(results, 3, "the change is no message of the turn: {log:?}");
    assert_eq!(api.ask(&id, "[[say {mode}]]"), "ask");
    api.close(&id);
    assert_error(&change(&api, &id, json!({"mode": "code"})), 410, "session_closed", "closed");
    assert!(settings(&api, &id)["modes"].is_null());
    let other = api.home.app("other");
    let path = format!("/sessions/{id}/settings");
    assert_eq!(api.call_as(&other, "GET", &path, &[], &Value::Null).status, 404);
    assert_eq!(api.call_as(&other, "POST", &path, &[], &json!({"mode": "ask"})).status, 404);
}

fn agents_without_settings_refuse_changes(backend: Backend) {
    let api = backend.api("");
    for agent in ["acp", "claude"] {
        let id = api.create(&json!({"agent": agent}));
        let none = json!({"ok": true, "modes": null, "config_options": null, "commands": null});
        assert_eq!(settings(&api, &id), none, "{agent}");
        for body in [json!({"mode": "plan"}), json!({"option": "model", "value": "x"})] {
            assert_error(&change(&api, &id, body), 400, "unsupported", "");
        }
    }
}

/// Choices are made again for a new process of the agent, with and without a turn before it. What the agent changed itself
/// counts, too.
#[test]
fn choices_outlive_the_agent_and_the_server() {
    let api = api(&agent());
    let id = api.create(&json!({"agent": "moded"}));
    assert_eq!(change(&api, &id, json!({"mode": "code"})).status, 200);
    let api = api.restart_after(|server| server.kill());
    assert_eq!(settings(&api, &id)["modes"]["currentModeId"], "code");
    assert_eq!(api.ask(&id, "[[say {mode}]]"), "code");
    assert_eq!(change(&api, &id, json!({"option": "model", "value": "large"})).status, 200);
    assert_eq!(api.turn(&id, "[[crash]]").status, 502);
    assert_eq!(api.ask(&id, "[[say {mode} {model} {history}]]"), "code large [[say {mode}]]");
    let update = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"current_mode_update","currentModeId":"ask"}}}"#;
    api.ask(&id, &format!("[[garbage {update}]] [[say done]]"));
    let api = api.restart_after(|server| assert!(server.stop().success()));
    assert_eq!(api.ask(&id, "[[say {mode} {model}]]"), "ask large");
    let notices = api.log(&id).iter().filter(|event| event["event"] == "notice").count();
    assert_eq!(notices, 0);
}

/// An entry maps the policies of sessions to modes of the agent. A choice of the caller wins, and a mode that the agent does
/// not have is a notice.
#[test]
fn mode_follows_the_permissions() {
    let modes =
        "modes = { allow = \"code\", deny = \"missing\" }\nnotices = { allow = \"It edits.\" }\n";
    let api = api(&format!("{}{modes}", agent()));
    let notices = |id: &str| -> Vec<String> {
        let log = api.log(id).into_iter().filter(|event| event["event"] == "notice");
        log.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
    };
    let allow = api.create(&json!({"agent": "moded", "permissions": "allow"}));
    assert_eq!(api.ask(&allow, "[[say {mode}]]"), "code");
    assert_eq!(notices(&allow), ["It edits."]);
    assert_eq!(change(&api, &allow, json!({"mode": "ask"})).status, 200);
    assert_eq!(api.turn(&allow, "[[crash]]").status, 502);
    assert_eq!(api.ask(&allow, "[[say {mode}]]"), "ask");
    assert_eq!(notices(&allow).len(), 1, "said once");
    let ask = api.create(&json!({"agent": "moded", "permissions": "ask"}));
    assert_eq!(api.ask(&ask, "[[say {mode}]]"), "ask");
    let deny = api.create(&json!({"agent": "moded"}));
    assert_eq!(api.ask(&deny, "[[say {mode}]]"), "ask");
    assert!(notices(&deny)[0].contains("does not accept its mode missing"), "{:?}", notices(&deny));
}

/// The model of a session reaches agents that have no option for it: by their own variable, which wins over what is set for
/// them, or by the method of agents that list their models.
#[test]
fn model_reaches_agents_without_an_option() {
    let named = TestHome::scripted_agent("named", "acp", &["acp"]);
    let named =
        format!("{named}model_env = \"SCRIPTED_MODEL\"\nenv = {{ SCRIPTED_MODEL = \"own\" }}\n");
    let listing = TestHome::scripted_agent("listing", "acp", &["acp", "--models"]);
    let api = api(&format!("{named}{listing}"));
    let notices = |id: &str| {
        let log = api.log(id).into_iter().filter(|event| event["event"] == "notice");
        log.map(|event| event["message"].to_string()).collect::<Vec<_>>()
    };
    let model = "[[env SCRIPTED_MODEL]]";
    let id = api.create(&json!({"agent": "named", "model": "huge"}));
    assert_eq!((api.ask(&id, model), notices(&id)), ("huge".to_owned(), Vec::new()));
    assert_eq!(api.turn(&id, "[[crash]]").status, 502);
    assert_eq!(api.ask(&id, model), "huge", "and its next process");
    let id = api.create(&json!({"agent": "named"}));
    assert_eq!(api.ask(&id, model), "own");
    let run = api.post("/run", &json!({"agent": "named", "model": "huge", "prompt": model}));
    assert!(run.text.contains("huge"), "{}", run.text);
    let id = api.create(&json!({"agent": "listing", "model": "large"}));
    assert_eq!((api.ask(&id, "[[say {model}]]"), notices(&id)), ("large".to_owned(), Vec::new()));
    let id = api.create(&json!({"agent": "listing", "model": "none"}));
    let refused = api.turn(&id, "hi").text;
    assert!(refused.contains("no such model") && refused.contains("small, large"), "{refused}");
    let id = api.create(&json!({"agent": "acp", "model": "large"}));
    api.ask(&id, "hi");
    assert!(notices(&id)[0].contains("does not support choosing a model"), "{:?}", notices(&id));
}

/// Claude Code without a terminal has modes and models. Of its commands it offers those of the project; a prompt that begins
/// with another one is only text.
#[test]
fn claude_without_a_terminal_offers_settings() {
    let home = TestHome::new();
    let work = home.user_home().canonicalize().unwrap().join("work");
    std::fs::create_dir_all(work.join(".claude/commands")).unwrap();
    std::fs::write(work.join(".claude/commands/ship.md"), "Ship it.").unwrap();
    let agent = TestHome::scripted_agent("stream", "claude-stream", &[]);
    configure(&home, &format!("{}{agent}", sessions(&format!("roots = [{work:?}]"))));
    let token = home.app("tests");
    let api = Backend::File.start(home, &token);
    let id = api.create(&json!({"agent": "stream", "cwd": work}));
    let offered = settings(&api, &id);
    assert_eq!(offered["modes"]["currentModeId"], "dontAsk", "{offered}");
    let commands = offered["commands"].as_array().unwrap();
    assert!(commands.len() == 1 && commands[0]["name"] == "ship", "{offered}");
    assert_eq!(offered["config_options"][0]["currentValue"], "default", "{offered}");
    assert_eq!(change(&api, &id, json!({"mode": "plan"})).status, 200);
    // A choice outlives the process.
    let api = api.restart_after(|server| server.kill());
    assert_eq!(api.ask(&id, "[[say {mode} {model}]]"), "plan default");
    let changed = change(&api, &id, json!({"option": "model", "value": "large"})).json();
    assert_eq!(changed["config_options"][0]["currentValue"], "large", "{changed}");
    assert_eq!(changed["modes"]["currentModeId"], "plan", "{changed}");
    assert_eq!(api.ask(&id, "[[say {mode} {model}]]"), "plan large");
    for (body, part) in [
        (json!({"mode": "dance"}), "dance"),
        (json!({"mode": "bypassPermissions"}), "bypassPermissions"),
        (json!({"option": "model", "value": "none"}), "not found"),
        (json!({"option": "other", "value": true}), "other"),
    ] {
        assert_error(&change(&api, &id, body), 400, "setting_refused", part);
    }
    assert_eq!(api.ask(&id, "/ship it"), "echo: /ship it");
    assert_eq!(api.ask(&id, "/clear"), "echo: \u{2800}/clear");
    let allow = api.create(&json!({"agent": "stream", "permissions": "allow"}));
    let modes = settings(&api, &allow)["modes"].clone();
    assert_eq!(modes["currentModeId"], "bypassPermissions", "{modes}");
    assert_eq!(change(&api, &allow, json!({"mode": "default"})).status, 200);
    assert_eq!(change(&api, &allow, json!({"mode": "bypassPermissions"})).status, 200);
    // A process that starts in another mode can go back as well.
    assert_eq!(change(&api, &allow, json!({"mode": "plan"})).status, 200);
    let api = api.restart_after(|server| server.kill());
    assert_eq!(settings(&api, &allow)["modes"]["currentModeId"], "plan");
    assert_eq!(change(&api, &allow, json!({"mode": "bypassPermissions"})).status, 200);
    // A session on a terminal that asks has no terminal, because nobody could answer there.
    let asking = api.create(&json!({"agent": "claude", "permissions": "ask"}));
    assert_eq!(settings(&api, &asking)["modes"]["currentModeId"], "default");
}
