use std::collections::HashSet;

use serde_json::Value;

use super::super::command;
use super::super::hook_spec::EVENTS;
use super::{installed, uninstalled};

/// Marsaglia's xorshift: enough chance for a test, and the same on every machine.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// Writes random documents, each in a manner of its own.
struct Writer {
    chance: Chance,
    blanks: &'static [&'static str],
    newline: Option<&'static str>,
    unit: &'static str,
}

impl Writer {
    fn new(seed: u64) -> Self {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let blanks: &[&str] = match chance.below(4) {
            0 => &[""],
            1 => &["", " ", "\n", "\r\n", "\t", "  \n\n "],
            _ => &[" "],
        };
        let newline = [None, Some("\n"), Some("\n"), Some("\r\n")][chance.below(4) as usize];
        let unit = chance.pick(&["  ", "    ", "\t", ""]);
        Self { chance, blanks, newline, unit }
    }

    fn document(&mut self) -> String {
        let start = self.chance.pick(&["", "", "", "\u{feff}", "\n", " "]);
        let end = self.chance.pick(&["", "\n", "\r\n", "\n\n", " "]);
        let body = match self.chance.below(30) {
            0 => String::new(),
            _ => self.settings(),
        };
        format!("{start}{body}{end}")
    }

    fn settings(&mut self) -> String {
        let mut members = self.random_members(0);
        if self.chance.below(3) > 0 {
            let hooks = self.hooks();
            let at = self.chance.below(members.len() as u64 + 1) as usize;
            members.insert(at, format!("\"hooks\":{}{hooks}", self.blank()));
        }
        self.container('{', members, '}', 0)
    }

    fn hooks(&mut self) -> String {
        let mut members = Vec::new();
        for event in ["PreToolUse", EVENTS[0], EVENTS[1], EVENTS[2], EVENTS[3], "Odd"] {
            if self.chance.below(2) == 0 {
                let groups = (0..self.chance.below(3)).map(|_| self.group()).collect();
                let list = self.container('[', groups, ']', 2);
                members.push(format!("\"{event}\"{}:{}{list}", self.blank(), self.blank()));
            }
        }
        self.container('{', members, '}', 1)
    }

    fn group(&mut self) -> String {
        let command = self.chance.pick(&["say", "echo hob capture-turn", "/x/hobs capture-turn"]);
        let handlers = (0..self.chance.below(3))
            .map(|_| {
                let command = format!("\"command\":{}\"{command}\"", self.blank());
                self.container('{', vec!["\"type\": \"command\"".to_owned(), command], '}', 5)
            })
            .collect();
        let handlers = self.container('[', handlers, ']', 4);
        let mut members = vec![format!("\"hooks\":{}{handlers}", self.blank())];
        if self.chance.below(2) == 0 {
            members.insert(0, "\"matcher\": \"*\"".to_owned());
        }
        self.container('{', members, '}', 3)
    }

    fn value(&mut self, depth: usize) -> String {
        match self.chance.below(if depth < 4 { 9 } else { 7 }) {
            0 => "null".to_owned(),
            1 => "true".to_owned(),
            2 => self.chance.pick(&["0", "-1.50", "1E+2", "12345678901234567890"]).to_owned(),
            3 => "\"\\\"}]{[,:\\\\\"".to_owned(),
            4 => "\"\\u00e9 é 🦀\"".to_owned(),
            5 | 6 => "\"plain\"".to_owned(),
            7 => {
                let items = (0..self.chance.below(4)).map(|_| self.value(depth + 1)).collect();
                self.container('[', items, ']', depth)
            }
            _ => {
                let members = self.random_members(depth + 1);
                self.container('{', members, '}', depth)
            }
        }
    }

    fn random_members(&mut self, depth: usize) -> Vec<String> {
        let mut seen = HashSet::new();
        let mut members = Vec::new();
        for _ in 0..self.chance.below(4) {
            let name = self.chance.pick(&["a", "Stop", "\\u0062", "env", "", "command"]);
            if seen.insert(name) {
                let value = self.value(depth + 1);
                members.push(format!("\"{name}\"{}:{}{value}", self.blank(), self.blank()));
            }
        }
        members
    }

