//! Questions of agents, as clients of the Agent Client Protocol see them: permission requests with the agent's own tool calls,
//! and forms.

use hob_agents::driver::form;
use serde_json::{Map, Value, json};

/// How many requests of an agent are remembered until their questions are put to somebody.
const MAX_REQUESTED_CALLS: usize = 64;
/// How many bytes a remembered call has as JSON. A longer one is not remembered: its question has Hob's own title.
const MAX_CALL_BYTES: usize = 256 << 10;

/// The tool calls of an agent's permission requests. A request's own message comes before the `permission` event.
#[derive(Debug, Clone, Default)]
pub struct RequestedCalls {
    /// By the ids of the requests, as JSON: that is what the limits count.
    calls: Vec<(String, String)>,
}

impl RequestedCalls {
    /// Notes the tool call of a message, if it asks for permission.
    pub fn note(&mut self, message: &Value) {
        if message["method"] != "session/request_permission" {
            return;
        }
        let id = match &message["id"] {
            Value::String(id) => id.clone(),
            id => id.to_string(),
        };
        // An agent that was started again counts its requests from the beginning.
        self.forget(&id);
        let call = message["params"]["toolCall"].to_string();
        if call.len() > MAX_CALL_BYTES {
            return;
        }
        if self.calls.len() == MAX_REQUESTED_CALLS {
            self.calls.remove(0);
        }
        self.calls.push((id, call));
    }

    /// Returns the tool call of a request. An agent may write anything in its place.
    pub fn take(&mut self, request: &str) -> Map<String, Value> {
        let place = self.calls.iter().position(|(id, _)| id == request);
        let call = place.map(|place| self.calls.remove(place).1);
        call.and_then(|call| serde_json::from_str(&call).ok()).unwrap_or_default()
    }

    /// Forgets the tool call of a request that is settled. Nobody may have been asked.
    pub fn forget(&mut self, request: &str) {
        self.calls.retain(|(known, _)| known != request);
    }
}

/// The questions of a turn, folded from its messages and `permission` events.
#[derive(Debug, Default)]
pub struct OpenQuestions {
    pub calls: RequestedCalls,
    /// Those without an answer.
    pub open: Vec<Question>,
}

impl OpenQuestions {
    /// Takes the body of a `permission` event.
    pub fn permission(&mut self, body: Value) {
        if body["status"] == "asked" {
            self.open.push(Question::new(body, &mut self.calls));
        } else {
            self.calls.forget(body["request_id"].as_str().unwrap_or_default());
            self.open.retain(|question| question.asked["request_id"] != body["request_id"]);
        }
    }
}

/// A question that waits for an answer.
#[derive(Debug)]
pub struct Question {
    /// The body of its `permission` event.
    asked: Value,
    /// The agent's tool call; empty for a form.
    call: Map<String, Value>,
}

impl Question {
    pub fn new(asked: Value, calls: &mut RequestedCalls) -> Question {
        let call = calls.take(asked["request_id"].as_str().unwrap_or_default());
        Question { asked, call }
    }

    /// Returns the id of the agent's request.
    pub fn request_id(&self) -> &str {
        self.asked["request_id"].as_str().unwrap_or_default()
    }

    /// Builds the request that puts the question to a client: its method and its parameters. A client that shows no forms
    /// is asked for a permission in place of a form.
    pub fn request(&self, session: &str, shows_forms: bool) -> (&'static str, Value) {
        let form = self.asked.get("form");
        if let Some(form) = form.filter(|_| shows_forms) {
            let params = json!({"sessionId": session, "mode": "form", "message": self.asked["title"],
                "requestedSchema": form});
            return ("elicitation/create", params);
        }
        let options = self.asked["options"].as_array().into_iter().flatten();
        // A form with required fields can only be declined.
        let can_allow = form.is_none_or(form::may_be_empty);
        let offered = options.filter(|option| can_allow || option["kind"] != "allow_once");
        let option = |option: &Value| json!({"optionId": option["option"], "name": option["name"], "kind": option["kind"]});
        let options: Vec<Value> = offered.map(option).collect();
        let params =
            json!({"sessionId": session, "toolCall": self.tool_call(), "options": options});
        ("session/request_permission", params)
    }

