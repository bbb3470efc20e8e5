//! How a turn of the backend can fail.

use std::time::Duration;

/// Why a turn gave no result. The process is ended after any of these errors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// The request is invalid, for example without messages.
    #[error("{0}")]
    Invalid(String),
    /// The backend was closed.
    #[error("the Claude backend is closed, because the server is shutting down")]
    Closed,
    /// The limit on live processes is reached, and none is idle.
    #[error(
        "{limit} sessions, runs and requests are open, which is the limit; try again later or raise sessions.max_live"
    )]
    PoolFull { limit: usize, retry_after: Duration },
    /// The program is not installed or cannot be run.
    #[error("{0}")]
    NotInstalled(String),
    /// The program shows a dialog that nobody answers.
    #[error("claude is waiting at a dialog: {name}.{}{advice}", if advice.is_empty() { "" } else { " " })]
    Dialog { name: String, advice: String },
    /// The process ended by itself.
    #[error("claude ended with {how}: {said}")]
    Died { how: String, said: String },
    /// The program did not accept the typed prompt.
    #[error("claude did not accept the prompt; its screen shows: {0}")]
    InputNotTaken(String),
    /// The model's API failed, after the program's own retries.
    #[error("{message}")]
    Api { status: Option<u16>, kind: String, message: String },
    /// The model's answer is not what the request requires, also after a second attempt.
    #[error("{0}, even after a second attempt")]
    WrongAnswer(String),
    /// A person pressed Escape.
    #[error("the turn was interrupted")]
    Interrupted,
    /// The turn was interrupted, but the session is not proven clean.
    #[error("claude's input line did not clear after the prompt was sent; its screen shows: {0}")]
    NotClean(String),
    /// The turn exceeded its time limit.
    #[error("claude did not answer within {} s; its screen shows: {screen}", .limit.as_secs())]
    TimedOut { limit: Duration, screen: String },
    /// The caller went away.
    #[error("the turn was cancelled")]
    Cancelled,
    /// An error inside Hob.
    #[error("{0}")]
    Internal(String),
}
