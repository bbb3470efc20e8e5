//! Artifacts of OpenAI's session API: the files that turns leave in the session's own folder.

use std::os::unix::fs::symlink;

use hob_testkit::{TestHome, wait_until};
use serde_json::{Value, json};

use crate::api::*;
use crate::backend::Backend;

/// Creates a session whose first turn has this prompt.
fn session(api: &Api, environment: &Value, prompt: &str) -> String {
    let body = json!({"environment": environment, "agent": {"model": "acp"}, "input": prompt});
    let made = api.post("/v1/agents/sessions", &body);
    assert_eq!(made.status, 200, "{}", made.text);
    made.json()["id"].as_str().unwrap().to_owned()
}

/// Returns the artifacts whose paths end with this name.
fn artifacts(api: &Api, id: &str, name: &str) -> Vec<Value> {
    let page = api.get(&format!("/v1/agents/sessions/{id}/artifacts?order=asc&limit=100"));
    assert_eq!(page.status, 200, "{}", page.text);
    let is_named = |one: &Value| one["path"].as_str().unwrap().ends_with(&format!("/{name}"));
    let data = page.json()["data"].as_array().unwrap().clone();
    data.into_iter().filter(is_named).collect()
}

#[test]
fn files_of_turns_are_artifacts() {
    let api = api("");
    let id = session(&api, &json!({"type": "none"}), "[[note first]] [[say done]]");
    api.wait_for_turn(&id, 1, "finished");
    let found = artifacts(&api, &id, "notes");
    assert_eq!(found.len(), 1, "{found:?}");
    let artifact = &found[0];
    assert_eq!(
        (&artifact["object"], &artifact["size_bytes"]),
        (&json!("agent.session.artifact"), &json!(6))
    );
    assert_eq!(artifact["session_id"], id.as_str());
    let turns = api.get(&format!("/v1/agents/sessions/{id}/turns")).json();
    assert_eq!(artifact["turn_id"], turns["data"][0]["id"]);
    let path = format!("/v1/agents/sessions/{id}/artifacts/{}", artifact["id"].as_str().unwrap());
    assert_eq!(api.get(&path).json(), *artifact);
    let content = api.get(&format!("{path}/content"));
    assert_eq!((content.status, content.text.as_str()), (200, "first\n"));
    assert_eq!(content.headers["content-type"], "application/octet-stream");
    let elsewhere = format!("/v1/agents/sessions/{id}/artifacts?environment_id=env_other");
    assert_eq!(api.get(&elsewhere).json()["data"], json!([]));
    // Another app sees nothing of it.
    let other = api.server.client(&api.home.app("other"));
    for path in [path.clone(), format!("{path}/content")] {
        assert_eq!(other.get(&path).status, 404, "{path}");
    }
    // A later turn makes another version of the file. While it runs, it has published nothing.
    api.ask(&id, "[[note second]] [[say done]]");
    let again = artifacts(&api, &id, "notes");
    assert_ne!(again[0]["id"], artifact["id"]);
    assert_ne!(again[0]["turn_id"], artifact["turn_id"]);
    for path in [path.clone(), format!("{path}/content")] {
        assert_eq!(api.get(&path).status, 404, "{path}");
    }
    let body = json!({"events": [{"type": "agent.session.input.message",
        "input": [{"role": "user", "content": "[[note third]] [[say begun]] [[until go]]"}]}]});
    assert_eq!(api.post(&format!("/v1/agents/sessions/{id}/events"), &body).status, 204);
    wait_until("the third turn has written", || {
        let notes = std::fs::read_to_string(api.workspace(&id).join("notes")).unwrap();
        notes.ends_with("third\n").then_some(())
    });
    assert_eq!(artifacts(&api, &id, "notes"), Vec::<Value>::new());
    api.open_gate(&id);
    api.wait_for_turn(&id, 3, "finished");
    let third = artifacts(&api, &id, "notes");
    assert_eq!(third[0]["size_bytes"], "first\nsecond\nthird\n".len());
    // Deleting an artifact leaves the file alone.
    let path = format!("/v1/agents/sessions/{id}/artifacts/{}", third[0]["id"].as_str().unwrap());
    let deleted = api.call("DELETE", &path, &[], &Value::Null).json();
    assert_eq!(
        (&deleted["object"], &deleted["deleted"]),
        (&json!("agent.session.artifact.deleted"), &json!(true))
    );
    assert_eq!(api.get(&path).status, 404);
    assert_eq!(artifacts(&api, &id, "notes"), Vec::<Value>::new());
    assert!(api.workspace(&id).join("notes").exists());
}

/// A link in the folder leads to no file outside of it. A folder of the caller has no artifacts, and the error says why.
#[test]
fn artifacts_are_files_of_the_sessions_own_folder_only() {
    let home = TestHome::new();
    let work = home.user_home().canonicalize().unwrap().join("work");
    std::fs::create_dir_all(&work).unwrap();
    configure(&home, &sessions(&format!("roots = [{work:?}]")));
    let token = home.app("tests");
    let api = Backend::File.start(home, &token);
    let id = session(&api, &json!({"type": "none"}), "[[note first]] [[say done]]");
    api.wait_for_turn(&id, 1, "finished");
    let secret = api.home.hob_home().join("admin.token");
    symlink(&secret, api.workspace(&id).join("token")).unwrap();
    symlink(api.home.hob_home(), api.workspace(&id).join("home")).unwrap();
    assert_eq!(artifacts(&api, &id, "token"), Vec::<Value>::new());
    assert_eq!(artifacts(&api, &id, "admin.token"), Vec::<Value>::new());
    let place = json!({"type": "self_hosted", "workspace_directory": work});
    let id = session(&api, &place, "[[note elsewhere]] [[say done]]");
    api.wait_for_turn(&id, 1, "finished");
    assert!(work.join("notes").exists());
    let all = format!("/v1/agents/sessions/{id}/artifacts");
    let one = format!("{all}/artifact_{}", "0".repeat(32));
    for (method, path) in
        [("GET", all), ("GET", one.clone()), ("GET", format!("{one}/content")), ("DELETE", one)]
    {
        let refused = api.call(method, &path, &[], &Value::Null);
        assert_eq!(refused.status, 400, "{method} {path}: {}", refused.text);
        let error = refused.json()["error"].clone();
        assert_eq!(error["type"], "invalid_request_error", "{error}");
        assert!(error["message"].as_str().unwrap().contains("workspace_directory"), "{error}");
    }
}