    fn container(&mut self, open: char, items: Vec<String>, close: char, depth: usize) -> String {
        if items.is_empty() {
            return format!("{open}{}{close}", self.blank());
        }
        let line =
            |depth: usize| self.newline.map(|new| format!("{new}{}", self.unit.repeat(depth)));
        let (inner, outer) = match (line(depth + 1), line(depth)) {
            (Some(inner), Some(outer)) if self.chance.below(4) > 0 => (inner, outer),
            _ => (self.blank().to_owned(), self.blank().to_owned()),
        };
        let comma = format!("{},{inner}", if self.blanks.len() > 1 { self.blank() } else { "" });
        format!("{open}{inner}{}{outer}{close}", items.join(&comma))
    }

    fn blank(&mut self) -> &'static str {
        self.chance.pick(self.blanks)
    }
}

fn parsed(text: &str) -> Option<Value> {
    let text = text.trim_start_matches('\u{feff}').trim();
    (!text.is_empty()).then(|| serde_json::from_str(text).expect("is JSON"))
}

/// Takes our entries out of a parsed document, by other means than the code under test, and drops
/// the containers that are empty then and were not there before.
fn without_ours(mut value: Value, before: &Value) -> Value {
    let is_ours = |handler: &Value| {
        handler["command"].as_str().is_some_and(|line| command::recognise(line).is_some())
    };
    if let Some(hooks) = value.get_mut("hooks").and_then(Value::as_object_mut) {
        for list in hooks.values_mut().filter_map(Value::as_array_mut) {
            list.retain(|group| {
                !group["hooks"].as_array().is_some_and(|all| all.iter().any(is_ours))
            });
        }
        hooks.retain(|event, list| {
            list != &Value::Array(Vec::new()) || {
                before.pointer(&format!("/hooks/{event}")).is_some()
            }
        });
        if hooks.is_empty() && before.get("hooks").is_none() {
            value.as_object_mut().expect("is an object").remove("hooks");
        }
    }
    value
}

#[test]
fn random_documents_are_restored_byte_for_byte() {
    for seed in 1..=3_000 {
        let before = Writer::new(seed).document();
        let after = installed(&before);
        assert_ne!(after, before, "seed {seed}");
        assert_eq!(installed(&after), after, "seed {seed}: {before:?}");
        assert_eq!(uninstalled(&after).as_deref(), Some(before.as_str()), "seed {seed}: {after}");
        let was = parsed(&before).unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        let is = parsed(&after).expect("is not blank");
        for event in EVENTS {
            let count = |value: &Value| {
                let list = value.pointer(&format!("/hooks/{event}")).and_then(Value::as_array);
                list.map_or(0, Vec::len)
            };
            assert_eq!(count(&is), count(&was) + 1, "seed {seed}: {after}");
        }
        assert_eq!(without_ours(is, &was), was, "seed {seed}: {after}");
    }
}

#[test]
fn random_damage_is_refused_or_reversible() {
    for seed in 1..=2_000 {
        let mut writer = Writer::new(seed);
        let mut bytes = writer.document().into_bytes();
        if bytes.is_empty() {
            continue;
        }
        let at = writer.chance.below(bytes.len() as u64) as usize;
        bytes[at] = b"{}[],:\"\\ x0"[writer.chance.below(11) as usize];
        let Ok(before) = String::from_utf8(bytes) else { continue };
        let wanted = super::super::hook_spec::hooks_for(hob_transcript::AgentClient::Codex);
        let after = super::json_edit::install(Some(&before), &wanted, super::HOB);
        if let Ok(after) = after {
            assert_eq!(uninstalled(&after).as_deref(), Some(before.as_str()), "seed {seed}");
        }
    }
}
