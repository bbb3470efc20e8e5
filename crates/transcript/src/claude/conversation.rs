//! The conversation in a batch of records: what the user and the model said, for capture.

use std::collections::HashMap;

use hob_domain::memory::TurnRole;

use super::block::ConversationBlock;
use super::order::causal_order;
use super::record::{INTERRUPTED, RecordMessage, TranscriptRecord};
use super::{command_guard, user_text};
use crate::json::{Loose, Scalar};
use crate::progress::ReadProgress;
use crate::turn::{TranscriptTurn, claim_waiting_work, timestamp};
use crate::work::{WorkItem, add_work};

type Content<'a> = Loose<'a, ConversationBlock<'a>>;

/// Collects the records of one chunk and returns their turns in causal order.
#[derive(Debug, Default)]
pub struct ConversationReader {
    links: Vec<Link>,
}

/// A record as a link of the chain, whether or not it is a turn.
#[derive(Debug, Default)]
struct Link {
    id: Option<String>,
    parent: Option<String>,
    /// The prompt that the record belongs to, if it names one. Records after it belong there, too.
    prompt_id: Option<String>,
    turn: Option<TranscriptTurn>,
    /// What the record says of the agent's work.
    work: Vec<WorkItem>,
}

impl ConversationReader {
    /// Adds the next record of the file.
    pub fn push(
        &mut self,
        record: TranscriptRecord<'_, ConversationBlock<'_>>,
        progress: &mut ReadProgress,
    ) {
        progress.session = progress.session.take().or_else(|| record.session.owned());
        progress.cwd = progress.cwd.take().or_else(|| record.cwd.owned());
        self.links.push(Link {
            id: record.uuid.owned(),
            parent: record.parent(),
            prompt_id: record.prompt_id.owned(),
            turn: turn(&record),
            work: work(&record),
        });
    }

    /// Returns the turns, each after its parent, and of those that could come next the earliest in
    /// the file.
    ///
    /// A record without an id follows the one before it. A record that occurs twice gives one turn.
    /// A parent that is missing does not hold anything back, and neither does a cycle. Work belongs to
    /// the turn before it. Work at the beginning of a chunk belongs to the chunk's first turn if that is an
    /// answer: the turn before it may be stored already.
    pub fn finish(self, progress: &mut ReadProgress) -> Vec<TranscriptTurn> {
        let mut links = self.links;
        let Chain { parents, repeats } = chain(&links);
        for (original, repeat) in repeats {
            let turn = links[repeat].turn.take();
            links[repeat].work.clear();
            let known = &mut links[original].turn;
            *known = known.take().or(turn);
        }
        let prompt = &mut progress.prompt;
        let mut turns: Vec<TranscriptTurn> = Vec::new();
        for index in causal_order(&parents) {
            let link = &mut links[index];
            if link.prompt_id.is_some() {
                *prompt = link.prompt_id.take();
            }
            if let Some(turn) = link.turn.take() {
                turns.push(TranscriptTurn { prompt_id: prompt.clone(), ..turn });
            }
            let work = turns.last_mut().map_or(&mut progress.work, |turn| &mut turn.work);
            add_work(work, link.work.drain(..));
        }
        claim_waiting_work(&mut turns, &mut progress.work);
        turns
    }
}

/// How the records of a batch are linked, by their positions.
struct Chain {
    /// The record that each one follows.
    parents: Vec<Option<usize>>,
    /// Records that occur again: the first position, and the later one.
    repeats: Vec<(usize, usize)>,
}

fn chain(links: &[Link]) -> Chain {
    let mut positions: HashMap<&str, usize> = HashMap::with_capacity(links.len());
    let mut repeats = Vec::new();
    for (index, link) in links.iter().enumerate() {
        let Some(id) = link.id.as_deref() else { continue };
        let original = *positions.entry(id).or_insert(index);
        if original != index {
            repeats.push((original, index));
        }
    }
    let parent_of = |(index, link): (usize, &Link)| match (&link.id, &link.parent) {
        (_, Some(parent)) => positions.get(parent.as_str()).copied().filter(|at| *at != index),
        (None, None) => index.checked_sub(1),
        (Some(_), None) => None,
    };
    Chain { parents: links.iter().enumerate().map(parent_of).collect(), repeats }
}

/// Returns the turn that a record is, if the user or the model said it.
fn turn(record: &TranscriptRecord<'_, ConversationBlock<'_>>) -> Option<TranscriptTurn> {
    let message = record.message.object()?;
    if is_aside(record) || message.is_synthetic() {
        return None;
    }
    let role = role(record, message)?;
    let text = match role {
        TurnRole::User => typed_text(&message.content)?,
        TurnRole::Assistant => texts(&message.content)?.join("\n"),
    };
    (!text.trim().is_empty()).then(|| TranscriptTurn {
        id: record.uuid.owned(),
        role,
        text,
        ts: timestamp(&record.timestamp),
        message_id: message.id.owned(),
        prompt_id: None,
        work: Vec::new(),
    })
}

/// Returns what a record says of the work of the agent, or of another agent that it started.
fn work(record: &TranscriptRecord<'_, ConversationBlock<'_>>) -> Vec<WorkItem> {
    let of_other = record.data.object().and_then(|data| data.message());
    match record.message.object().or(of_other).map(|message| &message.content) {
        Some(Loose::List(blocks)) => blocks.iter().flat_map(ConversationBlock::work).collect(),
        _ => Vec::new(),
    }
}

/// Returns whether a record was said by the program or to it, not by the user or the model.
fn is_aside<B>(record: &TranscriptRecord<'_, B>) -> bool {
    record.is_meta
        || record.is_sidechain
        || record.is_compact_summary
        || record.is_transcript_only
        || record.is_api_error
        || record.has_tool_result
}

fn role<B>(record: &TranscriptRecord<'_, B>, message: &RecordMessage<'_, B>) -> Option<TurnRole> {
    let parse = |name: &Scalar<'_>| name.text().and_then(TurnRole::parse);
    // A record of another type may quote a message, for instance what was sent to the model.
    match record.kind.text() {
        Some(_) => parse(&record.kind),
        None => parse(&message.role),
    }
}

/// Returns what the user typed, without what the program put around it.
fn typed_text(content: &Content<'_>) -> Option<String> {
    let texts = texts(content)?;
    let first = texts.first()?.trim();
    let is_interruption = match content {
        // A user may type these very words and go on.
        Loose::Text(_) => first
            .strip_prefix(INTERRUPTED)
            .is_some_and(|rest| matches!(rest, "]" | " for tool use]")),
        _ => first.starts_with(INTERRUPTED),
    };
    if is_interruption {
        return None;
    }
    let typed: Vec<String> = texts.into_iter().filter_map(user_text::typed_by_user).collect();
    Some(command_guard::without_guard(&typed.join("\n")).to_owned())
}

/// Returns the texts of a message, or `None` if it has none or is the result of a tool.
fn texts<'a>(content: &'a Content<'_>) -> Option<Vec<&'a str>> {
    match content {
        Loose::Text(text) => Some(vec![text]),
        Loose::List(blocks) => {
            let is = |block: &ConversationBlock<'_>, kind: &str| block.kind.text() == Some(kind);
            if blocks.iter().any(|block| is(block, "tool_result")) {
                return None;
            }
            let texts = blocks.iter().filter(|block| is(block, "text"));
            Some(texts.filter_map(|block| block.text.text()).collect())
        }
        _ => None,
    }
}
