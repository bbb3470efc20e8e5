//! Puts a turn together from its records, along the parent links: in the first batch of a new file
//! the lines are not always in causal order.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

use hob_domain::Block;

use super::event::{Event, Usage, UsageById};
use super::record::{Assistant, Kind, Record};

/// Reads the records of one turn in whatever order they come.
#[derive(Debug, Default)]
pub struct TurnReader {
    /// The prompt's own record: where the turn begins.
    root: Option<String>,
    seen: HashSet<String>,
    placed: HashSet<String>,
    /// Records whose parent has not been placed yet.
    waiting: HashMap<String, Vec<Arrived>>,
    /// Records whose parent has been placed, the earliest first.
    ready: BinaryHeap<Reverse<Arrived>>,
    usage: UsageById,
    stop_reason: Option<String>,
    error: Option<(Assistant, String)>,
    end: Option<End>,
}

/// A record and the place in which it arrived; ordered by its time, then by that place.
#[derive(Debug)]
struct Arrived {
    number: usize,
    uuid: String,
    record: Record,
}

impl Ord for Arrived {
    fn cmp(&self, other: &Arrived) -> Ordering {
        (&self.record.timestamp, self.number).cmp(&(&other.record.timestamp, other.number))
    }
}

impl PartialOrd for Arrived {
    fn partial_cmp(&self, other: &Arrived) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Arrived {
    fn eq(&self, other: &Arrived) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Arrived {}

/// How the turn ended, as far as the transcript says.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    Finished { stop_reason: String, usage: Usage },
    ApiError { kind: String, status: Option<u16>, message: String },
    Interrupted,
}

impl TurnReader {
    /// Takes the next records and returns the events that are certain now, each with its record's line,
    /// in order: a record after its parent, and of those that could come next the earliest.
    pub fn push(&mut self, records: Vec<Record>) -> Vec<(Event, Arc<str>)> {
        for record in records {
            let Some(uuid) = record.uuid.clone() else { continue };
            if !self.seen.insert(uuid.clone()) {
                continue;
            }
            let arrived = Arrived { number: self.seen.len(), uuid, record };
            if self.root.is_none() && matches!(arrived.record.kind, Kind::Prompt { .. }) {
                self.root = Some(arrived.uuid.clone());
                self.ready.push(Reverse(arrived));
            } else if arrived.record.parent.as_ref().is_some_and(|p| self.placed.contains(p)) {
                self.ready.push(Reverse(arrived));
            } else {
                let parent = arrived.record.parent.clone().unwrap_or_default();
                self.waiting.entry(parent).or_default().push(arrived);
            }
        }
        let mut events = Vec::new();
        while let Some(Reverse(Arrived { uuid, record, .. })) = self.ready.pop() {
            let raw = record.raw.clone();
            let mut of_record = Vec::new();
            self.take(record, &mut of_record);
            events.extend(of_record.into_iter().map(|event| (event, raw.clone())));
            let children = self.waiting.remove(&uuid).unwrap_or_default();
            self.ready.extend(children.into_iter().map(Reverse));
            self.placed.insert(uuid);
        }
        events
    }

    /// Whether the prompt's record has come.
    pub fn began(&self) -> bool {
        self.root.is_some()
    }

    /// The end, once it is there.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Whether the last thing said would end a turn, should the record of its end never come.
    pub fn said_its_last_word(&self) -> bool {
        let last = self.stop_reason.as_deref();
        matches!(last, Some("end_turn" | "stop_sequence" | "refusal" | "pause_turn"))
    }

    /// Ends the turn by its last word.
    pub fn finish(&mut self) {
        if self.end.is_none() {
            self.end = Some(self.finished());
        }
    }

    fn take(&mut self, record: Record, events: &mut Vec<Event>) {
        match record.kind {
            Kind::Prompt { text } if record.uuid == self.root => events.push(Event::User { text }),
            Kind::ToolResults(blocks) => {
                events.extend(blocks.into_iter().map(|block| Event::ToolResult { block }));
            }
            Kind::Assistant(assistant) => self.take_assistant(assistant, events),
            Kind::Interrupted => self.end = Some(End::Interrupted),
            Kind::TurnEnd if self.end.is_none() => self.end = Some(self.finished()),
            _ => {}
        }
    }

    fn take_assistant(&mut self, assistant: Assistant, events: &mut Vec<Event>) {
        if assistant.synthetic() {
            // Ours to report, not the model's words.
            if assistant.error.is_some() {
                let texts: Vec<&str> = assistant
                    .blocks
                    .iter()
                    .filter_map(|block| match block {
                        Block::Text(text) => Some(text.as_str()),
                        _ => None,
                    })
                    .collect();
                let message = texts.join("\n");
                self.error = Some((assistant, message));
            }
            return;
        }
        self.usage.insert(assistant.message_id.clone(), assistant.usage);
        self.stop_reason = assistant.stop_reason.clone();
        // An answer after an error means that the CLI went on.
        self.error = None;
        for block in assistant.blocks {
            events.push(Event::Assistant {
                message_id: assistant.message_id.clone(),
                model: assistant.model.clone(),
                block,
                stop_reason: assistant.stop_reason.clone(),
            });
        }
    }

    fn finished(&self) -> End {
        let usage = Usage::total(self.usage.values());
        let last = self.stop_reason.as_deref();
        match &self.error {
            Some((error, _))
                if error.stop_reason.as_deref() == Some("refusal") || last == Some("refusal") =>
            {
                End::Finished { stop_reason: "refusal".to_owned(), usage }
            }
            Some((error, message)) => {
                let detail = error.error.clone();
                let (kind, status) = detail.map_or((String::new(), None), |e| (e.kind, e.status));
                if kind == "max_output_tokens" {
                    return End::Finished { stop_reason: "max_tokens".to_owned(), usage };
                }
                End::ApiError { kind, status, message: message.clone() }
            }
            None => End::Finished { stop_reason: last.unwrap_or("end_turn").to_owned(), usage },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::parse;
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// A turn with thinking, text, two parallel calls and their results, attachments between, and a
    /// final answer; in causal order.
    fn a_turn() -> Vec<Record> {
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
        lines.iter().map(|line| parse(&line.to_string()).unwrap()).collect()
    }

    fn finished(reader: &TurnReader) -> End {
        reader.end().cloned().expect("the end")
    }

    #[test]
    fn a_turn_in_order() {
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
        assert_eq!(finished(&reader), End::Finished { stop_reason: "end_turn".into(), usage });
    }

    proptest! {
        /// The order of the lines does not matter, as long as the parents are right.
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

        /// Torn into batches anywhere, each in any order, it is still the same.
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

    fn ending(lines: &[Value]) -> End {
        let mut reader = TurnReader::default();
        let mut parent = Value::Null;
        for (index, line) in lines.iter().enumerate() {
            let mut line = line.clone();
            line["uuid"] = json!(format!("id{index}"));
            line["parentUuid"] = std::mem::replace(&mut parent, line["uuid"].clone());
            reader.push(vec![parse(&line.to_string()).unwrap()]);
        }
        finished(&reader)
    }

    #[test]
    fn every_ending_is_known() {
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
            End::Finished { stop_reason, .. } => stop_reason,
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
        let expect = End::ApiError {
            kind: "rate_limit".into(),
            status: Some(429),
            message: "API Error".into(),
        };
        assert_eq!(failed, expect);
        let note = json!({"type": "user", "message": {"content": [{"type": "text", "text": "[Request interrupted by user]"}]}});
        assert_eq!(ending(&[prompt, says("end_turn"), note]), End::Interrupted);
    }
}
