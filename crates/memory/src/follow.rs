//! Following transcripts: what is new since the last time, and which turn is which.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use hob_domain::Timestamp;
use hob_domain::memory::{Tier, TurnKey, TurnRole, record_key, words_key};
use serde::{Deserialize, Serialize};

use crate::batch::RawTurn;
use crate::transcript::{self, Client, Progress, ReadTurn};

/// How much of a file's beginning tells it from another of the same name.
const HEAD: usize = 512;

/// How far a transcript has been captured. Kept between hooks; it advances only once what was read is
/// durable.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Mark {
    offset: u64,
    head: String,
    progress: Progress,
    /// How often each text without a record id was said so far.
    #[serde(default)]
    counts: BTreeMap<String, u32>,
    /// The key of the latest prompt that has a record id, and digests of what was answered since.
    #[serde(default)]
    prompt: Option<String>,
    #[serde(default)]
    answered: Vec<String>,
    /// The answers themselves, as far as this process has read them: nothing that was said is kept
    /// in a file of its own.
    #[serde(skip)]
    answers: Vec<String>,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct News {
    pub session: String,
    pub cwd: Option<String>,
    pub client: Option<Client>,
    pub turns: Vec<RawTurn>,
    pub unreadable: usize,
}

/// Reads a whole transcript.
pub fn whole(path: &Path, session: Option<&str>) -> io::Result<News> {
    let mut mark = Mark::default();
    since(path, session, &mut mark, Torn::Included)
}

/// What to do with a last line that has no end yet but is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Torn {
    /// It counts as read.
    Included,
    /// It is read again the next time.
    Later,
}

/// Reads what has come since the mark, and moves the mark.
pub fn since(path: &Path, session: Option<&str>, mark: &mut Mark, torn: Torn) -> io::Result<News> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
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
    let mut bytes = Vec::with_capacity((metadata.len() - mark.offset) as usize + 1);
    file.read_to_end(&mut bytes)?;
    let reading = transcript::read(&bytes, &mut mark.progress);
    mark.offset += reading.consumed as u64;
    let begun = HEAD.min(mark.offset as usize).min(head.len());
    mark.head = digest(&head[..begun]);

    let session = session.map(str::to_owned).or_else(|| mark.progress.session.clone());
    let session = session.unwrap_or_else(|| session_of(path));
    let modified = metadata.modified().ok().and_then(|at| Timestamp::try_from(at).ok());
    let mut last = modified.unwrap_or_default();
    let mut news = News {
        session: session.clone(),
        cwd: mark.progress.cwd.clone(),
        client: mark.progress.client,
        unreadable: reading.unreadable,
        turns: Vec::with_capacity(reading.turns.len()),
    };
    for turn in reading.turns {
        news.turns.push(mark.number(&session, turn, &mut last));
    }
    if torn == Torn::Included {
        // The line is read again when it is whole; the mark must not remember it.
        let mut ahead = mark.clone();
        for turn in reading.torn {
            news.turns.push(ahead.number(&session, turn, &mut last));
        }
    }
    Ok(news)
}

impl Mark {
    /// Makes a turn of what was read: with its time, and counted where it has no id.
    fn number(&mut self, session: &str, turn: ReadTurn, last: &mut Timestamp) -> RawTurn {
        let words = words_key(turn.role, &turn.text).to_hex();
        let ts = turn.ts.unwrap_or(*last);
        *last = ts;
        let mut n = 1;
        match (&turn.id, turn.role) {
            (None, _) => {
                let count = self.counts.entry(words[..24].to_owned()).or_default();
                *count += 1;
                n = *count;
            }
            (Some(id), TurnRole::User) => {
                self.prompt = Some(record_key(session, id, turn.role, &turn.text).to_hex());
            }
            (Some(_), TurnRole::Assistant) => {}
        }
        match turn.role {
            TurnRole::User => {
                self.answers.clear();
                self.answered.clear();
            }
            TurnRole::Assistant => {
                self.answered.push(digest(turn.text.trim().as_bytes()));
                self.answers.push(turn.text.clone());
            }
        }
        RawTurn {
            id: turn.id,
            role: turn.role,
            text: turn.text,
            ts,
            n,
            after: None,
            tier: Tier::Episodic,
            cue: None,
        }
    }

