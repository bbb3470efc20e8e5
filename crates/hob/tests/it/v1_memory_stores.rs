//! `/v1/memory_stores`: the API, the notes that recall finds, and stores of a session.

use std::fs;

use hob_testkit::server::Answer;
use serde_json::{Value, json};

use crate::api::*;
use crate::backend::{Backend, backend_tests};

backend_tests!([file, postgres, cluster]: [
    texts_are_kept_in_versions_and_recalled,
    other_apps_see_no_store,
]);

fn call(api: &Api, method: &str, path: &str, body: &Value) -> Answer {
    api.call(method, path, &[("anthropic-version", "2023-06-01")], body)
}

fn done(api: &Api, method: &str, path: &str, body: Value) -> Value {
    let answer = call(api, method, path, &body);
    assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text);
    answer.json()
}

fn refused(api: &Api, method: &str, path: &str, body: Value, status: u16, kind: &str) {
    let answer = call(api, method, path, &body);
    assert_eq!(answer.status, status, "{method} {path} {body}: {}", answer.text);
    assert_eq!(answer.json()["error"]["type"], kind, "{}", answer.text);
}

fn id(object: &Value) -> String {
    object["id"].as_str().unwrap().to_owned()
}

fn paths(page: &Value) -> Vec<&str> {
    page["data"].as_array().unwrap().iter().map(|item| item["path"].as_str().unwrap()).collect()
}

fn texts_are_kept_in_versions_and_recalled(backend: Backend) {
    let api = backend.api("");
    let store = done(
        &api,
        "POST",
        "/v1/memory_stores",
        json!({"name": "Team notes", "description": "What the team knows.", "metadata": {"k": "v"}}),
    );
    assert_eq!((&store["type"], &store["archived_at"]), (&json!("memory_store"), &Value::Null));
    let root = format!("/v1/memory_stores/{}", id(&store));
    assert_eq!(done(&api, "GET", &root, Value::Null), store);
    let all = format!("{root}/memories");
    let made = done(
        &api,
        "POST",
        &all,
        json!({"path": "/harbour/crane.md", "content": "The crane is painted green."}),
    );
    assert_eq!((&made["content"], &made["content_size_bytes"]), (&Value::Null, &json!(27)));
    let one = format!("{all}/{}", id(&made));
    assert_eq!(done(&api, "GET", &one, Value::Null)["content"], "The crane is painted green.");
    let found = api.recalled(&api.token, "What colour is the crane?");
    assert_eq!(found, ["/harbour/crane.md\n\nThe crane is painted green."]);

    // A change is a new version, and recall finds it instead of the old text.
    let digest = &made["content_sha256"];
    let precondition = json!({"type": "content_sha256", "content_sha256": digest});
    let body = json!({"content": "The crane is painted yellow.", "precondition": precondition});
    let changed = done(&api, "POST", &one, body.clone());
    assert_ne!(changed["memory_version_id"], made["memory_version_id"]);
    refused(&api, "POST", &one, body, 409, "memory_precondition_failed_error");
    let found = api.recalled(&api.token, "What colour is the crane?");
    assert_eq!(found, ["/harbour/crane.md\n\nThe crane is painted yellow."]);
    // The same text is no new version.
    let again = done(&api, "POST", &one, json!({"content": "The crane is painted yellow."}));
    assert_eq!(again["memory_version_id"], changed["memory_version_id"]);

    done(&api, "POST", &all, json!({"path": "/harbour/deep/rope.md", "content": ""}));
    let other = json!({"path": "/gate.md", "content": "The gate is blue."});
    let other = id(&done(&api, "POST", &all, other));
    let taken = json!({"path": "/gate.md", "content": "x"});
    refused(&api, "POST", &all, taken, 409, "memory_path_conflict_error");
    refused(&api, "POST", &one, json!({"path": "/gate.md"}), 409, "memory_path_conflict_error");
    for path in ["gate.md", "/a/../b", "/a//b", ""] {
        let body = json!({"path": path, "content": "x"});
        refused(&api, "POST", &all, body, 400, "invalid_request_error");
    }
    let large = json!({"path": "/large", "content": "x".repeat((100 << 10) + 1)});
    refused(&api, "POST", &all, large, 400, "invalid_request_error");
    let page = done(&api, "GET", &all, Value::Null);
    assert_eq!(paths(&page), ["/gate.md", "/harbour/crane.md", "/harbour/deep/rope.md"]);
    let page = done(&api, "GET", &format!("{all}?depth=1"), Value::Null);
    assert_eq!(paths(&page), ["/gate.md", "/harbour/"]);
    let page = done(&api, "GET", &format!("{all}?path_prefix=/harbour/&limit=1"), Value::Null);
    assert_eq!(paths(&page), ["/harbour/crane.md"]);
    let next = page["next_page"].as_str().unwrap();
    let next = format!("{all}?path_prefix=/harbour/&limit=1&page={next}");
    assert_eq!(paths(&done(&api, "GET", &next, Value::Null)), ["/harbour/deep/rope.md"]);

    // Deleting keeps the versions, and redacting one removes its text. Recall finds none of them.
    let path = format!("{one}?expected_content_sha256={}", "0".repeat(64));
    refused(&api, "DELETE", &path, Value::Null, 409, "memory_precondition_failed_error");
    assert_eq!(done(&api, "DELETE", &one, Value::Null)["type"], "memory_deleted");
    refused(&api, "GET", &one, Value::Null, 404, "not_found_error");
    assert_eq!(api.recalled(&api.token, "crane painted"), Vec::<String>::new());
    let versions = format!("{root}/memory_versions");
    let path = format!("{versions}?memory_id={}&view=full", id(&made));
    let listed = done(&api, "GET", &path, Value::Null);
    let operations: Vec<&str> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["operation"].as_str().unwrap())
        .collect();
    assert_eq!(operations, ["deleted", "modified", "created"]);
    let first = format!("{versions}/{}", listed["data"][2]["id"].as_str().unwrap());
    assert_eq!(done(&api, "GET", &first, Value::Null)["content"], "The crane is painted green.");
    let redacted = done(&api, "POST", &format!("{first}/redact"), Value::Null);
    assert_eq!((&redacted["content"], &redacted["path"]), (&Value::Null, &Value::Null));
    let current = done(&api, "GET", &format!("{all}/{other}"), Value::Null);
    let current = format!("{versions}/{}/redact", current["memory_version_id"].as_str().unwrap());
    refused(&api, "POST", &current, Value::Null, 400, "invalid_request_error");

    // All of it survives a crash. An archived store can be read.
    let api = api.restart_after(|server| server.kill());
    assert_eq!(done(&api, "GET", &first, Value::Null), redacted);
    assert!(done(&api, "POST", &format!("{root}/archive"), Value::Null)["archived_at"].is_string());
    let late = json!({"path": "/late", "content": "x"});
    refused(&api, "POST", &all, late, 400, "invalid_request_error");
    assert_eq!(api.recalled(&api.token, "blue gate").len(), 1);
    let listed = done(&api, "GET", "/v1/memory_stores", Value::Null);
    assert_eq!(listed["data"], json!([]));
    assert_eq!(done(&api, "DELETE", &root, Value::Null)["type"], "memory_store_deleted");
    assert_eq!(api.recalled(&api.token, "blue gate"), Vec::<String>::new());
    refused(&api, "GET", &all, Value::Null, 404, "not_found_error");
}

