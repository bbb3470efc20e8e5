//! What `hob sessions tail` prints: the log of a session as a conversation, with prompts, answers that flow on, tools,
//! questions and ends of turns.

use std::collections::HashMap;

use hob_sessions::session::{event_text, update_of};
use serde_json::Value;

use crate::printer;
use crate::view::{Paint, View};

/// Renders events one by one.
pub struct TailView {
    view: View,
    /// Whether the cursor is in the middle of a line.
    in_line: bool,
    speech: Speech,
    /// Whether a turn has begun and not ended.
    in_turn: bool,
    /// The requests for permission, by id.
    requests: HashMap<String, Request>,
}

/// A request for permission, as far as its answer needs it.
struct Request {
    title: String,
    /// The kinds of the options, by the option's id.
    kinds: HashMap<String, String>,
}

/// Returns what a request for permission is about as indented lines: its command, its file, its change. They end with a
/// line feed.
pub fn detail_text(request: &Value) -> String {
    let detail = request["detail"].as_str().unwrap_or_default();
    detail.lines().map(|line| format!("  | {}\n", printer::clean(line))).collect()
}

/// What the agent's text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speech {
    Answer,
    Thought,
}

impl TailView {
    pub fn new(view: View) -> TailView {
        let requests = HashMap::new();
        TailView { view, in_line: false, speech: Speech::Answer, in_turn: false, requests }
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
                let (turn, reason) = (&event["turn_index"], reason.unwrap_or("-"));
                let line = format!("── turn {turn} {state}: {reason}{}", time(event));
                self.line(paint, &line) + "\n"
            }
            "permission" if text("status") == "asked" => {
                self.remember(&event["request_id"], text("title"), &event["options"], "option");
                let line = format!("? {} (answer with `hob allow` or `hob deny`)", text("title"));
                self.line(Paint::Warning, &line)
                    + &self.view.paint(Paint::Faint, &detail_text(event))
            }
            "permission" => {
                let line = format!("? {}{}", self.answer(event), time(event));
                self.line(Paint::Faint, &line)
            }
            kind => {
                let line = format!("── {}{}", happened(kind, event), time(event));
                self.line(Paint::Faint, &line)
            }
        }
    }

    /// Remembers a request until its answer.
    fn remember(&mut self, id: &Value, title: &str, options: &Value, id_field: &str) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let options = options.as_array().into_iter().flatten();
        let kinds =
            options.map(|option| (text(&option[id_field]), text(&option["kind"]))).collect();
        self.requests.insert(request_key(id), Request { title: title.to_owned(), kinds });
    }

    /// Returns in words how a request was answered, and by whom.
    fn answer(&mut self, event: &Value) -> String {
        let request = self.requests.remove(&request_key(&event["request_id"]));
        let option = event["option"].as_str();
        let kind = option.and_then(|option| {
            request.as_ref().and_then(|request| request.kinds.get(option)).map(String::as_str)
        });
        let verdict = match (option, kind) {
            (None, _) => "not answered".to_owned(),
            (_, Some("allow_once")) => "allowed".to_owned(),
            (_, Some("allow_always")) => "allowed, also later".to_owned(),
            (_, Some("reject_once")) => "denied".to_owned(),
            (_, Some("reject_always")) => "denied, also later".to_owned(),
            (Some(option), _) => format!("answered with {option}"),
        };
        let by = match event["by"].as_str().unwrap_or_default() {
            "caller" => "by the user",
            "policy" => "by the session's policy",
            "timeout" => "because nobody answered in time",
            "cancel" => "because the turn was cancelled",
            other => other,
        };
        match request.filter(|_| event["by"] == "policy") {
            Some(request) => format!("{}: {verdict} {by}", request.title),
            None => format!("{verdict} {by}"),
        }
    }

    fn message(&mut self, message: &Value) -> String {
        if let Some(error) = message["error"]["message"].as_str() {
            return self.line(Paint::Bad, &format!("error: {error}"));
        }
        if message["method"] == "session/request_permission" {
            let params = &message["params"];
            let title = params["toolCall"]["title"].as_str().unwrap_or("a permission");
            self.remember(&message["id"], title, &params["options"], "optionId");
            return String::new();
        }
        let update = update_of(message);
        let text = update["content"]["text"].as_str().unwrap_or_default();
        match update["sessionUpdate"].as_str() {
            Some("agent_message_chunk") => self.flow(Speech::Answer, text),
            Some("agent_thought_chunk") => self.flow(Speech::Thought, text),
            Some("tool_call") => {
                self.line(Paint::Warning, &format!("[{}]", event_text::tool_title(update)))
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

/// The agent's own id may be a text or a number; the log has it as a text.
fn request_key(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned).trim_matches('"').to_owned()
}

/// Returns the time of an event after a comma, to the second; nothing if it has none.
fn time(event: &Value) -> String {
    let at = event["at"].as_str().and_then(|at| at.get(..19));
    at.map_or_else(String::new, |at| format!(", {} UTC", at.replace('T', " ")))
}

/// Returns in words what happened to a session.
fn happened(kind: &str, event: &Value) -> String {
    let text = |field: &str| event[field].as_str().unwrap_or_default();
    match kind {
        "create" => format!("session with {}", text("agent")),
        "resume" if event["ok"] == true => "the agent was started again and resumed".to_owned(),
        "resume" => format!("the agent could not resume: {}", text("error")),
        "cancel" => format!("turn {} was cancelled", event["turn_index"]),
        "close" => "closed".to_owned(),
        "sweep_close" => "closed because it was idle".to_owned(),
        "stalled" => format!("the agent is silent: {}", text("message")),
        "notice" => format!("notice: {}", text("message")),
        "setting" => "a setting of the agent was changed".to_owned(),
        "tool_call" => format!("tool of the caller {}", text("name")).trim_end().to_owned(),
        kind => format!("{kind} {}", text("message")).trim_end().to_owned(),
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
        let end = json!({"event": "turn", "turn_index": 1, "state": "finished", "stop_reason": "end_turn",
            "at": "2026-11-15T09:00:03.123456Z"});
        let mut tail = TailView::new(View::for_tests(None, false));
        assert!(tail.begins_turn(&tool));
        let mut all = tail.prompt("say\nit\x1b[2J");
        assert!(!tail.begins_turn(&tool));
        for event in [
            json!({"event": "create", "agent": "demo"}),
            update("agent_thought_chunk", "hm"),
            update("agent_message_chunk", "It "),
            update("agent_message_chunk", "is\x07 so"),
            tool,
            end,
        ] {
            all.push_str(&tail.next(&event));
        }
        assert_eq!(
            all,
            "> say\n  it[2J\n── session with demo\nhm\nIt is so\n[Bash ls]\n\
             ── turn 1 finished: end_turn, 2026-11-15 09:00:03 UTC\n\n"
        );
    }

    #[test]
    fn questions_and_what_happened_are_words() {
        let options = json!([{"option": "p1", "name": "Yes", "kind": "allow_once"}]);
        let message = json!({"method": "session/request_permission", "id": 7, "params": {
            "toolCall": {"title": "rm"}, "options": [{"optionId": "no", "kind": "reject_once"}]}});
        let mut tail = TailView::new(View::for_tests(None, false));
        let events = [
            json!({"event": "permission", "status": "asked", "request_id": "1", "title": "Bash",
                "detail": "ls\x1b[2J\nrm x", "options": options}),
            json!({"event": "permission", "request_id": "1", "option": "p1", "by": "caller"}),
            json!({"event": "message", "message": message}),
            json!({"event": "permission", "request_id": "7", "option": "no", "by": "policy"}),
            json!({"event": "permission", "request_id": "8", "option": null, "by": "timeout"}),
            json!({"event": "resume", "ok": true}),
            json!({"event": "sweep_close", "at": "2026-11-15T09:00:03Z"}),
        ];
        let all: String = events.iter().map(|event| tail.next(event)).collect();
        assert_eq!(
            all,
            "? Bash (answer with `hob allow` or `hob deny`)\n  | ls[2J\n  | rm x\n\
             ? allowed by the user\n? rm: denied by the session's policy\n\
             ? not answered because nobody answered in time\n\
             ── the agent was started again and resumed\n\
             ── closed because it was idle, 2026-11-15 09:00:03 UTC\n"
        );
    }
}
