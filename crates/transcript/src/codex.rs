//! A rollout of Codex. A turn is in the file twice: as an item of the model's history, and then as
//! an event or as a completed item for those who look on. The latter is what was said; the former
//! also holds what Codex itself put into the history. Old files have the history alone.

use hob_domain::memory::TurnRole;
use serde::de::MapAccess;

use crate::claude::Block;
use crate::json::{self, Fields, Loose, Scalar};
use crate::progress::{CodexProgress, Given, Progress, Source};
use crate::turn::{ReadTurn, timestamp};

/// A line. In files from before September 2025 the payload is the line itself.
#[derive(Debug, Default)]
pub struct Line<'a> {
    timestamp: Scalar<'a>,
    payload: Loose<'a, Payload<'a>>,
    itself: Payload<'a>,
}

impl<'a> Fields<'a> for Line<'a> {
    fn field<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "timestamp" => self.timestamp = map.next_value()?,
            "payload" => self.payload = map.next_value()?,
            _ => self.itself.field(key, map)?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Payload<'a> {
    kind: Scalar<'a>,
    id: Scalar<'a>,
    session: Scalar<'a>,
    cwd: Scalar<'a>,
    source: Loose<'a, Origin>,
    role: Scalar<'a>,
    content: Loose<'a, Block<'a>>,
    message: Scalar<'a>,
    message_kind: Scalar<'a>,
    item: Loose<'a, Item<'a>>,
}

impl<'a> Fields<'a> for Payload<'a> {
    fn field<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => self.kind = map.next_value()?,
            "id" => self.id = map.next_value()?,
            "session_id" => self.session = map.next_value()?,
            "cwd" => self.cwd = map.next_value()?,
            "source" => self.source = map.next_value()?,
            "role" => self.role = map.next_value()?,
            "content" => self.content = map.next_value()?,
            "message" => self.message = map.next_value()?,
            "kind" => self.message_kind = map.next_value()?,
            "item" => self.item = map.next_value()?,
            _ => json::skip(map)?,
        }
        Ok(())
    }
}

/// Where a session comes from, when it is more than a name.
#[derive(Debug, Default)]
struct Origin {
    subagent: bool,
}

impl<'a> Fields<'a> for Origin {
    fn field<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        self.subagent |= matches!(key, "subagent" | "internal");
        json::skip(map)
    }
}

/// A completed item.
#[derive(Debug, Default)]
struct Item<'a> {
    kind: Scalar<'a>,
    id: Scalar<'a>,
    text: Scalar<'a>,
    content: Loose<'a, Block<'a>>,
}

impl<'a> Fields<'a> for Item<'a> {
    fn field<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => self.kind = map.next_value()?,
            "id" => self.id = map.next_value()?,
            "text" => self.text = map.next_value()?,
            "content" => self.content = map.next_value()?,
            _ => json::skip(map)?,
        }
        Ok(())
    }
}

/// The lines of one reading.
#[derive(Debug, Default)]
pub struct Reader {
    turns: Vec<ReadTurn>,
    /// Messages of the history that are turns unless an event comes.
    held: Vec<ReadTurn>,
    /// Whether the last line gave the last of them.
    just_held: bool,
}

impl Reader {
    pub fn take(&mut self, line: Line<'_>, progress: &mut Progress) {
        let just_given = progress.codex.just_given.take();
        self.just_held = false;
        let (kind, payload) = match &line.payload {
            Loose::Object(payload) => (line.itself.kind.text(), payload),
            // The first line of an old file has no type, all others are items of the history.
            _ if line.itself.kind.text().is_none() => (Some("session_meta"), &line.itself),
            _ => (Some("response_item"), &line.itself),
        };
        match kind {
            Some("session_meta") => describe(payload, progress),
            Some("turn_context") => {
                progress.cwd = progress.cwd.take().or_else(|| payload.cwd.owned());
            }
            _ if progress.codex.subagent => {}
            Some("response_item") => self.history(said(payload, &line), &mut progress.codex),
            Some("event_msg") => {
                if let Some(turn) = plan(payload, &line) {
                    self.plan(turn, &progress.codex);
                } else if let Some((source, turn)) = event(payload, &line) {
                    self.event(source, turn, just_given, &mut progress.codex);
                }
            }
            _ => {}
        }
    }

    fn history(&mut self, turn: Option<ReadTurn>, codex: &mut CodexProgress) {
        match codex.source {
            Source::Undecided => {
                self.just_held = turn.is_some();
                self.held.extend(turn);
            }
            Source::History => self.turns.extend(turn),
            Source::Events | Source::Items => {}
        }
    }

    fn event(
        &mut self,
        source: Source,
        turn: ReadTurn,
        just_given: Option<TurnRole>,
        codex: &mut CodexProgress,
    ) {
        if codex.source == Source::Undecided {
            codex.source = source;
            self.held.clear();
        }
        if codex.source != source {
            return;
        }
        let given = Given::of(&turn);
        match codex.given.iter().position(|earlier| *earlier == given) {
            Some(at) => drop(codex.given.drain(..=at)),
            None => {
                codex.given.clear();
                if just_given != Some(turn.role) {
                    self.turns.push(turn);
                }
            }
        }
    }

    /// A plan is told of in the same way by every version, and is within a message in the history.
    fn plan(&mut self, turn: ReadTurn, codex: &CodexProgress) {
        if matches!(codex.source, Source::Events | Source::Items) {
            self.turns.push(turn);
        }
    }

