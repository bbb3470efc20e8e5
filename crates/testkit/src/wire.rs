//! HTTP by hand over one connection, for what a well-behaved client does not do: cut streams, malformed
//! requests, reused connections.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

/// No read or write takes longer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A connection.
pub struct Wire {
    stream: BufReader<TcpStream>,
}

/// The status and headers of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub status: u16,
    /// Names are in lower case, in the order of the answer.
    pub headers: Vec<(String, String)>,
}

impl Head {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the head without the date and the request id, which differ between equal answers.
    pub fn without_request_id(&self) -> Head {
        let mut head = self.clone();
        head.headers.retain(|(name, _)| name != "date" && name != "x-request-id");
        head
    }
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub head: Head,
    pub body: String,
}

impl Reply {
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// Returns the body as JSON, or `null` when it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }
}

/// An event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEvent {
    /// The event's number in the session's log.
    pub id: u64,
    pub kind: String,
    pub data: String,
}

/// A request.
#[derive(Debug, Clone, Default)]
pub struct WireRequest<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub token: Option<&'a str>,
    pub headers: Vec<(&'a str, String)>,
    /// JSON.
    pub body: Option<String>,
}

impl Wire {
    /// Connects to `127.0.0.1:PORT`.
    pub fn connect(address: &str) -> io::Result<Wire> {
        Wire::connect_within(address, TIMEOUT)
    }

    /// Connects with a timeout, which then holds for every read and write. For a server that may be suspended.
    pub fn connect_within(address: &str, timeout: Duration) -> io::Result<Wire> {
        let stream =
            TcpStream::connect_timeout(&address.parse().map_err(io::Error::other)?, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Wire { stream: BufReader::with_capacity(64 << 10, stream) })
    }

    /// The connection itself.
    pub fn stream(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    /// Writes any bytes.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Closes the writing side.
    pub fn end(&mut self) {
        let _ = self.stream.get_ref().shutdown(Shutdown::Write);
    }

    /// Sends a request. The connection may be reused once its answer has been read.
    pub fn ask(&mut self, asked: &WireRequest<'_>) -> io::Result<()> {
        let mut text = format!("{} {} HTTP/1.1\r\nhost: localhost\r\n", asked.method, asked.path);
        if let Some(token) = asked.token {
            text.push_str(&format!("authorization: Bearer {token}\r\n"));
        }
        for (name, value) in &asked.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = &asked.body {
            text.push_str(&format!(
                "content-type: application/json\r\ncontent-length: {}\r\n",
                body.len()
            ));
        }
        text.push_str("\r\n");
        text.push_str(asked.body.as_deref().unwrap_or_default());
        self.send(text.as_bytes())
    }

    /// Sends a request and reads its whole answer.
    pub fn call(&mut self, asked: &WireRequest<'_>) -> io::Result<Reply> {
        self.ask(asked)?;
        self.reply()
    }

    /// Reads an answer to its end.
    pub fn reply(&mut self) -> io::Result<Reply> {
        let head = self.head()?;
        let mut body = Vec::new();
        if head.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk()? {
                body.extend_from_slice(&chunk);
            }
        } else {
            let length = head.header("content-length").and_then(|value| value.parse().ok());
            body = vec![0; length.unwrap_or_default()];
            self.stream.read_exact(&mut body)?;
        }
        Ok(Reply { head, body: String::from_utf8_lossy(&body).into_owned() })
    }

    /// Reads the status and headers of an answer.
    pub fn head(&mut self) -> io::Result<Head> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no answer: {first:?}")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Ok(Head { status, headers })
    }

    /// Reads a line, without its end.
    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    /// Reads a chunk of a chunked body; `None` after the last.
    fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let size = self.line()?;
        let size = usize::from_str_radix(&size, 16).map_err(io::Error::other)?;
        let mut bytes = vec![0; size + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(size);
        Ok((size > 0).then_some(bytes))
    }

    /// Returns the events of a stream whose head has been read, each as soon as it is complete. Ends with the
    /// stream, also when that is cut.
    pub fn events(mut self) -> impl Iterator<Item = StreamEvent> + Send {
        let mut text = String::new();
        std::iter::from_fn(move || {
            loop {
                if let Some(end) = text.find("\n\n") {
                    let block: String = text.drain(..end + 2).collect();
                    match stream_event(&block) {
                        Some(event) => return Some(event),
                        None => continue,
                    }
                }
                let chunk = self.chunk().ok()??;
                text.push_str(&String::from_utf8_lossy(&chunk));
            }
        })
    }
}

/// Parses a block of a stream; `None` for a comment.
pub fn stream_event(block: &str) -> Option<StreamEvent> {
    let mut event = StreamEvent { id: 0, kind: String::new(), data: String::new() };
    let mut has_data = false;
    for line in block.lines() {
        match line.split_once(':').map(|(name, value)| (name, value.trim_start_matches(' '))) {
            // The streams of `/v1` have ids that are no numbers.
            Some(("id", value)) => event.id = value.parse().unwrap_or_default(),
            Some(("event", value)) => event.kind = value.to_owned(),
            Some(("data", value)) => {
                if std::mem::replace(&mut has_data, true) {
                    event.data.push('\n');
                }
                event.data.push_str(value);
            }
            _ => {}
        }
    }
    (!event.kind.is_empty()).then_some(event)
}

impl StreamEvent {
    /// Returns the data as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// Returns whether the log has this event.
    pub fn is_logged_as(&self, logged: &Value) -> bool {
        let data: Value = serde_json::from_str(&self.data).unwrap_or_default();
        if logged["event"] != self.kind.as_str() {
            return false;
        }
        match self.kind.as_str() {
            "message" => logged["message"] == data,
            // A stream sends the whole answer of the turn instead.
            "turn" => ["turn_index", "state", "stop_reason"].iter().all(|k| logged[k] == data[k]),
            _ => to_microseconds(logged) == to_microseconds(&data),
        }
    }
}

/// Cuts the time of an event to microseconds: the log stores no more, a stream may send more.
pub fn to_microseconds(event: &Value) -> Value {
    let mut event = event.clone();
    let exact = event["at"].as_str().and_then(|at| at.trim_end_matches('Z').split_once('.'));
    if let Some((seconds, part)) = exact {
        let part = format!("{part:0<6}");
        event["at"] = json!(format!("{seconds}.{}Z", part[..6].trim_end_matches('0')));
    }
    event
}
