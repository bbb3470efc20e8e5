//! aider's `.aider.chat.history.md`: the chats of one repository, one after the other. aider 0.86
//! writes prompts as headings of the fourth level, its own output as quotes that end with two
//! spaces, and answers as they are. Nothing has an id, and only a chat's start has a time.

use hob_domain::memory::TurnRole;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::parsed_session::ParsedSession;
use crate::turn::TranscriptTurn;

const CHAT_START: &str = "# aider chat started at ";
const PROMPT: &str = "#### ";
/// Commands that send their argument to the model as a prompt. Other commands change aider's own state.
const PROMPT_COMMANDS: [&str; 4] = ["/ask ", "/code ", "/architect ", "/context "];

/// Returns whether a text is a history of aider.
pub fn is_history(text: &str) -> bool {
    text.trim_start().starts_with(CHAT_START)
}

/// Reads the chats of a history. A chat's session is the time of its start; the caller adds the file.
pub fn sessions(text: &str) -> Vec<ParsedSession> {
    let mut sessions = Vec::new();
    let mut chat: Option<Chat> = None;
    for line in text.lines() {
        if let Some(started) = line.strip_prefix(CHAT_START) {
            sessions.extend(chat.take().map(Chat::finish));
            chat = Some(Chat::new(started.trim()));
        } else if let Some(chat) = &mut chat {
            chat.line(line);
        }
    }
    sessions.extend(chat.map(Chat::finish));
    sessions.retain(|session| !session.turns.is_empty());
    sessions
}

struct Chat {
    started: String,
    ts: Option<Timestamp>,
    turns: Vec<TranscriptTurn>,
    /// Who says the lines in `text`.
    role: TurnRole,
    text: Vec<String>,
}

impl Chat {
    fn new(started: &str) -> Chat {
        // aider writes the local time without its zone. The zone is not known here.
        let ts = DateTime::strptime("%Y-%m-%d %H:%M:%S", started).ok();
        let ts = ts.and_then(|at| at.to_zoned(TimeZone::UTC).ok()).map(|at| at.timestamp());
        let (turns, text) = (Vec::new(), Vec::new());
        Chat { started: started.to_owned(), ts, turns, role: TurnRole::Assistant, text }
    }

    fn line(&mut self, line: &str) {
        if let Some(prompt) = line.strip_prefix(PROMPT) {
            self.speak(TurnRole::User);
            self.text.push(prompt.trim_end().to_owned());
        } else if line.starts_with("> ") && line.ends_with("  ") {
            self.end();
        } else {
            self.speak(TurnRole::Assistant);
            self.text.push(line.trim_end().to_owned());
        }
    }

    fn speak(&mut self, role: TurnRole) {
        if self.role != role {
            self.end();
            self.role = role;
        }
    }

    /// Ends the turn whose lines were read so far.
    fn end(&mut self) {
        let text = std::mem::take(&mut self.text).join("\n");
        let text = text.trim();
        let is_spoken = |text: &str| {
            let is_command = text.starts_with('/');
            !is_command || PROMPT_COMMANDS.iter().any(|command| text.starts_with(command))
        };
        let is_turn = match self.role {
            TurnRole::User => text != "<blank>" && is_spoken(text),
            TurnRole::Assistant => true,
        };
        if !text.is_empty() && is_turn {
            self.turns.push(TranscriptTurn {
                id: None,
                role: self.role,
                text: text.to_owned(),
                ts: self.ts,
                message_id: None,
                prompt_id: None,
                work: Vec::new(),
            });
        }
    }

    fn finish(mut self) -> ParsedSession {
        self.end();
        ParsedSession { session: Some(self.started), cwd: None, turns: self.turns }
    }
}
