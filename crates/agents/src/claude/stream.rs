//! One live `claude` without a terminal: JSON lines both ways, answers as they are written.
//!
//! It says nothing before the first prompt, so it is ready as soon as it runs. A text comes in pieces
//! first and then whole; a turn ends with a `result`.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use hob_child::{Child, ChildSpec, Children, Output, Stdin, StopLadder, Streams};
use hob_domain::Block;
use hob_transcript::claude::{Event, TurnResult, Usage};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use super::error::BackendError;
use super::input;
use super::live::{Launch, Limits, spawned};
use crate::driver::claude_stream::{RECORDS, read, write};

const ARGUMENTS: [&str; 7] = [
    "-p",
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--verbose",
    "--include-partial-messages",
];

/// A live process between or in turns. Dropping it ends its tree.
pub struct StreamSession {
    child: Child,
    input: mpsc::UnboundedSender<Value>,
    records: mpsc::Receiver<Value>,
    session_id: String,
    turns: u32,
    cost_usd: f64,
}

impl StreamSession {
    pub async fn start(
        children: &Children,
        tasks: &TaskTracker,
        launch: Launch,
    ) -> Result<StreamSession, BackendError> {
        let mut command = launch.command.iter();
        let program = command.next().cloned().unwrap_or_default();
        let args = command.map(String::as_str).chain(ARGUMENTS);
        let args = args.chain(launch.arguments.iter().map(String::as_str));
        let spec = ChildSpec {
            program: program.into(),
            args: args.map(OsString::from).collect(),
            env: launch.environment,
            cwd: launch.cwd,
            streams: Streams::Pipes { stdin: Stdin::Pipe },
            owner: Some(launch.app),
            confinement: launch.confinement,
        };
        let mut child = spawned(children.spawn(spec).await)?;
        let internal = |text: &str| BackendError::Internal(text.to_owned());
        let stdin = child.stdin.take().ok_or_else(|| internal("the agent has no input"))?;
        let stdout = child.stdout.take().ok_or_else(|| internal("the agent has no output"))?;
        let (input, to_write) = mpsc::unbounded_channel();
        let (sender, records) = mpsc::channel(RECORDS);
        tasks.spawn(write(stdin, to_write));
        tasks.spawn(read(stdout, sender));
        let session_id = launch.session_id;
        Ok(StreamSession { child, input, records, session_id, turns: 0, cost_usd: 0.0 })
    }

    pub fn pid(&self) -> i32 {
        self.child.pid()
    }

    pub fn turns(&self) -> u32 {
        self.turns
    }

    pub fn output(&self) -> &Output {
        self.child.output()
    }

    /// Whether it can be asked again: it runs, and has said nothing since its last turn was over that
    /// belongs to a turn nobody asked for.
    pub fn healthy(&mut self) -> bool {
        let mut silent = true;
        while let Ok(record) = self.records.try_recv() {
            let kind = record["type"].as_str().unwrap_or_default();
            silent &= !matches!(kind, "assistant" | "user" | "stream_event" | "result");
        }
        silent && self.child.is_running()
    }

    /// Ends the whole tree.
    pub async fn end(mut self) {
        self.child.stop(StopLadder::AT_ONCE).await;
    }

