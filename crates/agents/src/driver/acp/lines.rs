//! The agent's standard output, line by line, unchanged.

use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// A longer line is thrown away: it would have to be held in memory whole.
const LIMIT: usize = 32 << 20;

/// What a line is to us.
#[derive(Debug, PartialEq)]
pub(in crate::driver) enum Kind {
    /// The answer to a request of ours.
    Response(Value),
    /// A request of the agent, with an id.
    Request,
    Notification,
}

/// A JSON object that came as one line.
#[derive(Debug, PartialEq)]
pub(in crate::driver) struct Line {
    pub text: String,
    pub kind: Kind,
}

/// Reads a line as a message; `None` for anything that is no JSON object.
pub(super) fn parse(text: &str) -> Option<Line> {
    let text = text.trim();
    if !text.starts_with('{') {
        return None;
    }
    // Only what is needed is looked at; the rest stays as it is.
    #[derive(serde::Deserialize)]
    struct Head<'a> {
        id: Option<Value>,
        #[serde(borrow)]
        method: Option<&'a serde_json::value::RawValue>,
    }
    let head: Head<'_> = serde_json::from_str(text).ok()?;
    let kind = match (head.method, head.id) {
        (None, Some(id)) => Kind::Response(id),
        (Some(_), Some(id)) if !id.is_null() => Kind::Request,
        _ => Kind::Notification,
    };
    Some(Line { text: text.to_owned(), kind })
}

/// The method of a message, where it has one.
pub(super) fn method(text: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Head {
        method: Option<String>,
    }
    serde_json::from_str::<Head>(text).ok()?.method
}

/// The next message; garbage and lines that are too long are passed over. `None` at the end.
pub(in crate::driver) async fn next(input: &mut (impl AsyncBufRead + Unpin)) -> Option<Line> {
    loop {
        let bytes = next_bytes(input).await?;
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
        too_long |= line.len() + part.len() > LIMIT;
        if !too_long {
            line.extend_from_slice(part);
        }
        input.consume(used);
        if ended && too_long {
            tracing::warn!("a line of an agent was too long and was thrown away");
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

    async fn all(bytes: &[u8]) -> Vec<Line> {
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
        assert_eq!(all(b"{\"a\":1}\r\n{\"b\":2}").await.len(), 2, "CRLF, and no end of the last");
    }

    #[test]
    fn kinds_of_lines() {
        let kind = |text: &str| parse(text).map(|line| line.kind);
        let response = |id: Value| Some(Kind::Response(id));
        assert_eq!(kind(r#"{"id":1,"result":{}}"#), response(1.into()));
        assert_eq!(kind(r#"{"id":"x","error":{"code":1}}"#), response("x".into()));
        assert_eq!(kind(r#"{"id":0,"method":"m"}"#), Some(Kind::Request));
        assert_eq!(kind(r#"{"method":"m","params":{}}"#), Some(Kind::Notification));
        assert_eq!(kind(r#"{"id":null,"method":"m"}"#), Some(Kind::Notification));
        assert_eq!(kind(r#"{"a":1}"#), Some(Kind::Notification));
    }

    proptest! {
        /// Whatever comes, nothing breaks, and good lines are found unchanged.
        #[test]
        fn any_bytes(before in prop::collection::vec(any::<u8>(), 0..200)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let mut bytes = before;
            bytes.extend_from_slice(b"\n{\"id\": 7,  \"result\":{}}\n");
            let lines = runtime.block_on(all(&bytes));
            prop_assert_eq!(&lines.last().unwrap().text, "{\"id\": 7,  \"result\":{}}");
        }
    }
}
