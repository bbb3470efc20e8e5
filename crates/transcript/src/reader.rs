use std::io::BufRead;

use hob_domain::json_size::has_too_many_values;
use serde::de::MapAccess;

use crate::claude::{ConversationReader, is_speaker};
use crate::client::RecordedClient;
use crate::codex::RolloutReader;
use crate::gemini::GeminiReader;
use crate::json::{self, Fields, Loose, Scalar, Unreadable};
use crate::progress::ReadProgress;
use crate::turn::TranscriptTurn;
use crate::{copilot, entire, goose, qwen};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The longest line that is parsed. Longer ones are skipped.
pub const MAX_LINE_BYTES: usize = 32 << 20;
/// Longer lines are not repaired. A repaired line may be six times as long.
const MAX_REPAIRED_BYTES: usize = 8 << 20;

/// What one chunk of a transcript contains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParsedChunk {
    /// The turns of the complete lines, in the order in which they were said.
    pub turns: Vec<TranscriptTurn>,
    /// How many complete lines are not JSON objects, are too long or have too many values. Blank lines do not count.
    pub unreadable: usize,
    /// The number of bytes up to and including the last complete line. The next chunk begins there.
    pub consumed: usize,
}

/// Parses what was added to a transcript. `bytes` begins where the last chunk's `consumed` ended. A last line without its
/// line end may still grow, so its turns come with the next chunk. A caller that knows better adds the line end.
pub fn parse_chunk(bytes: &[u8], progress: &mut ReadProgress) -> ParsedChunk {
    let consumed = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (complete, rest) = bytes.split_at(consumed);
    let (turns, unreadable) = parse_lines(complete, progress);
    // The next chunk contains the partial line again, and must find the progress as if the line
    // were new, except for what never changes.
    let mut ahead = progress.clone();
    parse_lines(rest, &mut ahead);
    progress.client = ahead.client;
    progress.session = ahead.session;
    progress.cwd = ahead.cwd;
    ParsedChunk { turns, unreadable, consumed }
}

/// Returns the turns of these lines, and how many of the lines could not be read.
fn parse_lines(mut bytes: &[u8], progress: &mut ReadProgress) -> (Vec<TranscriptTurn>, usize) {
    let mut reader = LineReader::default();
    let mut unreadable = 0;
    while !bytes.is_empty() {
        let mut rest = bytes;
        // Reading from memory does not fail. `skip_until` is the fastest search that `std` has.
        let length = rest.skip_until(b'\n').unwrap_or(bytes.len());
        let (line, after) = bytes.split_at(length);
        bytes = after;
        let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line).trim_ascii();
        if line.is_empty() {
            continue;
        }
        // What such a line becomes in memory is many times as large.
        if line.len() > MAX_LINE_BYTES || has_too_many_values(line) {
            unreadable += 1;
            continue;
        }
        if reader.push(line, progress).is_ok() {
            continue;
        }
        if !is_repaired(line, &mut reader, progress) {
            unreadable += 1;
        }
    }
    (reader.finish(progress), unreadable)
}

/// Reads a damaged line as far as it can be repaired, and returns whether that is possible.
fn is_repaired(line: &[u8], reader: &mut LineReader, progress: &mut ReadProgress) -> bool {
    if line.len() > MAX_REPAIRED_BYTES {
        return false;
    }
    let repaired = json::repaired(line);
    !has_too_many_values(&repaired) && reader.push(&repaired, progress).is_ok()
}

/// The readers of all clients that write lines: the client of a file is known once a line has shown it.
#[derive(Debug, Default)]
struct LineReader {
    claude: ConversationReader,
    codex: RolloutReader,
    gemini: GeminiReader,
    /// The turns of clients whose lines are turns by themselves.
    others: Vec<TranscriptTurn>,
}

impl LineReader {
    fn push(&mut self, line: &[u8], progress: &mut ReadProgress) -> Result<(), Unreadable> {
        if progress.client.is_none() {
            progress.client = json::object::<ClientHint<'_>>(line)?.client();
        }
        match progress.client {
            Some(RecordedClient::Claude) => self.claude.push(json::object(line)?, progress),
            Some(RecordedClient::Codex) => self.codex.push(json::object(line)?, progress),
            Some(RecordedClient::Gemini) => self.gemini.push(&json::any_object(line)?, progress),
            Some(RecordedClient::Copilot) => {
                self.others.extend(copilot::event(&json::any_object(line)?, progress));
            }
            Some(RecordedClient::Qwen) => {
                self.others.extend(qwen::record(&json::any_object(line)?, progress));
            }
            Some(RecordedClient::Goose) => {
                self.others.extend(goose::line(&json::any_object(line)?, progress));
            }
            Some(RecordedClient::Entire) => {
                self.others.extend(entire::line(&json::any_object(line)?));
            }
            // These clients write no lines.
            Some(
                RecordedClient::Opencode
                | RecordedClient::Cline
                | RecordedClient::Aider
                | RecordedClient::Specstory
                | RecordedClient::Roo
                | RecordedClient::Cursor
                | RecordedClient::Zed,
            )
            | None => {}
        }
        Ok(())
    }

