//! Following transcripts: what is new since the last time, and which turn is which.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use hob_domain::Timestamp;
use hob_domain::memory::{Tier, TurnKey, TurnRole, answer_key, record_key, words_key};
use hob_transcript::{AgentClient, ReadProgress, TranscriptTurn};
use serde::{Deserialize, Serialize};

use crate::capture::batch::{RawTurn, name_without_secrets};
use crate::redact;

/// How much of a file's beginning tells it from another of the same name.
const HEAD: usize = 512;
/// How many of the latest prompts are remembered: a hook may be told of an answer late.
const PROMPTS: usize = 4;

/// How far a transcript has been captured. Kept between hooks; it advances only once what was read is
/// durable.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Mark {
    offset: u64,
    head: String,
    progress: ReadProgress,
    /// The latest place in the order.
    #[serde(default)]
    at: Option<Timestamp>,
    /// How often each text without a record id was said so far.
    #[serde(default)]
    counts: BTreeMap<String, u32>,
    /// The latest prompts that have a record id.
    #[serde(default)]
    prompts: Vec<Prompt>,
}

/// A prompt, and what answered it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct Prompt {
    name: String,
    /// Digests of the answers: nothing that was said is kept in a file of its own.
    answered: Vec<String>,
    /// The answers themselves, as far as this process has read them.
    #[serde(skip)]
    answers: Vec<String>,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct News {
    pub session: String,
    pub cwd: Option<String>,
    pub client: Option<AgentClient>,
    pub turns: Vec<RawTurn>,
    pub unreadable: usize,
    /// Whether there is more to be read.
    pub more: bool,
}

/// How to read.
#[derive(Debug, Clone, Copy)]
pub struct Manner<'a> {
    /// The session's name, unless it is the transcript's own.
    pub session: Option<&'a str>,
    pub torn: Torn,
    /// About how many bytes at most; a longer line is read whole.
    pub most: usize,
}

/// What to do with a last line that has no end yet but is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Torn {
    /// It counts as read.
    Included,
    /// It is read again the next time.
    Later,
}

/// Reads a whole transcript.
pub fn whole(path: &Path, session: Option<&str>) -> io::Result<News> {
    let manner = Manner { session, torn: Torn::Included, most: usize::MAX };
    since(path, &mut Mark::default(), manner)
}

/// Reads what has come since the mark, and moves the mark.
pub fn since(path: &Path, mark: &mut Mark, manner: Manner<'_>) -> io::Result<News> {
    // Asked before it is opened: opening a pipe waits for whoever writes to it.
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut file = File::open(path)?;
    let mut head = Vec::new();
    Read::by_ref(&mut file).take(HEAD as u64).read_to_end(&mut head)?;
    let begun = HEAD.min(mark.offset as usize);
    let same = metadata.len() >= mark.offset
        && head.len() >= begun
        && (mark.offset == 0 || mark.head == digest(&head[..begun]));
    if !same {
        *mark = Mark::default();
    }
    file.seek(SeekFrom::Start(mark.offset))?;
    let (bytes, more) = read_lines(&mut file, manner.most)?;
    let reading = hob_transcript::parse_chunk(&bytes, &mut mark.progress);
    mark.offset += reading.consumed as u64;
    let begun = HEAD.min(mark.offset as usize).min(head.len());
    mark.head = digest(&head[..begun]);

    let session = manner.session.map(str::to_owned).or_else(|| mark.progress.session.clone());
    let session = session.unwrap_or_else(|| session_of(path));
    let modified = metadata.modified().ok().and_then(|at| Timestamp::try_from(at).ok());
    let mut last = modified.unwrap_or_default();
    let mut news = News {
        session: session.clone(),
        cwd: mark.progress.cwd.clone(),
        client: mark.progress.client,
        unreadable: reading.unreadable,
        turns: Vec::with_capacity(reading.turns.len()),
        more,
    };
    for turn in reading.turns {
        news.turns.push(mark.number(&session, turn, &mut last));
    }
    if manner.torn == Torn::Included && !more {
        // The line is read again when it is whole; the mark must not remember it.
        let mut ahead = mark.clone();
        for turn in reading.partial_line {
            news.turns.push(ahead.number(&session, turn, &mut last));
        }
    }
    Ok(news)
}

/// Whole lines of about so many bytes, and whether there are more. The last line of a file may have
/// no end.
fn read_lines(file: &mut File, most: usize) -> io::Result<(Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    let mut wanted = most;
    loop {
        let read = Read::by_ref(file).take(wanted as u64).read_to_end(&mut bytes)?;
        if read < wanted {
            return Ok((bytes, false));
        }
        if let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') {
            bytes.truncate(end + 1);
            return Ok((bytes, true));
        }
        // One line that is longer than all that was wanted.
        wanted = bytes.len();
    }
}

