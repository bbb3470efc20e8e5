use hob_domain::memory::TurnRole;
use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::turn::ReadTurn;

/// What is known about a file from reading it so far. Callers save it between readings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// The client, taken from the first line that shows it. A caller that knows better may set it.
    pub client: Option<Client>,
    pub session: Option<String>,
    pub cwd: Option<String>,
    /// The latest prompt to which Claude Code gave an id.
    pub prompt: Option<String>,
    pub codex: CodexProgress,
}

/// Where the turns of a file are taken from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// No event has been seen yet, and none need come.
    #[default]
    Undecided,
    /// `user_message` and `agent_message` events.
    Events,
    /// `item_completed` events.
    Items,
    /// The messages of the history. Every version writes all of them, so this is final.
    History,
}

/// What has to be known of a rollout's beginning to go on reading it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CodexProgress {
    pub source: Source,
    /// The first `session_meta` was read. Others are copies out of the files it was forked from.
    pub described: bool,
    /// It is the rollout of an agent that another agent started, so nobody's conversation.
    pub subagent: bool,
    /// Turns that were given from the history before it was decided where turns are taken from.
    /// Their events may still come.
    pub given: Vec<Given>,
    /// Who said the last of them, if it was in the very last line: the event of that turn may be the
    /// next line.
    pub just_given: Option<TurnRole>,
}

/// A turn that was given: who said it, and a fingerprint of its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    pub role: TurnRole,
    pub words: u64,
}

impl Given {
    pub(crate) fn of(turn: &ReadTurn) -> Given {
        // FNV-1a, without blanks: a message of several parts is joined in different ways.
        let bytes = turn.text.bytes().filter(|byte| !byte.is_ascii_whitespace());
        let words = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Given { role: turn.role, words }
    }
}
