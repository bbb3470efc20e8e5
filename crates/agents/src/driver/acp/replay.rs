//! The replay of a conversation: what an agent says again when it loads its session.
//!
//! The protocol requires that the replay ends before the response to `session/load`. Gemini CLI
//! sends it after the response. A replayed message looks like one of the next turn, so the first
//! prompt waits until the agent is quiet.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::json_lines::{JsonLine, LineKind};

/// How long an agent must be quiet after the response to `session/load`.
const QUIET_PERIOD: Duration = Duration::from_millis(300);
/// How long an agent that has not replayed anything yet may take to begin.
const FIRST_UPDATE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a replay may take after the response.
const MAX_REPLAY_TIME: Duration = Duration::from_secs(20);

/// What to do with a line of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineUse {
    /// It belongs to the handshake or to a replay.
    Discard,
    /// Report it if there is room. Nobody reads the lines yet, and the agent must not wait.
    ReportIfRoom,
    Report,
}

const HANDSHAKE: u8 = 0;
const SETTLING: u8 = 1;
const LISTENING: u8 = 2;

/// Decides which lines of an agent are reported.
#[derive(Debug)]
pub(super) struct ReplayFilter {
    phase: AtomicU8,
    /// How many updates of a replay have come.
    replayed: watch::Sender<u64>,
}

impl ReplayFilter {
    pub fn new() -> ReplayFilter {
        ReplayFilter { phase: AtomicU8::new(HANDSHAKE), replayed: watch::Sender::new(0) }
    }

    /// Decides about the next line. The caller asks once per line.
    pub fn decide(&self, line: &JsonLine) -> LineUse {
        let phase = self.phase.load(Ordering::Acquire);
        if phase == LISTENING {
            return LineUse::Report;
        }
        if is_replayable(line) {
            self.replayed.send_modify(|count| *count += 1);
            return LineUse::Discard;
        }
        if phase == SETTLING { LineUse::ReportIfRoom } else { LineUse::Discard }
    }

    /// Waits until the agent has replayed its conversation, after the response to `session/load`.
    pub async fn settle(&self) {
        self.phase.store(SETTLING, Ordering::Release);
        let mut replayed = self.replayed.subscribe();
        let quiet = async {
            loop {
                let has_begun = *replayed.borrow_and_update() > 0;
                let limit = if has_begun { QUIET_PERIOD } else { FIRST_UPDATE_TIMEOUT };
                // The sender lives in `self`, so only the timeout ends the wait without a change.
                if tokio::time::timeout(limit, replayed.changed()).await.is_err() {
                    return;
                }
            }
        };
        if tokio::time::timeout(MAX_REPLAY_TIME, quiet).await.is_err() {
            tracing::warn!(
                "an agent is still replaying its conversation; Hob sends the prompt anyway"
            );
        }
    }

    /// Reports every line from now on.
    pub fn listen(&self) {
        self.phase.store(LISTENING, Ordering::Release);
    }
}

/// Returns whether a line is an update by which agents replay a conversation. Other updates, such
/// as the list of commands, state what holds now.
fn is_replayable(line: &JsonLine) -> bool {
    #[derive(serde::Deserialize)]
    struct Line {
        params: Params,
    }
    #[derive(serde::Deserialize)]
    struct Params {
        update: Update,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Update {
        session_update: String,
    }
    if line.kind != LineKind::Notification {
        return false;
    }
    let Ok(Line { params }) = serde_json::from_str::<Line>(&line.text) else { return false };
    matches!(
        params.update.session_update.as_str(),
        "user_message_chunk"
            | "agent_message_chunk"
            | "agent_thought_chunk"
            | "tool_call"
            | "tool_call_update"
            | "plan"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_lines;

    fn update(kind: &str) -> JsonLine {
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"{kind}","content":{{"type":"text","text":"x"}}}}}}}}"#
        );
        json_lines::parse(&text).unwrap()
    }

    #[test]
    fn updates_of_a_conversation_are_discarded_until_the_agent_is_quiet() {
        let filter = ReplayFilter::new();
        let check = |kind: &str, expect: LineUse| {
            assert_eq!(filter.decide(&update(kind)), expect, "{kind}");
        };
        check("agent_message_chunk", LineUse::Discard);
        check("available_commands_update", LineUse::Discard);
        filter.phase.store(SETTLING, Ordering::Release);
        for kind in ["user_message_chunk", "agent_message_chunk", "agent_thought_chunk"] {
            check(kind, LineUse::Discard);
        }
        for kind in ["tool_call", "tool_call_update", "plan"] {
            check(kind, LineUse::Discard);
        }
        check("available_commands_update", LineUse::ReportIfRoom);
        assert_eq!(*filter.replayed.borrow(), 7);
        filter.listen();
        check("agent_message_chunk", LineUse::Report);
    }
}
