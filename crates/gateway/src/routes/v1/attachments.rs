//! Attachments of a message. Images and documents become files of the app, and the agent receives
//! their paths.

use std::sync::Arc;

use hob_domain::AppName;
use hob_domain::file::prompt_with_files;
use serde_json::{Value, json};

use super::content;
use super::dialect::Problem;
use crate::state::Gateway;

/// Merges adjacent messages of one role, as the APIs do.
pub(super) fn merged(messages: Vec<Value>) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for message in messages {
        match merged.last_mut() {
            Some(last) if last["role"].is_string() && last["role"] == message["role"] => {
                let mut blocks = blocks_of(last);
                blocks.extend(blocks_of(&message));
                last["content"] = Value::Array(blocks);
            }
            _ => merged.push(message),
        }
    }
    merged
}

fn blocks_of(message: &Value) -> Vec<Value> {
    match &message["content"] {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        Value::Array(blocks) => blocks.clone(),
        Value::Null => Vec::new(),
        // Not a message; the message parser reports it.
        other => vec![other.clone()],
    }
}

/// Returns the prompt for a last message that has more than text. Its blocks are readable ones.
pub(super) async fn prompt(
    gateway: &Arc<Gateway>,
    app: &AppName,
    messages: &[Value],
) -> Result<Option<String>, Problem> {
    let Some(last) = messages.last().filter(|last| last["role"] == "user") else {
        return Ok(None);
    };
    let blocks = blocks_of(last);
    if blocks.iter().all(|block| block["type"] == "text" || block["type"] == "tool_result") {
        return Ok(None);
    }
    let (mut texts, mut paths) = (Vec::new(), Vec::new());
    for block in &blocks {
        match block["type"].as_str() {
            Some("image" | "document") => paths.push(attach(gateway, app, block).await?),
            Some("text") => texts.push(block["text"].as_str().unwrap_or_default().to_owned()),
            _ => {}
        }
    }
    Ok(Some(prompt_with_files(&texts.join("\n\n"), &paths)))
}

/// Stores a readable image or document of a message. Returns the path of the file.
pub(super) async fn attach(
    gateway: &Gateway,
    app: &AppName,
    block: &Value,
) -> Result<String, Problem> {
    let kind = block["type"].as_str().unwrap_or_default();
    let (ending, bytes) =
        content::file(block).ok_or_else(|| Problem::invalid(format!("{kind}: must be data")))?;
    let mut upload = gateway.files.begin(app, &format!("{kind}.{ending}")).await?;
    upload.write(&bytes).await?;
    let stored = upload.finish().await?;
    Ok(stored.path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_role_are_one() {
        let user = |text: &str| json!({"role": "user", "content": text});
        let said = json!({"role": "assistant", "content": [{"type": "text", "text": "x"}]});
        let out = merged(vec![user("a"), user("b"), said.clone(), user("c")]);
        assert_eq!(out.len(), 3);
        let blocks = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        assert_eq!(out[0]["content"], blocks);
        assert_eq!((&out[1], &out[2]), (&said, &user("c")));
    }
}
