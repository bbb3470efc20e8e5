//! `GET /acp` with an upgrade: ACP over a WebSocket. One text frame is one message.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use hob_domain::json_size::has_too_many_values;
use hob_domain::{AgentName, App};
use serde_json::Value;
use tokio::time::{Instant, interval_at};

use super::connection::Connection;
use super::connections::ConnectionPlace;
use super::dispatch;
use super::messages::{AcpError, answer};
use crate::acp_protocol::PARSE_ERROR;
use crate::state::Gateway;

/// Interval of pings to a quiet client.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// How long sending to a client may block before it is disconnected.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves a client over a WebSocket.
pub(super) fn accept(
    gateway: Arc<Gateway>,
    app: App,
    agent: AgentName,
    place: ConnectionPlace,
    upgrade: WebSocketUpgrade,
) -> Response {
    let size = gateway.limits.max_body_bytes;
    let upgrade = upgrade.max_message_size(size).max_frame_size(size);
    upgrade.on_upgrade(async move |socket| {
        let _place = place;
        serve(gateway, app, agent, socket).await;
    })
}

async fn serve(gateway: Arc<Gateway>, app: App, agent: AgentName, mut socket: WebSocket) {
    let stopping = gateway.runtime.stopping.clone();
    let (connection, mut outbound) = Connection::open(gateway, app, agent);
    let mut ping = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    loop {
        let frame = tokio::select! {
            received = socket.recv() => match received {
                Some(Ok(Message::Text(text))) => {
                    match parse(&text) {
                        Some(message) => dispatch::take(&connection, message),
                        None => {
                            let text = "the message is not JSON, or has too many values";
                            let error = AcpError::new(PARSE_ERROR, text);
                            connection.send(None, answer(&Value::Null, Err(error)));
                        }
                    }
                    continue;
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                Some(Ok(_)) => continue,
            },
            Some(sent) = outbound.recv() => Message::Text(sent.text.into()),
            _ = ping.tick() => {
                if !connection.is_allowed().await {
                    break;
                }
                Message::Ping(Default::default())
            }
            () = connection.ended().cancelled() => break,
            () = stopping.cancelled() => break,
        };
        match tokio::time::timeout(SEND_TIMEOUT, socket.send(frame)).await {
            Ok(Ok(())) => {}
            _ => break,
        }
    }
    connection.end();
}

fn parse(text: &str) -> Option<Value> {
    if has_too_many_values(text.as_bytes()) {
        return None;
    }
    serde_json::from_str(text).ok()
}
