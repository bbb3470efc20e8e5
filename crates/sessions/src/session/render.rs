//! Events of a session as a person reads them.

use super::messages::update_of;
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

/// Events as they would stand in a terminal: what the agent says and thinks runs on, everything else has a line of
/// its own. Only our own colours are in it: what an agent says is text.
#[derive(Debug, Default)]
pub struct Page {
    in_line: bool,
    /// Whether the line is a thought's.
    thinking: bool,
}

impl Page {
    /// What the next event adds.
    pub fn next(&mut self, event: &Value) -> String {
        let mut out = String::new();
        let update = update_of(&event["message"]);
        let text = update["content"]["text"].as_str();
        match (event["event"].as_str(), update["sessionUpdate"].as_str(), text) {
            (Some("message"), Some("agent_message_chunk"), Some(text)) => {
                self.run_on(&mut out, false, text);
            }
            (Some("message"), Some("user_message_chunk"), Some(text)) => {
                self.line(&mut out, "36", &format!("> {text}"));
            }
            (Some("message"), Some("agent_thought_chunk"), Some(text)) => {
                self.run_on(&mut out, true, text);
            }
            (Some("message"), Some("tool_call"), _) => {
                self.line(&mut out, "33", &format!("[{}]", tool(update)));
            }
            (Some("message"), ..) => {
                if let Some(text) = message(&event["message"]) {
                    self.line(&mut out, "2", &text);
                }
            }
            (Some("turn"), ..) => {
                let state = event["state"].as_str().unwrap_or_default();
                let reason = event["stop_reason"].as_str().or(event["error"].as_str());
                let text =
                    format!("── turn {}: {state}, {}", event["turn_index"], reason.unwrap_or("-"));
                let colour = if state == "finished" { "32" } else { "31" };
                self.line(&mut out, colour, &text);
            }
            (Some("permission"), ..) => {
                let text = |key: &str| event[key].as_str().unwrap_or_default();
                let what = format!("? {} {} {}", text("status"), text("title"), text("option"));
                self.line(&mut out, "35", what.trim_end());
            }
            (Some(kind), ..) => {
                let detail = event["message"].as_str().unwrap_or_default();
                let text = format!("-- {kind} {detail}");
                self.line(&mut out, "2", text.trim_end());
            }
            (None, ..) => {}
        }
        out
    }

    /// Words that come in pieces.
    fn run_on(&mut self, out: &mut String, thinking: bool, text: &str) {
        if self.in_line && self.thinking != thinking {
            out.push_str("\r\n");
            self.in_line = false;
        }
        self.thinking = thinking;
        let text = plain(text);
        self.in_line = !text.ends_with("\r\n") && (self.in_line || !text.is_empty());
        match thinking {
            true => out.push_str(&format!("\x1b[2;3m{text}\x1b[m")),
            false => out.push_str(&text),
        }
    }

    fn line(&mut self, out: &mut String, colour: &str, text: &str) {
        if std::mem::take(&mut self.in_line) {
            out.push_str("\r\n");
        }
        for line in plain(text).lines() {
            out.push_str(&format!("\x1b[{colour}m{line}\x1b[m\r\n"));
        }
    }
}

/// Text without anything that would act on a terminal, its lines ended for one.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\r\n"),
            '\t' => out.push_str("    "),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
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

    #[test]
    fn a_page_for_a_terminal() {
        let update =
            |update: Value| json!({"event": "message", "message": {"params": {"update": update}}});
        let says = |text: &str| {
            update(json!({"sessionUpdate": "agent_message_chunk", "content": {"text": text}}))
        };
        let thinks = |text: &str| {
            update(json!({"sessionUpdate": "agent_thought_chunk", "content": {"text": text}}))
        };
        let mut page = Page::default();
        let mut all = String::new();
        for event in [
            thinks("a "),
            thinks("thought"),
            says("one "),
            says("line\nand \x1b]52;c;eA==\x07more\u{9b}"),
            update(
                json!({"sessionUpdate": "tool_call", "title": "Bash", "rawInput": {"command": "ls"}}),
            ),
            says("done\n"),
            json!({"event": "turn", "turn_index": 1, "state": "finished", "stop_reason": "end_turn"}),
            json!({"event": "close"}),
        ] {
            all.push_str(&page.next(&event));
        }
        let expect = "\x1b[2;3ma \x1b[m\x1b[2;3mthought\x1b[m\r\none line\r\nand ]52;c;eA==more\r\n\x1b[33m[Bash ls]\x1b[m\r\ndone\r\n\
                      \x1b[32m── turn 1: finished, end_turn\x1b[m\r\n\x1b[2m-- close\x1b[m\r\n";
        assert_eq!(all, expect);
    }
}