impl Mark {
    /// Makes a turn of what was read: with its place in the order, and named by what is known of it.
    fn number(&mut self, session: &str, turn: TranscriptTurn, last: &mut Timestamp) -> RawTurn {
        let ts = turn.ts.unwrap_or(*last);
        *last = ts;
        let at = self.at.map_or(ts, |before| before.max(ts));
        self.at = Some(at);
        let mut raw = RawTurn {
            id: turn.id.map(|id| name_without_secrets(&id)),
            role: turn.role,
            text: turn.text,
            ts,
            at: (at != ts).then_some(at),
            n: 1,
            answer: None,
            tier: Tier::Episodic,
            cue: None,
        };
        match (&raw.id, raw.role) {
            (None, TurnRole::User) => {
                raw.n = self.count(raw.role, &raw.text);
                self.prompted(String::new());
            }
            (None, TurnRole::Assistant) => {
                raw.n = self.count(raw.role, &raw.text);
                self.answered(&raw.text);
            }
            (Some(id), TurnRole::User) => {
                let key = || record_key(session, id, raw.role, &raw.text).to_hex();
                let name = turn.prompt_id.as_deref().map_or_else(key, prompt_name);
                self.prompted(name);
            }
            (Some(_), TurnRole::Assistant) => {
                // A command is a prompt, though not a turn.
                if let Some(prompt) = turn.prompt_id.as_deref() {
                    self.prompted(prompt_name(prompt));
                }
                raw.answer = self.answered(&raw.text);
            }
        }
        raw
    }

    fn prompted(&mut self, name: String) {
        // One prompt may be several records; one without a name is always another one.
        if name.is_empty() || self.prompts.last().is_none_or(|prompt| prompt.name != name) {
            self.prompts.push(Prompt { name, ..Prompt::default() });
            let old = self.prompts.len().saturating_sub(PROMPTS);
            self.prompts.drain(..old);
        }
    }

    /// Notes an answer and returns its place, where the prompt has a name.
    fn answered(&mut self, text: &str) -> Option<String> {
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

    /// The answer a hook was told of, unless the transcript has it already: the transcript may lag
    /// behind the hook. The record that comes later is recognised as the same turn.
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
            cue: None,
        };
        // A transcript that does not name its prompts as hooks do has them named by their records.
        let named = |prompt: &Prompt| prompt.name.starts_with(PROMPT_NAME);
        let named = prompt_id.filter(|_| self.prompts.last().is_none_or(named)).map(prompt_name);
        let prompt = match &named {
            Some(name) => self.prompts.iter().find(|prompt| prompt.name == *name),
            None => self.prompts.last(),
        };
        if prompt.is_some_and(|prompt| prompt.has(text)) {
            return None;
        }
        match named.as_deref().or(prompt.map(|prompt| prompt.name.as_str())) {
            Some(name) if !name.is_empty() => {
                raw.answer = Some(answer_key(name, text, 1).to_hex());
            }
            // It will be the next one of its kind.
            _ => raw.n = self.clone().count(TurnRole::Assistant, text),
        }
        Some(raw)
    }

    /// The mark as it may be kept in a file: names without their secrets.
    pub fn to_keep(&self) -> Mark {
        let mut mark = self.clone();
        mark.progress.session = mark.progress.session.map(|name| name_without_secrets(&name));
        mark.progress.cwd = mark.progress.cwd.filter(|cwd| redact::find(cwd).is_empty());
        mark
    }
}

