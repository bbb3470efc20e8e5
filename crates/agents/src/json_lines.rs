//! JSON objects on an agent's standard output, one per line, unchanged.

use std::time::Duration;

use hob_domain::json_size::has_too_many_values;
use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt};
use tokio::time::{Instant, timeout_at};

use crate::app_permits::{AppPermit, PermitsOfApp};

/// The longest line of an agent: a line must fit in memory, several times.
const MAX_LINE_BYTES: usize = 8 << 20;

/// Longer lines need a permit.
const LONG_LINE_BYTES: usize = 32 << 10;

/// How many long lines of an app's agents may be in memory at a time.
pub(crate) const MAX_LONG_LINES: usize = 2;

/// How long an agent may take to finish a long line.
const LONG_LINE_TIMEOUT: Duration = Duration::from_secs(60);

/// Longer ids are none.
const MAX_ID_BYTES: usize = 4096;

/// Why an agent's output is not read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    #[error("Hob ended the agent: it wrote a line of more than {} MiB", MAX_LINE_BYTES >> 20)]
    TooLong,
    #[error("Hob ended the agent, because the agent began a long line of output and did not end it within {} s", LONG_LINE_TIMEOUT.as_secs())]
    TooSlow,
}

/// The role of a line in JSON-RPC.
#[derive(Debug, PartialEq)]
pub enum LineKind {
    /// The response to one of Hob's requests, with its id.
    Response(Value),
    /// A request of the agent, with its id.
    Request(Value),
    Notification,
}

/// A line that holds a JSON object.
#[derive(Debug)]
pub struct JsonLine {
    pub text: String,
    pub kind: LineKind,
    /// A long line has a permit, which is held until the line is stored.
    pub permit: Option<AppPermit>,
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
        (Some(_), Some(id)) if id != "null" => LineKind::Request(serde_json::from_str(id).ok()?),
        _ => LineKind::Notification,
    };
    Some(JsonLine { text: text.to_owned(), kind, permit: None })
}

/// Returns the method of a message, if it has one.
pub fn method(text: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct MethodOnly {
        method: Option<String>,
    }
    serde_json::from_str::<MethodOnly>(text).ok()?.method
}

/// Reads an agent's standard output.
pub struct LineReader<R> {
    input: R,
    permits: PermitsOfApp,
}

impl<R: AsyncBufRead + Unpin> LineReader<R> {
    pub fn new(input: R, permits: PermitsOfApp) -> LineReader<R> {
        LineReader { input, permits }
    }

    /// Returns the next JSON object, or `None` at the end. Other lines are skipped.
    pub async fn next(&mut self) -> Result<Option<JsonLine>, LineError> {
        while let Some((bytes, permit)) = self.next_bytes().await? {
            if has_too_many_values(&bytes) {
                tracing::warn!(
                    "dropped a line of output from an agent: its JSON has too many values"
                );
                continue;
            }
            if let Some(line) = std::str::from_utf8(&bytes).ok().and_then(parse) {
                return Ok(Some(JsonLine { permit, ..line }));
            }
        }
        Ok(None)
    }

    async fn next_bytes(&mut self) -> Result<Option<(Vec<u8>, Option<AppPermit>)>, LineError> {
        let mut line = Vec::new();
        let mut long: Option<(AppPermit, Instant)> = None;
        loop {
            let chunk = match &long {
                None => self.input.fill_buf().await,
                Some((_, deadline)) => {
                    let filled = timeout_at(*deadline, self.input.fill_buf()).await;
                    filled.map_err(|_| LineError::TooSlow)?
                }
            };
            let Ok(chunk) = chunk else { return Ok(None) };
            if chunk.is_empty() {
                let permit = long.map(|(permit, _)| permit);
                return Ok((!line.is_empty()).then_some((line, permit)));
            }
            let (part, used, ended) = match chunk.iter().position(|byte| *byte == b'\n') {
                Some(at) => (&chunk[..at], at + 1, true),
                None => (chunk, chunk.len(), false),
            };
            let length = line.len() + part.len();
            if length > MAX_LINE_BYTES {
                return Err(LineError::TooLong);
            }
            if length > LONG_LINE_BYTES && long.is_none() {
                let permit = self.permits.acquire().await;
                long = Some((permit, Instant::now() + LONG_LINE_TIMEOUT));
            }
            line.extend_from_slice(part);
            self.input.consume(used);
            if ended {
                return Ok(Some((line, long.map(|(permit, _)| permit))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app_permits::AppPermits;
    use proptest::prelude::*;

    async fn all(bytes: &[u8]) -> Vec<JsonLine> {
        let mut reader = LineReader::new(bytes, AppPermits::new(2).of("a"));
        let mut lines = Vec::new();
        while let Some(line) = reader.next().await.unwrap() {
            lines.push(line);
        }
        lines
    }

    /// A line needs a permit once it is long, and ends the output once it is too long.
    #[tokio::test]
    async fn long_lines_are_bounded() {
        let line = |length: usize| format!("{{\"a\":\"{}\"}}\n", "x".repeat(length)).into_bytes();
        let lines = all(&[line(10), line(LONG_LINE_BYTES)].concat()).await;
        assert_eq!(
            lines.iter().map(|line| line.permit.is_some()).collect::<Vec<_>>(),
            [false, true]
        );
        let too_long = [line(10), line(MAX_LINE_BYTES)].concat();
        let mut reader = LineReader::new(&too_long[..], AppPermits::new(2).of("a"));
        assert!(reader.next().await.unwrap().is_some());
        assert_eq!(reader.next().await.unwrap_err(), LineError::TooLong);
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
        assert_eq!(kind(r#"{"id":0,"method":"m"}"#), Some(LineKind::Request(0.into())));
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
