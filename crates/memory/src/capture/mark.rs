//! How far a transcript was captured, and which turn is which.

use std::collections::BTreeMap;

use hob_domain::Timestamp;
use hob_domain::memory::{Tier, TurnKey, TurnRole, answer_key, record_key, words_key};
use hob_transcript::{ReadProgress, RecordedClient, TranscriptTurn};
use serde::{Deserialize, Serialize};

use super::batch::RawTurn;
use super::work_words::cue_of_work;
use crate::redact::{self, masked_name};

/// How many of the latest prompts a mark remembers: a hook may report an answer late.
const MAX_PROMPTS: usize = 4;
/// The beginning of the name of a prompt whose id both hooks and transcripts know.
const PROMPT_NAME: &str = "prompt ";

/// How far a transcript was captured. Callers store it between hooks, and only once the turns that
/// they read are durable.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TranscriptMark {
    offset: u64,
    /// A digest of the file's beginning.
    head: String,
    progress: ReadProgress,
    /// The latest position in the order.
    #[serde(default)]
    at: Option<Timestamp>,
    /// How many times each text without a record id has occurred.
    #[serde(default)]
    counts: BTreeMap<String, u32>,
    /// The latest prompts that have a record id.
    #[serde(default)]
    prompts: Vec<MarkedPrompt>,
}

/// A prompt and its answers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct MarkedPrompt {
    name: String,
    /// Digests of the answers: a stored mark contains nothing that was said.
    answered: Vec<String>,
    /// The answers themselves, as far as this process has read them.
    #[serde(skip)]
    answers: Vec<String>,
}

impl TranscriptMark {
    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn session(&self) -> Option<String> {
        self.progress.session.clone()
    }

    pub fn cwd(&self) -> Option<String> {
        self.progress.cwd.clone()
    }

    pub fn client(&self) -> Option<RecordedClient> {
        self.progress.client
    }

    pub fn progress_mut(&mut self) -> &mut ReadProgress {
        &mut self.progress
    }

    /// Returns whether this is the mark of a file that begins with `head`, of which the mark compares
    /// up to `head_bytes`.
    pub fn is_of(&self, head: &[u8], head_bytes: usize) -> bool {
        let compared = head_bytes.min(self.offset as usize);
        head.len() >= compared && (self.offset == 0 || self.head == digest(&head[..compared]))
    }

    /// Advances the mark by the bytes of complete lines.
    pub fn advance(&mut self, consumed: usize, head: &[u8], head_bytes: usize) {
        self.offset += consumed as u64;
        let compared = head_bytes.min(self.offset as usize).min(head.len());
        self.head = digest(&head[..compared]);
    }

    /// Gives a turn its position in the order and its identity. `last` is the time of the turn before
    /// it, and becomes that of this one.
    pub fn number(&mut self, session: &str, turn: TranscriptTurn, last: &mut Timestamp) -> RawTurn {
        let ts = turn.ts.unwrap_or(*last);
        *last = ts;
        let at = self.at.map_or(ts, |before| before.max(ts));
        self.at = Some(at);
        let mut raw = RawTurn {
            id: turn.id.map(|id| masked_name(&id)),
            role: turn.role,
            text: turn.text,
            ts,
            at: (at != ts).then_some(at),
            n: 1,
            answer: None,
            tier: Tier::Episodic,
            cue: cue_of_work(&turn.work, self.progress.cwd.as_deref()),
        };
        match (&raw.id, raw.role) {
            (None, TurnRole::User) => {
                raw.n = self.count(raw.role, &raw.text);
                self.add_prompt(String::new());
            }
            (None, TurnRole::Assistant) => {
                raw.n = self.count(raw.role, &raw.text);
                self.add_answer(&raw.text);
            }
            (Some(id), TurnRole::User) => {
                let key = || record_key(session, id, raw.role, &raw.text).to_hex();
                let name = turn.prompt_id.as_deref().map_or_else(key, prompt_name);
                self.add_prompt(name);
            }
            (Some(_), TurnRole::Assistant) => {
                // A command is a prompt, though not a turn.
                if let Some(prompt) = turn.prompt_id.as_deref() {
                    self.add_prompt(prompt_name(prompt));
                }
                raw.answer = self.add_answer(&raw.text);
            }
        }
        raw
    }

    fn add_prompt(&mut self, name: String) {
        // Several records may be one prompt; a prompt without a name is always another one.
        if name.is_empty() || self.prompts.last().is_none_or(|prompt| prompt.name != name) {
            self.prompts.push(MarkedPrompt { name, ..MarkedPrompt::default() });
            let old = self.prompts.len().saturating_sub(MAX_PROMPTS);
            self.prompts.drain(..old);
        }
    }

    /// Notes an answer to the latest prompt. Returns its key if the prompt has a name.
    fn add_answer(&mut self, text: &str) -> Option<String> {
        let prompt = self.prompts.last_mut()?;
        let digest = digest(text.trim().as_bytes());
        prompt.answered.push(digest.clone());
        prompt.answers.push(text.to_owned());
        let n = prompt.answered.iter().filter(|known| **known == digest).count();
        (!prompt.name.is_empty()).then(|| answer_key(&prompt.name, text, n).to_hex())
    }

