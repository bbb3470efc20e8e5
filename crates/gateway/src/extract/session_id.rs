//! Session ids in paths.

use hob_domain::session::SessionId;

use crate::error::ApiError;

/// Parses a session id from a path. A malformed id is a session that does not exist.
pub(crate) fn session_id(text: &str) -> Result<SessionId, ApiError> {
    SessionId::presented(text).ok_or_else(|| ApiError::NotFound("no such session".to_owned()))
}
