//! Why a session request failed. The variants are what the caller can do about it.

use std::time::Duration;

use hob_domain::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The app has no such session, turn or permission request.
    #[error("there is no such session")]
    NotFound,
    #[error("the session is closed")]
    Closed,
    /// The request is invalid; the text names the field.
    #[error("{0}")]
    Invalid(String),
    /// The caller may not choose this folder.
    #[error("cwd: {0}")]
    Folder(String),
    #[error("{live} sessions and runs are live, which is the limit (sessions.max_live)")]
    PoolFull { live: usize },
    /// The app or the session has reached one of its limits.
    #[error("{message}")]
    Limited { code: &'static str, message: String, retry_after: Duration },
    #[error("{queue} turns are queued, which is the limit (sessions.queue)")]
    QueueFull { queue: usize },
    /// The idempotency key was used for another request.
    #[error("this Idempotency-Key was used for another request")]
    OtherBody,
    #[error("hob is stopping and takes no new work")]
    Stopping,
    #[error(transparent)]
    Store(#[from] StoreError),
}
