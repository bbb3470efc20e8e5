//! Items of responses and conversations in their full form.

use std::collections::HashSet;

use serde_json::{Value, json};

/// Returns items with the fields that clients may leave out, each with an identifier that is not in `taken`. New
/// identifiers begin with `digits`.
pub(crate) fn full_items(items: &[Value], digits: &str, taken: &mut HashSet<String>) -> Vec<Value> {
    let item = |(index, item): (usize, &Value)| {
        let mut item = item.clone();
        if !item.is_object() {
            return item;
        }
        let is_new = item["id"].as_str().is_some_and(|id| taken.insert(id.to_owned()));
        if !is_new {
            item["id"] = json!(format!("in_{digits}{index:04x}"));
        }
        if item["type"].is_null() {
            item["type"] = json!("message");
        }
        if item["type"] == "message" {
            complete_message(&mut item);
        }
        item
    };
    items.iter().enumerate().map(item).collect()
}

/// Gives a message the fields that clients may leave out.
fn complete_message(item: &mut Value) {
    let is_answer = item["role"] == "assistant";
    if let Some(text) = item["content"].as_str().map(str::to_owned) {
        item["content"] = match is_answer {
            true => json!([{"type": "output_text", "text": text, "annotations": []}]),
            false => json!([{"type": "input_text", "text": text}]),
        };
    }
    if item["status"].is_null() {
        item["status"] = json!("completed");
    }
}