    /// The turns, together with those of which it is still open whether an event will come: later
    /// they would be lost if none does, and known by their words they are not given twice.
    pub fn finish(mut self, progress: &mut Progress) -> Vec<ReadTurn> {
        let codex = &mut progress.codex;
        if codex.source == Source::Undecided && !self.held.is_empty() {
            codex.just_given = self.held.last().map(|turn| turn.role).filter(|_| self.just_held);
            codex.given.extend(self.held.iter().map(Given::of));
            // The event of a prompt is the line after it. An answer without it means that there are
            // no events, or that they are of no use.
            let mut roles = codex.given.iter().map(|given| given.role);
            if roles.any(|role| role == TurnRole::User)
                && roles.any(|role| role == TurnRole::Assistant)
            {
                *codex = CodexProgress {
                    source: Source::History,
                    given: Vec::new(),
                    just_given: None,
                    ..*codex
                };
            }
            self.turns.append(&mut self.held);
        }
        self.turns
    }
}

fn describe(payload: &Payload<'_>, progress: &mut Progress) {
    if std::mem::replace(&mut progress.codex.described, true) {
        return;
    }
    let id = payload.id.owned().or_else(|| payload.session.owned());
    progress.session = progress.session.take().or(id);
    progress.cwd = progress.cwd.take().or_else(|| payload.cwd.owned());
    progress.codex.subagent = payload.source.object().is_some_and(|origin| origin.subagent);
}

/// The turn that an event tells of, and which kind of event it is.
fn event(payload: &Payload<'_>, line: &Line<'_>) -> Option<(Source, ReadTurn)> {
    let (source, role, text, id) = match payload.kind.text()? {
        "user_message" if !matches!(payload.message_kind.text(), None | Some("plain")) => {
            return None;
        }
        "user_message" => (Source::Events, TurnRole::User, payload.message.owned()?, None),
        "agent_message" => (Source::Events, TurnRole::Assistant, payload.message.owned()?, None),
        "item_completed" => {
            let item = payload.item.object()?;
            let role = match item.kind.text()? {
                "UserMessage" => TurnRole::User,
                "AgentMessage" => TurnRole::Assistant,
                _ => return None,
            };
            (Source::Items, role, parts(&item.content).concat(), item.id.owned())
        }
        _ => return None,
    };
    Some((source, turn(role, &text, id, None, line)?))
}

/// The plan that the model proposes; it is left out of the message that it was a part of.
fn plan(payload: &Payload<'_>, line: &Line<'_>) -> Option<ReadTurn> {
    let item = payload.item.object()?;
    let is_plan = payload.kind.text() == Some("item_completed") && item.kind.text() == Some("Plan");
    let text = item.text.text().filter(|_| is_plan)?;
    turn(TurnRole::Assistant, text, item.id.owned(), None, line)
}

/// The turn that an item of the history is, unless Codex put it there.
fn said(payload: &Payload<'_>, line: &Line<'_>) -> Option<ReadTurn> {
    if payload.kind.text() != Some("message") {
        return None;
    }
    let role = TurnRole::parse(payload.role.text()?)?;
    let mut parts = parts(&payload.content);
    if role == TurnRole::User {
        parts.retain(|part| !is_injected(part));
    }
    turn(role, &parts.join("\n"), None, payload.id.owned(), line)
}

fn turn(
    role: TurnRole,
    text: &str,
    id: Option<String>,
    message_id: Option<String>,
    line: &Line<'_>,
) -> Option<ReadTurn> {
    let text = if role == TurnRole::User { without_editor(text) } else { text };
    let ts = timestamp(&line.timestamp);
    (!text.trim().is_empty()).then(|| ReadTurn {
        id,
        role,
        text: text.to_owned(),
        ts,
        message_id,
        prompt_id: None,
    })
}

fn parts<'a>(content: &'a Loose<'_, Block<'_>>) -> Vec<&'a str> {
    match content {
        Loose::Text(text) => vec![text],
        Loose::List(blocks) => {
            let says = |kind| matches!(kind, "input_text" | "output_text" | "text" | "Text");
            let texts = blocks.iter().filter(|block| block.kind.text().is_some_and(says));
            texts.filter_map(|block| block.text.text()).collect()
        }
        _ => Vec::new(),
    }
}

/// An editor puts what is open in front of what the user asks; Codex itself shows the latter alone.
fn without_editor(text: &str) -> &str {
    let asked = text.split_once("## My request for Codex:").map(|(_, asked)| asked.trim());
    asked.filter(|_| text.trim_start().starts_with("# Context from my IDE setup:")).unwrap_or(text)
}

/// What Codex puts into the history in the user's name. What begins like the context of every
/// session is not looked at further; the rest has to be an element as a whole.
fn is_injected(text: &str) -> bool {
    const BEGINNINGS: &[&str] = &[
        "# AGENTS.md instructions",
        "<environment_context>",
        "<user_instructions>",
        "<permissions ",
        "<turn_aborted>",
        "<image name=",
    ];
    const ELEMENTS: &[&str] = &[
        "environments_instructions",
        "skill",
        "user_shell_command",
        "user_action",
        "subagent_notification",
        "recommended_plugins",
        "hook_prompt",
        "model_switch",
        "personality_spec",
        "collaboration_mode",
        "codex_internal_context",
        "goal_context",
        "image_resize_notice",
        "current_time_reminder",
    ];
    let text = text.trim();
    let is_element = |name: &&str| {
        let end = text.strip_suffix('>').and_then(|text| text.strip_suffix(name));
        let begin = text.strip_prefix('<').and_then(|text| text.strip_prefix(name));
        end.is_some_and(|text| text.ends_with("</"))
            && begin.is_some_and(|text| text.starts_with(['>', ' ']))
    };
    matches!(text, "<image>" | "</image>")
        || BEGINNINGS.iter().any(|beginning| text.starts_with(beginning))
        || ELEMENTS.iter().any(is_element)
}
