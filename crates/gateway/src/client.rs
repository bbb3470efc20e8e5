//! An HTTP client for the owner's commands, over the server's socket.

use std::io;
use std::pin::Pin;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::Fuse;
use http_body_util::{BodyExt, Full};
pub use hyper::Method;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

/// One connection. It sends requests one after another and is polled while a caller awaits a response.
pub struct Client {
    sender: SendRequest<Full<Bytes>>,
    connection: Fuse<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
}

/// A response whose body has not been read yet.
pub struct Reply<'a> {
    pub status: u16,
    body: Incoming,
    client: &'a mut Client,
    /// Received bytes of a stream that are not yet a whole event.
    pending: Vec<u8>,
}

/// One server-sent event.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct StreamEvent {
    pub id: String,
    pub event: String,
    pub data: String,
}

impl Client {
    pub async fn new(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> io::Result<Client> {
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let connection: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(connection);
        Ok(Client { sender, connection: connection.fuse() })
    }

    /// Sends a request. `accept` is the media type of the response.
    pub async fn ask(
        &mut self,
        method: Method,
        path: &str,
        accept: &str,
        body: Option<&Value>,
    ) -> io::Result<Reply<'_>> {
        self.ask_with(method, path, &[("accept", accept)], body).await
    }

    /// Sends a request with these headers.
    pub async fn ask_with(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> io::Result<Reply<'_>> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut request = Request::builder().method(method).uri(path).header("host", "hob");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(io::Error::other)?;
        let mut answer = std::pin::pin!(self.sender.send_request(request));
        let response: Response<Incoming> = tokio::select! {
            biased;
            response = &mut answer => response.map_err(io::Error::other)?,
            // An answer that arrived before the end counts.
            ended = &mut self.connection => answer.await.map_err(|_| closed(ended))?,
        };
        let status = response.status().as_u16();
        Ok(Reply { status, body: response.into_body(), client: self, pending: Vec::new() })
    }
}

impl Reply<'_> {
    /// Reads the whole body as JSON.
    pub async fn json(self) -> io::Result<Value> {
        serde_json::from_slice(&self.bytes().await?).map_err(io::Error::other)
    }

    /// Reads the whole body as text.
    pub async fn text(self) -> io::Result<String> {
        String::from_utf8(self.bytes().await?).map_err(io::Error::other)
    }

    async fn bytes(mut self) -> io::Result<Vec<u8>> {
        let mut bytes = std::mem::take(&mut self.pending);
        while let Some(more) = self.more().await? {
            bytes.extend_from_slice(&more);
        }
        Ok(bytes)
    }

    /// Returns the next event of a stream, or `None` at its end. Cancel-safe.
    pub async fn next_event(&mut self) -> io::Result<Option<StreamEvent>> {
        loop {
            if let Some(end) = self.pending.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = self.pending.drain(..end + 2).collect();
                let event = parse_event(&String::from_utf8_lossy(&block));
                if event != StreamEvent::default() {
                    return Ok(Some(event));
                }
                continue;
            }
            match self.more().await? {
                Some(bytes) => self.pending.extend_from_slice(&bytes),
                None => return Ok(None),
            }
        }
    }

    async fn more(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            let frame = tokio::select! {
                biased;
                frame = self.body.frame() => frame,
                ended = &mut self.client.connection => {
                    // Data that arrived before the end may still be unread.
                    match self.body.frame().await {
                        Some(frame) => Some(frame),
                        None if ended.is_ok() => None,
                        None => return Err(closed(ended)),
                    }
                }
            };
            match frame {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

fn closed(ended: hyper::Result<()>) -> io::Error {
    match ended {
        Ok(()) => io::ErrorKind::UnexpectedEof.into(),
        Err(error) => io::Error::other(error),
    }
}

/// Parses the lines of one event. Comments are ignored.
fn parse_event(block: &str) -> StreamEvent {
    let mut event = StreamEvent::default();
    let mut data: Vec<&str> = Vec::new();
    for line in block.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => event.id = value.to_owned(),
            "event" => event.event = value.to_owned(),
            "data" => data.push(value),
            _ => {}
        }
    }
    event.data = data.join("\n");
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_stream() {
        let event = parse_event("id: 7\nevent: message\ndata: {\"a\":\ndata: 1}\n\n");
        assert_eq!((event.id.as_str(), event.event.as_str()), ("7", "message"));
        assert_eq!(event.data, "{\"a\":\n1}");
        assert_eq!(parse_event(": still there\n\n"), StreamEvent::default());
        assert_eq!(parse_event("data:x\n\n").data, "x");
    }
}
