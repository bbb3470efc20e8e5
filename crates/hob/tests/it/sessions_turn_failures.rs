//! Turns that go wrong, and what the session is afterwards.

use std::fs;

use hob_testkit::wait_until_ok;
use serde_json::{Value, json};

use crate::api::*;
use crate::backend::{Backend, backend_tests};

backend_tests!([file, cluster]: [
    crashed_agent_answers_502_and_its_conversation_continues,
    crash_ends_a_stream_with_the_failure,
    lost_conversation_is_resume_failed,
    agent_that_ends_while_idle_is_resumed,
    agent_error_answers_502_and_the_session_continues,
    turn_names_a_missing_program,
    program_that_is_no_agent_answers_agent_died,
    turn_over_its_timeout_answers_504,
    turn_timeout_includes_the_agents_start,
    agent_that_never_starts_can_be_cancelled_and_closed,
    turn_names_a_working_folder_that_is_gone,
]);

/// The failed turn counts, its events are kept, and the next turn continues the conversation.
fn crashed_agent_answers_502_and_its_conversation_continues(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    assert_eq!(api.ask(&id, "remember the crane"), "echo: remember the crane");
    for (prompt, words) in [
        ("[[say half ]] [[stderr the last words]] [[crash]]", "the last words"),
        ("[[say half ]] [[daemon]] [[exit 7]]", "7"),
        ("[[say half ]] [[exit 0]]", ""),
    ] {
        let answer = api.turn(&id, prompt);
        assert_error(&answer, 502, "agent_died", words);
    }
    assert_eq!(api.describe(&id)["turn_count"], 4);
    assert_eq!(api.describe(&id)["state"], "idle");
    let died = api.get_turn(&id, 2);
    assert_eq!(
        (&died["state"], &died["ok"], &died["code"]),
        (&json!("died"), &json!(false), &json!("agent_died"))
    );
    assert_eq!(died["text"], "half ", "its text is kept");
    assert_eq!(died["events"].as_array().unwrap().len(), 1);
    let history = api.ask(&id, "[[say {history}]]");
    assert!(history.starts_with("remember the crane"), "{history}");
    let audit = api.audit_kinds(&id);
    assert_eq!(audit.iter().filter(|kind| *kind == "resume").count(), 3, "{audit:?}");
    assert_gapless(&api.log(&id));
}

/// As a stream the failure is in the last event.
fn crash_ends_a_stream_with_the_failure(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let events: Vec<StreamEvent> = api.stream_turn(&id, "[[say half]] [[crash]]").collect();
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["message", "turn"]);
    let answer = events[1].json();
    assert_eq!((&answer["ok"], &answer["code"]), (&json!(false), &json!("agent_died")));
    assert_eq!((&answer["turn_index"], &answer["text"]), (&json!(1), &json!("half")));
}

/// A lost conversation never starts over silently: every turn fails with `resume_failed`.
fn lost_conversation_is_resume_failed(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    assert_eq!(api.turn(&id, "remember the crane").status, 200);
    assert_eq!(api.turn(&id, "[[crash]]").status, 502);
    let kept: Vec<_> =
        fs::read_dir(api.conversations()).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(kept.len(), 1);
    let conversation = fs::read(&kept[0]).unwrap();
    fs::remove_file(&kept[0]).unwrap();
    for n in 3..=4 {
        let answer = api.turn(&id, "do you remember?");
        assert_error(&answer, 502, "resume_failed", "conversation");
        let turn = api.get_turn(&id, n);
        assert_eq!((&turn["state"], &turn["events"]), (&json!("resume_failed"), &json!([])));
    }
    let log = api.log(&id);
    let resumed: Vec<&Value> = log.iter().filter(|e| e["event"] == "resume").collect();
    assert!(resumed.len() == 2 && resumed.iter().all(|e| e["ok"] == false), "{resumed:?}");
    assert_eq!(
        fs::read_dir(api.conversations()).unwrap().count(),
        0,
        "no new conversation was started"
    );
    // Back again, it goes on.
    fs::write(&kept[0], conversation).unwrap();
    assert!(api.ask(&id, "[[say {history}]]").starts_with("remember the crane"));
}

/// An agent that ends between two turns is started again, on its conversation.
fn agent_that_ends_while_idle_is_resumed(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    assert_eq!(api.turn(&id, "remember the crane").status, 200);
    for pid in api.processes() {
        let pid = nix::unistd::Pid::from_raw(pid);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    }
    // A dying process may keep its end of a pipe open for a moment; its shim ends after it.
    let no_shim = || api.server.descendants().is_empty().then_some(());
    hob_testkit::wait_until("nothing is left of it", no_shim);
    assert_eq!(api.ask(&id, "[[say {history}]]"), "remember the crane");
    // Before the first turn there is no conversation to lose.
    let fresh = api.session();
    hob_testkit::wait_until("its agent runs", || (api.processes().len() == 2).then_some(()));
    for pid in api.processes() {
        let pid = nix::unistd::Pid::from_raw(pid);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    }
    hob_testkit::wait_until("nothing is left of it", no_shim);
    assert_eq!(api.ask(&fresh, "hi"), "echo: hi");
}

fn agent_error_answers_502_and_the_session_continues(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let answer = api.turn(&id, "[[say half]] [[error 529 Overloaded]]");
    assert_error(&answer, 502, "agent_failed", "Overloaded");
    let turn = api.get_turn(&id, 1);
    assert_eq!((&turn["state"], &turn["text"]), (&json!("failed"), &json!("half")));
    let events = turn["events"].as_array().unwrap();
    assert!(events.last().unwrap()["error"].is_object(), "{turn}");
    assert_eq!(api.ask(&id, "[[say {history}]]"), "[[say half]] [[error 529 Overloaded]]");
    assert!(!api.audit_kinds(&id).contains(&"resume".to_owned()), "the same process continues");
}

