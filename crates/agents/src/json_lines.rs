//! JSON objects on an agent's standard output, one per line, unchanged.

use hob_domain::json_size::has_too_many_values;
use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// Longer lines are dropped, since a line must fit in memory.
const MAX_LINE_BYTES: usize = 32 << 20;

/// Longer ids are none.
const MAX_ID_BYTES: usize = 4096;

/// The role of a line in JSON-RPC.
#[derive(Debug, PartialEq)]
pub enum LineKind {
    /// The response to one of Hob's requests, with its id.
    Response(Value),
    /// A request of the agent.
    Request,
    Notification,
}

/// A line that holds a JSON object.
#[derive(Debug, PartialEq)]
pub struct JsonLine {
    pub text: String,
    pub kind: LineKind,
}

/// Parses a line; `None` if it is not a JSON object.
pub fn parse(text: &str) -> Option<JsonLine> {
    let text = text.trim();
    if !text.starts_with('{') {
        return None;
    }
    // Only these fields are parsed.
    #[derive(serde::Deserialize)]
    struct LineHead<'a> {
        #[serde(borrow)]
        id: Option<&'a serde_json::value::RawValue>,
        #[serde(borrow)]
        method: Option<&'a serde_json::value::RawValue>,
    }
    let head: LineHead<'_> = serde_json::from_str(text).ok()?;
    let id = head.id.filter(|id| id.get().len() <= MAX_ID_BYTES);
    let kind = match (head.method, id.map(|id| id.get())) {
        (None, Some(id)) => LineKind::Response(serde_json::from_str(id).ok()?),
        (Some(_), Some(id)) if id != "null" => LineKind::Request,
        _ => LineKind::Notification,
    };
    Some(JsonLine { text: text.to_owned(), kind })
}

/// Returns the method of a message, if it has one.
pub fn method(text: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct MethodOnly {
        method: Option<String>,
    }
    serde_json::from_str::<MethodOnly>(text).ok()?.method
}

/// Returns the next JSON object, or `None` at the end. Other lines and lines that are too long are skipped.
pub async fn next(input: &mut (impl AsyncBufRead + Unpin)) -> Option<JsonLine> {
    loop {
        let bytes = next_bytes(input).await?;
        if has_too_many_values(&bytes) {
            tracing::warn!("dropped a line of an agent that has too many values");
            continue;
        }
        if let Some(line) = std::str::from_utf8(&bytes).ok().and_then(parse) {
            return Some(line);
        }
    }
}

async fn next_bytes(input: &mut (impl AsyncBufRead + Unpin)) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    let mut too_long = false;
    loop {
        let chunk = input.fill_buf().await.ok()?;
        if chunk.is_empty() {
            return (!line.is_empty()).then_some(line);
        }
        let (part, used, ended) = match chunk.iter().position(|byte| *byte == b'\n') {
            Some(at) => (&chunk[..at], at + 1, true),
            None => (chunk, chunk.len(), false),
        };
        too_long |= line.len() + part.len() > MAX_LINE_BYTES;
        if !too_long {
            line.extend_from_slice(part);
        }
        input.consume(used);
        if ended && too_long {
            tracing::warn!("dropped a line of an agent that was too long");
            (line, too_long) = (Vec::new(), false);
        } else if ended {
            return Some(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    async fn all(bytes: &[u8]) -> Vec<JsonLine> {
        let mut input = bytes;
        let mut lines = Vec::new();
        while let Some(line) = next(&mut input).await {
            lines.push(line);
        }
        lines
    }

    /// Seed 003.
    #[tokio::test]
    async fn parse_ndjson_skips_garbage() {
        let raw = b"{\"a\":1}\nnot json\n{\"b\":2}\n\n \n{\"c\":3}\n";
        let texts: Vec<String> = all(raw).await.into_iter().map(|line| line.text).collect();
        assert_eq!(texts, [r#"{"a":1}"#, r#"{"b":2}"#, r#"{"c":3}"#]);
        assert!(all(b"[1]\n\"x\"\n{\"a\":\n\xff\xfe\n").await.is_empty());
        assert_eq!(
            all(b"{\"a\":1}\r\n{\"b\":2}").await.len(),
            2,
            "CRLF, and a last line without an end"
        );
    }

    #[test]
    fn kinds_of_lines() {
        let kind = |text: &str| parse(text).map(|line| line.kind);
        let response = |id: Value| Some(LineKind::Response(id));
        assert_eq!(kind(r#"{"id":1,"result":{}}"#), response(1.into()));
        assert_eq!(kind(r#"{"id":"x","error":{"code":1}}"#), response("x".into()));
        assert_eq!(kind(r#"{"id":0,"method":"m"}"#), Some(LineKind::Request));
        assert_eq!(kind(r#"{"method":"m","params":{}}"#), Some(LineKind::Notification));
        assert_eq!(kind(r#"{"id":null,"method":"m"}"#), Some(LineKind::Notification));
        assert_eq!(kind(r#"{"a":1}"#), Some(LineKind::Notification));
    }

    proptest! {
        /// Valid lines are found unchanged after any bytes.
        #[test]
        fn any_bytes_are_survived(before in prop::collection::vec(any::<u8>(), 0..200)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let mut bytes = before;
            bytes.extend_from_slice(b"\n{\"id\": 7,  \"result\":{}}\n");
            let lines = runtime.block_on(all(&bytes));
            prop_assert_eq!(&lines.last().unwrap().text, "{\"id\": 7,  \"result\":{}}");
        }
    }
}
