use std::io::BufRead;

use serde::de::MapAccess;

use crate::client::Client;
use crate::json::Unreadable;
use crate::progress::Progress;
use crate::turn::ReadTurn;
use crate::{claude, codex, json};

/// What one reading gave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// The turns of the complete lines, in the order in which they were said.
    pub turns: Vec<ReadTurn>,
    /// How many complete lines are no JSON object; blank lines are none of them.
    pub unreadable: usize,
    /// The bytes up to and including the last complete line: where the next reading begins.
    pub consumed: usize,
    /// The turns of a last line that is complete but for its line end. They are not in `consumed`,
    /// so the next reading gives them again.
    pub torn: Vec<ReadTurn>,
}

/// Reads what has been added to a transcript: `bytes` begins where the last reading stopped.
pub fn read(bytes: &[u8], progress: &mut Progress) -> Reading {
    let consumed = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (whole, rest) = bytes.split_at(consumed);
    let (turns, unreadable) = turns_of(whole, progress);
    // The next reading meets the torn line again, and must find everything as if it were new.
    let mut ahead = progress.clone();
    let (mut torn, _) = turns_of(rest, &mut ahead);
    torn.retain(|turn| turn.id.is_none() || turns.iter().all(|known| known.id != turn.id));
    progress.client = ahead.client;
    progress.session = ahead.session;
    progress.cwd = ahead.cwd;
    Reading { turns, unreadable, consumed, torn }
}

fn turns_of(mut bytes: &[u8], progress: &mut Progress) -> (Vec<ReadTurn>, usize) {
    let mut batch = Batch::default();
    let mut unreadable = 0;
    while !bytes.is_empty() {
        let mut rest = bytes;
        // Reading from memory does not fail. The search behind it is the fastest that `std` has.
        let length = rest.skip_until(b'\n').unwrap_or(bytes.len());
        let (line, after) = bytes.split_at(length);
        bytes = after;
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
        if line.is_empty() || batch.take(line, progress).is_ok() {
            continue;
        }
        if batch.take(&json::mended(line), progress).is_err() {
            unreadable += 1;
        }
    }
    (batch.finish(progress), unreadable)
}

/// The lines of one reading.
#[derive(Debug, Default)]
struct Batch {
    claude: claude::Reader,
    codex: codex::Reader,
}

impl Batch {
    fn take(&mut self, line: &[u8], progress: &mut Progress) -> Result<(), Unreadable> {
        if progress.client.is_none() {
            progress.client = json::object::<Hint>(line)?.client();
        }
        match progress.client {
            Some(Client::Claude) => self.claude.take(json::object(line)?, progress),
            Some(Client::Codex) => self.codex.take(json::object(line)?, progress),
            None => {}
        }
        Ok(())
    }

    fn finish(self, progress: &mut Progress) -> Vec<ReadTurn> {
        let mut turns = self.claude.finish(progress);
        turns.extend(self.codex.finish(progress));
        turns
    }
}

/// What tells the client by one line.
#[derive(Debug, Default)]
struct Hint<'a> {
    kind: json::Scalar<'a>,
    role: json::Scalar<'a>,
    message: json::Loose<'a, claude::Message<'a>>,
    payload: json::Loose<'a, json::Nothing>,
    claude_key: bool,
    codex_key: bool,
}

impl<'a> json::Fields<'a> for Hint<'a> {
    fn field<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => self.kind = map.next_value()?,
            "role" => self.role = map.next_value()?,
            "message" => self.message = map.next_value()?,
            "payload" => self.payload = map.next_value()?,
            "sessionId" | "uuid" | "parentUuid" | "leafUuid" => {
                self.claude_key = true;
                json::skip(map)?;
            }
            "instructions" | "record_type" => {
                self.codex_key = true;
                json::skip(map)?;
            }
            _ => json::skip(map)?,
        }
        Ok(())
    }
}

impl Hint<'_> {
    fn client(&self) -> Option<Client> {
        let kind = self.kind.text();
        let wrapped = kind.is_some() && matches!(self.payload, json::Loose::Object(_));
        let bare = kind == Some("message") && self.role.text().is_some();
        let message = self.message.object();
        let role = message.and_then(|message| message.role.text());
        if self.claude_key || [kind, role].into_iter().flatten().any(claude::speaks) {
            Some(Client::Claude)
        } else if wrapped || bare || self.codex_key {
            Some(Client::Codex)
        } else {
            None
        }
    }
}