    fn finish(self, progress: &mut ReadProgress) -> Vec<TranscriptTurn> {
        let mut turns = self.claude.finish(progress);
        turns.extend(self.codex.finish(progress));
        turns.extend(self.gemini.finish());
        turns.extend(self.others);
        turns
    }
}

/// The fields of a line that show which client wrote it.
#[derive(Debug, Default)]
struct ClientHint<'a> {
    kind: Scalar<'a>,
    role: Scalar<'a>,
    message: Loose<'a, MessageHint<'a>>,
    payload: Scalar<'a>,
    data: Scalar<'a>,
    /// The version of the Entire Transcript Format.
    version: Scalar<'a>,
    /// The time of a message of goose.
    created: Scalar<'a>,
    has_gemini_key: bool,
    has_qwen_key: bool,
    has_goose_key: bool,
    has_claude_key: bool,
    has_codex_key: bool,
}

/// The fields of a line's message that show which client wrote it.
#[derive(Debug, Default)]
struct MessageHint<'a> {
    role: Scalar<'a>,
    has_parts: bool,
}

impl<'a> Fields<'a> for MessageHint<'a> {
    fn field<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "role" => self.role = map.next_value()?,
            "parts" => {
                self.has_parts = true;
                json::skip(map)?;
            }
            _ => json::skip(map)?,
        }
        Ok(())
    }
}

impl<'a> Fields<'a> for ClientHint<'a> {
    fn field<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => self.kind = map.next_value()?,
            "role" => self.role = map.next_value()?,
            "message" => self.message = map.next_value()?,
            "payload" => self.payload = map.next_value()?,
            "data" => self.data = map.next_value()?,
            "v" => self.version = map.next_value()?,
            "created" => self.created = map.next_value()?,
            "projectHash" => {
                self.has_gemini_key = true;
                json::skip(map)?;
            }
            "systemPayload" => {
                self.has_qwen_key = true;
                json::skip(map)?;
            }
            "working_dir" => {
                self.has_goose_key = true;
                json::skip(map)?;
            }
            "sessionId" | "uuid" | "parentUuid" | "leafUuid" => {
                self.has_claude_key = true;
                json::skip(map)?;
            }
            "instructions" | "record_type" => {
                self.has_codex_key = true;
                json::skip(map)?;
            }
            _ => json::skip(map)?,
        }
        Ok(())
    }
}

impl ClientHint<'_> {
    fn client(&self) -> Option<RecordedClient> {
        let kind = self.kind.text();
        let has_payload = kind.is_some() && matches!(self.payload, Loose::Object(_));
        let is_bare_item = kind == Some("message") && self.role.text().is_some();
        let message = self.message.object();
        let role = message.and_then(|message| message.role.text());
        let is_spoken = [kind, role].into_iter().flatten().any(is_speaker);
        let is_qwen_record = self.has_claude_key
            && (self.has_qwen_key || message.is_some_and(|message| message.has_parts));
        let is_entire_line = self.version.unsigned().is_some() && kind.is_some_and(is_speaker);
        let is_goose_message = self.created.unsigned().is_some()
            && self.role.text().is_some_and(is_speaker)
            && kind.is_none();
        // Other clients have such keys, too, but no types of records with them.
        let is_claude_record = self.has_claude_key && kind.is_some();
        let is_copilot_event = matches!(self.data, Loose::Object(_))
            && kind.is_some_and(|kind| {
                ["session.", "user.message", "assistant."].iter().any(|name| kind.starts_with(name))
            });
        if self.has_gemini_key || kind == Some("gemini") {
            Some(RecordedClient::Gemini)
        } else if is_copilot_event {
            Some(RecordedClient::Copilot)
        } else if is_qwen_record {
            Some(RecordedClient::Qwen)
        } else if is_entire_line {
            Some(RecordedClient::Entire)
        } else if is_goose_message || (self.has_goose_key && kind.is_none()) {
            Some(RecordedClient::Goose)
        } else if is_claude_record || is_spoken {
            Some(RecordedClient::Claude)
        } else if has_payload || is_bare_item || self.has_codex_key {
            Some(RecordedClient::Codex)
        } else {
            None
        }
    }
}
