//! OpenAI's Responses endpoint, as Codex uses it.

use axum::response::Response;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::event_stream::{pause, stream_events};
use crate::script::Step;

/// Returns the newest prompt, and how many answers of the model follow it.
pub fn prompt(request: &Value) -> (String, usize) {
    let items = request["input"].as_array().cloned().unwrap_or_default();
    let is_prompt = |item: &Value| item["type"] == "message" && item["role"] == "user";
    let Some(at) = items.iter().rposition(is_prompt) else { return (String::new(), 0) };
    let parts = items[at]["content"].as_array().into_iter().flatten();
    let texts: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).collect();
    let is_result =
        |item: &Value| item["type"].as_str().is_some_and(|kind| kind.ends_with("_call_output"));
    // The results of calls that the model made at once stand together.
    let answers = items[at..].windows(2).filter(|two| !is_result(&two[0]) && is_result(&two[1]));
    (texts.join("\n"), answers.count())
}

pub fn stream(model: String, steps: Vec<Step>) -> Response {
    let (sender, receiver) = mpsc::unbounded_channel::<Value>();
    tokio::task::spawn(async move {
        let send = |event: Value| sender.send(event).is_ok();
        let id = format!("resp_{}", Uuid::new_v4().simple());
        send(json!({"type": "response.created", "response": {"id": id, "model": model}}));
        let mut output_index = 0;
        for step in &steps {
            pause(step).await;
            let Some(item) = item(step) else { continue };
            if item["type"] == "message" {
                let mut empty = item.clone();
                empty["content"] = json!([]);
                send(
                    json!({"type": "response.output_item.added", "output_index": output_index, "item": empty}),
                );
                send(json!({"type": "response.output_text.delta", "item_id": item["id"],
                    "output_index": output_index, "content_index": 0,
                    "delta": item["content"][0]["text"]}));
            }
            send(
                json!({"type": "response.output_item.done", "output_index": output_index, "item": item}),
            );
            output_index += 1;
        }
        let usage = json!({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15});
        send(
            json!({"type": "response.completed", "response": {"id": id, "model": model, "usage": usage}}),
        );
    });
    stream_events(receiver)
}

/// Returns the output item of a step, if the step has one.
fn item(step: &Step) -> Option<Value> {
    let id = Uuid::new_v4().simple();
    Some(match step {
        Step::Say(text) => {
            json!({"type": "message", "id": format!("msg_{id}"), "role": "assistant",
            "content": [{"type": "output_text", "text": text, "annotations": []}]})
        }
        Step::Tool { name, input, .. } => {
            let mut call = json!({"type": "function_call", "id": format!("fc_{id}"),
                "call_id": format!("call_{id}"), "name": name, "arguments": input.to_string()});
            // Codex has the tools of a server in a namespace.
            if let Some((namespace, name)) = name.split_once('/') {
                (call["namespace"], call["name"]) = (json!(namespace), json!(name));
            }
            call
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_after_the_newest_prompt_are_counted() {
        let user = |text: &str| json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]});
        let (call, result) =
            (json!({"type": "function_call"}), json!({"type": "function_call_output"}));
        let items = [user("old"), call.clone(), result.clone(), user("new")];
        assert_eq!(prompt(&json!({"input": items})), ("new".to_owned(), 0));
        let items =
            [user("new"), call.clone(), call.clone(), result.clone(), result.clone(), call, result];
        assert_eq!(prompt(&json!({"input": items})), ("new".to_owned(), 2));
    }
}
