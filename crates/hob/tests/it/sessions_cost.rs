//! The cost of Claude Code in a terminal, which names it only to the command of its status line, after its turns.

use std::fs;
use std::path::PathBuf;

use hob_testkit::leak::files_below;
use hob_testkit::{TestHome, wait_until};
use serde_json::{Value, json};

use crate::api::*;
use crate::backend::{Backend, backend_tests};

backend_tests!([file, cluster]: [
    cost_on_a_terminal_is_counted_after_the_turn,
    session_cost_usd_limits_a_session_on_a_terminal,
]);

fn claude(api: &Api) -> String {
    api.create(&json!({"agent": "claude"}))
}

#[track_caller]
fn wait_for_cost(api: &Api, id: &str, usd: f64) {
    wait_until("the cost of the session", || {
        let cost = api.describe(id)["usage"]["cost_usd"].as_f64().unwrap();
        assert!(cost <= usd, "{cost}");
        (cost == usd).then_some(())
    });
}

/// Returns the files that take the costs of live processes.
fn cost_files(home: &TestHome) -> Vec<PathBuf> {
    let mut files = files_below(&home.hob_home());
    files.retain(|file| file.extension().is_some_and(|extension| extension == "cost"));
    files
}

/// The numbers are powers of two, so that sums are exact.
fn cost_on_a_terminal_is_counted_after_the_turn(backend: Backend) {
    let api = backend.api("");
    let id = claude(&api);
    let turn_cost = |turn: u64| api.get_turn(&id, turn)["usage"]["cost_usd"].clone();
    assert_eq!(api.ask(&id, "[[cost 0.25]] [[say one]]"), "one");
    wait_for_cost(&api, &id, 0.25);
    assert_eq!(turn_cost(1), 0.25);
    let named = |event: &Value| event.to_string().contains(r#""amount":0.25"#);
    assert!(api.log(&id).iter().any(named), "it is in the log");
    assert_eq!(api.ask(&id, "[[say a turn that costs nothing]]"), "a turn that costs nothing");
    assert_eq!(api.ask(&id, "[[cost 0.5]] [[say three]]"), "three");
    wait_for_cost(&api, &id, 0.75);
    assert_eq!((turn_cost(2), turn_cost(3)), (json!(0.0), json!(0.5)));
    // The next process of the conversation counts from zero again.
    let api = api.restart_after(|server| server.kill());
    assert_eq!(api.ask(&id, "[[cost 0.125]] [[say four]]"), "four");
    wait_for_cost(&api, &id, 0.875);
    assert_eq!(api.get_turn(&id, 4)["usage"]["cost_usd"], 0.125);
    let shown = api.home.run(&["sessions", "show", &id]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("$0.8750"), "{shown}");
    assert_eq!(api.close(&id).status, 200);
    wait_until("its file is gone", || cost_files(&api.home).is_empty().then_some(()));
}

fn session_cost_usd_limits_a_session_on_a_terminal(backend: Backend) {
    let api = backend.api("[limits]\nsession_cost_usd = 0.5\n");
    let id = claude(&api);
    assert_eq!(api.turn(&id, "[[cost 0.5]] [[say one]]").status, 200);
    wait_for_cost(&api, &id, 0.5);
    assert_error(&api.turn(&id, "hi"), 429, "session_budget", "session_cost_usd");
    assert_eq!(api.turn(&claude(&api), "hi").status, 200, "another one has its own");
}

/// The file lies in Hob's home, and an agent in its sandbox can write it. What it says can only add to its own cost.
#[test]
fn forged_cost_is_bounded_and_never_less() {
    let api = api("");
    let id = claude(&api);
    assert_eq!(api.ask(&id, "[[cost 0.5]] [[say one]]"), "one");
    wait_for_cost(&api, &id, 0.5);
    let files = cost_files(&api.home);
    assert!(files.len() == 1 && mode(&files[0]) == 0o600, "{files:?}");
    for (turn, forged) in ["NaN", "-7", "0.25", "word", ""].into_iter().enumerate() {
        fs::write(&files[0], forged).unwrap();
        assert_eq!(api.ask(&id, "[[say on]]"), "on");
        let cost = api.get_turn(&id, turn as u64 + 2)["usage"]["cost_usd"].clone();
        assert_eq!(cost, 0.0, "{forged}");
    }
    wait_for_cost(&api, &id, 0.5);
    // The agent's own status line overwrites the number now and then.
    assert_eq!(api.ask(&id, "[[say on]]"), "on");
    wait_until("the highest cost", || {
        fs::write(&files[0], "1e300").unwrap();
        (api.describe(&id)["usage"]["cost_usd"] == 1e9).then_some(())
    });
}

/// The user's own status line gets its input as it would without Hob.
#[test]
fn status_line_of_a_project_still_runs() {
    let home = TestHome::new();
    let work = home.user_home().canonicalize().unwrap().join("work");
    fs::create_dir_all(work.join(".claude")).unwrap();
    let line = json!({"type": "command", "command": "cat > seen # all of it"});
    let settings = json!({"statusLine": line}).to_string();
    fs::write(work.join(".claude/settings.json"), settings).unwrap();
    configure(&home, &sessions(&format!("roots = [{work:?}]")));
    let token = home.app("tests");
    let api = Backend::File.start(home, &token);
    let id = api.create(&json!({"agent": "claude", "cwd": work}));
    assert_eq!(api.ask(&id, "[[cost 0.25]] [[say one]]"), "one");
    wait_for_cost(&api, &id, 0.25);
    let seen = wait_until("the status line of the project", || {
        serde_json::from_str::<Value>(&fs::read_to_string(work.join("seen")).ok()?).ok()
    });
    assert_eq!(seen["cost"]["total_cost_usd"], 0.25);
    assert_eq!(seen["model"]["id"], "claude-scripted");
}

#[test]
fn costs_of_v1_on_a_terminal_count_for_their_app() {
    let api = api("[limits]\napp_cost_usd_per_day = 0.75\n");
    let admin = fs::read_to_string(api.home.hob_home().join("admin.token")).unwrap();
    let today = || {
        let usage = api.server.get("/admin/usage?days=1&app=tests", Some(admin.trim())).json();
        let days = usage["days"].as_array().unwrap().clone();
        days.iter().map(|day| (day["turns"].clone(), day["cost_usd"].as_f64().unwrap())).next_back()
    };
    let mut messages = Vec::new();
    for (turn, (prompt, total)) in
        [("[[cost 0.25]] [[say one]]", 0.25), ("[[cost 0.5]] [[say two]]", 0.75)]
            .into_iter()
            .enumerate()
    {
        messages.push(json!({"role": "user", "content": prompt}));
        let body = json!({"model": "claude", "max_tokens": 100, "messages": messages});
        let answer = api.post("/v1/messages", &body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        messages.push(json!({"role": "assistant", "content": answer.json()["content"]}));
        let counted = (json!(turn + 1), total);
        wait_until("the cost of the app", || (today() == Some(counted.clone())).then_some(()));
    }
    messages.push(json!({"role": "user", "content": "hi"}));
    let body = json!({"model": "claude", "max_tokens": 100, "messages": messages});
    let refused = api.post("/v1/messages", &body);
    assert_eq!(refused.status, 429, "{}", refused.text);
    assert!(refused.text.contains("app_cost_usd_per_day"), "{}", refused.text);
}
