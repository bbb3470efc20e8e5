//! Google's `generateContent` endpoint, as Gemini CLI uses it.

use axum::response::{IntoResponse, Json, Response};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::event_stream::{pause, stream_events};
use crate::script::Step;

/// Returns the newest prompt, and how many answers of the model follow it.
pub fn prompt(request: &Value) -> (String, usize) {
    let mut answers = 0;
    for content in request["contents"].as_array().into_iter().flatten().rev() {
        if content["role"] == "model" {
            answers += 1;
            continue;
        }
        let parts: Vec<&Value> = content["parts"].as_array().into_iter().flatten().collect();
        if parts.iter().any(|part| part.get("functionResponse").is_some()) {
            continue;
        }
        // What Gemini CLI says about the machine stands before the prompt.
        let text = parts.iter().rev().find_map(|part| part["text"].as_str());
        return (text.unwrap_or_default().to_owned(), answers);
    }
    (String::new(), 0)
}

pub fn stream(steps: Vec<Step>) -> Response {
    let (sender, receiver) = mpsc::unbounded_channel::<Value>();
    tokio::task::spawn(async move {
        for step in &steps {
            pause(step).await;
            if let Some(part) = part(step) {
                let _ = sender.send(json!({"candidates": [{"index": 0,
                    "content": {"role": "model", "parts": [part]}}]}));
            }
        }
        let _ = sender.send(candidate(&[]));
    });
    stream_events(receiver)
}

pub async fn whole(steps: &[Step]) -> Response {
    for step in steps {
        pause(step).await;
    }
    let parts: Vec<Value> = steps.iter().filter_map(part).collect();
    Json(candidate(&parts)).into_response()
}

fn candidate(parts: &[Value]) -> Value {
    json!({"candidates": [{"index": 0, "finishReason": "STOP",
            "content": {"role": "model", "parts": parts}}],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}})
}

fn part(step: &Step) -> Option<Value> {
    Some(match step {
        Step::Say(text) => json!({"text": text}),
        Step::Think(text) => json!({"text": text, "thought": true}),
        Step::Tool { name, input, .. } => json!({"functionCall": {"name": name, "args": input}}),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_after_the_newest_prompt_are_counted() {
        let content = |role: &str, part: Value| json!({"role": role, "parts": [part]});
        let contents = [
            content("user", json!({"text": "old"})),
            content("model", json!({"text": "said"})),
            content("user", json!({"text": "new"})),
            content("model", json!({"functionCall": {}})),
            content("user", json!({"functionResponse": {}})),
        ];
        assert_eq!(prompt(&json!({"contents": contents})), ("new".to_owned(), 1));
    }
}