    /// The answer a hook was told of, unless the transcript has it already: the transcript may lag
    /// behind the hook. The record that comes later is recognised as the same turn.
    pub fn lagging_answer(&self, text: &str, now: Timestamp) -> Option<RawTurn> {
        let said = text.trim();
        let joined = |from: usize| {
            [self.answers[from..].join("\n"), self.answers[from..].join("\n\n")]
                .iter()
                .any(|known| known.trim() == said)
        };
        let known = self.answered.contains(&digest(said.as_bytes()));
        if said.is_empty() || known || (0..self.answers.len()).any(joined) {
            return None;
        }
        let words = words_key(TurnRole::Assistant, text).to_hex();
        let count = self.counts.get(&words[..24]).copied().unwrap_or_default();
        let (n, after) = match &self.prompt {
            Some(prompt) => (1, Some(prompt.clone())),
            None => (count + 1, None),
        };
        Some(RawTurn {
            id: None,
            role: TurnRole::Assistant,
            text: text.to_owned(),
            ts: now,
            n,
            after,
            tier: Tier::Episodic,
            cue: None,
        })
    }
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

    #[test]
    fn only_what_is_new_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let mut file = File::create(&path).unwrap();
        file.write_all(line("user", "u1", "", "one").as_bytes()).unwrap();
        let mut mark = Mark::default();
        assert_eq!(texts(&since(&path, None, &mut mark, Torn::Later).unwrap()), ["one"]);
        let answer = mark.lagging_answer("two", Timestamp::UNIX_EPOCH).unwrap();
        assert!(answer.after.is_some() && answer.n == 1);
        let second = line("assistant", "a1", "u1", "two");
        file.write_all(&second.as_bytes()[..second.len() - 1]).unwrap();
        let before = mark.clone();
        assert_eq!(texts(&since(&path, None, &mut mark, Torn::Later).unwrap()), [""; 0]);
        assert_eq!(texts(&since(&path, None, &mut mark.clone(), Torn::Included).unwrap()), ["two"]);
        assert_eq!(mark, before);
        file.write_all(b"\n").unwrap();
        let news = since(&path, None, &mut mark, Torn::Later).unwrap();
        assert_eq!((texts(&news), news.session.as_str()), (vec!["two"], "s"));
        assert_eq!(mark.lagging_answer("two", Timestamp::UNIX_EPOCH), None);
        // Another file of the same name is read from its beginning.
        std::fs::write(&path, line("user", "u9", "", "other") + &" ".repeat(900)).unwrap();
        assert_eq!(texts(&since(&path, None, &mut mark, Torn::Later).unwrap()), ["other"]);
    }

    #[test]
    fn turns_without_ids_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let bare = |text: &str| {
            format!(
                "{{\"type\":\"user\",\"message\":{{\"role\":\"user\",\"content\":\"{text}\"}}}}\n"
            )
        };
        std::fs::write(&path, bare("go") + &bare("stop") + &bare("go")).unwrap();
        let mut mark = Mark::default();
        let news = since(&path, None, &mut mark, Torn::Later).unwrap();
        assert_eq!(news.turns.iter().map(|turn| turn.n).collect::<Vec<_>>(), [1, 1, 2]);
        assert!(news.session.starts_with("t-"));
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(bare("go").as_bytes()).unwrap();
        assert_eq!(since(&path, None, &mut mark, Torn::Later).unwrap().turns[0].n, 3);
        assert_eq!(whole(&path, Some("x")).unwrap().turns.len(), 4);
    }
}
