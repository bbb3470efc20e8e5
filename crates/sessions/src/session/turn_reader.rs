//! Reads an agent's messages: what it said, and what it used. A message of an unknown shape is
//! skipped here and stays an event all the same.

use hob_domain::session::TurnUsage;
use serde_json::Value;

use super::events::is_own_result;

/// Costs in USD that differ by less than this are equal.
const COST_TOLERANCE_USD: f64 = 1e-9;

/// The most text of a turn that is kept as such, since it is held in memory. The rest is in the turn's messages.
const MAX_TURN_TEXT_BYTES: usize = 4 << 20;
/// The last words of a text that was cut.
const CUT_NOTE: &str = "\n[The text is cut here: the agent said more than 4 MiB.]";
/// The most bytes of messages that an agent may send in a turn. They are stored one by one.
const MAX_TURN_MESSAGE_BYTES: usize = 256 << 20;
/// The most bytes of messages that an agent may send between two turns. They are stored, too.
const MAX_IDLE_MESSAGE_BYTES: usize = 16 << 20;

/// Returns the text that an agent said in these messages.
pub fn text_of(messages: &[String]) -> String {
    let mut reader = TurnReader::default();
    messages.iter().for_each(|message| reader.push(message));
    reader.text()
}

/// Returns whether a message shows an agent speaking or acting, and not only reporting its state.
pub(super) fn is_agent_activity(line: &str) -> bool {
    let message: Value = serde_json::from_str(line).unwrap_or_default();
    if is_own_result(&message) {
        return false;
    }
    let update = update_of(&message);
    let state_updates = [
        "usage_update",
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
        "user_message_chunk",
    ];
    !update["sessionUpdate"].as_str().is_some_and(|kind| state_updates.contains(&kind))
}

/// Returns the notice about an agent that has sent too many bytes of messages since the last turn.
pub(super) fn idle_excess(bytes: usize) -> Option<String> {
    let most = MAX_IDLE_MESSAGE_BYTES;
    (bytes > most).then(|| {
        let most = most >> 20;
        format!("the agent was stopped: it sent more than {most} MiB of messages between two turns")
    })
}

/// Returns the update in a message. Some agents leave the wrapper out.
pub fn update_of(message: &Value) -> &Value {
    let params = &message["params"];
    if params["update"].is_object() { &params["update"] } else { params }
}

/// What the messages of one turn say so far.
#[derive(Debug, Default)]
pub(crate) struct TurnReader {
    /// The agent's text in segments. A tool call or a thought starts a new segment.
    segments: Vec<String>,
    in_segment: bool,
    text_bytes: usize,
    message_bytes: usize,
    usage: TurnUsage,
    /// The cost in USD that the agent reports for its process so far.
    cost: Option<f64>,
}

impl TurnReader {
    /// Reads the next message.
    pub fn push(&mut self, line: &str) {
        self.message_bytes += line.len();
        let Ok(message) = serde_json::from_str::<Value>(line) else { return };
        if let Some(result) = message.get("result") {
            self.add_usage(result);
        }
        let update = update_of(&message);
        match update["sessionUpdate"].as_str() {
            Some("agent_message_chunk") => {
                if let Some(text) = update["content"]["text"].as_str() {
                    self.append_text(text);
                }
            }
            Some("usage_update") => {
                if let Some(amount) = update["cost"]["amount"].as_f64() {
                    self.cost = Some(amount);
                }
            }
            Some("tool_call" | "agent_thought_chunk" | "user_message_chunk") => {
                self.in_segment = false
            }
            _ => {}
        }
    }

    /// Returns whether the agent has said much.
    pub fn is_long(&self) -> bool {
        self.text_bytes > MAX_TURN_TEXT_BYTES / 16
    }

    /// Returns the error of a turn in which the agent has said too much.
    pub fn excess(&self) -> Option<String> {
        let most = MAX_TURN_MESSAGE_BYTES;
        (self.message_bytes > most)
            .then(|| format!("the agent sent more than {} MiB of messages in one turn", most >> 20))
    }

    /// Returns all text of the agent.
    pub fn text(&self) -> String {
        self.segments.concat()
    }

    /// Returns the text in segments, without blank ones.
    pub fn segments(&self) -> Vec<String> {
        self.segments.iter().filter(|text| !text.trim().is_empty()).cloned().collect()
    }

    /// Returns what the turn used. Agents report costs since the start of their process, so
    /// `before` is what the process had cost when the turn began. It is updated to what the process
    /// has cost now.
    pub fn usage(&self, before: &mut f64) -> TurnUsage {
        let mut usage = self.usage;
        if let Some(now) = self.cost {
            // A smaller number means that the agent has restarted its count. A number that is
            // smaller in its last digits only was rounded.
            let more = now - *before;
            usage.cost_usd = if more >= -COST_TOLERANCE_USD { more.max(0.0) } else { now };
            *before = now;
        }
        usage
    }

    fn append_text(&mut self, text: &str) {
        if self.text_bytes > MAX_TURN_TEXT_BYTES {
            return;
        }
        let room = MAX_TURN_TEXT_BYTES - self.text_bytes;
        self.text_bytes += text.len();
        let cut;
        let text = if text.len() > room {
            let end = (0..=room).rev().find(|end| text.is_char_boundary(*end));
            cut = format!("{}{CUT_NOTE}", &text[..end.unwrap_or_default()]);
            &cut
        } else {
            text
        };
        if !self.in_segment {
            self.segments.push(String::new());
            self.in_segment = true;
        }
        if let Some(segment) = self.segments.last_mut() {
            segment.push_str(text);
        }
    }

