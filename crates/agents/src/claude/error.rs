//! How a turn of the backend can fail.

use std::time::Duration;

/// Why a turn gave no result. After any of these the process is closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// The request itself is wrong: empty messages, or the last one is not the user's.
    #[error("{0}")]
    Invalid(String),
    /// The backend was closed.
    #[error("the backend is closed")]
    Closed,
    /// As many processes are live as may be, and none is idle.
    #[error("{0} live sessions are busy, which is the limit")]
    PoolFull(usize),
    /// The program is not installed or cannot be run.
    #[error("{0}")]
    NotInstalled(String),
    /// It asks something that nobody answers.
    #[error("claude shows a dialog and waits: {name}. {advice}")]
    Dialog { name: String, advice: String },
    /// The process ended by itself.
    #[error("claude ended with {how}: {said}")]
    Died { how: String, said: String },
    /// The prompt could not be typed.
    #[error("claude did not take the prompt; its screen says: {0}")]
    InputNotTaken(String),
    /// The model's API failed for good.
    #[error("{message}")]
    Api { status: Option<u16>, kind: String, message: String },
    /// Somebody pressed Escape.
    #[error("the turn was interrupted")]
    Interrupted,
    /// It was interrupted, but whether it is ready for more cannot be told.
    #[error("the interrupted session is not clean; its screen says: {0}")]
    NotClean(String),
    /// It took too long.
    #[error("no answer within {} s; the screen says: {screen}", .limit.as_secs())]
    TimedOut { limit: Duration, screen: String },
    /// The caller went away.
    #[error("the turn was cancelled")]
    Cancelled,
    /// Something on our side.
    #[error("{0}")]
    Internal(String),
}
