//! What a turn yields, and how it can fail.

use std::collections::BTreeMap;
use std::time::Duration;

use hob_domain::{Block, Message, Role};

/// Tokens of a turn: the sum over its messages, each counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_creation_input_tokens: u64,
    pub cache_read_input_tokens: u64,
}

impl Usage {
    pub(crate) fn total<'a>(parts: impl IntoIterator<Item = &'a Usage>) -> Usage {
        parts.into_iter().fold(Usage::default(), |sum, part| Usage {
            input_tokens: sum.input_tokens + part.input_tokens,
            output_tokens: sum.output_tokens + part.output_tokens,
            cache_creation_input_tokens: sum.cache_creation_input_tokens
                + part.cache_creation_input_tokens,
            cache_read_input_tokens: sum.cache_read_input_tokens + part.cache_read_input_tokens,
        })
    }
}

/// One thing that happened in a turn, in order. The last is the result.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The prompt, as the agent took it.
    User {
        text: String,
    },
    /// One block of an assistant's message; blocks of one message share its id.
    Assistant {
        message_id: String,
        model: String,
        block: Block,
        stop_reason: Option<String>,
    },
    /// The result of one tool call.
    ToolResult {
        block: Block,
    },
    /// A piece of a text that will come whole as a block of an assistant's message.
    Piece {
        text: String,
    },
    /// Nothing has come for a while; what the screen says about it. The turn goes on.
    Stalled {
        screen: String,
    },
    Result(TurnResult),
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnResult {
    /// `success`.
    pub subtype: String,
    pub duration_ms: u64,
    /// The turns this live process has done, this one included.
    pub num_turns: u32,
    pub session_id: String,
    pub stop_reason: String,
    pub usage: Usage,
    /// As far as the program says it: the interactive one does not.
    pub cost_usd: f64,
}

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

/// The messages a client would add to its history after this turn: every message once, its blocks
/// together, parallel tool results in one user message. Echoes of the prompt are left out.
pub fn synthesize_turn_messages(events: &[Event]) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    let mut last_id: Option<&str> = None;
    for event in events {
        match event {
            Event::Assistant { message_id, block, .. } => {
                let continues = last_id == Some(message_id)
                    && messages.last().is_some_and(|message| message.role == Role::Assistant);
                match messages.last_mut().filter(|_| continues) {
                    Some(message) => message.content.push(block.clone()),
                    None => messages
                        .push(Message { role: Role::Assistant, content: vec![block.clone()] }),
                }
                last_id = Some(message_id);
            }
            Event::ToolResult { block } => match messages.last_mut() {
                Some(message) if message.role == Role::User => message.content.push(block.clone()),
                _ => messages.push(Message { role: Role::User, content: vec![block.clone()] }),
            },
            Event::User { .. } | Event::Piece { .. } | Event::Stalled { .. } | Event::Result(_) => {
            }
        }
    }
    messages
}

/// The ways a client may send this turn back: whole, all of its text, or its last text alone.
pub(crate) fn echoes(events: &[Event]) -> Vec<Vec<Message>> {
    let whole = synthesize_turn_messages(events);
    let texts = |messages: &[Message]| -> Vec<Block> {
        let blocks = messages.iter().filter(|message| message.role == Role::Assistant);
        let blocks = blocks.flat_map(|message| message.content.iter());
        blocks.filter(|block| matches!(block, Block::Text(_))).cloned().collect()
    };
    let all = Message { role: Role::Assistant, content: texts(&whole) };
    let last = whole.iter().rposition(|message| message.role == Role::Assistant);
    let last =
        Message { role: Role::Assistant, content: texts(&whole[last.unwrap_or_default()..]) };
    let mut echoes = vec![whole];
    for echo in [vec![all], vec![last]] {
        if !echoes.contains(&echo) {
            echoes.push(echo);
        }
    }
    echoes
}

/// Usage by message id, so that a message of several records counts once.
pub(crate) type UsageById = BTreeMap<String, Usage>;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn assistant(id: &str, block: Block) -> Event {
        Event::Assistant {
            message_id: id.into(),
            model: "claude-test".into(),
            block,
            stop_reason: None,
        }
    }

    fn call(id: &str) -> Block {
        Block::ToolUse { id: id.into(), name: "Read".into(), input: json!({"q": "x"}) }
    }

    fn result(id: &str) -> Event {
        let content = json!("result body");
        Event::ToolResult {
            block: Block::ToolResult { tool_use_id: id.into(), content, is_error: false },
        }
    }

    /// Seed 002, also with one id for all messages, as its records have it.
    #[test]
    fn synthesize_turn_messages_covers_whole_cycle() {
        let events = [
            Event::User { text: "look up X".into() },
            assistant("msg_x", call("tu_1")),
            result("tu_1"),
            assistant("msg_x", Block::Text("done".into())),
        ];
        let out: Vec<_> = synthesize_turn_messages(&events).iter().map(Message::to_value).collect();
        assert_eq!(
            out,
            [
                json!({"role": "assistant", "content": [
                    {"type": "tool_use", "id": "tu_1", "name": "Read", "input": {"q": "x"}}]}),
                json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "tu_1",
                    "content": "result body", "is_error": null}]}),
                json!({"role": "assistant", "content": [{"type": "text", "text": "done"}]}),
            ]
        );
    }

    #[test]
    fn blocks_of_one_message_and_parallel_results_are_together() {
        let events = [
            assistant("m1", Block::Text("look".into())),
            assistant("m1", call("a")),
            assistant("m1", call("b")),
            result("a"),
            result("b"),
            assistant("m2", Block::Text("one".into())),
            assistant("m2", Block::Text("two".into())),
        ];
        let messages = synthesize_turn_messages(&events);
        let sizes: Vec<usize> = messages.iter().map(|message| message.content.len()).collect();
        assert_eq!(sizes, [3, 2, 2]);
        let echoes = echoes(&events);
        assert_eq!(echoes.len(), 3);
        assert_eq!(echoes[1][0].text(), "look\n\none\n\ntwo");
        assert_eq!(echoes[2][0].text(), "one\n\ntwo");
    }
}