    fn add_usage(&mut self, result: &Value) {
        let usage = &result["usage"];
        if usage.is_null() {
            // Gemini CLI reports its tokens in a place of its own.
            let count = &result["_meta"]["quota"]["token_count"];
            let count = |key: &str| count[key].as_u64().unwrap_or_default();
            self.usage.add_tokens(&TurnUsage {
                input_tokens: count("input_tokens"),
                output_tokens: count("output_tokens"),
                ..TurnUsage::default()
            });
            return;
        }
        let count = |key: &str| usage[key].as_u64().unwrap_or_default();
        self.usage.add_tokens(&TurnUsage {
            input_tokens: count("inputTokens"),
            output_tokens: count("outputTokens"),
            cached_read_tokens: count("cachedReadTokens"),
            cached_write_tokens: count("cachedWriteTokens"),
            cost_usd: 0.0,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn update(update: Value) -> String {
        json!({"method": "session/update", "params": {"sessionId": "s", "update": update}})
            .to_string()
    }

    fn says(text: &str) -> String {
        update(json!({"sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": text}}))
    }

    #[test]
    fn text_is_what_the_agent_said() {
        let mut reader = TurnReader::default();
        let thought = json!({"sessionUpdate": "agent_thought_chunk", "content": {"text": "hm"}});
        for line in [
            says("one "),
            says("run"),
            update(json!({"sessionUpdate": "tool_call", "toolCallId": "x"})),
            update(json!({"sessionUpdate": "tool_call_update", "toolCallId": "x"})),
            says("two"),
            update(thought),
            says(" "),
            "garbage".to_owned(),
            update(json!({"sessionUpdate": "from_the_future"})),
            // The shape of seed 003.
            json!({"method": "session/update", "params": {"sessionUpdate": "agent_message_chunk",
                "content": {"type": "text", "text": "!"}}})
            .to_string(),
        ] {
            reader.push(&line);
        }
        assert_eq!(reader.text(), "one runtwo !");
        assert_eq!(reader.segments(), ["one run", "two", " !"]);
    }

    #[test]
    fn long_text_of_a_turn_is_cut() {
        let mut reader = TurnReader::default();
        let most = "é".repeat(MAX_TURN_TEXT_BYTES / 2 - 1);
        for text in [&most, "x", "é", "é", "x"] {
            reader.push(&says(text));
        }
        assert!(reader.text() == format!("{most}x{CUT_NOTE}"));
        assert_eq!(reader.excess(), None);
    }

    #[test]
    fn turn_cost_counts_from_its_beginning() {
        let turn = |amounts: &[f64], before: &mut f64| {
            let mut reader = TurnReader::default();
            for amount in amounts {
                reader.push(&update(json!({"sessionUpdate": "usage_update",
                    "cost": {"amount": amount, "currency": "USD"}})));
            }
            reader.push(
                &json!({"id": 1, "result": {"stopReason": "end_turn",
                "usage": {"inputTokens": 10, "outputTokens": 5, "cachedReadTokens": 2}}})
                .to_string(),
            );
            reader.usage(before)
        };
        let mut before = 0.0;
        let first = turn(&[0.25, 0.5], &mut before);
        assert_eq!((first.cost_usd, first.input_tokens, first.tokens()), (0.5, 10, 17));
        assert_eq!(turn(&[0.75], &mut before).cost_usd, 0.25);
        assert_eq!(turn(&[], &mut before).cost_usd, 0.0);
        assert_eq!(turn(&[0.125], &mut before).cost_usd, 0.125, "the agent restarted its count");
        assert_eq!(before, 0.125);
        assert_eq!(turn(&[0.125 - 1e-12], &mut before).cost_usd, 0.0, "it was rounded");
    }

    #[test]
    fn tokens_of_gemini_are_counted() {
        let mut reader = TurnReader::default();
        let count = json!({"input_tokens": 17, "output_tokens": 9});
        let result = json!({"stopReason": "end_turn", "_meta": {"quota": {"token_count": count}}});
        reader.push(&json!({"id": 1, "result": result}).to_string());
        let usage = reader.usage(&mut 0.0);
        assert_eq!((usage.input_tokens, usage.output_tokens), (17, 9));
    }

    #[test]
    fn state_updates_are_no_activity() {
        assert!(is_agent_activity(&says("x")));
        assert!(is_agent_activity(&update(
            json!({"sessionUpdate": "tool_call", "toolCallId": "x"})
        )));
        assert!(is_agent_activity(&json!({"id": 1, "result": {}}).to_string()));
        assert!(!is_agent_activity(&update(json!({"sessionUpdate": "usage_update", "used": 1}))));
    }

    proptest! {
        #[test]
        fn unknown_messages_are_skipped(line in "\\PC{0,80}") {
            let mut reader = TurnReader::default();
            reader.push(&line);
            reader.push(&says("x"));
            prop_assert_eq!(reader.text(), "x");
        }
    }
}
