//! Events of a session as a person reads them.

use hob_sessions::session::update_of;
use serde_json::Value;

/// One line for an event of the log; `None` for what nobody needs to read.
pub fn event(event: &Value) -> Option<String> {
    let seq = event["seq"].as_u64().unwrap_or_default();
    let line = match event["event"].as_str()? {
        "message" => message(&event["message"])?,
        "turn" => {
            let reason = event["stop_reason"].as_str().or(event["error"].as_str());
            let state = event["state"].as_str().unwrap_or_default();
            format!("turn {} {state}: {}", event["turn_index"], reason.unwrap_or("-"))
        }
        "permission" => {
            let what = event["title"].as_str().unwrap_or_default();
            let status = event["status"].as_str().unwrap_or_default();
            let option = event["option"].as_str().unwrap_or_default();
            format!("permission {} {status} {what}{option}", event["request_id"])
        }
        kind @ ("stalled" | "notice") => {
            format!("{kind}: {}", event["message"].as_str().unwrap_or_default())
        }
        kind => kind.to_owned(),
    };
    Some(format!("{seq:>6}  {line}"))
}

/// What an agent's message says.
fn message(message: &Value) -> Option<String> {
    if let Some(error) = message["error"]["message"].as_str() {
        return Some(format!("error: {error}"));
    }
    if message.get("result").is_some() {
        return None;
    }
    let update = update_of(message);
    let text = update["content"]["text"].as_str().unwrap_or_default();
    match update["sessionUpdate"].as_str() {
        Some("agent_message_chunk") => Some(text.to_owned()),
        Some("agent_thought_chunk") => Some(format!("(thinks) {text}")),
        Some("tool_call") => Some(format!("[{}]", tool(update))),
        Some("tool_call_update") => {
            let status = update["status"].as_str()?;
            Some(format!("[{status}]"))
        }
        _ => None,
    }
}

/// What a tool call is about.
pub fn tool(update: &Value) -> String {
    let title = update["title"].as_str().unwrap_or("tool");
    let input = &update["rawInput"];
    let detail = ["command", "file_path", "path", "pattern", "url"]
        .iter()
        .find_map(|key| input[*key].as_str());
    match detail {
        Some(detail) if !title.contains(detail) => format!("{title} {detail}"),
        _ => title.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lines_for_people() {
        let says = json!({"seq": 3, "event": "message", "message": {"method": "session/update",
            "params": {"update": {"sessionUpdate": "agent_message_chunk",
                "content": {"type": "text", "text": "hello"}}}}});
        assert_eq!(event(&says).as_deref(), Some("     3  hello"));
        let end = json!({"seq": 5, "event": "turn", "turn_index": 1, "state": "finished",
            "stop_reason": "end_turn"});
        assert_eq!(event(&end).as_deref(), Some("     5  turn 1 finished: end_turn"));
        let result = json!({"seq": 4, "event": "message", "message": {"id": 1, "result": {}}});
        assert_eq!(event(&result), None);
        let call = json!({"title": "Bash", "rawInput": {"command": "ls"}});
        assert_eq!(tool(&call), "Bash ls");
    }
}