/// The session can be made; its turns say what to install.
fn turn_names_a_missing_program(backend: Backend) {
    let api =
        backend.api("[agents.missing]\ndriver = \"acp\"\ncommand = [\"agent-that-is-not-here\"]\n");
    let id = api.create(&json!({"agent": "missing"}));
    for n in 1..=2 {
        let answer = api.turn(&id, "hi");
        assert_error(&answer, 502, "agent_not_installed", "agent-that-is-not-here");
        assert_eq!(api.get_turn(&id, n)["state"], "not_installed");
    }
    assert_eq!(api.close(&id).status, 200);
}

/// A program that is no agent answers `agent_died`, with its standard error.
fn program_that_is_no_agent_answers_agent_died(backend: Backend) {
    let api = backend.api(
        "[agents.not-one]\ndriver = \"acp\"\ncommand = [\"sh\", \"-c\", \"echo wrong key >&2; exit 3\"]\n\
         [agents.mute]\ndriver = \"acp\"\ncommand = [\"sleep\", \"1000\"]\n\
         [sessions]\nstart_timeout_secs = 1\n",
    );
    let id = api.create(&json!({"agent": "not-one"}));
    assert_error(&api.turn(&id, "hi"), 502, "agent_died", "wrong key");
    let id = api.create(&json!({"agent": "mute"}));
    assert_error(&api.turn(&id, "hi"), 502, "agent_failed", "1 s");
    api.wait_for_no_process();
}

/// A turn over its timeout answers 504, and then the session can be used.
fn turn_over_its_timeout_answers_504(backend: Backend) {
    let api = backend.api(&sessions("turn_timeout_secs = 1"));
    let id = api.session();
    assert_eq!(api.turn(&id, "hi").status, 200);
    let answer = api.turn(&id, "[[say half]] [[hang]]");
    assert_error(&answer, 504, "timeout", "turn_timeout_secs");
    let turn = api.get_turn(&id, 2);
    assert_eq!((&turn["state"], &turn["text"]), (&json!("timed_out"), &json!("half")));
    assert_eq!(api.describe(&id)["state"], "idle");
    assert_eq!(api.ask(&id, "[[say {history}]]"), "hi|[[say half]] [[hang]]");
    let events: Vec<StreamEvent> = api.stream_turn(&id, "[[hang]]").collect();
    assert_eq!(events.last().unwrap().json()["code"], "timeout");
}

/// The start of an agent counts in the turn's timeout.
fn turn_timeout_includes_the_agents_start(backend: Backend) {
    // The start-up timeout is longer than any test waits: only the turn's timeout can end this turn.
    let api = backend.api(
        "[agents.mute]\ndriver = \"acp\"\ncommand = [\"sleep\", \"1000\"]\n\
         [sessions]\nturn_timeout_secs = 1\nstart_timeout_secs = 600\n",
    );
    let id = api.create(&json!({"agent": "mute"}));
    let turn = api.start_turn(&id, "hi");
    wait_until_ok("the turn has ended", || {
        let turn = api.get_turn(&id, turn);
        if turn["state"] == "timed_out" || turn["state"] == "failed" { Ok(()) } else { Err(turn) }
    });
}

/// An agent that never becomes ready can be cancelled and closed.
fn agent_that_never_starts_can_be_cancelled_and_closed(backend: Backend) {
    // The start-up timeout is longer than any test waits: only a cancel or a close can end this agent.
    let api = backend.api(
        "[agents.mute]\ndriver = \"acp\"\ncommand = [\"sleep\", \"1000\"]\n\
         [sessions]\nstart_timeout_secs = 600\n",
    );
    let ids: Vec<String> = (0..2).map(|_| api.create(&json!({"agent": "mute"}))).collect();
    let turn = api.start_turn(&ids[0], "hi");
    assert_eq!(api.cancel(&ids[0]).status, 200);
    assert_eq!(api.get_turn(&ids[0], turn)["state"], "cancelled");
    for id in &ids {
        assert_eq!(api.close(id).status, 200);
    }
    api.wait_for_no_process();
}

/// A turn names a working folder that is gone.
fn turn_names_a_working_folder_that_is_gone(backend: Backend) {
    let home = hob_testkit::TestHome::new();
    let root = home.user_home().canonicalize().unwrap().join("work");
    fs::create_dir_all(root.join("project")).unwrap();
    backend.configure(&home, &format!("[sessions]\nroots = [{:?}]\n", root.display().to_string()));
    let token = home.app("tests");
    let api = backend.start(home, &token);
    let id = api.create(&json!({"agent": "acp", "cwd": root.join("project")}));
    assert_eq!(api.turn(&id, "hi").status, 200);
    assert_eq!(api.turn(&id, "[[crash]]").status, 502);
    fs::remove_dir(root.join("project")).unwrap();
    assert_error(&api.turn(&id, "hi"), 502, "resume_failed", "no longer exists");
    let log = api.log(&id);
    let resumed = log.iter().filter(|event| event["event"] == "resume" && event["ok"] == false);
    assert_eq!(resumed.count(), 1, "{log:?}");
    fs::create_dir(root.join("project")).unwrap();
    assert_eq!(api.ask(&id, "[[say {history}]]"), "hi");
}
