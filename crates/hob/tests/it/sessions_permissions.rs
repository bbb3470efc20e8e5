//! Permission requests of agents.

use hob_testkit::server::Answer;
use hob_testkit::{EventStream, wait_until};
use serde_json::{Value, json};

use crate::api::*;
use crate::backend::{Backend, backend_tests};

backend_tests!([file, cluster]: [
    permissions_deny_by_default_and_the_turn_continues,
    permissions_allow_allows_once,
    permissions_ask_asks_the_caller,
    wrong_permission_answers_are_refused_and_the_request_stays,
    unanswered_permission_request_is_denied,
    cancel_withdraws_the_permission_request,
    close_withdraws_the_permission_request,
    agent_asks_for_the_fields_of_a_form,
    form_is_not_offered_to_a_session_that_asks_no_one,
    open_question_is_no_stall,
]);

/// A prompt whose agent asks for a form, and says what it got.
const FORM: &str = r#"[[request elicitation/create {"mode":"form","message":"Which port?","requestedSchema":{"type":"object","properties":{"port":{"type":"integer"},"host":{"type":"string"}},"required":["port"]}}]]"#;

/// A form is a permission request with a schema. Its answer is checked and reaches the agent.
fn agent_asks_for_the_fields_of_a_form(backend: Backend) {
    let api = backend.api("");
    let id = asking(&api);
    let fill = |request: &Value, body: &Value| {
        let request = request.as_str().unwrap();
        api.post(&format!("/sessions/{id}/permissions/{request}"), body)
    };
    let asked = |stream: &mut EventStream| {
        stream.until(|event| event.kind == "permission").pop().unwrap().json()
    };
    let text = |stream: &mut EventStream| {
        let end = stream.until(|event| event.kind == "turn").pop().unwrap().json();
        end["text"].as_str().unwrap().to_owned()
    };
    let mut stream = api.stream_turn(&id, FORM);
    let question = asked(&mut stream);
    assert_eq!(question["title"], "Which port?");
    assert_eq!(question["form"]["properties"]["port"]["type"], "integer", "{question}");
    let request = &question["request_id"];
    for (content, expect) in [
        (json!({}), "content.port: is required"),
        (json!({"port": "x"}), "content.port: must be an integer"),
        (json!({"port": 1, "colour": "red"}), "content.colour"),
        (json!([1]), "content"),
    ] {
        let answer = fill(request, &json!({"option": "accept", "content": content}));
        assert_error(&answer, 400, "bad_request", expect);
    }
    let declined = fill(request, &json!({"option": "decline", "content": {"port": 1}}));
    assert_error(&declined, 400, "bad_request", "content");
    let filled = json!({"port": 8080, "host": "here"});
    let answer = fill(request, &json!({"option": "accept", "content": filled}));
    assert_eq!(answer.json(), json!({"ok": true}));
    let got: Value = serde_json::from_str(&text(&mut stream)).unwrap();
    assert_eq!(got, json!({"action": "accept", "content": filled}));
    let log = api.log(&id);
    let noted = log.iter().rfind(|event| event["event"] == "permission").unwrap();
    assert_eq!((&noted["option"], &noted["content"]), (&json!("accept"), &filled));

    let mut stream = api.stream_turn(&id, FORM);
    let request = asked(&mut stream)["request_id"].clone();
    assert_eq!(fill(&request, &json!({"option": "reject_once"})).status, 200);
    assert_eq!(text(&mut stream), r#"{"action":"decline"}"#);
    // Forms are the only kind of question that Hob puts to its caller.
    let url = r#"[[request elicitation/create {"mode":"url","message":"Log in","url":"https://x.example","elicitationId":"1"}]]"#;
    assert!(api.ask(&id, url).contains("forms only"), "{}", api.ask(&id, url));
}

/// Agents are told of forms only where somebody is asked. One that sends a form all the same is declined.
fn form_is_not_offered_to_a_session_that_asks_no_one(backend: Backend) {
    let api = backend.api("");
    for policy in ["deny", "allow"] {
        let id = api.create(&json!({"agent": "acp", "permissions": policy}));
        assert_eq!(api.ask(&id, FORM), r#"{"action":"decline"}"#, "{policy}");
    }
}

/// A turn that waits for an answer is silent because of its user: it does not count as stalled.
fn open_question_is_no_stall(backend: Backend) {
    let api = backend.api(&sessions("stall_secs = 1\npermission_timeout_secs = 3"));
    let stalls = |id: &str| api.log(id).iter().filter(|event| event["event"] == "stalled").count();
    let id = asking(&api);
    let said = api.ask(&id, "[[permission touch x]] [[say .]]");
    assert_eq!(said, "permission touch x: no.", "nobody answers");
    assert_eq!(stalls(&id), 0, "{:?}", api.log(&id));
    assert_eq!(api.ask(&id, "[[sleep 2500]] [[say awake]]"), "awake");
    assert_eq!(stalls(&id), 1, "silence without a question is a stall");
}

fn asking(api: &Api) -> String {
    api.create(&json!({"agent": "acp", "permissions": "ask"}))
}

/// The question that waits.
fn question(api: &Api, id: &str) -> Value {
    wait_until("the agent asks", || {
        let log = api.log(id);
        let asked = |event: &&Value| event["event"] == "permission" && event["status"] == "asked";
        let last = log.iter().rfind(|event| event["event"] == "permission")?;
        Some(last).filter(asked).cloned()
    })
}

fn answer(api: &Api, id: &str, request: &Value, option: &str) -> Answer {
    let request = match request {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    api.post(&format!("/sessions/{id}/permissions/{request}"), &json!({"option": option}))
}

/// By default a permission request is rejected at once, and the turn continues.
fn permissions_deny_by_default_and_the_turn_continues(backend: Backend) {
    let api = backend.api("");
    for body in [json!({"agent": "acp"}), json!({"agent": "acp", "permissions": "deny"})] {
        let id = api.create(&body);
        assert_eq!(api.describe(&id)["permissions"], "deny");
        let said = api.ask(&id, "[[permission rm -rf]] [[say  and on]]");
        assert_eq!(said, "permission rm -rf: no and on");
        let log = api.log(&id);
        let noted: Vec<&Value> = log.iter().filter(|e| e["event"] == "permission").collect();
        assert_eq!(noted.len(), 1, "it is in the audit: {log:?}");
        assert_eq!((&noted[0]["option"], &noted[0]["by"]), (&json!("no"), &json!("policy")));
    }
}

/// Allowed once, not for ever, where the agent offers both.
fn permissions_allow_allows_once(backend: Backend) {
    let api = backend.api("");
    let id = api.create(&json!({"agent": "acp", "permissions": "allow"}));
    let answer = api.turn(&id, "[[permission one]] [[permission two]]").json();
    let text = answer["text"].as_str().unwrap();
    assert!(text.starts_with("permission one: yespermission two: yes"), "{text}");
}

/// The question is an event with all that is needed to answer it, and the answer reaches the agent.
fn permissions_ask_asks_the_caller(backend: Backend) {
    let api = backend.api("");
    let id = asking(&api);
    for (option, chosen) in [
        ("yes", "yes"),
        ("no", "no"),
        ("yes-always", "yes-always"),
        ("allow_once", "yes"),
        ("reject_once", "no"),
        ("allow_always", "yes-always"),
    ] {
        let mut stream = api.stream_turn(&id, "[[permission touch x]] [[say  then]]");
        let events = stream.until(|event| event.kind == "permission");
        let asked = events.last().unwrap().json();
        assert_eq!(asked["title"], "touch x");
        let options: Vec<(&str, &str)> = asked["options"]
            .as_array()
            .unwrap()
            .iter()
            .map(|o| (o["option"].as_str().unwrap(), o["kind"].as_str().unwrap()))
            .collect();
        let offered =
            [("yes-always", "allow_always"), ("yes", "allow_once"), ("no", "reject_once")];
        assert_eq!(options, offered);
        assert!(
            events.iter().any(|e| e.data.contains("session/request_permission")),
            "the agent's own line comes before it"
        );
        let request = &asked["request_id"];
        assert_eq!(answer(&api, &id, request, option).json(), json!({"ok": true}));
        let last = stream.until(|event| event.kind == "turn").pop().unwrap().json();
        assert_eq!(last["text"], format!("permission touch x: {chosen} then"));
        assert_eq!(answer(&api, &id, request, option).status, 404, "a second answer");
    }
    let log = api.log(&id);
    assert_gapless(&log);
    let noted = log.iter().filter(|e| e["event"] == "permission" && e["status"] == "answered");
    assert!(noted.clone().all(|e| e["by"] == "caller"));
    assert_eq!(noted.count(), 6);
}

fn wrong_permission_answers_are_refused_and_the_request_stays(backend: Backend) {
    let api = backend.api("");
    let id = asking(&api);
    let turn = api.start_turn(&id, "[[permission x]]");
    let asked = question(&api, &id);
    let request = &asked["request_id"];
    assert_error(&answer(&api, &id, request, "maybe"), 400, "bad_request", "option");
    assert_eq!(answer(&api, &id, &json!("no-such-request"), "yes").status, 404);
    assert_eq!(answer(&api, &id, &json!("99"), "yes").status, 404);
    let path = format!("/sessions/{id}/permissions/{}", request.as_str().unwrap_or("1"));
    for body in [json!({}), json!({"option": 1}), json!({"option": "yes", "more": 1})] {
        assert_eq!(api.post(&path, &body).status, 400, "{body}");
    }
    let other = asking(&api);
    assert_eq!(answer(&api, &other, request, "yes").status, 404, "another session's question");
    assert_eq!(api.get_turn(&id, turn)["state"], "running");
    assert_eq!(answer(&api, &id, request, "yes").status, 200);
    let ended = api.wait_for_turn(&id, turn, "finished");
    assert!(ended["text"].as_str().unwrap().starts_with("permission x: yes"), "{ended}");
}

/// Nobody answers: it is no, and the turn goes on.
fn unanswered_permission_request_is_denied(backend: Backend) {
    let api = backend.api(&sessions("permission_timeout_secs = 1"));
    let id = asking(&api);
    let said = api.ask(&id, "[[permission x]] [[say  and on]]");
    assert_eq!(said, "permission x: no and on");
    let log = api.log(&id);
    let last = log.iter().rfind(|event| event["event"] == "permission").unwrap();
    assert_eq!((&last["by"], &last["option"]), (&json!("timeout"), &json!("no")));
    assert_eq!(answer(&api, &id, &last["request_id"], "yes").status, 404, "too late");
}

/// A cancel answers the question as well; it can't be answered any more.
fn cancel_withdraws_the_permission_request(backend: Backend) {
    let api = backend.api("");
    let id = asking(&api);
    let turn = api.start_turn(&id, "[[permission x]] [[hang]]");
    let asked = question(&api, &id);
    assert_eq!(api.cancel(&id).status, 200);
    assert_eq!(api.get_turn(&id, turn)["state"], "cancelled");
    assert_eq!(answer(&api, &id, &asked["request_id"], "yes").status, 404);
    assert_eq!(api.ask(&id, "hi"), "echo: hi");
    assert!(!api.audit_kinds(&id).contains(&"resume".to_owned()), "the same process continues");
}

/// A session that is closed with an open permission request leaves nothing.
fn close_withdraws_the_permission_request(backend: Backend) {
    let api = backend.api("");
    let id = asking(&api);
    let turn = api.start_turn(&id, "[[permission x]]");
    let asked = question(&api, &id);
    assert_eq!(api.close(&id).status, 200);
    assert_eq!(api.get_turn(&id, turn)["state"], "cancelled");
    assert_eq!(answer(&api, &id, &asked["request_id"], "yes").status, 404);
    api.wait_for_no_process();
}