    /// Asks and reads the turn. Events go to `emit` as they come, but the result: that is returned. After
    /// an error the session must not be used again.
    pub async fn turn(
        &mut self,
        prompt: &str,
        limits: Limits,
        mut emit: impl FnMut(Event),
    ) -> Result<TurnResult, BackendError> {
        let typed = input::typed(prompt)
            .ok_or_else(|| BackendError::Invalid("the prompt is empty".to_owned()))?;
        let started = Instant::now();
        // What was said after the last turn's end is of no turn.
        while self.records.try_recv().is_ok() {}
        let message = json!({"type": "user", "message": {"role": "user", "content": typed}});
        if self.input.send(message).is_err() {
            return Err(self.died().await);
        }
        let mut told = false;
        let mut stalled = false;
        loop {
            let left = limits.turn.saturating_sub(started.elapsed());
            let patience = if stalled { left } else { left.min(limits.stall) };
            let record = match tokio::time::timeout(patience, self.records.recv()).await {
                Ok(Some(record)) => record,
                Ok(None) => return Err(self.died().await),
                Err(_) if started.elapsed() >= limits.turn => {
                    let screen = "it has no screen".to_owned();
                    return Err(BackendError::TimedOut { limit: limits.turn, screen });
                }
                Err(_) => {
                    stalled = true;
                    emit(Event::Stalled { screen: String::new() });
                    continue;
                }
            };
            stalled = false;
            // It has taken the prompt.
            if !std::mem::replace(&mut told, true) {
                emit(Event::User { text: prompt.to_owned() });
            }
            match take(&record) {
                Taken::Events(events) => events.into_iter().for_each(&mut emit),
                Taken::End(Ok(end)) => {
                    self.turns += 1;
                    let cost_usd = (end.cost_usd - self.cost_usd).max(0.0);
                    self.cost_usd = self.cost_usd.max(end.cost_usd);
                    return Ok(TurnResult {
                        subtype: "success".to_owned(),
                        duration_ms: started.elapsed().as_millis() as u64,
                        num_turns: self.turns,
                        session_id: self.session_id.clone(),
                        stop_reason: end.stop_reason,
                        usage: end.usage,
                        cost_usd,
                    });
                }
                Taken::End(Err(error)) => return Err(error),
            }
        }
    }

    async fn died(&self) -> BackendError {
        let exit = tokio::time::timeout(Duration::from_secs(2), self.child.exited()).await;
        let how = exit.map_or_else(|_| "its output closed".to_owned(), |exit| exit.to_string());
        BackendError::Died { how, said: self.child.output().tail_text() }
    }
}

/// What a record means.
enum Taken {
    Events(Vec<Event>),
    End(Result<End, BackendError>),
}

struct End {
    stop_reason: String,
    usage: Usage,
    /// Of the whole process so far.
    cost_usd: f64,
}

fn take(record: &Value) -> Taken {
    // Sub-agents speak to the agent, not to us.
    if !record["parent_tool_use_id"].is_null() {
        return Taken::Events(Vec::new());
    }
    match record["type"].as_str() {
        Some("stream_event") => Taken::Events(piece(record).into_iter().collect()),
        Some("assistant" | "user") => Taken::Events(blocks(record)),
        Some("result") => Taken::End(end(record)),
        _ => Taken::Events(Vec::new()),
    }
}

fn piece(record: &Value) -> Option<Event> {
    let delta = &record["event"]["delta"];
    let text = delta["text"].as_str().filter(|_| delta["type"] == "text_delta")?;
    Some(Event::Piece { text: text.to_owned() })
}

