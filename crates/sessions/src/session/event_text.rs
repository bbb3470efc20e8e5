//! Session events as text for people.

use hob_agents::driver::tool_input::main_argument;
use serde_json::Value;

use super::turn_reader::update_of;

/// Returns the text of an agent's message.
fn message_text(message: &Value) -> Option<String> {
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
        Some("tool_call") => Some(format!("[{}]", tool_title(update))),
        Some("tool_call_update") => {
            let status = update["status"].as_str()?;
            Some(format!("[{status}]"))
        }
        _ => None,
    }
}

/// Returns a tool call's title with its main argument.
pub fn tool_title(update: &Value) -> String {
    let title = update["title"].as_str().unwrap_or("tool");
    match main_argument(&update["rawInput"]) {
        Some(argument) if !title.contains(&argument) => format!("{title} {argument}"),
        _ => title.to_owned(),
    }
}

/// Renders events for a terminal. The agent's words and thoughts flow on; everything else gets a
/// line of its own. Escape sequences in the agent's text are removed, so that only Hob's own
/// colours reach the terminal.
#[derive(Debug, Default)]
pub struct TerminalRenderer {
    in_line: bool,
    /// What the current line consists of.
    speech: Speech,
}

/// What an agent's text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Speech {
    #[default]
    Answer,
    Thought,
}

impl TerminalRenderer {
    /// Returns the text that the next event adds.
    pub fn next(&mut self, event: &Value) -> String {
        let mut out = String::new();
        let update = update_of(&event["message"]);
        let text = update["content"]["text"].as_str();
        match (event["event"].as_str(), update["sessionUpdate"].as_str(), text) {
            (Some("message"), Some("agent_message_chunk"), Some(text)) => {
                self.flow(&mut out, Speech::Answer, text);
            }
            (Some("message"), Some("user_message_chunk"), Some(text)) => {
                self.line(&mut out, "36", &format!("> {text}"));
            }
            (Some("message"), Some("agent_thought_chunk"), Some(text)) => {
                self.flow(&mut out, Speech::Thought, text);
            }
            (Some("message"), Some("tool_call"), _) => {
                self.line(&mut out, "33", &format!("[{}]", tool_title(update)));
            }
            (Some("message"), ..) => {
                if let Some(text) = message_text(&event["message"]) {
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
                for line in text("detail").lines() {
                    self.line(&mut out, "2", &format!("  | {line}"));
                }
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

    /// Appends a piece of flowing text.
    fn flow(&mut self, out: &mut String, speech: Speech, text: &str) {
        if self.in_line && self.speech != speech {
            out.push_str("\r\n");
            self.in_line = false;
        }
        self.speech = speech;
        let text = plain(text);
        self.in_line = !text.ends_with("\r\n") && (self.in_line || !text.is_empty());
        match speech {
            Speech::Thought => out.push_str(&format!("\x1b[2;3m{text}\x1b[m")),
            Speech::Answer => out.push_str(&text),
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

/// Removes control characters, and ends lines as a terminal expects.
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
    fn tool_titles_have_their_main_argument() {
        let call = json!({"title": "Bash", "rawInput": {"command": "ls"}});
        assert_eq!(tool_title(&call), "Bash ls");
        let call = json!({"title": "edit", "rawInput": {"filePath": "/a.rs", "newString": "x"}});
        assert_eq!(tool_title(&call), "edit /a.rs");
    }

    #[test]
    fn terminal_text_has_no_foreign_escapes() {
        let update =
            |update: Value| json!({"event": "message", "message": {"params": {"update": update}}});
        let says = |text: &str| {
            update(json!({"sessionUpdate": "agent_message_chunk", "content": {"text": text}}))
        };
        let thinks = |text: &str| {
            update(json!({"sessionUpdate": "agent_thought_chunk", "content": {"text": text}}))
        };
        let mut renderer = TerminalRenderer::default();
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
            all.push_str(&renderer.next(&event));
        }
        let expect = "\x1b[2;3ma \x1b[m\x1b[2;3mthought\x1b[m\r\none line\r\nand ]52;c;eA==more\r\n\x1b[33m[Bash ls]\x1b[m\r\ndone\r\n\
                      \x1b[32m── turn 1: finished, end_turn\x1b[m\r\n\x1b[2m-- close\x1b[m\r\n";
        assert_eq!(all, expect);
    }
}
