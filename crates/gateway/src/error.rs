//! The one place where errors become HTTP responses.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use hob_domain::session::TurnState;
use hob_domain::{RunError, StoreError};
use hob_sessions::UploadError;
use hob_sessions::session::SessionError;
use serde::Serialize;
use utoipa::ToSchema;

/// Every error outside `/v1` and `/mcp`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"ok": false, "error": "missing or wrong token", "code": "unauthorized"}))]
pub(crate) struct ErrorBody {
    /// Always `false`.
    pub ok: bool,
    /// The error as text, for people.
    pub error: String,
    /// The error's stable code, for programs.
    pub code: &'static str,
}

/// The error of a failed agent, with the details of its run.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"ok": false, "error": "API Error: 529 Overloaded", "code": "agent_failed",
    "stderr": "", "duration_ms": 1834, "stop_reason": "error"}))]
pub(crate) struct AgentErrorBody {
    pub ok: bool,
    pub error: String,
    pub code: &'static str,
    /// The last 16 KiB the agent wrote to standard error.
    pub stderr: String,
    pub duration_ms: u64,
    pub stop_reason: String,
}

#[derive(Debug)]
pub(crate) enum ApiError {
    /// 400. The text names the field.
    BadRequest { code: &'static str, message: String },
    /// 401.
    Unauthorized,
    /// 403. The Host header is unknown.
    BadHost,
    /// 403. The request comes from another origin.
    BadOrigin,
    /// 404.
    NotFound(String),
    /// 405.
    MethodNotAllowed,
    /// 406. The text names the header.
    NotAcceptable(&'static str),
    /// 408. The body did not arrive.
    SlowBody,
    /// 409.
    Conflict(String),
    /// 410. The session is closed.
    Gone,
    /// 413. The text names the limit.
    TooLarge(String),
    /// 415. The text names the header.
    UnsupportedMedia(&'static str),
    /// 507. There is no room for the upload.
    NoRoom { code: &'static str, message: String },
    /// 429. The caller may retry after `retry_after`.
    Limited { code: &'static str, message: String, retry_after: Duration },
    /// 503. Every caller would get it.
    Busy { code: &'static str, message: String },
    /// A turn that failed: 502, 503 or 504.
    Turn { code: &'static str, message: String },
    /// 500. The inside is logged, never sent.
    Internal(String),
    /// A run that gave no answer, with its duration in milliseconds.
    Run(RunError, u64),
}

impl ApiError {
    pub fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::BadRequest { code: "bad_request", message: message.into() }
    }
}

/// Returns the error code of a failed turn's state.
pub(crate) fn failure_code(state: TurnState) -> Option<&'static str> {
    match state {
        TurnState::Queued | TurnState::Running | TurnState::Finished | TurnState::Cancelled => None,
        TurnState::Died => Some("agent_died"),
        TurnState::TimedOut => Some("timeout"),
        TurnState::Interrupted => Some("interrupted"),
        TurnState::ResumeFailed => Some("resume_failed"),
        TurnState::Failed => Some("agent_failed"),
        TurnState::NotInstalled => Some("agent_not_installed"),
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        match error {
            StoreError::Exists(_) => ApiError::Conflict(error.to_string()),
            StoreError::Lost => ApiError::Busy { code: "moved", message: error.to_string() },
            StoreError::Unavailable(inside) => {
                tracing::error!(error = inside, "the store is unavailable");
                let message =
                    "the database is unavailable; the request may or may not have taken effect";
                ApiError::Busy { code: "store_unavailable", message: message.to_owned() }
            }
            StoreError::Damaged(inside) | StoreError::Failed(inside) => ApiError::Internal(inside),
        }
    }
}

impl From<SessionError> for ApiError {
    fn from(error: SessionError) -> ApiError {
        let message = error.to_string();
        match error {
            SessionError::NotFound => ApiError::NotFound(message),
            SessionError::Closed => ApiError::Gone,
            SessionError::Invalid(_) => ApiError::bad_request(message),
            SessionError::Folder(_) => ApiError::BadRequest { code: "bad_folder", message },
            SessionError::PoolFull { .. } => ApiError::Busy { code: "pool_full", message },
            SessionError::Stopping => ApiError::Busy { code: "stopping", message },
            SessionError::Limited { code, message, retry_after } => {
                ApiError::Limited { code, message, retry_after }
            }
            SessionError::QueueFull { .. } => {
                let retry_after = Duration::from_secs(1);
                ApiError::Limited { code: "queue_full", message, retry_after }
            }
            SessionError::OtherBody => ApiError::Conflict(message),
            SessionError::Store(error) => error.into(),
        }
    }
}

impl From<UploadError> for ApiError {
    fn from(error: UploadError) -> ApiError {
        match error {
            UploadError::TooLarge(_) => ApiError::TooLarge(error.to_string()),
            UploadError::OverQuota(_) => {
                ApiError::NoRoom { code: "app_uploads", message: error.to_string() }
            }
            UploadError::DiskFull => {
                ApiError::NoRoom { code: "disk_full", message: error.to_string() }
            }
            UploadError::Broken(_) => ApiError::bad_request(error.to_string()),
            UploadError::Failed(inside) => ApiError::Internal(inside.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, code, error) = match self {
            ApiError::BadRequest { code, message } => (StatusCode::BAD_REQUEST, code, message),
            ApiError::Unauthorized => {
                let mut response = plain(
                    StatusCode::UNAUTHORIZED,
                    "unauthorized",
                    "missing or wrong token: send Authorization: Bearer <token>".to_owned(),
                );
                let challenge = HeaderValue::from_static("Bearer");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
                return response;
            }
            ApiError::BadHost => (
                StatusCode::FORBIDDEN,
                "bad_host",
                "unknown Host header: use an IP address or localhost, or add the host name to the setting \
                 `hosts`"
                    .to_owned(),
            ),
            ApiError::BadOrigin => (
                StatusCode::FORBIDDEN,
                "bad_origin",
                "the request comes from another origin".to_owned(),
            ),
            ApiError::NotFound(message) => (StatusCode::NOT_FOUND, "not_found", message),
            ApiError::MethodNotAllowed => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "this path does not support this method".to_owned(),
            ),
            ApiError::NotAcceptable(message) => {
                (StatusCode::NOT_ACCEPTABLE, "not_acceptable", message.to_owned())
            }
            ApiError::UnsupportedMedia(message) => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message.to_owned())
            }
            ApiError::SlowBody => (
                StatusCode::REQUEST_TIMEOUT,
                "body_timeout",
                "the request body did not arrive in time".to_owned(),
            ),
            ApiError::Conflict(message) => (StatusCode::CONFLICT, "conflict", message),
            ApiError::Gone => {
                (StatusCode::GONE, "session_closed", "the session is closed".to_owned())
            }
            ApiError::TooLarge(message) => (StatusCode::PAYLOAD_TOO_LARGE, "too_large", message),
            ApiError::NoRoom { code, message } => {
                (StatusCode::INSUFFICIENT_STORAGE, code, message)
            }
            ApiError::Limited { code, message, retry_after } => {
                let response = plain(StatusCode::TOO_MANY_REQUESTS, code, message);
                return with_retry(response, retry_after);
            }
            ApiError::Busy { code, message } => return retry_later(code, message),
            ApiError::Turn { code, message } => match code {
                "interrupted" => return retry_later(code, message),
                "timeout" => (StatusCode::GATEWAY_TIMEOUT, code, message),
                _ => (StatusCode::BAD_GATEWAY, code, message),
            },
            ApiError::Internal(inside) => {
                tracing::error!(error = inside, "a request failed with an internal error");
                (
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal",
                    "internal error; see Hob's log".to_owned(),
                )
            }
            ApiError::Run(error, duration_ms) => return run_response(error, duration_ms),
        };
        plain(status, code, error)
    }
}

fn plain(status: StatusCode, code: &'static str, error: String) -> Response {
    (status, Json(ErrorBody { ok: false, error, code })).into_response()
}

fn run_response(error: RunError, duration_ms: u64) -> Response {
    let (message, code) = (error.to_string(), error.code());
    let (stderr, stop_reason) = match error {
        RunError::NotInstalled(_) => (String::new(), "error".to_owned()),
        RunError::AgentFailed { stderr, stop_reason, .. } => (stderr, stop_reason),
        RunError::TimedOut(_) => return plain(StatusCode::GATEWAY_TIMEOUT, code, message),
        RunError::PoolFull { .. } | RunError::Stopping | RunError::Cancelled => {
            return retry_later(code, message);
        }
        RunError::Internal(inside) => return ApiError::Internal(inside).into_response(),
    };
    let body = AgentErrorBody { ok: false, error: message, code, stderr, duration_ms, stop_reason };
    (StatusCode::BAD_GATEWAY, Json(body)).into_response()
}

fn retry_later(code: &'static str, message: String) -> Response {
    with_retry(plain(StatusCode::SERVICE_UNAVAILABLE, code, message), Duration::from_secs(1))
}

fn with_retry(mut response: Response, after: Duration) -> Response {
    // Whole seconds, and never before the time.
    let seconds = after.as_secs_f64().ceil().max(1.0) as u64;
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}
