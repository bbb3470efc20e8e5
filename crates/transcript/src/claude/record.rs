//! One line of Claude Code's transcript, with the fields that any reader uses.
//!
//! Capture and the live backend read the same records but need different parts of a message: capture
//! reads texts only, the backend reads whole blocks. The type of a block is therefore a parameter.

use hob_domain::memory::TurnRole;
use serde::de::{IgnoredAny, MapAccess};

use super::event::Usage;
use crate::json::{self, Fields, Loose, Scalar};

/// How the text begins that Claude Code records when a user interrupts a turn.
pub const INTERRUPTED: &str = "[Request interrupted by user";
/// The model of messages that Claude Code makes up itself: API errors, and the rest of an
/// interrupted answer.
pub const SYNTHETIC_MODEL: &str = "<synthetic>";

/// One record. Unknown fields are skipped; a field of an unexpected type is empty.
#[derive(Debug, Default)]
pub struct TranscriptRecord<'a, B> {
    pub kind: Scalar<'a>,
    pub subtype: Scalar<'a>,
    pub message: Loose<'a, RecordMessage<'a, B>>,
    /// The text of a `system` record.
    pub content: Scalar<'a>,
    pub uuid: Scalar<'a>,
    parent: Scalar<'a>,
    logical_parent: Scalar<'a>,
    pub session: Scalar<'a>,
    pub cwd: Scalar<'a>,
    pub timestamp: Scalar<'a>,
    pub prompt_id: Scalar<'a>,
    pub error: Scalar<'a>,
    pub error_status: Scalar<'a>,
    /// The data of a `progress` record: a message of another agent that this one started.
    pub data: Loose<'a, ProgressData<'a, B>>,
    pub is_meta: bool,
    pub is_sidechain: bool,
    pub is_compact_summary: bool,
    pub is_transcript_only: bool,
    pub is_api_error: bool,
    pub has_tool_result: bool,
}

impl<'a, B: Fields<'a>> Fields<'a> for TranscriptRecord<'a, B> {
    fn field<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => self.kind = map.next_value()?,
            "subtype" => self.subtype = map.next_value()?,
            "message" => self.message = map.next_value()?,
            "content" => self.content = map.next_value()?,
            "uuid" => self.uuid = map.next_value()?,
            "parentUuid" => self.parent = map.next_value()?,
            "logicalParentUuid" => self.logical_parent = map.next_value()?,
            "sessionId" => self.session = map.next_value()?,
            "cwd" => self.cwd = map.next_value()?,
            "timestamp" => self.timestamp = map.next_value()?,
            "promptId" => self.prompt_id = map.next_value()?,
            "data" => self.data = map.next_value()?,
            "error" => self.error = map.next_value()?,
            "apiErrorStatus" => self.error_status = map.next_value()?,
            "isMeta" => self.is_meta |= json::flag(map)?,
            "isSidechain" => self.is_sidechain |= json::flag(map)?,
            "isCompactSummary" => self.is_compact_summary |= json::flag(map)?,
            "isVisibleInTranscriptOnly" => self.is_transcript_only |= json::flag(map)?,
            "isApiErrorMessage" => self.is_api_error |= json::flag(map)?,
            "toolUseResult" => {
                self.has_tool_result |= map.next_value::<Option<IgnoredAny>>()?.is_some();
            }
            _ => json::skip(map)?,
        }
        Ok(())
    }
}

impl<B> TranscriptRecord<'_, B> {
    /// Returns the id of the record that this one follows.
    pub fn parent(&self) -> Option<String> {
        // After a compaction the chain continues at a boundary record, which names its parent in
        // another field.
        self.parent.owned().or_else(|| self.logical_parent.owned())
    }
}

/// The data of a `progress` record.
#[derive(Debug, Default)]
pub struct ProgressData<'a, B> {
    message: Loose<'a, ProgressMessage<'a, B>>,
}

impl<'a, B: Fields<'a>> Fields<'a> for ProgressData<'a, B> {
    fn field<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "message" => self.message = map.next_value()?,
            _ => json::skip(map)?,
        }
        Ok(())
    }
}

impl<'a, B> ProgressData<'a, B> {
    /// Returns the API message of the other agent.
    pub fn message(&self) -> Option<&RecordMessage<'a, B>> {
        self.message.object()?.message.object()
    }
}

/// A record of another agent, inside of a `progress` record.
#[derive(Debug, Default)]
struct ProgressMessage<'a, B> {
    message: Loose<'a, RecordMessage<'a, B>>,
}

impl<'a, B: Fields<'a>> Fields<'a> for ProgressMessage<'a, B> {
    fn field<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "message" => self.message = map.next_value()?,
            _ => json::skip(map)?,
        }
        Ok(())
    }
}

/// The API message of a record.
#[derive(Debug, Default)]
pub struct RecordMessage<'a, B> {
    pub id: Scalar<'a>,
    pub role: Scalar<'a>,
    pub model: Scalar<'a>,
    pub content: Loose<'a, B>,
    pub stop_reason: Scalar<'a>,
    pub usage: Loose<'a, Usage>,
}

impl<'a, B: Fields<'a>> Fields<'a> for RecordMessage<'a, B> {
    fn field<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "id" => self.id = map.next_value()?,
            "role" => self.role = map.next_value()?,
            "model" => self.model = map.next_value()?,
            "content" => self.content = map.next_value()?,
            "stop_reason" => self.stop_reason = map.next_value()?,
            "usage" => self.usage = map.next_value()?,
            _ => json::skip(map)?,
        }
        Ok(())
    }
}

impl<B> RecordMessage<'_, B> {
    /// Returns whether Claude Code made the message up itself.
    pub fn is_synthetic(&self) -> bool {
        self.model.text() == Some(SYNTHETIC_MODEL)
    }
}

impl<'a> Fields<'a> for Usage {
    fn field<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let count = match key {
            "input_tokens" => &mut self.input_tokens,
            "output_tokens" => &mut self.output_tokens,
            "cache_creation_input_tokens" => &mut self.cache_creation_input_tokens,
            "cache_read_input_tokens" => &mut self.cache_read_input_tokens,
            _ => return json::skip(map),
        };
        *count = map.next_value::<Scalar<'a>>()?.unsigned().unwrap_or_default();
        Ok(())
    }
}

/// Returns whether a record type or a role is that of somebody who speaks: the user or the model.
pub fn is_speaker(name: &str) -> bool {
    TurnRole::parse(name).is_some()
}

/// Returns the text of a field; empty if it has none.
pub fn owned_or_empty(text: &Scalar<'_>) -> String {
    text.owned().unwrap_or_default()
}
