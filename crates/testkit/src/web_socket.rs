//! A WebSocket from outside, for tests: blocking, with an end to every waiting.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBuf;
use serde_json::Value;
use tokio_tungstenite::tungstenite::handshake::HandshakeError;
use tokio_tungstenite::tungstenite::http::Request;
use tokio_tungstenite::tungstenite::{self, Error, Message};

/// Nothing that is waited for takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// An open one. Dropping it hangs up.
pub struct WebSocket {
    socket: tungstenite::WebSocket<TcpStream>,
}

/// What comes over one.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    Json(Value),
    Bytes(Vec<u8>),
    /// It was closed, with this code where one was said.
    Closed(Option<u16>),
}

impl WebSocket {
    /// Opens one with these headers; the status where that is refused.
    pub fn open(address: &str, path: &str, headers: &[(&str, &str)]) -> Result<WebSocket, u16> {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        // Whoever does not read holds little up.
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

    /// What comes next.
    #[allow(clippy::should_implement_trait, reason = "it is no iterator: it has an end of its own")]
    pub fn next(&mut self) -> Said {
        let since = Instant::now();
        loop {
            assert!(since.elapsed() < PATIENCE, "nothing comes");
            match self.socket.read() {
                Ok(Message::Text(text)) => {
                    return Said::Json(serde_json::from_str(&text).expect("JSON"));
                }
                Ok(Message::Binary(bytes)) => return Said::Bytes(bytes.to_vec()),
                Ok(Message::Close(frame)) => {
                    return Said::Closed(frame.map(|frame| frame.code.into()));
                }
                Ok(_) => {}
                Err(Error::ConnectionClosed | Error::AlreadyClosed | Error::Protocol(_)) => {
                    return Said::Closed(None);
                }
                Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return Said::Closed(None);
                }
                Err(error) => panic!("the WebSocket broke: {error}"),
            }
        }
    }

    pub fn send_json(&mut self, value: &Value) {
        self.socket.send(Message::Text(value.to_string().into())).expect("sent");
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        // One that the other side has closed meanwhile is seen with the next reading.
        let _ = self.socket.send(Message::Binary(bytes.to_vec().into()));
    }
}
