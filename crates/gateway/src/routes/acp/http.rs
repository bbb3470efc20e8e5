//! `/acp` over streamable HTTP: requests by POST, everything else by a stream of events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Extension, FromRequestParts, Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Json, Response};
use futures_util::{StreamExt, stream};
use hob_domain::AgentName;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::connection::Connection;
use super::connections::{AcpConnections, HttpConnection};
use super::mailbox::{Forgotten, MessageStream};
use super::messages::answer;
use super::{dispatch, web_socket};
use crate::acp_protocol;
use crate::app_requests::RequestSlot;
use crate::error::{ApiError, ErrorBody};
use crate::extract::body::{parse, receive_bytes};
use crate::extract::caller::Caller;
use crate::extract::path_and_query::ApiQuery;
use crate::state::Gateway;

const CONNECTION_HEADER: &str = "acp-connection-id";
const SESSION_HEADER: &str = "acp-session-id";
const LAST_EVENT_ID: &str = "last-event-id";
/// Interval of keep-alive comments on a quiet stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentQuery {
    agent: Option<String>,
}

/// A JSON-RPC message of the Agent Client Protocol: a request, a notification, or an answer.
#[derive(ToSchema)]
#[schema(example = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}))]
#[allow(dead_code, reason = "only described; messages are read as JSON")]
pub(crate) struct AcpMessageBody {
    /// `2.0`.
    #[schema(value_type = Option<Value>)]
    jsonrpc: Option<Value>,
    /// The number of a request, and of its answer.
    #[schema(value_type = Option<Value>)]
    id: Option<Value>,
    /// The name of what is asked for; an answer has none.
    #[schema(value_type = Option<Value>)]
    method: Option<Value>,
    #[schema(value_type = Option<Value>)]
    params: Option<Value>,
    #[schema(value_type = Option<Value>)]
    result: Option<Value>,
    #[schema(value_type = Option<Value>)]
    error: Option<Value>,
}

impl AgentQuery {
    fn agent(&self, gateway: &Gateway) -> Result<AgentName, ApiError> {
        match &self.agent {
            Some(name) => Ok(gateway.agent(name)?.0),
            None => Ok(gateway.default_agent.clone()),
        }
    }
}

/// Opens a WebSocket, or the stream of a connection.
///
/// With an upgrade, each text frame is a message of the Agent Client Protocol. Without one, `Acp-Connection-Id` names the
/// connection, and `Acp-Session-Id` limits the stream to one session.
#[utoipa::path(get, path = "/acp", tag = "sessions", operation_id = "acp_stream", security(("token" = [])),
    params(("agent" = Option<String>, Query, description = "The agent of new sessions; without it, the default agent."),
        ("Acp-Connection-Id" = Option<String>, Header, description = "The connection."),
        ("Acp-Session-Id" = Option<String>, Header, description = "Only messages of this session."),
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the last message received of such a stream. What was sent after it is sent again.")), responses(
    (status = 101, description = "Switched to a WebSocket."),
    (status = 200, description = "Messages of the agent.", content((String = "text/event-stream"))),
    (status = 400, description = "No upgrade and no connection, or an unknown agent.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such connection of this app, or the messages after Last-Event-ID are not kept.", body = ErrorBody),
    (status = 406, description = "Accept does not have text/event-stream.", body = ErrorBody),
    (status = 429, description = "The app has too many connections; see Retry-After.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    Extension(connections): Extension<Arc<AcpConnections>>,
    Caller(app): Caller,
    ApiQuery(query): ApiQuery<AgentQuery>,
    request: Request,
) -> Result<Response, ApiError> {
    let (mut parts, _) = request.into_parts();
    let headers = &parts.headers;
    if let Some(id) = header(headers, CONNECTION_HEADER) {
        if !takes_events(headers) {
            return Err(ApiError::NotAcceptable("Accept: must have text/event-stream"));
        }
        let found = connections.find(id, &app.name).ok_or_else(no_connection)?;
        let session = header(headers, SESSION_HEADER).map(str::to_owned);
        let stream = found.mailbox.open(session, received(headers)?).map_err(|Forgotten| {
            ApiError::NotFound(
                "Last-Event-ID: the messages after it are not kept; begin a connection and load the sessions again"
                    .to_owned(),
            )
        })?;
        return Ok(stream_of(&gateway, &found, stream));
    }
    let agent = query.agent(&gateway)?;
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &gateway).await;
    let upgrade = upgrade.map_err(|_| {
        ApiError::bad_request("Acp-Connection-Id: required, except to open a WebSocket")
    })?;
    let place = connections.place(&app.name).ok_or_else(too_many)?;
    Ok(web_socket::accept(gateway, app, agent, place, upgrade))
}