fn other_apps_see_no_store(backend: Backend) {
    let api = backend.api("");
    let store = id(&done(&api, "POST", "/v1/memory_stores", json!({"name": "mine"})));
    let all = format!("/v1/memory_stores/{store}/memories");
    let body = json!({"path": "/a", "content": "The heron nests at pier nine."});
    let memory = id(&done(&api, "POST", &all, body.clone()));
    let other = api.home.app("other");
    let foreign = |method: &str, path: &str| {
        let headers = [("anthropic-version", "2023-06-01")];
        api.server.client(&other).call(method, path, &headers, &body).status
    };
    for (method, path) in [
        ("GET", format!("/v1/memory_stores/{store}")),
        ("GET", all.clone()),
        ("POST", all.clone()),
        ("GET", format!("{all}/{memory}")),
        ("DELETE", format!("{all}/{memory}")),
        ("GET", format!("/v1/memory_stores/{store}/memory_versions")),
        ("DELETE", format!("/v1/memory_stores/{store}")),
    ] {
        assert_eq!(foreign(method, &path), 404, "{method} {path}");
    }
    assert_eq!(api.recalled(&other, "heron"), Vec::<String>::new());
    assert_eq!(api.recalled(&api.token, "heron").len(), 1);
}

/// The agent gets the memory's tools and is told of the store.
#[test]
fn store_of_a_session_reaches_its_agent() {
    let api = api("");
    let body = json!({"name": "Team notes", "description": "What the team knows."});
    let store = id(&done(&api, "POST", "/v1/memory_stores", body));
    let place = id(&done(&api, "POST", "/v1/environments", json!({"name": "here"})));
    let agent = id(&done(&api, "POST", "/v1/agents", json!({"name": "a", "model": "acp"})));
    let session =
        |resources: Value| json!({"agent": agent, "environment_id": place, "resources": resources});
    let resource = json!({"type": "memory_store", "memory_store_id": store,
        "access": "read_only", "instructions": "Look here first."});
    let made = done(&api, "POST", "/v1/sessions", session(json!([resource])));
    assert_eq!(made["resources"][0]["name"], "Team notes", "{made}");
    assert_eq!(made["resources"][0]["access"], "read_only", "{made}");
    assert_eq!(api.turn(&id(&made), "hi").status, 200);
    let file = fs::read_dir(api.conversations()).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(file).unwrap();
    let begun: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(begun["mcpServers"][0]["args"], json!(["mcp"]), "{begun}");
    let asked = text.replace("\\\"", "\"");
    for words in ["Team notes", &store, "Look here first.", "memory_recall", "Do not write"] {
        assert!(asked.contains(words), "{words}: {asked}");
    }
    let file = json!([{"type": "file", "file_id": "f"}]);
    refused(&api, "POST", "/v1/sessions", session(file), 400, "invalid_request_error");
    let unknown = json!([{"type": "memory_store", "memory_store_id": "memstore_x"}]);
    refused(&api, "POST", "/v1/sessions", session(unknown), 404, "not_found_error");
}
