//! Breaking turns off, and closing sessions that are at work.

use std::path::PathBuf;
use std::time::Duration;

use hob_testkit::wait_until;
use serde_json::{Value, json};

use crate::api::*;
use crate::backend::{Backend, backend_tests};

backend_tests!([file, cluster]: [
    cancelled_turn_answers_200_and_the_session_continues,
    cancelled_turn_of_claude_counts_its_tokens,
    cancel_without_a_turn_answers_200,
    a_cancelled_stream_ends_with_its_answer,
    cancel_ends_only_the_running_turn,
    concurrent_cancels_all_answer_200,
    cancels_at_any_moment_leave_a_usable_session,
    agent_that_ignores_a_cancel_is_ended,
    first_turn_that_is_ended_by_force_does_not_end_the_session,
    close_cancels_running_and_queued_turns,
    close_ends_a_stubborn_agent,
    concurrent_closes_close_once,
    revoking_an_app_ends_its_sessions,
    revoking_an_app_over_http_ends_its_sessions,
]);

/// Waits until a turn has its first event.
fn begun(api: &Api, id: &str, turn: u64) {
    wait_until("the turn has begun", || {
        (!api.get_turn(id, turn)["events"].as_array().unwrap().is_empty()).then_some(())
    });
}

/// The answer of a cancelled turn is 200 with its stop reason; the session and its process continue.
fn cancelled_turn_answers_200_and_the_session_continues(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| api.turn(&id, "[[say half]] [[hang]]"));
        wait_until("it runs", || (api.describe(&id)["turn_count"] == 1).then_some(()));
        begun(&api, &id, 1);
        let cancelled = api.cancel(&id);
        assert_eq!((cancelled.status, &cancelled.json()["ok"]), (200, &json!(true)));
        assert_eq!(api.describe(&id)["state"], "idle", "it is over when the cancel is answered");
        let answer = asked.join().unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text);
        let body = answer.json();
        assert_eq!((&body["ok"], &body["stop_reason"]), (&json!(true), &json!("cancelled")));
        assert_eq!((&body["text"], &body["turn_index"]), (&json!("half"), &json!(1)));
        let last = body["events"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(last["result"]["stopReason"], "cancelled", "the agent said so itself");
    });
    assert_eq!(api.ask(&id, "[[say {history}]]"), "[[say half]] [[hang]]");
    assert_eq!(api.audit_kinds(&id), ["create", "cancel", "turn", "turn"], "nothing was resumed");
}

/// Claude Code in a terminal says in its records what each message used, also in a turn that is cancelled.
fn cancelled_turn_of_claude_counts_its_tokens(backend: Backend) {
    let api = backend.api("");
    let created = api.post("/sessions", &json!({"agent": "claude"}));
    let id = created.json()["session_id"].as_str().unwrap().to_owned();
    std::thread::scope(|scope| {
        let prompt = r#"[[tool Bash {"command":"sleep 600"}]] [[say never]]"#;
        let asked = scope.spawn(|| api.turn(&id, prompt));
        wait_until("it runs", || (api.describe(&id)["turn_count"] == 1).then_some(()));
        wait_until("the command runs", || {
            api.get_turn(&id, 1)["events"].to_string().contains("tool_call").then_some(())
        });
        assert_eq!(api.cancel(&id).status, 200);
        let body = asked.join().unwrap().json();
        assert_eq!(body["stop_reason"], "cancelled", "{body}");
        let usage = &body["usage"];
        assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(10), &json!(5)));
        assert_eq!(usage["cost_usd"], 0.0);
    });
    let usage = &api.describe(&id)["usage"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(10), &json!(5)));
}

fn cancel_without_a_turn_answers_200(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    for _ in 0..2 {
        let answer = api.cancel(&id);
        assert_eq!((answer.status, &answer.json()["ok"]), (200, &json!(true)));
    }
    assert_eq!(api.ask(&id, "hi"), "echo: hi", "the next turn is not cancelled by it");
    assert_eq!(api.cancel(&id).status, 200);
    assert_eq!(api.get_turn(&id, 1)["state"], "finished", "nor one that is over");
}

