//! The transcript of Claude Code: one record a line, each with a link to the one before it.

use hob_domain::memory::TurnRole;
use serde::de::{IgnoredAny, MapAccess};

use super::order::{Link, in_order};
use super::words;
use crate::json::{self, Fields, Loose, Scalar};
use crate::progress::Progress;
use crate::turn::{ReadTurn, timestamp};

/// What a turn that was interrupted leaves.
const INTERRUPTED: &str = "[Request interrupted by user";

/// Whether a type or a role is one of those that speak.
pub fn speaks(name: &str) -> bool {
    TurnRole::parse(name).is_some()
}

#[derive(Debug, Default)]
pub struct Record<'a> {
    kind: Scalar<'a>,
    message: Loose<'a, Message<'a>>,
    uuid: Scalar<'a>,
    parent: Scalar<'a>,
    logical_parent: Scalar<'a>,
    session: Scalar<'a>,
    cwd: Scalar<'a>,
    timestamp: Scalar<'a>,
    prompt: Scalar<'a>,
    /// Said by the program or to it, not by the user or the model.
    aside: bool,
}

impl<'a> Fields<'a> for Record<'a> {
    fn field<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => self.kind = map.next_value()?,
            "message" => self.message = map.next_value()?,
            "uuid" => self.uuid = map.next_value()?,
            "parentUuid" => self.parent = map.next_value()?,
            "logicalParentUuid" => self.logical_parent = map.next_value()?,
            "sessionId" => self.session = map.next_value()?,
            "cwd" => self.cwd = map.next_value()?,
            "timestamp" => self.timestamp = map.next_value()?,
            "promptId" => self.prompt = map.next_value()?,
            "isMeta"
            | "isSidechain"
            | "isCompactSummary"
            | "isVisibleInTranscriptOnly"
            | "isApiErrorMessage" => self.aside |= map.next_value::<Scalar>()?.is_true(),
            "toolUseResult" => self.aside |= map.next_value::<Option<IgnoredAny>>()?.is_some(),
            _ => json::skip(map)?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub struct Message<'a> {
    id: Scalar<'a>,
    pub role: Scalar<'a>,
    model: Scalar<'a>,
    content: Loose<'a, Block<'a>>,
}

impl<'a> Fields<'a> for Message<'a> {
    fn field<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "id" => self.id = map.next_value()?,
            "role" => self.role = map.next_value()?,
            "model" => self.model = map.next_value()?,
            "content" => self.content = map.next_value()?,
            _ => json::skip(map)?,
        }
        Ok(())
    }
}

/// A part of a message, in either client's transcript.
#[derive(Debug, Default)]
pub struct Block<'a> {
    pub kind: Scalar<'a>,
    pub text: Scalar<'a>,
}

impl<'a> Fields<'a> for Block<'a> {
    fn field<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => self.kind = map.next_value()?,
            "text" => self.text = map.next_value()?,
            _ => json::skip(map)?,
        }
        Ok(())
    }
}

/// The records of one reading.
#[derive(Debug, Default)]
pub struct Reader {
    links: Vec<Link>,
}

impl Reader {
    pub fn take(&mut self, record: Record<'_>, progress: &mut Progress) {
        progress.session = progress.session.take().or_else(|| record.session.owned());
        progress.cwd = progress.cwd.take().or_else(|| record.cwd.owned());
        // After a compaction the chain goes on behind a boundary that has another kind of parent.
        let parent = record.parent.owned().or_else(|| record.logical_parent.owned());
        let prompt = record.prompt.owned();
        self.links.push(Link { id: record.uuid.owned(), parent, prompt, turn: turn(&record) });
    }

    pub fn finish(self, progress: &mut Progress) -> Vec<ReadTurn> {
        in_order(self.links, &mut progress.prompt)
    }
}

fn turn(record: &Record<'_>) -> Option<ReadTurn> {
    let message = record.message.object()?;
    let role = |name: &Scalar<'_>| name.text().and_then(TurnRole::parse);
    // A record of another type may quote a message: what was sent to the model, for instance.
    let role = match record.kind.text() {
        Some(_) => role(&record.kind)?,
        None => role(&message.role)?,
    };
    if record.aside || message.model.text() == Some("<synthetic>") {
        return None;
    }
    let text = match role {
        TurnRole::User => typed(&message.content)?,
        TurnRole::Assistant => texts(&message.content)?.join("\n"),
    };
    (!text.trim().is_empty()).then(|| ReadTurn {
        id: record.uuid.owned(),
        role,
        text,
        ts: timestamp(&record.timestamp),
        message_id: message.id.owned(),
        prompt_id: None,
    })
}

/// What the user typed, without what the program put around it.
fn typed(content: &Loose<'_, Block<'_>>) -> Option<String> {
    let texts = texts(content)?;
    let first = texts.first()?.trim();
    let interrupted = match content {
        // A user may type those very words and go on.
        Loose::Text(_) => first
            .strip_prefix(INTERRUPTED)
            .is_some_and(|rest| matches!(rest, "]" | " for tool use]")),
        _ => first.starts_with(INTERRUPTED),
    };
    if interrupted {
        return None;
    }
    let said: Vec<String> = texts.into_iter().filter_map(words::of_the_user).collect();
    Some(words::without_neutral(&said.join("\n")).to_owned())
}

/// The texts of a message, or `None` when it has none or is the result of a tool.
fn texts<'a>(content: &'a Loose<'_, Block<'_>>) -> Option<Vec<&'a str>> {
    match content {
        Loose::Text(text) => Some(vec![text]),
        Loose::List(blocks) => {
            let is = |block: &Block<'_>, kind: &str| block.kind.text() == Some(kind);
            if blocks.iter().any(|block| is(block, "tool_result")) {
                return None;
            }
            let texts = blocks.iter().filter(|block| is(block, "text"));
            Some(texts.filter_map(|block| block.text.text()).collect())
        }
        _ => None,
    }
}
