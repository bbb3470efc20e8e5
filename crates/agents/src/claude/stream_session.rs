//! One live `claude` without a terminal: stream-json in both directions.
//!
//! [`stream_json`] reads the records; this module runs the process and its turns.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use hob_child::{Child, ChildSpec, Children, Output, Stdin, StopLadder, Streams};
use hob_transcript::claude::stream_json::{
    self, DeltaKind, StreamEvent, StreamMessage, StreamResult,
};
use hob_transcript::claude::{Event, SYNTHETIC_MODEL, TurnResult, Usage};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use super::error::BackendError;
use super::input;
use super::pipes::{self, MAX_PENDING_RECORDS, Record};
use super::profile::STREAM_ARGUMENTS;
use super::terminal_session::{Launch, TurnTimeouts, spawned};
use crate::app_permits::PermitsOfApp;

/// A live process, in a turn or between turns. Dropping it ends its process tree.
pub struct StreamSession {
    child: Child,
    input: mpsc::UnboundedSender<Value>,
    records: mpsc::Receiver<Record>,
    session_id: String,
    turns: u32,
    cost_usd: f64,
}

impl StreamSession {
    pub async fn start(
        children: &Children,
        tasks: &TaskTracker,
        launch: Launch,
        long_lines: PermitsOfApp,
    ) -> Result<StreamSession, BackendError> {
        let mut command = launch.command.iter();
        let program = command.next().cloned().unwrap_or_default();
        let args = command.map(String::as_str).chain(STREAM_ARGUMENTS);
        let args = args.chain(launch.arguments.iter().map(String::as_str));
        let spec = ChildSpec {
            program: program.into(),
            args: args.map(OsString::from).collect(),
            env: launch.environment,
            cwd: launch.cwd,
            streams: Streams::Pipes { stdin: Stdin::Pipe },
            owner: Some(launch.owner),
            confinement: launch.confinement,
        };
        let mut child = spawned(children.spawn(spec).await)?;
        let internal = |text: &str| BackendError::Internal(text.to_owned());
        let stdin = child.stdin.take().ok_or_else(|| internal("the agent has no input"))?;
        let stdout = child.stdout.take().ok_or_else(|| internal("the agent has no output"))?;
        let (input, to_write) = mpsc::unbounded_channel();
        let (sender, records) = mpsc::channel(MAX_PENDING_RECORDS);
        tasks.spawn(pipes::write(stdin, to_write));
        tasks.spawn(pipes::read(stdout, sender, long_lines));
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

    /// Returns whether the process accepts a prompt: it runs, and has not started a turn by itself since
    /// its last turn ended.
    pub fn is_healthy(&mut self) -> bool {
        let mut is_silent = true;
        while let Ok(record) = self.records.try_recv() {
            is_silent &= !stream_json::belongs_to_turn(&record.value);
        }
        is_silent && self.child.is_running()
    }

    /// Ends the process tree.
    pub async fn end(mut self) {
        self.child.stop(StopLadder::AT_ONCE).await;
    }

    /// Sends a prompt and reads the turn. Events go to `emit` as they arrive; the result is returned. After
    /// an error the session must not be used again.
    pub async fn turn(
        &mut self,
        prompt: &str,
        limits: TurnTimeouts,
        mut emit: impl FnMut(Event),
    ) -> Result<TurnResult, BackendError> {
        if prompt.trim().is_empty() {
            return Err(BackendError::Invalid("prompt: must not be empty".to_owned()));
        }
        let prompt = input::plain(prompt);
        let started = Instant::now();
        // Records after the end of the last turn belong to no turn.
        while self.records.try_recv().is_ok() {}
        if self.input.send(stream_json::user_message(&prompt)).is_err() {
            return Err(self.died().await);
        }
        let mut accepted = false;
        let mut stalled = false;
        loop {
            let left = limits.turn.saturating_sub(started.elapsed());
            let wait = if stalled { left } else { left.min(limits.stall) };
            let record = match tokio::time::timeout(wait, self.records.recv()).await {
                Ok(Some(record)) => record,
                Ok(None) => return Err(self.died().await),
                Err(_) if started.elapsed() >= limits.turn => {
                    let screen = "(no screen)".to_owned();
                    return Err(BackendError::TimedOut { limit: limits.turn, screen });
                }
                Err(_) => {
                    stalled = true;
                    emit(Event::Stalled { screen: String::new() });
                    continue;
                }
            };
            stalled = false;
            // The first record shows that the process has accepted the prompt.
            if !std::mem::replace(&mut accepted, true) {
                emit(Event::User { text: prompt.to_owned() });
            }
            match interpret(&record.value) {
                Interpretation::Events(events) => events.into_iter().for_each(&mut emit),
                Interpretation::End(Ok(end)) => {
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
                Interpretation::End(Err(error)) => return Err(error),
            }
        }
    }

    async fn died(&self) -> BackendError {
        let exit = tokio::time::timeout(Duration::from_secs(2), self.child.exited()).await;
        let how = exit.map_or_else(|_| "its output closed".to_owned(), |exit| exit.to_string());
        BackendError::Died { how, said: self.child.output().tail_text() }
    }
}

/// A record as the backend sees it.
enum Interpretation {
    Events(Vec<Event>),
    End(Result<TurnEnding, BackendError>),
}

/// A turn that ended with an answer.
struct TurnEnding {
    stop_reason: String,
    usage: Usage,
    /// The cost of the whole process so far.
    cost_usd: f64,
}

fn interpret(record: &Value) -> Interpretation {
    Interpretation::Events(match stream_json::parse(record) {
        Some(StreamEvent::Delta { kind: DeltaKind::Text, text }) => vec![Event::Piece { text }],
        Some(StreamEvent::CallBegin { id, name }) => vec![Event::CallBegin { id, name }],
        Some(StreamEvent::CallPiece { json }) => vec![Event::CallPiece { json }],
        // Hob reports the program's own messages itself; they are not the model's words.
        Some(StreamEvent::Assistant(message)) if message.model == SYNTHETIC_MODEL => Vec::new(),
        Some(StreamEvent::Assistant(StreamMessage { id, model, stop_reason, blocks, usage })) => {
            let event = |block| Event::Assistant {
                message_id: id.clone(),
                model: model.clone(),
                block,
                stop_reason: stop_reason.clone(),
                usage,
            };
            blocks.into_iter().map(event).collect()
        }
        Some(StreamEvent::MessageEnd) => vec![Event::MessageEnd],
        Some(StreamEvent::ToolResults(blocks)) => {
            blocks.into_iter().map(|block| Event::ToolResult { block }).collect()
        }
        Some(StreamEvent::Result(result)) => return Interpretation::End(ending(result)),
        Some(StreamEvent::Delta { .. } | StreamEvent::PermissionRequest(_)) | None => Vec::new(),
    })
}

fn ending(result: StreamResult) -> Result<TurnEnding, BackendError> {
    let refused = result.stop_reason.as_deref() == Some("refusal");
    if result.is_error && !refused {
        let message = result.error.unwrap_or_else(|| "the agent failed".to_owned());
        let status = result.api_error_status.or_else(|| status_in(&message));
        let kind = result.subtype.unwrap_or_default();
        return Err(BackendError::Api { status, kind, message });
    }
    Ok(TurnEnding {
        stop_reason: result.stop_reason.unwrap_or_else(|| "end_turn".to_owned()),
        usage: Usage {
            input_tokens: result.input_tokens.unwrap_or_default(),
            output_tokens: result.output_tokens.unwrap_or_default(),
            cache_creation_input_tokens: result.cache_creation_input_tokens.unwrap_or_default(),
            cache_read_input_tokens: result.cache_read_input_tokens.unwrap_or_default(),
        },
        cost_usd: result.total_cost_usd.unwrap_or_default(),
    })
}

/// Returns the status in `API Error: 529 …`, for results without a status field.
fn status_in(message: &str) -> Option<u16> {
    let rest = message.split("API Error: ").nth(1)?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|status| (400..600).contains(status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn events(record: Value) -> Vec<Event> {
        match interpret(&record) {
            Interpretation::Events(events) => events,
            Interpretation::End(_) => panic!("an end: {record}"),
        }
    }

    #[test]
    fn pieces_blocks_and_results() {
        let delta = json!({"type": "stream_event", "event": {"type": "content_block_delta",
            "delta": {"type": "text_delta", "text": "he"}}});
        assert_eq!(events(delta.clone()), [Event::Piece { text: "he".into() }]);
        let mut inner = delta;
        inner["parent_tool_use_id"] = json!("toolu_1");
        assert!(events(inner).is_empty(), "messages of sub-agents are ignored");
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
        let of = |record: Value| match interpret(&record) {
            Interpretation::End(end) => end.map(|end| (end.stop_reason, end.usage.output_tokens)),
            Interpretation::Events(_) => panic!("no end: {record}"),
        };
        let good = json!({"type": "result", "is_error": false, "stop_reason": "max_tokens", "usage": {"output_tokens": 7}});
        assert_eq!(of(good), Ok(("max_tokens".to_owned(), 7)));
        let cut = json!({"type": "result", "is_error": true, "api_error": "max_output_tokens",
            "result": "API Error: too long", "stop_reason": "stop_sequence", "usage": {"output_tokens": 8}});
        assert_eq!(of(cut), Ok(("max_tokens".to_owned(), 8)));
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
