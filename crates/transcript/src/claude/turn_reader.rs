//! Assembles a turn from its records while Claude Code writes them.

use std::collections::HashSet;
use std::sync::Arc;

use super::event::{Event, Usage, UsageById};
use super::live_record::{AssistantMessage, LiveBody, LiveRecord, texts};
use super::order::ParentOrder;

/// Reads the records of one turn, in any order.
#[derive(Debug, Default)]
pub struct TurnReader {
    /// The id of the prompt's own record, with which the turn begins.
    root: Option<String>,
    seen: HashSet<String>,
    /// Records by their time, then by their arrival.
    order: ParentOrder<String, (String, usize), LiveRecord>,
    usage: UsageById,
    stop_reason: Option<String>,
    error: Option<(AssistantMessage, String)>,
    end: Option<TurnOutcome>,
}

/// How a turn ended, as far as the transcript says.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnOutcome {
    Finished { stop_reason: String, usage: Usage },
    ApiError { kind: String, status: Option<u16>, message: String },
    Interrupted,
}

impl TurnReader {
    /// Adds the next records and returns the events that are now certain, each with its record's line.
    /// A record comes after its parent, and of those that could come next the earliest.
    pub fn push(&mut self, records: Vec<LiveRecord>) -> Vec<(Event, Arc<str>)> {
        for record in records {
            let Some(uuid) = record.uuid.clone() else { continue };
            if !self.seen.insert(uuid.clone()) {
                continue;
            }
            let key = (record.timestamp.clone(), self.seen.len());
            if self.root.is_none() && matches!(record.body, LiveBody::Prompt { .. }) {
                self.root = Some(uuid.clone());
                self.order.push(uuid, key, record);
            } else {
                let parent = record.parent.clone().unwrap_or_default();
                self.order.push_after(parent, uuid, key, record);
            }
        }
        let mut events = Vec::new();
        while let Some(record) = self.order.pop() {
            let raw = record.raw.clone();
            let mut of_record = Vec::new();
            self.apply(record, &mut of_record);
            events.extend(of_record.into_iter().map(|event| (event, raw.clone())));
        }
        events
    }

    /// Returns whether the prompt's record has come.
    pub fn began(&self) -> bool {
        self.root.is_some()
    }

    /// Returns how the turn ended, once it has.
    pub fn end(&self) -> Option<&TurnOutcome> {
        self.end.as_ref()
    }

    /// Returns whether the last message would end a turn, should the record of its end never come.
    pub fn has_final_message(&self) -> bool {
        let last = self.stop_reason.as_deref();
        matches!(last, Some("end_turn" | "stop_sequence" | "refusal" | "pause_turn"))
    }

    /// Ends the turn by its last message.
    pub fn finish(&mut self) {
        if self.end.is_none() {
            self.end = Some(self.finished());
        }
    }

    fn apply(&mut self, record: LiveRecord, events: &mut Vec<Event>) {
        match record.body {
            LiveBody::Prompt { text } if record.uuid == self.root => {
                events.push(Event::User { text })
            }
            LiveBody::ToolResults(blocks) => {
                events.extend(blocks.into_iter().map(|block| Event::ToolResult { block }));
            }
            LiveBody::Assistant(assistant) => self.apply_assistant(assistant, events),
            LiveBody::Interrupted => self.end = Some(TurnOutcome::Interrupted),
            LiveBody::TurnEnd if self.end.is_none() => self.end = Some(self.finished()),
            _ => {}
        }
    }

    fn apply_assistant(&mut self, assistant: AssistantMessage, events: &mut Vec<Event>) {
        if assistant.is_synthetic() {
            // Hob reports the error; the model did not write it.
            if assistant.error.is_some() {
                let message = texts(&assistant.blocks).join("\n");
                self.error = Some((assistant, message));
            }
            return;
        }
        self.usage.insert(assistant.message_id.clone(), assistant.usage);
        self.stop_reason = assistant.stop_reason.clone();
        // An answer after an error means that the CLI continued.
        self.error = None;
        for block in assistant.blocks {
            events.push(Event::Assistant {
                message_id: assistant.message_id.clone(),
                model: assistant.model.clone(),
                block,
                stop_reason: assistant.stop_reason.clone(),
                usage: assistant.usage,
            });
        }
    }

