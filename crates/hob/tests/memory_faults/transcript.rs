//! A growing transcript and its turns.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use hob_domain::Timestamp;
use hob_testkit::TestHome;
use serde_json::{Value, json};
use uuid::Uuid;

pub const USER: &str = "user";
pub const ASSISTANT: &str = "assistant";

/// A turn: its role and its text.
pub type Said = (String, String);

/// How the records look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Claude Code: every record has an id and a parent.
    Claude,
    /// Claude Code's shape without any id.
    Bare,
    /// A rollout of Codex.
    Codex,
}

/// A transcript on disk. Sessions have plain names, so that nothing in them looks like a secret.
pub struct Transcript {
    pub path: PathBuf,
    pub session: String,
    pub cwd: String,
    /// All turns in order, whether or not the file has them already.
    pub said: Vec<Said>,
    shape: Shape,
    parent: Option<String>,
    last: Cell<i64>,
    /// Records that are not in the file yet.
    held: Vec<String>,
}

impl Transcript {
    pub fn new(home: &TestHome, session: &str, shape: Shape) -> Transcript {
        let folder = home.user_home().join("transcripts");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("{session}.jsonl"));
        let cwd = home.user_home().join("project").display().to_string();
        let transcript = Transcript {
            path,
            session: session.to_owned(),
            cwd,
            said: Vec::new(),
            shape,
            parent: None,
            last: Cell::new(0),
            held: Vec::new(),
        };
        let first = match shape {
            Shape::Claude | Shape::Bare => String::new(),
            Shape::Codex => transcript.codex_line(
                "session_meta",
                json!({"id": session, "cwd": transcript.cwd, "source": "cli"}),
            ),
        };
        transcript.append(first.as_bytes());
        transcript
    }

    pub fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// Says something, and the file has it at once.
    pub fn say(&mut self, role: &str, text: &str) {
        self.say_later(role, text);
        self.flush();
    }

    /// Says something; the file has it only after [`Transcript::flush`].
    pub fn say_later(&mut self, role: &str, text: &str) {
        let record = self.record(role, text);
        self.held.push(record);
        self.said.push((role.to_owned(), text.to_owned()));
    }

    pub fn flush(&mut self) {
        let held = self.held.concat();
        self.held.clear();
        self.append(held.as_bytes());
    }

    /// So many prompts with their answers. Every second answer has the same words.
    pub fn talk(&mut self, exchanges: usize) {
        for _ in 0..exchanges {
            let number = self.said.len();
            self.say(USER, &format!("prompt number {number} in {}", self.session));
            match number % 4 {
                0 => self.say(ASSISTANT, "Done."),
                _ => self.say(ASSISTANT, &format!("answer number {number} in {}", self.session)),
            }
        }
    }

    /// Adds bytes as they are.
    pub fn append(&self, bytes: &[u8]) {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path).unwrap();
        file.write_all(bytes).unwrap();
    }

    /// The lines of one record.
    pub fn record(&mut self, role: &str, text: &str) -> String {
        let at = self.now();
        match self.shape {
            Shape::Claude => {
                let id = Uuid::new_v4().to_string();
                let parent = self.parent.replace(id.clone());
                let record = json!({
                    "parentUuid": parent, "isSidechain": false, "type": role, "uuid": id,
                    "sessionId": self.session, "cwd": self.cwd, "timestamp": at,
                    "message": message(role, text),
                });
                format!("{record}\n")
            }
            Shape::Bare => {
                let record = json!({
                    "type": role, "sessionId": self.session, "cwd": self.cwd, "timestamp": at,
                    "message": message(role, text),
                });
                format!("{record}\n")
            }
            Shape::Codex => {
                let (part, event) = match role {
                    USER => ("input_text", "user_message"),
                    _ => ("output_text", "agent_message"),
                };
                let content = json!([{"type": part, "text": text}]);
                let item = json!({"type": "message", "role": role, "content": content});
                let event = json!({"type": event, "message": text});
                self.codex_line("response_item", item) + &self.codex_line("event_msg", event)
            }
        }
    }

    fn codex_line(&self, kind: &str, payload: Value) -> String {
        format!("{}\n", json!({"timestamp": self.now(), "type": kind, "payload": payload}))
    }

    /// Now, and later than the time before.
    fn now(&self) -> String {
        let now = Timestamp::now().as_microsecond().max(self.last.get() + 1);
        self.last.set(now);
        Timestamp::from_microsecond(now).unwrap().to_string()
    }
}

fn message(role: &str, text: &str) -> Value {
    match role {
        USER => json!({"role": role, "content": text}),
        _ => {
            json!({"role": role, "model": "m", "content": [{"type": "text", "text": text}]})
        }
    }
}

/// The turns of one session in the order of their time, as `hob export` has them.
pub fn exported(home: &TestHome, session: &str) -> Vec<Said> {
    exported_sessions(home).remove(session).unwrap_or_default()
}

/// Returns the turns of all sessions.
pub fn exported_sessions(home: &TestHome) -> BTreeMap<String, Vec<Said>> {
    let mut turns: Vec<(Timestamp, String, Said)> = export(home)
        .into_iter()
        .map(|turn| {
            let text = |key: &str| turn[key].as_str().unwrap().to_owned();
            (text("ts").parse().unwrap(), text("session_id"), (text("role"), text("text")))
        })
        .collect();
    // Stable: what has the same time stays in the order in which it was stored.
    turns.sort_by_key(|(ts, ..)| *ts);
    let mut sessions: BTreeMap<String, Vec<Said>> = BTreeMap::new();
    for (_, session, said) in turns {
        sessions.entry(session).or_default().push(said);
    }
    sessions
}

/// Everything that is remembered.
pub fn export(home: &TestHome) -> Vec<Value> {
    let output = home.run(&["export"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Each turn of these transcripts is there exactly once, in its order, and nothing else is.
#[track_caller]
pub fn assert_stored(home: &TestHome, transcripts: &[&Transcript]) {
    let mut sessions = exported_sessions(home);
    let all: usize = sessions.values().map(Vec::len).sum();
    for transcript in transcripts {
        let there = sessions.remove(&transcript.session).unwrap_or_default();
        if there == transcript.said {
            continue;
        }
        let same = there.iter().zip(&transcript.said).take_while(|(a, b)| a == b).count();
        let part = |said: &[Said]| {
            let texts = said.iter().skip(same.saturating_sub(2)).take(8);
            texts.map(|(role, text)| format!("\n  {role}: {text:.60}")).collect::<String>()
        };
        panic!(
            "session {}: {} turns are there, {} were said; they differ from the turn {same} on (the two \
             before it are shown too).\nthere:{}\nsaid:{}",
            transcript.session,
            there.len(),
            transcript.said.len(),
            part(&there),
            part(&transcript.said),
        );
    }
    let said: usize = transcripts.iter().map(|transcript| transcript.said.len()).sum();
    assert_eq!(all, said, "nothing else is there");
}

/// A file of this user's folder.
pub fn place(home: &TestHome, name: &str) -> PathBuf {
    let folder = home.user_home().join("transcripts");
    fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