    /// Returns the agent's tool call. A question without one, such as a form, is a call of its own.
    fn tool_call(&self) -> Value {
        let mut call = self.call.clone();
        if !call.get("toolCallId").is_some_and(Value::is_string) {
            call.insert("toolCallId".to_owned(), self.asked["request_id"].clone());
        }
        // An agent may name only the number of a call that it has announced, so that there is no title to show.
        let is_said = self.asked["title"].as_str().is_some_and(|title| !title.is_empty());
        if is_said && !call.get("title").is_some_and(Value::is_string) {
            call.insert("title".to_owned(), self.asked["title"].clone());
        }
        Value::Object(call)
    }
}

/// Returns the body of the request that answers a `permission` event, from a client's answer to its [`Question`]. No
/// choice is a rejection.
pub fn chosen(answer: &Value) -> Value {
    let outcome = &answer["outcome"];
    match (answer["action"].as_str(), outcome["outcome"].as_str()) {
        (Some("accept"), _) => {
            let content = answer.get("content").filter(|content| !content.is_null());
            json!({"option": "allow_once", "content": content.cloned().unwrap_or(json!({}))})
        }
        (None, Some("selected")) => json!({"option": outcome["optionId"]}),
        _ => json!({"option": "reject_once"}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: Value, call: Value) -> Value {
        json!({"method": "session/request_permission", "id": id, "params": {"toolCall": call}})
    }

    fn asked(id: &str) -> Value {
        json!({"request_id": id, "status": "asked", "title": "Write: a",
            "options": [{"option": "yes", "name": "Yes", "kind": "allow_once"}]})
    }

    #[test]
    fn question_has_the_agents_own_call() {
        let diff = json!([{"type": "diff", "path": "/a", "oldText": null, "newText": "x"}]);
        let call = json!({"toolCallId": "toolu_1", "kind": "edit", "title": "Write a", "content": diff,
            "rawInput": {"file_path": "/a"}, "locations": [{"path": "/a"}]});
        let mut questions = OpenQuestions::default();
        questions.calls.note(&message(json!(7), json!({"toolCallId": "of an earlier process"})));
        questions.calls.note(&message(json!(7), call.clone()));
        questions.calls.note(&message(json!("p"), json!("no object")));
        questions.permission(asked("7"));
        questions.permission(asked("p"));
        let (method, params) = questions.open[0].request("s", false);
        assert_eq!((method, &params["toolCall"]), ("session/request_permission", &call));
        assert_eq!(
            params["options"],
            json!([{"optionId": "yes", "name": "Yes", "kind": "allow_once"}])
        );
        let own = json!({"toolCallId": "p", "title": "Write: a"});
        assert_eq!(questions.open[1].request("s", true).1["toolCall"], own);
        let only_number = json!({"toolCallId": "toolu_2"});
        questions.calls.note(&message(json!("n"), only_number.clone()));
        let untitled = json!({"request_id": "n", "status": "asked", "title": "", "options": []});
        let question = Question::new(untitled, &mut questions.calls);
        assert_eq!(question.request("s", false).1["toolCall"], only_number);
        questions.permission(json!({"request_id": "7", "status": "answered"}));
        let open: Vec<&str> = questions.open.iter().map(Question::request_id).collect();
        assert_eq!(open, ["p"]);
    }

    #[test]
    fn remembered_calls_are_bounded() {
        let mut calls = RequestedCalls::default();
        for id in 0..=MAX_REQUESTED_CALLS {
            calls.note(&message(json!(id), json!({"toolCallId": id.to_string()})));
        }
        assert!(calls.take("0").is_empty());
        assert_eq!(calls.take("1")["toolCallId"], "1");
        assert!(calls.take("1").is_empty());
        // A long call takes the place of the one of its number all the same.
        let long = json!({"toolCallId": "long", "rawInput": "x".repeat(MAX_CALL_BYTES)});
        calls.note(&message(json!(2), long));
        assert!(calls.take("2").is_empty());
    }

    #[test]
    fn call_of_a_settled_request_is_forgotten() {
        let mut questions = OpenQuestions::default();
        questions.calls.note(&message(json!(7), json!({"toolCallId": "toolu_1"})));
        questions.permission(json!({"request_id": "7", "status": "answered"}));
        assert!(questions.calls.take("7").is_empty());
    }
}
