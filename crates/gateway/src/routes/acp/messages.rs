//! JSON-RPC messages of the Agent Client Protocol.

use hob_sessions::session::SessionError;
use serde_json::{Value, json};

use crate::acp_protocol::{INTERNAL_ERROR, INVALID_PARAMS, NOT_FOUND};
use crate::error::ApiError;

/// An error for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AcpError {
    pub code: i64,
    pub message: String,
}

impl AcpError {
    pub fn new(code: i64, message: impl Into<String>) -> AcpError {
        AcpError { code, message: message.into() }
    }

    pub fn invalid(message: impl Into<String>) -> AcpError {
        AcpError::new(INVALID_PARAMS, message)
    }
}

impl From<ApiError> for AcpError {
    fn from(error: ApiError) -> AcpError {
        match error {
            ApiError::BadRequest { message, .. } => AcpError::invalid(message),
            ApiError::NotFound(message) => AcpError::new(NOT_FOUND, message),
            ApiError::Gone => AcpError::invalid("the session is closed"),
            ApiError::Limited { message, .. } | ApiError::Busy { message, .. } => {
                AcpError::new(INTERNAL_ERROR, message)
            }
            other => {
                tracing::error!(error = ?other, "a request of /acp failed");
                AcpError::new(INTERNAL_ERROR, "internal error; see Hob's log")
            }
        }
    }
}

impl From<SessionError> for AcpError {
    fn from(error: SessionError) -> AcpError {
        ApiError::from(error).into()
    }
}

/// Builds the answer to a request.
pub(super) fn answer(id: &Value, result: Result<Value, AcpError>) -> Value {
    match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(AcpError { code, message }) => {
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
        }
    }
}
