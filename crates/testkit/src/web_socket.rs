//! A blocking WebSocket client whose every read has a timeout.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBuf;
use serde_json::Value;
use tokio_tungstenite::tungstenite::handshake::HandshakeError;
use tokio_tungstenite::tungstenite::http::Request;
use tokio_tungstenite::tungstenite::{self, Error, Message};

/// No read takes longer.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// An open WebSocket. Dropping it closes the connection.
pub struct WebSocket {
    socket: tungstenite::WebSocket<TcpStream>,
}

/// A message from the server.
#[derive(Debug, Clone, PartialEq)]
pub enum SocketMessage {
    Json(Value),
    Bytes(Vec<u8>),
    /// The close, with its code if it has one.
    Closed(Option<u16>),
}

impl WebSocket {
    /// Opens a WebSocket with these headers. The error is the HTTP status of the refusal.
    pub fn open(address: &str, path: &str, headers: &[(&str, &str)]) -> Result<WebSocket, u16> {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(READ_TIMEOUT)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        // A small buffer, so that a client that does not read soon blocks the server.
        let _ = setsockopt(&stream, RcvBuf, &(64 << 10));
        let key = tungstenite::handshake::client::generate_key();
        let mut request = Request::builder()
            .uri(format!("ws://{address}{path}"))
            .header("host", address)
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", key);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        match tungstenite::client(request.body(()).expect("a request"), stream) {
            Ok((socket, _)) => Ok(WebSocket { socket }),
            Err(HandshakeError::Failure(Error::Http(response))) => Err(response.status().as_u16()),
            Err(error) => panic!("no answer to an upgrade: {error}"),
        }
    }

    /// Returns the next message.
    #[allow(clippy::should_implement_trait, reason = "it is no iterator: it has an end of its own")]
    pub fn next(&mut self) -> SocketMessage {
        let since = Instant::now();
        loop {
            assert!(since.elapsed() < READ_TIMEOUT, "nothing comes");
            match self.socket.read() {
                Ok(Message::Text(text)) => {
                    return SocketMessage::Json(serde_json::from_str(&text).expect("JSON"));
                }
                Ok(Message::Binary(bytes)) => return SocketMessage::Bytes(bytes.to_vec()),
                Ok(Message::Close(frame)) => {
                    return SocketMessage::Closed(frame.map(|frame| frame.code.into()));
                }
                Ok(_) => {}
                Err(Error::ConnectionClosed | Error::AlreadyClosed | Error::Protocol(_)) => {
                    return SocketMessage::Closed(None);
                }
                Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return SocketMessage::Closed(None);
                }
                Err(error) => panic!("the WebSocket broke: {error}"),
            }
        }
    }

    pub fn send_json(&mut self, value: &Value) {
        self.socket.send(Message::Text(value.to_string().into())).expect("sent");
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        // A close by the server shows with the next read.
        let _ = self.socket.send(Message::Binary(bytes.to_vec().into()));
    }
}
