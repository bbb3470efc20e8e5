//! What a client sends: requests, notifications and answers.

use serde_json::Value;

use super::connection::{Connection, MAX_REQUESTS};
use super::messages::{AcpError, answer};
use super::{methods, watch};
use crate::acp_protocol::INVALID_REQUEST;

/// Takes a message of the client. A request runs by itself; its answer is sent when it is there.
pub(super) fn take(connection: &Connection, message: Value) {
    let Some(method) = message["method"].as_str().map(str::to_owned) else {
        return connection.take_answer(message);
    };
    let id = message.get("id").cloned();
    if !connection.begin_request() {
        if let Some(id) = id {
            let text = format!(
                "this connection already has {MAX_REQUESTS} running requests, which is the limit"
            );
            connection.send(None, answer(&id, Err(AcpError::new(INVALID_REQUEST, text))));
        }
        return;
    }
    let connection = connection.clone();
    connection.gateway().runtime.tasks.clone().spawn(async move {
        let session = message["params"]["sessionId"].as_str().map(str::to_owned);
        if !connection.is_allowed().await {
            return connection.end();
        }
        let result = tokio::select! {
            result = methods::call(&connection, &method, &message["params"]) => result,
            () = connection.ended().cancelled() => return,
        };
        connection.end_request();
        let opened = match (method.as_str(), &result) {
            ("session/new", Ok(made)) => made["sessionId"].as_str().map(str::to_owned),
            ("session/load" | "session/resume", Ok(_)) => session.clone(),
            _ => None,
        };
        if let Some(id) = id {
            connection.send(session, answer(&id, result));
        }
        if let Some(opened) = opened {
            watch::begin(&connection, &opened);
        }
    });
}
