//! `/v1/messages/batches` on the scripted agent.

use hob_testkit::server::Answer;
use hob_testkit::wait_until;
use serde_json::{Value, json};

use crate::api::*;
use crate::backend::{Backend, backend_tests};

backend_tests!([file, cluster]: [batch_has_a_result_for_every_request]);

const BATCHES: &str = "/v1/messages/batches";

fn call(api: &Api, method: &str, path: &str, body: &Value) -> Answer {
    api.call(method, path, &[("anthropic-version", "2023-06-01")], body)
}

fn request(name: &str, prompt: &str) -> Value {
    let messages = json!([{"role": "user", "content": prompt}]);
    json!({"custom_id": name, "params": {"model": "claude", "max_tokens": 9, "messages": messages}})
}

/// Creates a batch and returns its path.
fn create(api: &Api, requests: &[Value]) -> String {
    let answer = call(api, "POST", BATCHES, &json!({"requests": requests}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let batch = answer.json();
    assert_eq!(batch["processing_status"], "in_progress", "{batch}");
    assert_eq!(batch["request_counts"]["processing"], requests.len(), "{batch}");
    format!("{BATCHES}/{}", batch["id"].as_str().unwrap())
}

fn ended(api: &Api, path: &str) -> Value {
    wait_until("the batch has ended", || {
        let batch = call(api, "GET", path, &Value::Null).json();
        (batch["processing_status"] == "ended").then_some(batch)
    })
}

/// Returns each request's name with its result.
fn results(api: &Api, path: &str) -> Vec<(String, Value)> {
    let answer = call(api, "GET", &format!("{path}/results"), &Value::Null);
    assert_eq!(answer.status, 200, "{}", answer.text);
    let lines = answer.text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .map(|one| (one["custom_id"].as_str().unwrap().to_owned(), one["result"].clone()))
        .collect()
}

fn text(result: &Value) -> &str {
    result["message"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

fn batch_has_a_result_for_every_request(backend: Backend) {
    let api = backend.api("");
    let mut wrong = request("wrong", "x");
    wrong["params"]["messages"] = json!([]);
    let path = create(&api, &[request("a", "one"), wrong, request("b", "two")]);
    let batch = ended(&api, &path);
    let counts =
        json!({"processing": 0, "succeeded": 2, "errored": 1, "canceled": 0, "expired": 0});
    assert_eq!(batch["request_counts"], counts, "{batch}");
    assert_eq!(batch["results_url"], format!("{path}/results"));
    let made = results(&api, &path);
    let names: Vec<&str> = made.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "wrong", "b"]);
    assert_eq!((text(&made[0].1), text(&made[2].1)), ("echo: one", "echo: two"));
    assert_eq!(made[1].1["error"]["error"]["type"], "invalid_request_error", "{}", made[1].1);
    let listed = call(&api, "GET", BATCHES, &Value::Null).json();
    assert_eq!((&listed["data"][0]["id"], &listed["has_more"]), (&batch["id"], &json!(false)));
    // Another app sees nothing of it.
    let other = api.home.app("other");
    assert_eq!(api.server.client(&other).call("GET", &path, &[], &Value::Null).status, 404);
    assert_eq!(call(&api, "POST", &format!("{path}/cancel"), &Value::Null).status, 400);
    let deleted = call(&api, "DELETE", &path, &Value::Null).json();
    assert_eq!(deleted["type"], "message_batch_deleted");
    assert_eq!(call(&api, "GET", &path, &Value::Null).status, 404);
}

#[test]
fn cancelled_batch_ends() {
    let api = api("");
    let path = create(&api, &[request("a", "[[sleep 600000]]"), request("b", "x")]);
    assert_eq!(call(&api, "GET", &format!("{path}/results"), &Value::Null).status, 404);
    assert_eq!(call(&api, "DELETE", &path, &Value::Null).status, 400);
    wait_until("a turn runs", || (!api.processes().is_empty()).then_some(()));
    let cancelled = call(&api, "POST", &format!("{path}/cancel"), &Value::Null).json();
    assert_eq!(cancelled["processing_status"], "canceling", "{cancelled}");
    assert_eq!(ended(&api, &path)["request_counts"]["canceled"], 2);
    api.wait_for_no_process();
}

/// After a crash, the batch goes on when its caller asks for it. After a stop, too, and the stop does not wait for the
/// requests that have not begun.
#[test]
fn crash_and_stop_lose_no_request() {
    let api = api(&sessions("shutdown_grace_secs = 600"));
    let path = create(&api, &[request("a", "one"), request("b", "[[sleep 1500]] [[say two]]")]);
    wait_until("a turn runs", || (!api.processes().is_empty()).then_some(()));
    let api = api.restart_after(|server| server.kill());
    assert_eq!(ended(&api, &path)["request_counts"]["succeeded"], 2);
    let made = results(&api, &path);
    assert_eq!((text(&made[0].1), text(&made[1].1)), ("echo: one", "two"));

    let requests: Vec<Value> =
        (0..5).map(|number| request(&format!("r{number}"), "[[sleep 700]] [[say yes]]")).collect();
    let path = create(&api, &requests);
    wait_until("a turn runs", || (!api.processes().is_empty()).then_some(()));
    let api = api.restart_after(|server| assert!(server.stop().success()));
    let batch = call(&api, "GET", &path, &Value::Null).json();
    assert_eq!(batch["processing_status"], "in_progress", "the stop did not wait: {batch}");
    assert_eq!(ended(&api, &path)["request_counts"]["succeeded"], 5);
}

/// What a removed app has asked for does not run, not even for a later app of its name.
#[test]
fn batch_of_a_removed_app_ends() {
    let api = api("");
    create(&api, &[request("a", "[[sleep 600000]]"), request("b", "[[say the heron]]")]);
    wait_until("a turn runs", || (!api.processes().is_empty()).then_some(()));
    assert!(api.home.run(&["app", "revoke", "tests", "--yes"]).status.success());
    let token = api.home.app("tests");
    api.wait_for_no_process();
    let later = api.server.client(&token);
    let headers = [("anthropic-version", "2023-06-01")];
    let listed = later.call("GET", BATCHES, &headers, &Value::Null).json();
    assert_eq!(listed["data"], json!([]));
    assert_eq!(later.ask(&later.session(), "hi"), "echo: hi");
    assert_eq!(api.recalled(&token, "heron"), Vec::<String>::new());
}

#[test]
fn wrong_batches_are_refused() {
    let api = api("");
    let mut streamed = request("a", "x");
    streamed["params"]["stream"] = json!(true);
    for (requests, word) in [
        (json!([]), "requests"),
        (json!([request("a", "x"), request("a", "y")]), "requests[1].custom_id"),
        (json!([request("a b", "x")]), "requests[0].custom_id"),
        (json!([request("", "x")]), "requests[0].custom_id"),
        (json!([streamed]), "requests[0].params"),
        (json!([{"custom_id": "a", "params": 7}]), "requests[0].params"),
    ] {
        let answer = call(&api, "POST", BATCHES, &json!({"requests": requests}));
        assert_eq!(answer.status, 400, "{}", answer.text);
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(word), "{message}");
    }
}
