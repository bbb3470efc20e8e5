//! A WebSocket client: `hob attach` uses it to watch a terminal over the socket.

use std::io;

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

/// An open WebSocket.
pub struct WebSocket<S> {
    stream: WebSocketStream<S>,
}

/// A message received over a WebSocket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    Text(String),
    Binary(Vec<u8>),
}

/// Opens a WebSocket at `path`. If the server refuses, its message is the error's text.
pub async fn open<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    path: &str,
) -> io::Result<WebSocket<S>> {
    let config = WebSocketConfig::default().max_message_size(Some(16 << 20));
    let address = format!("ws://localhost{path}");
    match client_async_with_config(address, stream, Some(config)).await {
        Ok((stream, _)) => Ok(WebSocket { stream }),
        Err(Error::Http(response)) => {
            let body = response.body().as_deref().unwrap_or_default();
            let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
            let status = response.status();
            let said = body["error"].as_str().map(ToOwned::to_owned);
            Err(io::Error::other(said.unwrap_or_else(|| format!("the server answered {status}"))))
        }
        Err(error) => Err(io::Error::other(error)),
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocket<S> {
    /// Returns the next message, or `None` at the end. Cancel-safe.
    pub async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            match self.stream.next().await {
                Some(Ok(Message::Text(text))) => return Ok(Some(Frame::Text(text.to_string()))),
                Some(Ok(Message::Binary(bytes))) => return Ok(Some(Frame::Binary(bytes.to_vec()))),
                // A ping is answered with the next send or read.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(_))) | None => return Ok(None),
                Some(Err(Error::ConnectionClosed | Error::AlreadyClosed)) => return Ok(None),
                Some(Err(error)) => return Err(io::Error::other(error)),
            }
        }
    }

    pub async fn send(&mut self, frame: Frame) -> io::Result<()> {
        let message = match frame {
            Frame::Text(text) => Message::Text(text.into()),
            Frame::Binary(bytes) => Message::Binary(bytes.into()),
        };
        self.stream.send(message).await.map_err(io::Error::other)
    }

    /// Closes the WebSocket.
    pub async fn close(mut self) {
        let _ = self.stream.close(None).await;
    }
}