impl Prompt {
    /// Whether this is, or these are together, what has answered it.
    fn has(&self, text: &str) -> bool {
        let said = text.trim();
        if self.answered.contains(&digest(said.as_bytes())) {
            return true;
        }
        // The last ones together, as many as are not longer than it.
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

/// What a prompt is called that hooks and transcripts have a name for.
const PROMPT_NAME: &str = "prompt ";

fn prompt_name(id: &str) -> String {
    format!("{PROMPT_NAME}{id}")
}

fn digest(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    TurnKey::of(&["digest", &text]).to_hex()[..24].to_owned()
}

/// A session's name for a transcript that has none: that of the file where it is an id, else also
/// where it lies, so that two files of one name are two sessions.
fn session_of(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let is_id = stem.len() >= 32 && stem.bytes().filter(u8::is_ascii_digit).count() >= 4;
    if is_id {
        return stem;
    }
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let digest = TurnKey::of(&["transcript", &real.to_string_lossy()]).to_hex();
    format!("{stem}-{}", &digest[..8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn line(role: &str, id: &str, parent: &str, text: &str) -> String {
        serde_json::json!({
            "type": role, "uuid": id, "parentUuid": parent, "sessionId": "s", "cwd": "/w",
            "timestamp": "2026-01-02T03:04:05Z", "message": {"role": role, "content": text},
        })
        .to_string()
            + "\n"
    }

    fn texts(news: &News) -> Vec<&str> {
        news.turns.iter().map(|turn| turn.text.as_str()).collect()
    }

    fn read(path: &Path, mark: &mut Mark, torn: Torn) -> News {
        since(path, mark, Manner { session: None, torn, most: 1 << 20 }).unwrap()
    }

    fn lagging(mark: &Mark, text: &str) -> Option<RawTurn> {
        mark.lagging_answer(text, None, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn only_what_is_new_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let mut file = File::create(&path).unwrap();
        file.write_all(line("user", "u1", "", "one").as_bytes()).unwrap();
        let mut mark = Mark::default();
        assert_eq!(texts(&read(&path, &mut mark, Torn::Later)), ["one"]);
        let told = lagging(&mark, "two").unwrap();
        let second = line("assistant", "a1", "u1", "two\n");
        file.write_all(&second.as_bytes()[..second.len() - 1]).unwrap();
        let before = mark.clone();
        assert_eq!(texts(&read(&path, &mut mark, Torn::Later)), [""; 0]);
        assert_eq!(texts(&read(&path, &mut mark.clone(), Torn::Included)), ["two\n"]);
        assert_eq!(mark, before);
        file.write_all(b"\n").unwrap();
        let news = read(&path, &mut mark, Torn::Later);
        assert_eq!((texts(&news), news.session.as_str()), (vec!["two\n"], "s"));
        assert_eq!(news.turns[0].answer, told.answer, "the record has the place the hook gave it");
        assert_eq!(lagging(&mark, "two"), None);
        // Kept in a file and read again it knows the same; another file of the name is new.
        let kept = serde_json::to_vec(&mark.to_keep()).unwrap();
        let mut mark: Mark = serde_json::from_slice(&kept).unwrap();
        assert_eq!(lagging(&mark, "two "), None);
        std::fs::write(&path, line("user", "u9", "", "other") + &" ".repeat(900)).unwrap();
        assert_eq!(texts(&read(&path, &mut mark, Torn::Later)), ["other"]);
    }

    #[test]
    fn turns_without_ids_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let bare = |role: &str, text: &str| {
            format!("{{\"type\":\"{role}\",\"message\":{{\"content\":\"{text}\"}}}}\n")
        };
        let text = bare("user", "go") + &bare("assistant", "done") + &bare("user", "go");
        std::fs::write(&path, text).unwrap();
        let mut mark = Mark::default();
        let news = read(&path, &mut mark, Torn::Later);
        assert_eq!(news.turns.iter().map(|turn| turn.n).collect::<Vec<_>>(), [1, 1, 2]);
        assert!(news.session.starts_with("t-"));
        // The second prompt's answer is the second of its kind, until it is there.
        assert_eq!(lagging(&mark, "done").unwrap().n, 2);
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(bare("assistant", "done").as_bytes()).unwrap();
        assert_eq!(read(&path, &mut mark, Torn::Later).turns[0].n, 2);
        assert_eq!(lagging(&mark, "done"), None);
        assert_eq!(whole(&path, Some("x")).unwrap().turns.len(), 4);
    }

    #[test]
    fn an_answer_belongs_to_the_prompt_its_hook_names() {
        let prompt = |id: &str, text: &str| TranscriptTurn {
            id: Some(id.to_owned()),
            role: TurnRole::User,
            text: text.to_owned(),
            ts: None,
            message_id: None,
            prompt_id: Some(id.to_owned()),
        };
        let answer = |id: &str, to: &str, text: &str| {
            let turn = prompt(id, text);
            TranscriptTurn { role: TurnRole::Assistant, prompt_id: Some(to.to_owned()), ..turn }
        };
        let mut mark = Mark::default();
        let mut last = Timestamp::UNIX_EPOCH;
        let told = |mark: &Mark, id: &str| {
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

    #[test]
    fn long_transcripts_are_read_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let lines: Vec<String> =
            (0..50).map(|n| line("user", &n.to_string(), "", &"x".repeat(n * 7))).collect();
        std::fs::write(&path, lines.concat()).unwrap();
        let all = whole(&path, None).unwrap().turns;
        let (mut mark, mut found) = (Mark::default(), Vec::new());
        loop {
            let manner = Manner { session: None, torn: Torn::Included, most: 300 };
            let news = since(&path, &mut mark, manner).unwrap();
            found.extend(news.turns);
            if !news.more {
                break;
            }
        }
        assert_eq!(found, all);
    }
}
