//! A rollout of Codex.
//!
//! The file contains a turn twice: as an item of the model's history, and then as an event or a
//! completed item for observers. The latter is what was said; the history also contains what Codex
//! itself put there. Old files have the history alone.

use hob_domain::memory::TurnRole;
use serde::de::MapAccess;

use crate::block::TextBlock;
use crate::codex_work::{call_output, custom_tool_call, function_call};
use crate::json::{self, Fields, Loose, Scalar};
use crate::progress::{CodexProgress, CodexSource, ReadProgress, TurnDigest};
use crate::turn::{TranscriptTurn, claim_waiting_work, timestamp};
use crate::work::{WorkItem, add_work};

/// A line of a rollout. In files from before September 2025 the payload is the line itself.
#[derive(Debug, Default)]
pub struct RolloutLine<'a> {
    timestamp: Scalar<'a>,
    payload: Loose<'a, Payload<'a>>,
    itself: Payload<'a>,
}

impl<'a> Fields<'a> for RolloutLine<'a> {
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
    source: Loose<'a, SessionOrigin>,
    role: Scalar<'a>,
    content: Loose<'a, TextBlock<'a>>,
    message: Scalar<'a>,
    message_kind: Scalar<'a>,
    item: Loose<'a, CompletedItem<'a>>,
    arguments: Scalar<'a>,
    input: Scalar<'a>,
    output: Scalar<'a>,
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
            "arguments" => self.arguments = map.next_value()?,
            "input" => self.input = map.next_value()?,
            "output" => self.output = map.next_value()?,
            _ => json::skip(map)?,
        }
        Ok(())
    }
}

/// Where a session comes from, if the rollout says more than a name.
#[derive(Debug, Default)]
struct SessionOrigin {
    subagent: bool,
}

impl<'a> Fields<'a> for SessionOrigin {
    fn field<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        self.subagent |= matches!(key, "subagent" | "internal");
        json::skip(map)
    }
}

/// The item of an `item_completed` event.
#[derive(Debug, Default)]
struct CompletedItem<'a> {
    kind: Scalar<'a>,
    id: Scalar<'a>,
    text: Scalar<'a>,
    content: Loose<'a, TextBlock<'a>>,
}

impl<'a> Fields<'a> for CompletedItem<'a> {
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

/// Collects the lines of one chunk and returns their turns.
#[derive(Debug, Default)]
pub struct RolloutReader {
    turns: Vec<TranscriptTurn>,
    /// Messages of the history that are turns unless an event comes.
    pending: Vec<TranscriptTurn>,
    /// Whether the last line gave the last pending turn.
    is_just_pending: bool,
}

impl RolloutReader {
    /// Adds the next line of the file.
    pub fn push(&mut self, line: RolloutLine<'_>, progress: &mut ReadProgress) {
        let just_given = progress.codex.just_given.take();
        self.is_just_pending = false;
        let (kind, payload) = match &line.payload {
            Loose::Object(payload) => (line.itself.kind.text(), payload),
            // The first line of an old file has no type; all others are items of the history.
            _ if line.itself.kind.text().is_none() => (Some("session_meta"), &line.itself),
            _ => (Some("response_item"), &line.itself),
        };
        match kind {
            Some("session_meta") => describe(payload, progress),
            Some("turn_context") => {
                progress.cwd = progress.cwd.take().or_else(|| payload.cwd.owned());
            }
            _ if progress.codex.subagent => {}
            Some("response_item") => {
                self.push_history(history_turn(payload, &line), &mut progress.codex);
                self.push_work(work(payload), &mut progress.work);
            }
            Some("event_msg") => {
                if let Some(turn) = plan_turn(payload, &line) {
                    self.push_plan(turn, &progress.codex);
                } else if let Some((source, turn)) = event_turn(payload, &line) {
                    self.push_event(source, turn, just_given, &mut progress.codex);
                }
            }
            _ => {}
        }
    }

    /// Adds work to the turn before it. Work at the beginning of a chunk waits for the first answer:
    /// the turn before it may be stored already.
    fn push_work(&mut self, work: Vec<WorkItem>, waiting: &mut Vec<WorkItem>) {
        let last = self.pending.last_mut().or(self.turns.last_mut());
        add_work(last.map_or(waiting, |turn| &mut turn.work), work);
    }

    fn push_history(&mut self, turn: Option<TranscriptTurn>, codex: &mut CodexProgress) {
        match codex.source {
            CodexSource::Undecided => {
                self.is_just_pending = turn.is_some();
                self.pending.extend(turn);
            }
            CodexSource::History => self.turns.extend(turn),
            CodexSource::Events | CodexSource::Items => {}
        }
    }

