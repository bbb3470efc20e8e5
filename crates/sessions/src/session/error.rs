//! Why a session request failed. The variants are what the caller can do about it.

use std::time::Duration;

use hob_domain::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The app has no such session, turn or permission request.
    #[error("no such session, turn or permission request")]
    NotFound,
    #[error("the session is closed")]
    Closed,
    /// The request is invalid; the text names the field.
    #[error("{0}")]
    Invalid(String),
    /// The caller may not choose this folder.
    #[error("cwd: {0}")]
    Folder(String),
    #[error(
        "{live} sessions and runs are open; the limit is reached: close one, or raise sessions.max_live or cluster.max_live"
    )]
    PoolFull { live: usize },
    /// The app or the session has reached one of its limits.
    #[error("{message}")]
    Limited { code: &'static str, message: String, retry_after: Duration },
    #[error(
        "{queue} turns are waiting, which is the limit; try again when one has ended, or raise sessions.queue"
    )]
    QueueFull { queue: usize },
    /// The idempotency key was used for another request.
    #[error("this Idempotency-Key was used for another request; use a new key")]
    OtherBody,
    #[error("the server is shutting down and accepts no new work; try again once it is running")]
    Stopping,
    #[error(transparent)]
    Store(#[from] StoreError),
}
