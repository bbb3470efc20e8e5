//! Random transcripts: the result must not depend on where a file is cut or in which order its first
//! lines are, and no bytes may cause a panic.

use hob_domain::memory::TurnRole;
use serde_json::{Value, json};

use super::*;

/// A small deterministic generator (xorshift), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    fn words(&mut self) -> String {
        let words =
            ["yes", "é\u{1f600}", "\n", "<system-reminder>", "</system-reminder>", "/x", "\0"];
        (0..=self.below(4)).map(|_| self.pick(&words).to_owned() + " ").collect()
    }
}

fn claude(random: &mut Random) -> Vec<Value> {
    let mut parent = Value::Null;
    let mut lines = Vec::new();
    for number in 0..3 + random.below(8) {
        let id = json!(format!("id{number}"));
        let text = random.words();
        let mut line = match random.below(5) {
            0 => json!({"type": "attachment"}),
            1 => json!({"type": "user", "toolUseResult": {}, "message": {"content":
                [{"type": "tool_result", "content": text}]}}),
            2 => json!({"type": "user", "message": {"role": "user", "content": text}}),
            _ => json!({"type": "assistant", "message": {"role": "assistant", "content":
                [{"type": "text", "text": text}]}}),
        };
        if random.below(6) > 0 {
            line["uuid"] = id.clone();
            line["parentUuid"] = std::mem::replace(&mut parent, id);
        }
        lines.push(line);
    }
    lines
}

fn codex(random: &mut Random) -> Vec<Value> {
    let line = |kind: &str, payload: Value| json!({"type": kind, "payload": payload});
    let with_events = random.below(2) == 0;
    let mut lines = vec![line("session_meta", json!({"id": "s"}))];
    for _ in 0..1 + random.below(5) {
        for (role, event) in [("user", "user_message"), ("assistant", "agent_message")] {
            let text = random.words() + "x";
            lines.push(line(
                "response_item",
                json!({"type": "message", "role": role, "content":
                [{"type": "input_text", "text": text}]}),
            ));
            if with_events {
                lines.push(line("event_msg", json!({"type": event, "message": text})));
            }
            if random.below(2) == 0 {
                lines.push(line("turn_context", json!({"cwd": "/w"})));
            }
        }
    }
    lines
}

fn file(random: &mut Random, lines: &[Value]) -> Vec<u8> {
    let mut file = String::new();
    for line in lines {
        file += &line.to_string();
        file += random.pick(&["\n", "\r\n", "\n\n", "\nbroken {\n"]);
    }
    file.into_bytes()
}

type RoleAndText = (TurnRole, String);

fn texts_of(turns: Vec<TranscriptTurn>) -> Vec<RoleAndText> {
    turns.into_iter().map(|turn| (turn.role, turn.text)).collect()
}

#[test]
fn chunks_cut_anywhere_lose_and_repeat_no_turn() {
    let mut random = Random(0x5eed);
    for round in 0..60 {
        let lines = if round % 2 == 0 { claude(&mut random) } else { codex(&mut random) };
        let file = file(&mut random, &lines);
        let whole = parse_chunk(&file, &mut ReadProgress::default());
        assert_eq!(whole.consumed, file.len());
        let sorted = |mut turns: Vec<RoleAndText>| {
            turns.sort_by(|a, b| (a.0.as_str(), &a.1).cmp(&(b.0.as_str(), &b.1)));
            turns
        };
        let expect = sorted(texts_of(whole.turns));
        for cut in 0..=file.len() {
            let mut progress = ReadProgress::default();
            let first = parse_chunk(&file[..cut], &mut progress);
            let second = parse_chunk(&file[first.consumed..], &mut progress);
            assert_eq!(first.consumed + second.consumed, file.len());
            let both = texts_of(first.turns).into_iter().chain(texts_of(second.turns)).collect();
            assert_eq!(sorted(both), expect, "cut at {cut} of {}", String::from_utf8_lossy(&file));
            assert_eq!(first.unreadable + second.unreadable, whole.unreadable);
        }
    }
}

#[test]
fn shuffled_lines_come_out_in_order() {
    let mut random = Random(7);
    for _ in 0..300 {
        let mut lines = claude(&mut random);
        lines.retain(|line| line["uuid"].is_string());
        let expect = parse_chunk(&file(&mut random, &lines), &mut ReadProgress::default()).turns;
        for last in (1..lines.len()).rev() {
            let other = random.below(last + 1);
            lines.swap(last, other);
        }
        let shuffled = parse_chunk(&file(&mut random, &lines), &mut ReadProgress::default()).turns;
        assert_eq!(shuffled, expect);
    }
}

#[test]
fn no_bytes_cause_a_panic() {
    let mut random = Random(99);
    let pieces: [&[u8]; 22] = [
        b"{",
        b"}",
        b"[",
        b"]",
        b"\"",
        b"\\",
        b"\\ud83d",
        b"\\u",
        b"\n",
        b"\0",
        b"\xff",
        b"\xe2\x82",
        b":",
        b",",
        b"\"type\"",
        b"\"user\"",
        b"\"message\"",
        b"\"content\"",
        b"\"payload\"",
        b"1e999",
        b"\"text\"",
        b"null",
    ];
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..random.below(24))
            .flat_map(|_| pieces[random.below(pieces.len())].to_vec())
            .collect();
        for client in [None, Some(RecordedClient::Claude), Some(RecordedClient::Codex)] {
            let mut progress = ReadProgress { client, ..ReadProgress::default() };
            let chunk = parse_chunk(&bytes, &mut progress);
            assert!(chunk.consumed <= bytes.len());
            parse_chunk(&bytes[chunk.consumed..], &mut progress);
        }
    }
    let valid =
        file(&mut random, &[json!({"type": "user", "message": {"content": "é\u{1f600}\n\0"}})]);
    for at in 0..valid.len() {
        for byte in 0..=255 {
            let mut bytes = valid.clone();
            bytes[at] = byte;
            parse_chunk(&bytes, &mut ReadProgress::default());
        }
    }
}