    fn push_event(
        &mut self,
        source: CodexSource,
        turn: TranscriptTurn,
        just_given: Option<TurnRole>,
        codex: &mut CodexProgress,
    ) {
        if codex.source == CodexSource::Undecided {
            codex.source = source;
            self.pending.clear();
        }
        if codex.source != source {
            return;
        }
        let given = TurnDigest::of(&turn);
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

    /// Adds a plan. Every version reports it by the same event; the history has it inside a message.
    fn push_plan(&mut self, turn: TranscriptTurn, codex: &CodexProgress) {
        if matches!(codex.source, CodexSource::Events | CodexSource::Items) {
            self.turns.push(turn);
        }
    }

    /// Returns the turns, including those whose event may still come: if it never does, they would be
    /// lost later, and their digests keep them from being returned twice.
    pub fn finish(mut self, progress: &mut ReadProgress) -> Vec<TranscriptTurn> {
        let codex = &mut progress.codex;
        if codex.source == CodexSource::Undecided && !self.pending.is_empty() {
            codex.just_given =
                self.pending.last().map(|turn| turn.role).filter(|_| self.is_just_pending);
            codex.given.extend(self.pending.iter().map(TurnDigest::of));
            // The event of a prompt is the line after it. An answer without that event means that
            // there are no events, or that they are of no use.
            let mut roles = codex.given.iter().map(|given| given.role);
            if roles.any(|role| role == TurnRole::User)
                && roles.any(|role| role == TurnRole::Assistant)
            {
                *codex = CodexProgress {
                    source: CodexSource::History,
                    given: Vec::new(),
                    just_given: None,
                    ..*codex
                };
            }
            self.turns.append(&mut self.pending);
        }
        claim_waiting_work(&mut self.turns, &mut progress.work);
        self.turns
    }
}

/// Takes the session's id and folder from the first `session_meta`.
fn describe(payload: &Payload<'_>, progress: &mut ReadProgress) {
    if std::mem::replace(&mut progress.codex.described, true) {
        return;
    }
    let id = payload.id.owned().or_else(|| payload.session.owned());
    progress.session = progress.session.take().or(id);
    progress.cwd = progress.cwd.take().or_else(|| payload.cwd.owned());
    progress.codex.subagent = payload.source.object().is_some_and(|origin| origin.subagent);
}

/// Returns the turn that an event reports, and the kind of the event.
fn event_turn(
    payload: &Payload<'_>,
    line: &RolloutLine<'_>,
) -> Option<(CodexSource, TranscriptTurn)> {
    let (source, role, text, id) = match payload.kind.text()? {
        "user_message" if !matches!(payload.message_kind.text(), None | Some("plain")) => {
            return None;
        }
        "user_message" => (CodexSource::Events, TurnRole::User, payload.message.owned()?, None),
        "agent_message" => {
            (CodexSource::Events, TurnRole::Assistant, payload.message.owned()?, None)
        }
        "item_completed" => {
            let item = payload.item.object()?;
            let role = match item.kind.text()? {
                "UserMessage" => TurnRole::User,
                "AgentMessage" => TurnRole::Assistant,
                _ => return None,
            };
            (CodexSource::Items, role, parts(&item.content).concat(), item.id.owned())
        }
        _ => return None,
    };
    Some((source, turn(role, &text, id, None, line)?))
}

/// Returns what an item of the history says of the agent's work.
fn work(payload: &Payload<'_>) -> Vec<WorkItem> {
    let text = |field: &Scalar<'_>, read: fn(&str) -> Vec<WorkItem>| field.text().map(read);
    let work = match payload.kind.text() {
        Some("function_call") => text(&payload.arguments, function_call),
        Some("custom_tool_call") => text(&payload.input, custom_tool_call),
        Some("function_call_output" | "custom_tool_call_output") => {
            text(&payload.output, |output| call_output(output).into_iter().collect())
        }
        _ => None,
    };
    work.unwrap_or_default()
}

/// Returns the plan that the model proposes. Codex leaves it out of the message that contained it.
fn plan_turn(payload: &Payload<'_>, line: &RolloutLine<'_>) -> Option<TranscriptTurn> {
    let item = payload.item.object()?;
    let is_plan = payload.kind.text() == Some("item_completed") && item.kind.text() == Some("Plan");
    let text = item.text.text().filter(|_| is_plan)?;
    turn(TurnRole::Assistant, text, item.id.owned(), None, line)
}

/// Returns the turn that an item of the history is, unless Codex itself put it there.
fn history_turn(payload: &Payload<'_>, line: &RolloutLine<'_>) -> Option<TranscriptTurn> {
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
    line: &RolloutLine<'_>,
) -> Option<TranscriptTurn> {
    let text = if role == TurnRole::User { without_ide_context(text) } else { text };
    let ts = timestamp(&line.timestamp);
    (!text.trim().is_empty()).then(|| TranscriptTurn {
        id,
        role,
        text: text.to_owned(),
        ts,
        message_id,
        prompt_id: None,
        work: Vec::new(),
    })
}

fn parts<'a>(content: &'a Loose<'_, TextBlock<'_>>) -> Vec<&'a str> {
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

/// Removes the open files that an editor puts in front of a request; Codex shows the request alone.
fn without_ide_context(text: &str) -> &str {
    let asked = text.split_once("## My request for Codex:").map(|(_, asked)| asked.trim());
    asked.filter(|_| text.trim_start().starts_with("# Context from my IDE setup:")).unwrap_or(text)
}

/// Returns whether Codex put a text into the history in the user's name. A text that begins like the
/// context of every session is not examined further; any other must be one element as a whole.
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
