//! Request bodies, read as their handlers read them, as far as that needs no state of the server. For fuzzing.

use hob_agents::mcp_servers;
use hob_domain::AgentName;
use hob_sessions::Conversation;

use crate::error::ApiError;
use crate::extract::body::parse;
use crate::routes::sessions::control::{PermissionBody, ToolResultBody};
use crate::routes::sessions::manage::new_session;
use crate::routes::sessions::shapes::{CreateBody, TurnBody};
use crate::routes::v1::bodies;

/// A request with a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// `POST /sessions`
    Session,
    /// `POST /sessions/{id}/turn`
    Turn,
    /// `POST /sessions/{id}/permissions/{request_id}`
    Permission,
    /// `POST /sessions/{id}/tool_results/{call_id}`
    ToolResult,
    /// `POST /v1/messages`
    Messages,
    /// `POST /v1/chat/completions`
    ChatCompletion,
    /// `POST /v1/responses`
    Response,
}

/// Reads a body. Returns the conversation of a request to `/v1`. The error is for logs.
pub fn read_body(kind: RequestKind, bytes: &[u8]) -> Result<Option<Conversation>, String> {
    match kind {
        RequestKind::Session => {
            let body: CreateBody = parse(bytes).map_err(text)?;
            let agent = AgentName::new(body.agent.as_str()).ok_or("agent: not a name")?;
            let session = new_session(agent, body).map_err(text)?;
            mcp_servers::parse(&session.mcp_servers)?;
            Ok(None)
        }
        RequestKind::Turn => parse::<TurnBody>(bytes).map(|_| None).map_err(text),
        RequestKind::Permission => parse::<PermissionBody>(bytes).map(|_| None).map_err(text),
        RequestKind::ToolResult => parse::<ToolResultBody>(bytes).map(|_| None).map_err(text),
        RequestKind::Messages => bodies::messages(bytes).map(Some),
        RequestKind::ChatCompletion => bodies::chat(bytes).map(Some),
        RequestKind::Response => bodies::response(bytes).map(Some),
    }
}

fn text(error: ApiError) -> String {
    format!("{error:?}")
}