    fn count(&mut self, role: TurnRole, text: &str) -> u32 {
        let words = words_key(role, text).to_hex();
        let count = self.counts.entry(words[..24].to_owned()).or_default();
        *count += 1;
        *count
    }

    /// Returns the answer that a hook reports, unless the transcript has it already: the transcript
    /// may lag behind the hook. The record that comes later is recognised as the same turn.
    pub fn lagging_answer(
        &self,
        text: &str,
        prompt_id: Option<&str>,
        now: Timestamp,
    ) -> Option<RawTurn> {
        if text.trim().is_empty() {
            return None;
        }
        let mut raw = RawTurn {
            id: None,
            role: TurnRole::Assistant,
            text: text.to_owned(),
            ts: now,
            at: self.at.filter(|at| *at > now),
            n: 1,
            answer: None,
            tier: Tier::Episodic,
            cue: cue_of_work(&self.progress.work, self.progress.cwd.as_deref()),
        };
        // In a transcript that does not use the hooks' prompt ids, prompts have the names of their
        // records.
        let has_id = |prompt: &MarkedPrompt| prompt.name.starts_with(PROMPT_NAME);
        let named = prompt_id.filter(|_| self.prompts.last().is_none_or(has_id)).map(prompt_name);
        let prompt = match &named {
            Some(name) => self.prompts.iter().find(|prompt| prompt.name == *name),
            None => self.prompts.last(),
        };
        if prompt.is_some_and(|prompt| prompt.has_answer(text)) {
            return None;
        }
        match named.as_deref().or(prompt.map(|prompt| prompt.name.as_str())) {
            Some(name) if !name.is_empty() => {
                raw.answer = Some(answer_key(name, text, 1).to_hex());
            }
            // It will be the next occurrence of this text.
            _ => raw.n = self.clone().count(TurnRole::Assistant, text),
        }
        Some(raw)
    }

    /// Returns the mark as it may be stored in a file: with names without their secrets.
    pub fn without_secrets(&self) -> TranscriptMark {
        let mut mark = self.clone();
        mark.progress.session = mark.progress.session.map(|name| masked_name(&name));
        mark.progress.cwd = mark.progress.cwd.filter(|cwd| redact::find(cwd).is_empty());
        mark
    }
}

impl MarkedPrompt {
    /// Returns whether a text is one of the answers, or the last ones joined.
    fn has_answer(&self, text: &str) -> bool {
        let said = text.trim();
        if self.answered.contains(&digest(said.as_bytes())) {
            return true;
        }
        // The last answers joined, as many as are not longer than the text.
        let mut length = 0;
        for from in (0..self.answers.len()).rev() {
            length += self.answers[from].len();
            if length > text.len() {
                return false;
            }
            let texts = &self.answers[from..];
            if [texts.join("\n"), texts.join("\n\n")].iter().any(|known| known.trim() == said) {
                return true;
            }
        }
        false
    }
}

fn prompt_name(id: &str) -> String {
    format!("{PROMPT_NAME}{id}")
}

fn digest(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    TurnKey::of(&["digest", &text]).to_hex()[..24].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_belong_to_the_prompt_that_their_hook_names() {
        let prompt = |id: &str, text: &str| TranscriptTurn {
            id: Some(id.to_owned()),
            role: TurnRole::User,
            text: text.to_owned(),
            ts: None,
            message_id: None,
            prompt_id: Some(id.to_owned()),
            work: Vec::new(),
        };
        let answer = |id: &str, to: &str, text: &str| {
            let turn = prompt(id, text);
            TranscriptTurn { role: TurnRole::Assistant, prompt_id: Some(to.to_owned()), ..turn }
        };
        let mut mark = TranscriptMark::default();
        let mut last = Timestamp::UNIX_EPOCH;
        let told = |mark: &TranscriptMark, id: &str| {
            mark.lagging_answer("Done.", Some(id), Timestamp::UNIX_EPOCH).map(|turn| turn.answer)
        };
        // The prompt itself is not written yet.
        let early = told(&mark, "p1").unwrap();
        mark.number("s", prompt("p1", "go"), &mut last);
        assert_eq!(mark.number("s", answer("a1", "p1", "Done."), &mut last).answer, early);
        assert_ne!(told(&mark, "p2").unwrap(), early, "an equal answer to the next prompt");
        mark.number("s", prompt("p2", "go"), &mut last);
        assert_eq!(told(&mark, "p1"), None, "a hook that comes late");
        assert!(told(&mark, "p2").is_some());
        // A command leaves no turn; its answer says which prompt it was.
        let answered = told(&mark, "p3").unwrap();
        assert_eq!(mark.number("s", answer("a3", "p3", "Done."), &mut last).answer, answered);
    }
}
