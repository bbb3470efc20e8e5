//! Reads a turn's messages: what was said, what it used. Pure, and never in the way: a message it does
//! not know is still an event.

use hob_domain::session::TurnUsage;
use serde_json::Value;

/// Amounts that differ by less are the same.
const ROUNDING: f64 = 1e-9;

/// What an agent said in these messages.
pub fn text_of(messages: &[String]) -> String {
    let mut reading = TurnReading::default();
    messages.iter().for_each(|message| reading.push(message));
    reading.text()
}

/// Whether a message is an agent's word or deed, and not only about its state.
pub(super) fn says_something(line: &str) -> bool {
    let message: Value = serde_json::from_str(line).unwrap_or_default();
    let update = update_of(&message);
    let about_state = [
        "usage_update",
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
        "user_message_chunk",
    ];
    !update["sessionUpdate"].as_str().is_some_and(|kind| about_state.contains(&kind))
}

/// The update in a message; some agents leave the wrapper out.
pub fn update_of(message: &Value) -> &Value {
    let params = &message["params"];
    if params["update"].is_object() { &params["update"] } else { params }
}

/// A turn as far as it has been said.
#[derive(Debug, Default)]
pub(crate) struct TurnReading {
    /// The agent's text, in runs: a tool call or a thought between two begins a new one.
    runs: Vec<String>,
    in_run: bool,
    usage: TurnUsage,
    /// What the agent says its process has cost so far.
    cost: Option<f64>,
}

impl TurnReading {
    /// Takes the next message.
    pub fn push(&mut self, line: &str) {
        let Ok(message) = serde_json::from_str::<Value>(line) else { return };
        if let Some(result) = message.get("result") {
            self.take_usage(&result["usage"]);
        }
        let update = update_of(&message);
        match update["sessionUpdate"].as_str() {
            Some("agent_message_chunk") => {
                if let Some(text) = update["content"]["text"].as_str() {
                    self.say(text);
                }
            }
            Some("usage_update") => {
                if let Some(amount) = update["cost"]["amount"].as_f64() {
                    self.cost = Some(amount);
                }
            }
            Some("tool_call" | "agent_thought_chunk" | "user_message_chunk") => self.in_run = false,
            _ => {}
        }
    }

    /// All the agent said.
    pub fn text(&self) -> String {
        self.runs.concat()
    }

    /// The same in runs, without empty ones: each is one thing said.
    pub fn runs(&self) -> Vec<String> {
        self.runs.iter().filter(|run| !run.trim().is_empty()).cloned().collect()
    }

    /// What the turn used. `before` is what the process had cost when it began, and is moved on: agents
    /// count from the start of their process.
    pub fn usage(&self, before: &mut f64) -> TurnUsage {
        let mut usage = self.usage;
        if let Some(now) = self.cost {
            // A smaller number means that the agent has begun to count anew; one that is smaller only
            // in its last digits was rounded.
            let more = now - *before;
            usage.cost_usd = if more >= -ROUNDING { more.max(0.0) } else { now };
            *before = now;
        }
        usage
    }

    fn say(&mut self, text: &str) {
        if !self.in_run {
            self.runs.push(String::new());
            self.in_run = true;
        }
        if let Some(run) = self.runs.last_mut() {
            run.push_str(text);
        }
    }

    fn take_usage(&mut self, usage: &Value) {
        let count = |key: &str| usage[key].as_u64().unwrap_or_default();
        self.usage.input_tokens += count("inputTokens");
        self.usage.output_tokens += count("outputTokens");
        self.usage.cached_read_tokens += count("cachedReadTokens");
        self.usage.cached_write_tokens += count("cachedWriteTokens");
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
        let mut reading = TurnReading::default();
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
            reading.push(&line);
        }
        assert_eq!(reading.text(), "one runtwo !");
        assert_eq!(reading.runs(), ["one run", "two", " !"]);
    }

    #[test]
    fn costs_are_counted_from_the_turns_beginning() {
        let turn = |amounts: &[f64], before: &mut f64| {
            let mut reading = TurnReading::default();
            for amount in amounts {
                reading.push(&update(json!({"sessionUpdate": "usage_update",
                    "cost": {"amount": amount, "currency": "USD"}})));
            }
            reading.push(
                &json!({"id": 1, "result": {"stopReason": "end_turn",
                "usage": {"inputTokens": 10, "outputTokens": 5, "cachedReadTokens": 2}}})
                .to_string(),
            );
            reading.usage(before)
        };
        let mut before = 0.0;
        let first = turn(&[0.25, 0.5], &mut before);
        assert_eq!((first.cost_usd, first.input_tokens, first.tokens()), (0.5, 10, 17));
        assert_eq!(turn(&[0.75], &mut before).cost_usd, 0.25);
        assert_eq!(turn(&[], &mut before).cost_usd, 0.0);
        assert_eq!(turn(&[0.125], &mut before).cost_usd, 0.125, "it began to count anew");
        assert_eq!(before, 0.125);
        assert_eq!(turn(&[0.125 - 1e-12], &mut before).cost_usd, 0.0, "it was rounded");
    }

    #[test]
    fn words_and_deeds() {
        assert!(says_something(&says("x")));
        assert!(says_something(&update(json!({"sessionUpdate": "tool_call", "toolCallId": "x"}))));
        assert!(says_something(&json!({"id": 1, "result": {}}).to_string()));
        assert!(!says_something(&update(json!({"sessionUpdate": "usage_update", "used": 1}))));
    }

    proptest! {
        #[test]
        fn nothing_breaks_it(line in "\\PC{0,80}") {
            let mut reading = TurnReading::default();
            reading.push(&line);
            reading.push(&says("x"));
            prop_assert_eq!(reading.text(), "x");
        }
    }
}
