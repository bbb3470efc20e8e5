//! `/sessions`: durable conversations, for apps; and all of them for the owner, below `/admin`.

pub(crate) mod control;
pub(crate) mod events;
pub(crate) mod manage;
pub(crate) mod owner;
pub(crate) mod owner_turns;
pub(crate) mod shapes;
mod stream;
pub(crate) mod turns;

use hob_domain::session::SessionId;

use crate::error::ApiError;

/// A session's name from a path. What can't be one does not exist.
pub(crate) fn session_id(text: &str) -> Result<SessionId, ApiError> {
    SessionId::presented(text).ok_or_else(no_session)
}

fn no_session() -> ApiError {
    ApiError::NotFound("there is no such session".to_owned())
}
