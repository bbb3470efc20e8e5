use hob_domain::memory::TurnRole;
use serde::{Deserialize, Serialize};

use crate::client::RecordedClient;
use crate::turn::TranscriptTurn;
use crate::work::WorkItem;

/// What is known about a transcript from reading it so far. Callers save it between chunks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReadProgress {
    /// The client, taken from the first line that shows it. A caller that knows better may set it.
    pub client: Option<RecordedClient>,
    pub session: Option<String>,
    pub cwd: Option<String>,
    /// The latest prompt to which Claude Code gave an id.
    pub prompt: Option<String>,
    /// Whether another agent of Gemini CLI or Qwen Code started this session. It is then nobody's conversation.
    pub is_subagent: bool,
    pub codex: CodexProgress,
    /// Work that no turn of the chunks so far precedes. It may contain secrets, so it is not saved.
    #[serde(skip)]
    pub work: Vec<WorkItem>,
}

/// Which lines of a rollout the turns are taken from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CodexSource {
    /// No event has been seen yet, and none need come.
    #[default]
    Undecided,
    /// `user_message` and `agent_message` events.
    Events,
    /// `item_completed` events.
    Items,
    /// The messages of the history. Every version writes all of them, so this choice is final.
    History,
}

/// What must be known of a rollout's beginning to continue reading it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CodexProgress {
    pub source: CodexSource,
    /// Whether the first `session_meta` was read. Later ones are copies from the files that this
    /// one was forked from.
    pub described: bool,
    /// Whether another agent started this one. Its rollout is then nobody's conversation.
    pub subagent: bool,
    /// Turns that were returned from the history while the source was undecided. Their events may
    /// still come.
    pub given: Vec<TurnDigest>,
    /// The role of the last such turn if the very last line gave it: the next line may then be the
    /// event of that turn.
    pub just_given: Option<TurnRole>,
}

/// The role of a turn and a hash of its text, to recognise the turn when it comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnDigest {
    pub role: TurnRole,
    pub words: u64,
}

impl TurnDigest {
    pub(crate) fn of(turn: &TranscriptTurn) -> TurnDigest {
        // FNV-1a over everything but white space: the parts of a message are joined in different
        // ways.
        let bytes = turn.text.bytes().filter(|byte| !byte.is_ascii_whitespace());
        let words = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        TurnDigest { role: turn.role, words }
    }
}