/// A stream ends with the cancelled turn's answer.
fn a_cancelled_stream_ends_with_its_answer(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let mut stream = api.stream_turn(&id, "[[say half]] [[hang]]");
    stream.next().unwrap();
    assert_eq!(api.cancel(&id).status, 200);
    let last = stream.until(|event| event.kind == "turn").pop().unwrap().json();
    assert_eq!((&last["ok"], &last["stop_reason"]), (&json!(true), &json!("cancelled")));
}

/// Only what runs is ended; what waits comes next.
fn cancel_ends_only_the_running_turn(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let first = api.start_gated_turn(&id);
    let second = api.start_turn(&id, "second");
    assert_eq!(api.cancel(&id).json()["turn_index"], first);
    assert_eq!(api.get_turn(&id, first)["state"], "cancelled");
    assert_eq!(api.wait_for_turn(&id, second, "finished")["text"], "echo: second");
}

/// Several at once, and all of them are answered.
fn concurrent_cancels_all_answer_200(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    api.start_gated_turn(&id);
    std::thread::scope(|scope| {
        let cancels: Vec<_> = (0..4).map(|_| scope.spawn(|| api.cancel(&id).status)).collect();
        assert!(cancels.into_iter().all(|cancel| cancel.join().unwrap() == 200));
    });
    assert_eq!(api.get_turn(&id, 1)["state"], "cancelled");
    assert_eq!(api.ask(&id, "hi"), "echo: hi");
}

/// A cancel at any moment ends its turn, the next turn works, and no turn stays open.
fn cancels_at_any_moment_leave_a_usable_session(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    for n in 0..12 {
        let turn = api.start_turn(&id, "[[chunks 20]] [[sleep 5]] [[chunks 20]] [[sleep 20000]]");
        std::thread::sleep(Duration::from_millis(n * 2));
        assert_eq!(api.cancel(&id).status, 200);
        let ended = api.get_turn(&id, turn);
        assert_eq!((&ended["state"], &ended["ok"]), (&json!("cancelled"), &json!(true)), "{n}");
    }
    assert_eq!(api.ask(&id, "hi"), "echo: hi");
    assert_gapless(&api.log(&id));
}

/// An agent that ignores a cancel is ended with everything it started; its conversation continues.
fn agent_that_ignores_a_cancel_is_ended(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    assert_eq!(api.turn(&id, "remember the crane").status, 200);
    let command = json!({"command": "sleep 100000"});
    let prompt = format!("[[stubborn]] [[deaf]] [[daemon]] [[say half]] [[tool Bash {command}]]");
    let turn = api.start_turn(&id, &prompt);
    wait_until("it is at work", || (api.processes().len() >= 3).then_some(()));
    let cancelled = api.cancel(&id);
    assert_eq!(cancelled.status, 200, "{}", cancelled.text);
    assert_eq!(api.processes(), [0; 0], "gone before the answer is given");
    let ended = api.get_turn(&id, turn);
    assert_eq!(
        (&ended["state"], &ended["stop_reason"]),
        (&json!("cancelled"), &json!("cancelled"))
    );
    assert_eq!(ended["text"], "half");
    let last = ended["events"].as_array().unwrap().last().unwrap();
    assert_eq!(last["result"]["stopReason"], "cancelled", "Hob gives the result: {last}");
    assert_eq!(api.ask(&id, "[[say {history}]]"), "remember the crane");
    assert!(api.audit_kinds(&id).contains(&"resume".to_owned()));
}

/// An agent that was ended before its first word may not know its conversation. The session goes on.
fn first_turn_that_is_ended_by_force_does_not_end_the_session(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let turn = api.start_turn(&id, "[[stubborn]] [[deaf]] [[note begun]] [[hang]]");
    let notes = PathBuf::from(api.describe(&id)["cwd"].as_str().unwrap()).join("notes");
    wait_until("the agent has its prompt", || notes.exists().then_some(()));
    assert_eq!(api.cancel(&id).status, 200);
    assert_eq!(api.get_turn(&id, turn)["events"][0]["result"]["stopReason"], "cancelled");
    assert_eq!(api.ask(&id, "hi"), "echo: hi");
}

