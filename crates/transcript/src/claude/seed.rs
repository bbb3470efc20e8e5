//! Writes a history as a transcript that `claude --resume` accepts.

use hob_domain::{Block, Message, Role};
use serde_json::{Value, json};

/// The version of Claude Code whose records a seed imitates.
const SEED_VERSION: &str = "2.1.197";

/// What the records contain in addition to the messages.
pub struct SeedContext<'a> {
    pub session: &'a str,
    pub cwd: &'a str,
    /// The time of every record, in RFC 3339.
    pub now: &'a str,
    /// The model's name. Without one, a seeded transcript makes the CLI hang.
    pub model: &'a str,
}

/// Returns the transcript's lines. `new_id` makes identifiers.
pub fn seed_transcript(
    history: &[Message],
    context: &SeedContext<'_>,
    mut new_id: impl FnMut() -> String,
) -> String {
    let mut lines = vec![
        json!({"type": "permission-mode", "permissionMode": "default", "sessionId": context.session}),
    ];
    let snapshot = new_id();
    lines.push(json!({"type": "file-history-snapshot", "messageId": snapshot,
        "snapshot": {"messageId": snapshot, "trackedFileBackups": {}, "timestamp": context.now},
        "isSnapshotUpdate": false}));
    let mut parent = Value::Null;
    for message in history {
        let id = new_id();
        let mut record = json!({"parentUuid": parent, "isSidechain": false,
            "type": message.role.as_str(), "uuid": id, "timestamp": context.now,
            "userType": "external", "entrypoint": "cli", "cwd": context.cwd,
            "sessionId": context.session, "version": SEED_VERSION, "gitBranch": ""});
        record["message"] = match message.role {
            Role::User => json!({"role": "user", "content": user_content(&message.content)}),
            Role::Assistant => {
                let content: Vec<Value> = message.content.iter().map(block).collect();
                let calls = message.content.iter().any(|b| matches!(b, Block::ToolUse { .. }));
                json!({"id": format!("msg_{}", new_id().replace('-', "")), "type": "message",
                    "role": "assistant", "model": context.model, "content": content,
                    "stop_reason": if calls { "tool_use" } else { "end_turn" },
                    "stop_sequence": null, "usage": {"input_tokens": 0, "output_tokens": 0}})
            }
        };
        parent = json!(id);
        lines.push(record);
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Returns a user message's content. A single text is a string, like a typed prompt.
fn user_content(blocks: &[Block]) -> Value {
    match blocks {
        [Block::Text(text)] => json!(text),
        blocks => blocks.iter().map(block).collect(),
    }
}

fn block(block: &Block) -> Value {
    let mut value = block.to_value();
    if let Some(object) = value.as_object_mut() {
        object.retain(|_, value| !value.is_null());
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(history: &[Message]) -> Vec<Value> {
        let context =
            SeedContext { session: "s", cwd: "/w", now: "2026-01-01T00:00:00Z", model: "m" };
        let mut number = 0;
        let text = seed_transcript(history, &context, || {
            number += 1;
            format!("id-{number}")
        });
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn seed_has_the_records_that_the_cli_needs() {
        let lines = lines(&[Message::user("remember beaver"), Message::assistant("ok")]);
        let kinds: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["permission-mode", "file-history-snapshot", "user", "assistant"]);
        assert_eq!(lines[2]["message"]["content"], "remember beaver");
        assert_eq!(lines[3]["message"]["content"], json!([{"type": "text", "text": "ok"}]));
        assert_eq!(lines[3]["message"]["model"], "m");
        assert_eq!(lines[3]["parentUuid"], lines[2]["uuid"]);
        assert!(lines[2]["parentUuid"].is_null());
    }
}
