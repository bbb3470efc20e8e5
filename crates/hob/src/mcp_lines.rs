//! The lines that an agent sends to `hob mcp`. A line that is longer than the server reads is refused, and only its id is
//! kept.

use std::io::{self, BufRead, BufReader, Read};

use hob_mcp::message::{MAX_LINE_BYTES, Refusal, legal_id};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// A line of an agent.
#[derive(Debug, PartialEq)]
pub enum AgentLine {
    /// A line with its end.
    Message(Vec<u8>),
    /// A line that is too long. If it is no request, it gets no answer.
    TooLong(Option<Refusal>),
}

/// The fields of a long line that say whether it is a request.
#[derive(Deserialize)]
struct RequestFields {
    id: Option<Value>,
    method: Option<IgnoredAny>,
}

/// Reads the next line that is not blank. Returns `None` once the agent has closed its side.
pub fn next_line(from_agent: &mut impl BufRead) -> Option<AgentLine> {
    read_line(from_agent, MAX_LINE_BYTES)
}

fn read_line(from_agent: &mut impl BufRead, max_bytes: usize) -> Option<AgentLine> {
    loop {
        let mut line = Vec::new();
        let read = from_agent.take(max_bytes as u64).read_until(b'\n', &mut line);
        match read {
            Ok(0) | Err(_) => return None,
            Ok(length) if length == max_bytes && !line.ends_with(b"\n") => {
                let rest = RestOfLine { from: from_agent, has_ended: false };
                let mut whole = BufReader::new(line.as_slice().chain(rest));
                let id = match line.trim_ascii_start().first() {
                    Some(b'{') => request_id(&mut whole),
                    _ => Some(Value::Null),
                };
                // An error ends the next read, too.
                let _ = io::copy(&mut whole, &mut io::sink());
                let reason = format!("the message is longer than {max_bytes} bytes");
                let refusal = id.map(|id| Refusal::invalid_request(id, reason));
                return Some(AgentLine::TooLong(refusal));
            }
            Ok(_) if line.iter().all(u8::is_ascii_whitespace) => {}
            Ok(_) => {
                if !line.ends_with(b"\n") {
                    line.push(b'\n');
                }
                return Some(AgentLine::Message(line));
            }
        }
    }
}

/// Returns the id of an object that is a request, or null if it has no legal one. Returns `None` for a notification and
/// for an answer. Nothing but the id is held in memory.
fn request_id(line: &mut impl Read) -> Option<Value> {
    let mut parser = serde_json::Deserializer::from_reader(line);
    match RequestFields::deserialize(&mut parser) {
        Ok(RequestFields { id: Some(id), method: Some(_) }) => {
            Some(legal_id(&id).unwrap_or_default())
        }
        Ok(_) => None,
        Err(_) => Some(Value::Null),
    }
}

/// The bytes up to the end of a line, without it.
struct RestOfLine<'a, R> {
    from: &'a mut R,
    has_ended: bool,
}

impl<R: BufRead> Read for RestOfLine<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.has_ended {
            return Ok(0);
        }
        let available = self.from.fill_buf()?;
        let part = &available[..available.len().min(buffer.len())];
        let end = part.iter().position(|byte| *byte == b'\n');
        let length = end.unwrap_or(part.len());
        buffer[..length].copy_from_slice(&part[..length]);
        self.has_ended = end.is_some();
        self.from.consume(length + usize::from(end.is_some()));
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MAX_BYTES: usize = 5000;

    /// Returns the lines of a text, read in small parts.
    fn lines(text: &str) -> Vec<AgentLine> {
        let mut from_agent = BufReader::with_capacity(1000, text.as_bytes());
        std::iter::from_fn(|| read_line(&mut from_agent, MAX_BYTES)).collect()
    }

    fn message(line: &str) -> AgentLine {
        AgentLine::Message(format!("{line}\n").into_bytes())
    }

    /// Returns the answer to a line that is too long and followed by another one.
    fn answer_to(start: &str, end: &str) -> Option<Value> {
        let text = format!("{start}{}{end}\nnext", "x".repeat(2 * MAX_BYTES));
        match lines(&text).as_slice() {
            [AgentLine::TooLong(refusal), next] => {
                assert_eq!(*next, message("next"));
                refusal.as_ref().map(Refusal::answer)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn lines_end_at_their_newline_and_blank_ones_are_skipped() {
        assert_eq!(lines("{}\n \r\n\n[]\nlast"), [message("{}"), message("[]"), message("last")]);
        let longest = "x".repeat(MAX_BYTES - 1);
        for text in [format!("{longest}\nnext"), format!("{longest}\n\nnext\n")] {
            assert_eq!(lines(&text), [message(&longest), message("next")]);
        }
        assert!(matches!(lines(&format!("{longest}y")).as_slice(), [AgentLine::TooLong(_)]));
    }

    #[test]
    fn requests_that_are_too_long_are_refused_with_their_id() {
        for (start, end, id) in [
            (r#"{"id":7,"method":"tools/call","params":{"text":""#, r#""}}"#, json!(7)),
            (r#"{"method":"a","params":["\n\""#, r#"",{"id":1}],"id":"b"}"#, json!("b")),
            (r#"{"id":1.5,"method":"a","params":""#, r#""}"#, Value::Null),
            (r#"{"id":7,"method":"a","params":""#, "", Value::Null),
            (r#"[{"id":7,"method":"a","params":""#, r#""}]"#, Value::Null),
            ("no json", "", Value::Null),
        ] {
            let answer = answer_to(start, end).unwrap();
            let found = (&answer["id"], &answer["error"]["code"]);
            assert_eq!(found, (&id, &json!(-32600)), "{start}");
        }
        assert_eq!(answer_to(r#"{"method":"a","params":""#, r#""}"#), None, "a notification");
        assert_eq!(answer_to(r#"{"id":1,"result":""#, r#""}"#), None, "an answer");
    }
}