    fn finished(&self) -> TurnOutcome {
        let usage = Usage::total(self.usage.values());
        let last = self.stop_reason.as_deref();
        match &self.error {
            Some((error, _))
                if error.stop_reason.as_deref() == Some("refusal") || last == Some("refusal") =>
            {
                TurnOutcome::Finished { stop_reason: "refusal".to_owned(), usage }
            }
            Some((error, message)) => {
                let detail = error.error.clone();
                let (kind, status) = detail.map_or((String::new(), None), |e| (e.kind, e.status));
                if kind == "max_output_tokens" {
                    return TurnOutcome::Finished { stop_reason: "max_tokens".to_owned(), usage };
                }
                TurnOutcome::ApiError { kind, status, message: message.clone() }
            }
            None => {
                TurnOutcome::Finished { stop_reason: last.unwrap_or("end_turn").to_owned(), usage }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// A turn with thinking, text, two parallel calls and their results, attachments between, and a
    /// final answer; in causal order.
    fn a_turn() -> Vec<LiveRecord> {
        let mut lines: Vec<Value> = vec![
            json!({"type": "mode", "mode": "normal"}),
            json!({"type": "file-history-snapshot", "messageId": "x"}),
            json!({"type": "user", "uuid": "u", "parentUuid": null, "message": {"content": "go"}}),
            json!({"type": "attachment", "uuid": "t1", "parentUuid": "u"}),
            json!({"type": "attachment", "uuid": "t2", "parentUuid": "t1"}),
        ];
        let assistant = |uuid: &str, parent: &str, id: &str, block: Value, stop: &str| {
            json!({"type": "assistant", "uuid": uuid, "parentUuid": parent, "message": {"id": id,
                "model": "m", "content": [block], "stop_reason": stop,
                "usage": {"input_tokens": 10, "output_tokens": 5}}})
        };
        let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "Bash", "input": {}});
        let result = |uuid: &str, parent: &str, id: &str| {
            json!({"type": "user", "uuid": uuid, "parentUuid": parent, "message": {"content": [
                {"type": "tool_result", "tool_use_id": id, "content": "out"}]}})
        };
        lines.extend([
            assistant("a1", "t2", "m1", json!({"type": "thinking", "thinking": "hm"}), "tool_use"),
            assistant("a2", "a1", "m1", json!({"type": "text", "text": "look"}), "tool_use"),
            assistant("a3", "a2", "m1", call("c1"), "tool_use"),
            assistant("a4", "a3", "m1", call("c2"), "tool_use"),
            result("r1", "a3", "c1"),
            result("r2", "a4", "c2"),
            assistant("a5", "r2", "m2", json!({"type": "text", "text": "done"}), "end_turn"),
            json!({"type": "attachment", "uuid": "t3", "parentUuid": "a5"}),
            json!({"type": "system", "subtype": "turn_duration", "uuid": "e", "parentUuid": "t3"}),
        ]);
        for (index, line) in lines.iter_mut().enumerate() {
            line["timestamp"] = json!(format!("2026-01-01T00:00:{index:02}Z"));
        }
        lines.iter().map(|line| LiveRecord::parse(&line.to_string()).unwrap()).collect()
    }

    fn finished(reader: &TurnReader) -> TurnOutcome {
        reader.end().cloned().expect("the end")
    }

    #[test]
    fn records_in_order_give_events_in_order() {
        let mut reader = TurnReader::default();
        let events: Vec<Event> = a_turn()
            .into_iter()
            .flat_map(|record| reader.push(vec![record]))
            .map(|(event, _)| event)
            .collect();
        let kinds: Vec<&str> = events
            .iter()
            .map(|event| match event {
                Event::User { .. } => "user",
                Event::Assistant { .. } => "assistant",
                Event::ToolResult { .. } => "result",
                _ => "other",
            })
            .collect();
        assert_eq!(
            kinds,
            [
                "user",
                "assistant",
                "assistant",
                "assistant",
                "assistant",
                "result",
                "result",
                "assistant"
            ]
        );
        let usage = Usage { input_tokens: 20, output_tokens: 10, ..Usage::default() };
        assert_eq!(
            finished(&reader),
            TurnOutcome::Finished { stop_reason: "end_turn".into(), usage }
        );
    }

    proptest! {
        /// The order of the lines does not matter if the parents are right.
        #[test]
        fn any_order_gives_the_same_events(order in Just((0..14usize).collect::<Vec<_>>()).prop_shuffle()) {
            let mut straight = TurnReader::default();
            let expect: Vec<(Event, Arc<str>)> =
                a_turn().into_iter().flat_map(|record| straight.push(vec![record])).collect();
            let records = a_turn();
            prop_assert_eq!(records.len(), order.len());
            let mut shuffled = TurnReader::default();
            let events = shuffled.push(order.iter().map(|at| records[*at].clone()).collect());
            prop_assert_eq!(&events, &expect);
            prop_assert_eq!(shuffled.end(), straight.end());
        }

        /// Records in two batches, each in any order, give the same events.
        #[test]
        fn any_batches_give_the_same_events(
            order in Just((0..14usize).collect::<Vec<_>>()).prop_shuffle(), cut in 0usize..14,
        ) {
            let expect = TurnReader::default().push(a_turn());
            let records = a_turn();
            let mut reader = TurnReader::default();
            let mut events = Vec::new();
            for batch in [0..cut, cut..14] {
                let batch = order.iter().filter(|at| batch.contains(at));
                events.extend(reader.push(batch.map(|at| records[*at].clone()).collect()));
            }
            prop_assert_eq!(events, expect);
            prop_assert!(reader.end().is_some());
        }
    }

    fn ending(lines: &[Value]) -> TurnOutcome {
        let mut reader = TurnReader::default();
        let mut parent = Value::Null;
        for (index, line) in lines.iter().enumerate() {
            let mut line = line.clone();
            line["uuid"] = json!(format!("id{index}"));
            line["parentUuid"] = std::mem::replace(&mut parent, line["uuid"].clone());
            reader.push(vec![LiveRecord::parse(&line.to_string()).unwrap()]);
        }
        finished(&reader)
    }

    #[test]
    fn every_ending_gives_its_outcome() {
        let prompt = json!({"type": "user", "message": {"content": "go"}});
        let end = json!({"type": "system", "subtype": "turn_duration"});
        let says = |stop: &str| {
            json!({"type": "assistant", "message": {"id": "m", "model": "m",
            "content": [{"type": "text", "text": "x"}], "stop_reason": stop}})
        };
        let synthetic = |error: &str, status: Value, stop: &str| {
            json!({"type": "assistant",
            "isApiErrorMessage": true, "error": error, "apiErrorStatus": status,
            "message": {"id": "s", "model": "<synthetic>", "stop_reason": stop,
                "content": [{"type": "text", "text": "API Error"}]}})
        };
        let stop = |lines: &[Value]| match ending(lines) {
            TurnOutcome::Finished { stop_reason, .. } => stop_reason,
            other => panic!("{other:?}"),
        };
        for reason in ["end_turn", "stop_sequence", "max_tokens", "refusal", "pause_turn"] {
            assert_eq!(stop(&[prompt.clone(), says(reason), end.clone()]), reason);
        }
        let refused = [
            prompt.clone(),
            says("refusal"),
            synthetic("invalid_request", json!(null), "refusal"),
            end.clone(),
        ];
        assert_eq!(stop(&refused), "refusal");
        let cut = [
            prompt.clone(),
            says("max_tokens"),
            synthetic("max_output_tokens", json!(null), "stop_sequence"),
            end.clone(),
        ];
        assert_eq!(stop(&cut), "max_tokens");
        let failed =
            ending(&[prompt.clone(), synthetic("rate_limit", json!(429), "stop_sequence"), end]);
        let expect = TurnOutcome::ApiError {
            kind: "rate_limit".into(),
            status: Some(429),
            message: "API Error".into(),
        };
        assert_eq!(failed, expect);
        let note = json!({"type": "user", "message": {"content": [{"type": "text", "text": "[Request interrupted by user]"}]}});
        assert_eq!(ending(&[prompt, says("end_turn"), note]), TurnOutcome::Interrupted);
    }
}