/// A session that is closed while it works ends its turn and its processes.
fn close_cancels_running_and_queued_turns(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| api.turn(&id, "[[daemon]] [[say half]] [[hang]]"));
        wait_until("it runs", || (api.describe(&id)["turn_count"] == 1).then_some(()));
        begun(&api, &id, 1);
        let waiting = scope.spawn(|| api.turn(&id, "never"));
        wait_until("one waits", || (api.describe(&id)["turn_count"] == 2).then_some(()));
        let mut stream = api.follow(&id, 0);
        assert_eq!(api.close(&id).json(), json!({"ok": true}));
        let answers = [asked.join().unwrap(), waiting.join().unwrap()];
        for answer in &answers {
            assert_eq!(answer.status, 200, "{}", answer.text);
            assert_eq!(answer.json()["stop_reason"], "cancelled");
        }
        let events = answers[1].json()["events"].clone();
        assert_eq!(events.as_array().unwrap().len(), 1, "it was never asked: {events}");
        assert_eq!(events[0]["result"]["stopReason"], "cancelled");
        let events: Vec<StreamEvent> = stream.by_ref().collect();
        assert_eq!(events.last().unwrap().kind, "close", "the last there is");
        assert_eq!(events.iter().filter(|event| event.kind == "turn").count(), 2);
    });
    api.wait_for_no_process();
    let log = api.log(&id);
    assert_gapless(&log);
    assert_eq!(log.last().unwrap()["event"], "close");
    assert_eq!(api.describe(&id)["state"], "closed");
}

/// A close also ends an agent that ignores signals.
fn close_ends_a_stubborn_agent(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    let turn = api.start_turn(&id, "[[stubborn]] [[deaf]] [[daemon]] [[say half]] [[hang]]");
    begun(&api, &id, turn);
    assert_eq!(api.close(&id).status, 200);
    assert_eq!(api.get_turn(&id, turn)["state"], "cancelled");
    api.wait_for_no_process();
}

/// Closing from many sides at once closes once.
fn concurrent_closes_close_once(backend: Backend) {
    let api = backend.api("");
    let id = api.session();
    api.start_gated_turn(&id);
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let closes: Vec<_> = (0..4).map(|_| scope.spawn(|| api.close(&id).json())).collect();
        closes.into_iter().map(|close| close.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|answer| answer["ok"] == true), "{answers:?}");
    let first = answers.iter().filter(|answer| answer["already_closed"].is_null()).count();
    assert_eq!(first, 1, "{answers:?}");
    assert_eq!(api.audit_kinds(&id).iter().filter(|kind| *kind == "close").count(), 1);
}

/// A revoked app leaves no agent, and a later app of the same name finds nothing of it.
fn revoked(backend: Backend, revoke: impl FnOnce(&Api)) {
    let api = backend.api(&sessions("sweep_interval_secs = 1"));
    let other = api.home.app("other");
    let (id, theirs) = (api.session(), api.create_as(&other, &json!({"agent": "acp"})));
    let folder = api.workspace(&id);
    api.start_gated_turn(&id);
    revoke(&api);
    assert_eq!(api.get(&format!("/sessions/{id}")).status, 401);
    let token = api.home.app("tests");
    let list = api.call_as(&token, "GET", "/sessions", &[], &Value::Null).json();
    assert_eq!(list["count"], 0, "{list}");
    let path = format!("/sessions/{id}");
    assert_eq!(api.call_as(&token, "GET", &path, &[], &Value::Null).status, 404);
    wait_until("one agent is left", || (api.processes().len() == 1).then_some(()));
    wait_until("its folder is gone", || (!folder.exists()).then_some(()));
    let path = format!("/sessions/{theirs}/turn");
    let body = json!({"prompt": "hi"});
    assert_eq!(api.call_as(&other, "POST", &path, &[], &body).status, 200);
}

fn revoking_an_app_ends_its_sessions(backend: Backend) {
    revoked(backend, |api| {
        assert!(api.home.run(&["app", "revoke", "tests", "--yes"]).status.success())
    });
}

fn revoking_an_app_over_http_ends_its_sessions(backend: Backend) {
    revoked(backend, |api| {
        let admin = std::fs::read_to_string(api.home.hob_home().join("admin.token")).unwrap();
        let path = "/admin/apps/tests";
        assert_eq!(api.call_as(admin.trim(), "DELETE", path, &[], &Value::Null).status, 200);
    });
}
