//! The log of a session as a conversation: prompts, answers that flow on, tools, questions and ends of turns.

use hob_sessions::session::{render, update_of};
use serde_json::Value;

use crate::printer;
use crate::view::{Paint, View};

/// Renders events one by one.
pub struct Conversation {
    view: View,
    /// Whether the cursor is in the middle of a line.
    in_line: bool,
    speech: Speech,
    /// Whether a turn has begun and not ended.
    in_turn: bool,
}

/// What the agent's text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speech {
    Answer,
    Thought,
}

impl Conversation {
    pub fn new(view: View) -> Conversation {
        Conversation { view, in_line: false, speech: Speech::Answer, in_turn: false }
    }

    /// Returns whether an event begins a turn, whose prompt is to be shown first.
    pub fn begins_turn(&self, event: &Value) -> bool {
        !self.in_turn
            && matches!(
                event["event"].as_str(),
                Some("message" | "permission" | "stalled" | "turn")
            )
    }

    /// Returns the text of a prompt.
    pub fn prompt(&mut self, prompt: &str) -> String {
        self.in_turn = true;
        let mut out = self.end_of_line();
        for (index, line) in prompt.trim_end().lines().enumerate() {
            let mark = if index == 0 { "> " } else { "  " };
            out.push_str(
                &self.view.paint(Paint::User, &format!("{mark}{}", printer::one_line(line))),
            );
            out.push('\n');
        }
        out
    }

    /// Returns the text that the next event adds.
    pub fn next(&mut self, event: &Value) -> String {
        let text = |field: &str| event[field].as_str().unwrap_or_default();
        match text("event") {
            "message" => self.message(&event["message"]),
            "turn" => {
                self.in_turn = false;
                let reason = event["stop_reason"].as_str().or(event["error"].as_str());
                let state = text("state");
                let paint = if state == "finished" { Paint::Faint } else { Paint::Bad };
                let line =
                    format!("── turn {} {state}: {}", event["turn_index"], reason.unwrap_or("-"));
                self.line(paint, &line) + "\n"
            }
            "permission" if text("status") == "asked" => {
                let line = format!("? {} (answer with `hob allow` or `hob deny`)", text("title"));
                self.line(Paint::Warning, &line)
            }
            "permission" => {
                let option = event["option"].as_str().unwrap_or("nothing");
                self.line(Paint::Faint, &format!("? {option} was chosen by {}", text("by")))
            }
            "create" => String::new(),
            kind => self.line(Paint::Faint, format!("── {kind} {}", text("message")).trim_end()),
        }
    }

    fn message(&mut self, message: &Value) -> String {
        if let Some(error) = message["error"]["message"].as_str() {
            return self.line(Paint::Bad, &format!("error: {error}"));
        }
        let update = update_of(message);
        let text = update["content"]["text"].as_str().unwrap_or_default();
        match update["sessionUpdate"].as_str() {
            Some("agent_message_chunk") => self.flow(Speech::Answer, text),
            Some("agent_thought_chunk") => self.flow(Speech::Thought, text),
            Some("tool_call") => {
                self.line(Paint::Warning, &format!("[{}]", render::tool_title(update)))
            }
            Some("tool_call_update") if update["status"] == "failed" => {
                self.line(Paint::Bad, "[failed]")
            }
            _ => String::new(),
        }
    }

    /// Returns a piece of text that continues the line before it.
    fn flow(&mut self, speech: Speech, text: &str) -> String {
        if text.is_empty() {
            return String::new();
        }
        let mut out = if self.speech == speech { String::new() } else { self.end_of_line() };
        self.speech = speech;
        self.in_line = !text.ends_with('\n');
        match speech {
            Speech::Answer => out.push_str(&printer::clean(text)),
            Speech::Thought => out.push_str(&self.view.paint(Paint::Faint, text)),
        }
        out
    }

    fn line(&mut self, paint: Paint, text: &str) -> String {
        let mut out = self.end_of_line();
        out.push_str(&self.view.paint(paint, &printer::one_line(text)));
        out.push('\n');
        out
    }

    /// Ends the line in which the cursor is.
    pub fn end_of_line(&mut self) -> String {
        if std::mem::take(&mut self.in_line) { "\n".to_owned() } else { String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn chunks_flow_and_everything_else_is_a_line() {
        let update = |kind: &str, text: &str| {
            json!({"event": "message", "message": {"params": {"update":
                {"sessionUpdate": kind, "content": {"text": text}}}}})
        };
        let tool = json!({"event": "message", "message": {"params": {"update":
            {"sessionUpdate": "tool_call", "title": "Bash", "rawInput": {"command": "ls"}}}}});
        let end = json!({"event": "turn", "turn_index": 1, "state": "finished", "stop_reason": "end_turn"});
        let mut conversation = Conversation::new(View::for_tests(None, false));
        assert!(conversation.begins_turn(&tool));
        let mut all = conversation.prompt("say\nit\x1b[2J");
        assert!(!conversation.begins_turn(&tool));
        for event in [
            json!({"event": "create"}),
            update("agent_thought_chunk", "hm"),
            update("agent_message_chunk", "It "),
            update("agent_message_chunk", "is\x07 so"),
            tool,
            end,
        ] {
            all.push_str(&conversation.next(&event));
        }
        assert_eq!(
            all,
            "> say\n  it[2J\nhm\nIt is so\n[Bash ls]\n── turn 1 finished: end_turn\n\n"
        );
    }
}
