//! Commands that only the lease holder of a session can execute, and their outcomes.

use serde::{Deserialize, Serialize};

/// A command to a session. Executing it twice does no harm.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "want", rename_all = "snake_case")]
pub(super) enum SessionCommand {
    Cancel,
    Close,
    Answer { request: String, option: String },
}

/// What a command did.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "was", rename_all = "snake_case")]
pub(super) enum CommandOutcome {
    /// `turn` is the turn that was ended; `None` when nothing ran.
    Cancelled {
        turn: Option<u32>,
    },
    /// `now` is false when the session was closed before.
    Closed {
        now: bool,
    },
    Answered,
    NotFound,
    Invalid {
        message: String,
    },
    /// Another node holds the session by now.
    Elsewhere,
    Failed {
        message: String,
    },
}