fn blocks(record: &Value) -> Vec<Event> {
    let message = &record["message"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    // Ours to report, not the model's words.
    if message["model"] == "<synthetic>" {
        return Vec::new();
    }
    let is_user = record["type"] == "user";
    let blocks = message["content"].as_array().into_iter().flatten().filter_map(Block::parse);
    let event = |block: Block| match (is_user, &block) {
        (true, Block::ToolResult { .. }) => Some(Event::ToolResult { block }),
        (true, _) => None,
        (false, _) => Some(Event::Assistant {
            message_id: text(&message["id"]),
            model: text(&message["model"]),
            block,
            stop_reason: message["stop_reason"].as_str().map(str::to_owned),
        }),
    };
    blocks.filter_map(event).collect()
}

fn end(record: &Value) -> Result<End, BackendError> {
    if record["is_error"] == true {
        let first = record["errors"][0].as_str();
        let said = record["result"].as_str().filter(|text| !text.is_empty()).or(first);
        let message = said.unwrap_or("the agent failed").to_owned();
        if record["stop_reason"] == "refusal" {
            return Ok(finished(record, "refusal"));
        }
        let told =
            record["api_error_status"].as_u64().and_then(|status| u16::try_from(status).ok());
        let status = told.or_else(|| status_in(&message));
        let kind = record["subtype"].as_str().unwrap_or_default().to_owned();
        return Err(BackendError::Api { status, kind, message });
    }
    Ok(finished(record, record["stop_reason"].as_str().unwrap_or("end_turn")))
}

fn finished(record: &Value, stop_reason: &str) -> End {
    let tokens = |name: &str| record["usage"][name].as_u64().unwrap_or_default();
    End {
        stop_reason: stop_reason.to_owned(),
        usage: Usage {
            input_tokens: tokens("input_tokens"),
            output_tokens: tokens("output_tokens"),
            cache_creation_input_tokens: tokens("cache_creation_input_tokens"),
            cache_read_input_tokens: tokens("cache_read_input_tokens"),
        },
        cost_usd: record["total_cost_usd"].as_f64().unwrap_or_default(),
    }
}

/// The status in `API Error: 529 …`, where the result itself does not say it.
fn status_in(message: &str) -> Option<u16> {
    let rest = message.split("API Error: ").nth(1)?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|status| (400..600).contains(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(record: Value) -> Vec<Event> {
        match take(&record) {
            Taken::Events(events) => events,
            Taken::End(_) => panic!("an end: {record}"),
        }
    }

    #[test]
    fn pieces_blocks_and_results() {
        let delta = json!({"type": "stream_event", "event": {"type": "content_block_delta",
            "delta": {"type": "text_delta", "text": "he"}}});
        assert_eq!(events(delta.clone()), [Event::Piece { text: "he".into() }]);
        let mut inner = delta;
        inner["parent_tool_use_id"] = json!("toolu_1");
        assert!(events(inner).is_empty(), "a sub-agent's words are not ours");
        let said = json!({"type": "assistant", "message": {"id": "m", "model": "x",
            "content": [{"type": "text", "text": "hello"}]}});
        assert!(
            matches!(&events(said)[..], [Event::Assistant { message_id, .. }] if message_id == "m")
        );
        let results = json!({"type": "user", "message": {"content": [
            {"type": "tool_result", "tool_use_id": "t", "content": "out"}, {"type": "text", "text": "x"}]}});
        assert!(matches!(&events(results)[..], [Event::ToolResult { .. }]));
        let synthetic = json!({"type": "assistant", "message": {"id": "m", "model": "<synthetic>",
            "content": [{"type": "text", "text": "API Error"}]}});
        assert!(events(synthetic).is_empty());
    }

    #[test]
    fn endings() {
        let of = |record: Value| match take(&record) {
            Taken::End(end) => end.map(|end| (end.stop_reason, end.usage.output_tokens)),
            Taken::Events(_) => panic!("no end: {record}"),
        };
        let good = json!({"type": "result", "is_error": false, "stop_reason": "max_tokens", "usage": {"output_tokens": 7}});
        assert_eq!(of(good), Ok(("max_tokens".to_owned(), 7)));
        let failed = json!({"type": "result", "subtype": "success", "is_error": true,
            "result": "API Error: 529 Overloaded"});
        assert!(matches!(of(failed), Err(BackendError::Api { status: Some(529), .. })));
        let said = json!({"type": "result", "is_error": true, "api_error_status": 429,
            "result": "API Error: Request rejected (429) · slow down"});
        assert!(matches!(of(said), Err(BackendError::Api { status: Some(429), .. })));
        let refused = json!({"type": "result", "is_error": true, "result": "API Error: no", "stop_reason": "refusal"});
        assert_eq!(of(refused).unwrap().0, "refusal");
        assert_eq!(status_in("API Error: Connection refused"), None);
    }
}
