//! A client of Anthropic's session API, and its agents' tools.

use hob_testkit::server::Answer;
use hob_testkit::wait_until;
use serde_json::{Value, json};

use crate::api::*;

/// Requests in Anthropic's dialect.
pub struct Anthropic<'a>(pub &'a Api);

impl Anthropic<'_> {
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let headers = [("anthropic-version", "2023-06-01")];
        self.0.call(method, path, &headers, body.unwrap_or(&Value::Null))
    }

    pub fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.call("POST", path, Some(body));
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.json()
    }

    pub fn get(&self, path: &str) -> Value {
        let answer = self.call("GET", path, None);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.json()
    }

    /// Creates a session of a new agent.
    pub fn session(&self, model: &str, tools: &Value) -> String {
        let environment = self.post("/v1/environments", &json!({"name": "here"}));
        let body = json!({"name": "a", "model": model, "system": "Be kind.", "tools": tools});
        let agent = self.post("/v1/agents", &body);
        let body = json!({"agent": agent["id"], "environment_id": environment["id"],
            "title": "first", "metadata": {"k": "v"}});
        let session = self.post("/v1/sessions", &body);
        assert_eq!((&session["type"], &session["status"]), (&json!("session"), &json!("idle")));
        session["id"].as_str().unwrap().to_owned()
    }

    pub fn send(&self, id: &str, event: Value) -> Value {
        self.post(&format!("/v1/sessions/{id}/events"), &json!({"events": [event]}))
    }

    pub fn say(&self, id: &str, text: &str) -> Value {
        let content = json!([{"type": "text", "text": text}]);
        self.send(id, json!({"type": "user.message", "content": content}))
    }

    pub fn events(&self, id: &str) -> Vec<Value> {
        let page = self.get(&format!("/v1/sessions/{id}/events?limit=1000"));
        page["data"].as_array().unwrap().clone()
    }

    /// Waits until the last event says that the session is idle for this reason.
    pub fn idle(&self, id: &str, reason: &str) -> Vec<Value> {
        wait_until(&format!("the session is idle: {reason}"), || {
            let events = self.events(id);
            let last = events.last()?;
            let is_idle =
                last["type"] == "session.status_idle" && last["stop_reason"]["type"] == reason;
            is_idle.then(|| events.clone())
        })
    }
}

pub fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

pub fn message(events: &[Value]) -> String {
    let last = events.iter().rfind(|event| event["type"] == "agent.message").unwrap();
    last["content"][0]["text"].as_str().unwrap().to_owned()
}

pub fn all_tools(policy: &str) -> Value {
    let policy = json!({"permission_policy": {"type": policy}});
    json!([{"type": "agent_toolset_20260401", "default_config": policy}])
}

pub fn add_tool() -> Value {
    json!({"name": "add", "description": "Adds.", "input_schema": {"type": "object",
        "properties": {"a": {"type": "number"}}}})
}

pub const CALL: &str = "[[tool mcp__app__add {\"a\": 1}]] [[say Got {result}]]";
