//! What happens in a turn of Claude Code, whichever protocol it came by.

use std::collections::BTreeMap;

use hob_domain::{Block, Message, Role};

/// Token counts of a message, or of a turn: then the sum over its messages, each counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_creation_input_tokens: u64,
    pub cache_read_input_tokens: u64,
}

impl Usage {
    /// Returns the number of tokens that were read, cached or not.
    pub fn all_input_tokens(&self) -> u64 {
        let cached = self.cache_creation_input_tokens.saturating_add(self.cache_read_input_tokens);
        self.input_tokens.saturating_add(cached)
    }

    /// Returns the sum of several usages.
    pub fn total<'a>(parts: impl IntoIterator<Item = &'a Usage>) -> Usage {
        parts.into_iter().fold(Usage::default(), |sum, part| Usage {
            input_tokens: sum.input_tokens.saturating_add(part.input_tokens),
            output_tokens: sum.output_tokens.saturating_add(part.output_tokens),
            cache_creation_input_tokens: sum
                .cache_creation_input_tokens
                .saturating_add(part.cache_creation_input_tokens),
            cache_read_input_tokens: sum
                .cache_read_input_tokens
                .saturating_add(part.cache_read_input_tokens),
        })
    }
}

/// One event of a turn. The last one is the result.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The prompt as the agent received it.
    User {
        text: String,
    },
    /// One block of an assistant's message; blocks of one message share its id.
    Assistant {
        message_id: String,
        model: String,
        block: Block,
        stop_reason: Option<String>,
        /// The usage of the whole message.
        usage: Usage,
    },
    /// The result of one tool call.
    ToolResult {
        block: Block,
    },
    /// A piece of a text that a later block of an assistant's message contains as a whole.
    Piece {
        text: String,
    },
    /// A call begins that a later block of an assistant's message contains as a whole. Its arguments come in pieces.
    CallBegin {
        id: String,
        name: String,
    },
    /// A piece of the arguments of the call that began last.
    CallPiece {
        json: String,
    },
    /// The message whose blocks came last is whole, if its blocks do not say so themselves.
    MessageEnd,
    /// The agent has been silent for a while; `screen` is what its terminal shows. The turn continues.
    Stalled {
        screen: String,
    },
    /// The turn waits for the results of tools that the client runs. The next request continues it.
    Paused(PausedTurn),
    Result(TurnResult),
}

/// A turn that waits for the client's tools.
#[derive(Debug, Clone, PartialEq)]
pub struct PausedTurn {
    /// The calls as `tool_use` blocks, with the client's names of the tools.
    pub calls: Vec<Block>,
    /// The state of the turn; its `stop_reason` is `tool_use`.
    pub result: TurnResult,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnResult {
    /// `success`.
    pub subtype: String,
    pub duration_ms: u64,
    /// The number of turns that this live process has completed, including this one.
    pub num_turns: u32,
    pub session_id: String,
    pub stop_reason: String,
    pub usage: Usage,
    /// The cost, if the program reports it. The interactive one does not.
    pub cost_usd: f64,
}

/// Returns the messages that a client adds to its history after this turn: every message once with all
/// its blocks, parallel tool results in one user message, and no echo of the prompt.
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
            Event::User { .. }
            | Event::Piece { .. }
            | Event::CallBegin { .. }
            | Event::CallPiece { .. }
            | Event::MessageEnd
            | Event::Stalled { .. }
            | Event::Paused(_)
            | Event::Result(_) => {}
        }
    }
    messages
}

/// Returns the text of the last message.
pub fn last_text(events: &[Event]) -> String {
    let mut texts: Vec<&str> = Vec::new();
    let mut last_id: Option<&str> = None;
    for event in events {
        if let Event::Assistant { message_id, block, .. } = event {
            if last_id != Some(message_id) {
                texts.clear();
            }
            last_id = Some(message_id);
            if let Block::Text(text) = block {
                texts.push(text);
            }
        }
    }
    texts.join("\n\n")
}

/// Returns the forms in which a client may send this turn back: as a whole, all of its text, or its last
/// text alone.
pub fn echoes(events: &[Event]) -> Vec<Vec<Message>> {
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
pub type UsageById = BTreeMap<String, Usage>;

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
            usage: Usage::default(),
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
        assert_eq!(last_text(&events), "one\n\ntwo");
        assert_eq!(last_text(&events[..5]), "look");
    }
}