/// Sends a message to Hob. `initialize` opens a connection; its answer has the header `Acp-Connection-Id`.
#[utoipa::path(post, path = "/acp", tag = "sessions", operation_id = "acp_send", security(("token" = [])), request_body = AcpMessageBody,
    params(("agent" = Option<String>, Query, description = "The agent of new sessions; without it, the default agent."),
        ("Acp-Connection-Id" = Option<String>, Header, description = "The connection, unless the message is `initialize`.")), responses(
    (status = 200, description = "The answer to `initialize`.", body = Object),
    (status = 202, description = "The message has been taken; its answer comes on the stream."),
    (status = 400, description = "Invalid request; the error names the field.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such connection of this app.", body = ErrorBody),
    (status = 408, description = "The body did not arrive in time.", body = ErrorBody),
    (status = 413, description = "The body is too large.", body = ErrorBody),
    (status = 415, description = "Content-Type is something else than application/json.", body = ErrorBody),
    (status = 429, description = "The app has too many connections; see Retry-After.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn post(
    State(gateway): State<Arc<Gateway>>,
    Extension(connections): Extension<Arc<AcpConnections>>,
    Caller(app): Caller,
    ApiQuery(query): ApiQuery<AgentQuery>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, ApiError> {
    if !is_json(&headers) {
        return Err(ApiError::UnsupportedMedia("Content-Type: must be application/json"));
    }
    let slot = request.extensions().get::<RequestSlot>().cloned().unwrap_or_default();
    let limit = gateway.limits.max_body_bytes;
    let (bytes, _permit) = receive_bytes(request.into_body(), limit, &slot).await?;
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(ApiError::bad_request("the body must be one message: Hob takes no batches"));
    }
    let message: Value = parse(&bytes)?;
    if message["method"] == "initialize" {
        let agent = query.agent(&gateway)?;
        let place = connections.place(&app.name).ok_or_else(too_many)?;
        let (connection, outbound) = Connection::open(gateway.clone(), app, agent);
        connection.introduce(&message["params"]);
        let id = connections.add(connection, outbound, place);
        let result = Json(answer(&message["id"], Ok(acp_protocol::initialize())));
        let mut response = result.into_response();
        if let Ok(value) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(HeaderName::from_static(CONNECTION_HEADER), value);
        }
        return Ok(response);
    }
    let id = header(&headers, CONNECTION_HEADER)
        .ok_or_else(|| ApiError::bad_request("Acp-Connection-Id: must be sent"))?;
    let found = connections.find(id, &app.name).ok_or_else(no_connection)?;
    dispatch::take(&found.connection, message);
    Ok(StatusCode::ACCEPTED.into_response())
}

/// Ends a connection. Turns go on, and sessions stay.
#[utoipa::path(delete, path = "/acp", tag = "sessions", operation_id = "acp_end", security(("token" = [])),
    params(("Acp-Connection-Id" = Option<String>, Header, description = "The connection.")), responses(
    (status = 202, description = "The connection has ended."),
    (status = 400, description = "Invalid request; the error names the field.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such connection of this app.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn delete(
    Extension(connections): Extension<Arc<AcpConnections>>,
    Caller(app): Caller,
    headers: HeaderMap,
) -> Result<StatusCode, ApiError> {
    let id = header(&headers, CONNECTION_HEADER)
        .ok_or_else(|| ApiError::bad_request("Acp-Connection-Id: must be sent"))?;
    match connections.remove(id, &app.name) {
        true => Ok(StatusCode::ACCEPTED),
        false => Err(no_connection()),
    }
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn too_many() -> ApiError {
    ApiError::Limited {
        code: "acp_connections",
        message: "the app has too many connections; end one".to_owned(),
        retry_after: Duration::from_secs(1),
    }
}

fn no_connection() -> ApiError {
    ApiError::NotFound("no such connection".to_owned())
}

/// Returns whether the client takes a stream of events. One that does not say what it takes does.
fn takes_events(headers: &HeaderMap) -> bool {
    if !headers.contains_key(ACCEPT) {
        return true;
    }
    let kinds = ["text/event-stream", "text/*", "*/*"];
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut accepted = accepted.flat_map(|value| value.split(','));
    accepted.any(|value| kinds.iter().any(|kind| is_kind(value, kind)))
}

/// Returns whether the headers call the body JSON, or nothing.
fn is_json(headers: &HeaderMap) -> bool {
    header(headers, CONTENT_TYPE.as_str()).is_none_or(|kind| is_kind(kind, "application/json"))
}

/// Returns whether a media type with parameters is this one.
fn is_kind(value: &str, kind: &str) -> bool {
    value.split(';').next().is_some_and(|value| value.trim().eq_ignore_ascii_case(kind))
}

/// Returns the number of the last message that the client has received of a stream which it opens again.
fn received(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|value| value.parse().ok());
    number.map(Some).ok_or_else(|| {
        ApiError::bad_request("Last-Event-ID: must be the id of an event of this stream")
    })
}

fn stream_of(gateway: &Gateway, found: &Arc<HttpConnection>, stream: MessageStream) -> Response {
    let (found, stopping) = (found.clone(), gateway.runtime.stopping.clone());
    let events = stream::unfold((found, stream, stopping), |state| async move {
        let (found, mut stream, stopping) = state;
        let message = tokio::select! {
            message = stream.next() => message,
            () = found.connection.ended().cancelled() => None,
            () = stopping.cancelled() => None,
        };
        message.map(|message| (message, (found, stream, stopping)))
    });
    let events = events.map(|(number, text)| {
        let event = Event::default().event("message").id(number.to_string()).data(text);
        Ok::<Event, Infallible>(event)
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_for_clients_that_take_events() {
        let takes = |accept: &'static str| {
            takes_events(&HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]))
        };
        for accept in ["*/*", "text/*", "application/json, Text/Event-Stream; q=0.9"] {
            assert!(takes(accept), "{accept}");
        }
        for accept in ["application/json", "application/*", "text/event-stream-of-another-kind"] {
            assert!(!takes(accept), "{accept}");
        }
        assert!(takes_events(&HeaderMap::new()));
    }
}
