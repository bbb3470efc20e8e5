//! Why a session did not do what was asked. The variants are what the caller can do about it.

use std::time::Duration;

use hob_domain::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// There is none of that name for this app.
    #[error("there is no such session")]
    NotFound,
    #[error("the session is closed")]
    Closed,
    /// The request is wrong; the text names the field.
    #[error("{0}")]
    Invalid(String),
    /// The folder is not one a caller may choose.
    #[error("cwd: {0}")]
    Folder(String),
    #[error("{live} sessions and runs are live, which is the limit (sessions.max_live)")]
    PoolFull { live: usize },
    /// This app has as much as it may have.
    #[error("{message}")]
    Limited { code: &'static str, message: String, retry_after: Duration },
    #[error("{queue} turns wait already, which is the limit (sessions.queue)")]
    QueueFull { queue: usize },
    /// The idempotency key was used for something else.
    #[error("this Idempotency-Key was used for another request")]
    OtherBody,
    #[error("hob is stopping and takes no new work")]
    Stopping,
    #[error(transparent)]
    Store(#[from] StoreError),
}
