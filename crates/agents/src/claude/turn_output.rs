//! What a running turn has said, and the request that waits for it. A turn that calls the client's tools pauses; the request
//! with their results becomes the one that waits.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hob_domain::Block;
use hob_transcript::claude::{Event, PausedTurn, TurnResult, Usage, UsageById};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::counts::Origin;
use super::error::BackendError;
use super::request::CompletionRequest;
use crate::client_tools::{NAME_PREFIX, ToolCall, ToolExchange};

/// How long no further block and no further call must have come before the client gets the calls of a whole message.
const QUIET_TIME: Duration = Duration::from_millis(25);
/// How long the rest of a message may take. The agent begins with a call before the model has written the next one.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a call may take to appear in the agent's message. The calls of sub-agents never do. In a terminal, a call that
/// begins before its message is whole keeps the message out of the transcript until it has its result.
const UNSEEN_CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// The request that waits for the events of a turn.
pub(super) struct Listener {
    pub sender: mpsc::UnboundedSender<Result<Event, BackendError>>,
    pub origin: watch::Sender<Option<Origin>>,
    /// Cancelled when the request goes away.
    pub cancel: CancellationToken,
}

/// A turn that waits for the results of the client's tools. Dropping it ends the turn.
pub(super) struct WaitingTurn {
    pub app: String,
    /// The agent's session.
    pub session_id: String,
    /// The settings of its request. Only a request with equal settings continues it.
    pub scope: Value,
    /// Whether the request required the call. Many such clients want nothing but the arguments, and bring no result.
    pub is_call_required: bool,
    pub resume: oneshot::Sender<Box<Continuation>>,
}

/// The request with the results.
pub(super) struct Continuation {
    pub request: CompletionRequest,
    pub listener: Listener,
}

/// The output of a turn since its request.
pub(super) struct TurnOutput {
    state: Mutex<OutputState>,
    /// Changes with every event.
    activity: watch::Sender<u64>,
}

#[derive(Default)]
struct OutputState {
    /// `None` while the turn is paused.
    listener: Option<Listener>,
    /// All events but pieces of texts and calls.
    events: Vec<Event>,
    /// The client's tools that the current request lets the agent call.
    offered: Vec<String>,
    /// Whether the call that began last is one of these.
    is_client_call: bool,
    usage: UsageById,
    /// The usage that the client has been told at pauses.
    reported: Usage,
    /// The calls that the current request has answered.
    answered: Vec<String>,
    /// How many of the events were there at the last pause.
    paused_at: usize,
    /// Calls of an earlier message that the client has not been given: it wants one at a time.
    held_back: Vec<ToolCall>,
}

impl TurnOutput {
    /// Creates the output of a turn, for a request that lets the agent call the `offered` tools.
    pub fn new(listener: Listener, offered: Vec<String>) -> TurnOutput {
        let state = OutputState { listener: Some(listener), offered, ..OutputState::default() };
        TurnOutput { state: Mutex::new(state), activity: watch::channel(0).0 }
    }

    fn lock(&self) -> MutexGuard<'_, OutputState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes an event on. Returns whether it is the first one for this request.
    pub fn push(&self, event: Event, origin: Origin) -> bool {
        let mut state = self.lock();
        if let Event::Assistant { message_id, usage, .. } = &event {
            state.usage.insert(message_id.clone(), *usage);
        }
        // The request itself contains the results of the client's tools.
        let is_known = matches!(&event, Event::ToolResult { block: Block::ToolResult { tool_use_id, .. } }
            if state.answered.contains(tool_use_id));
        let is_piece = matches!(
            event,
            Event::Piece { .. } | Event::CallBegin { .. } | Event::CallPiece { .. }
        );
        if !is_known && !is_piece {
            state.events.push(event.clone());
        }
        // The request hears of the client's tools only, by the client's names.
        let event = match event {
            Event::CallBegin { id, name } => {
                let name = name.strip_prefix(NAME_PREFIX).map(str::to_owned);
                let name = name.filter(|name| state.offered.contains(name));
                state.is_client_call = name.is_some();
                name.map(|name| Event::CallBegin { id, name })
            }
            Event::CallPiece { .. } if !state.is_client_call => None,
            event => Some(event),
        };
        let mut is_first = false;
        if let (Some(listener), Some(event)) = (&state.listener, event) {
            // A request that continued the turn has its origin already.
            is_first = listener.origin.send_if_modified(|known| {
                let is_first = known.is_none();
                known.get_or_insert(origin);
                is_first
            });
            let _ = listener.sender.send(Ok(event));
        }
        drop(state);
        self.activity.send_modify(|count| *count += 1);
        is_first
    }

    /// Returns the events since the request.
    pub fn events(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    /// Sends the end of the turn.
    pub fn end(&self, end: Result<TurnResult, BackendError>) {
        let mut state = self.lock();
        let reported = state.reported;
        if let Some(listener) = state.listener.take() {
            let end = end.map(|result| Event::Result(with_rest(result, reported)));
            let _ = listener.sender.send(end);
        }
    }

    /// Waits until the agent waits for the client's tools, and returns the calls.
    pub async fn client_calls(&self, exchange: Option<&ToolExchange>) -> Vec<ToolCall> {
        let Some(exchange) = exchange else { return std::future::pending().await };
        let (mut calls, mut activity) = (exchange.changed(), self.activity.subscribe());
        loop {
            calls.mark_unchanged();
            activity.mark_unchanged();
            let (waiting, seen) = (exchange.waiting(), self.tool_uses(exchange));
            let is_seen = |call: &ToolCall| seen.iter().any(|known| known.id == call.id);
            let quiet = match (waiting.iter().all(is_seen), self.is_message_whole()) {
                (true, true) => QUIET_TIME,
                (true, false) => MESSAGE_TIMEOUT,
                (false, _) => UNSEEN_CALL_TIMEOUT,
            };
            tokio::select! {
                _ = calls.changed() => {}
                _ = activity.changed() => {}
                () = tokio::time::sleep(quiet), if !waiting.is_empty() => {
                    let unseen: Vec<ToolCall> =
                        waiting.into_iter().filter(|call| !is_seen(call)).collect();
                    return seen.into_iter().chain(unseen).collect();
                }
            }
        }
    }

    /// Returns the calls of the client's tools in the agent's messages that have no result yet. The agent itself answers a
    /// call that it refuses.
    fn tool_uses(&self, exchange: &ToolExchange) -> Vec<ToolCall> {
        let state = self.lock();
        let is_answered = |call: &ToolCall| {
            state.events.iter().any(|event| {
                matches!(event, Event::ToolResult { block: Block::ToolResult { tool_use_id, .. } }
                    if *tool_use_id == call.id)
            })
        };
        let held_back = state.held_back.iter().cloned();
        let calls = held_back.chain(state.events.iter().filter_map(client_call));
        calls.filter(|call| exchange.offers(&call.name) && !is_answered(call)).collect()
    }

    /// Returns whether the last message has come as a whole.
    fn is_message_whole(&self) -> bool {
        let state = self.lock();
        let last = state.events.iter().rev().find_map(|event| match event {
            Event::Assistant { stop_reason, .. } => Some(stop_reason.is_some()),
            Event::MessageEnd => Some(true),
            _ => None,
        });
        last.unwrap_or(true)
    }

    /// Returns what the client is told in a response that ends with these calls: texts and calls in their order.
    pub fn said(&self, calls: &[ToolCall]) -> Vec<Block> {
        let state = self.lock();
        let mut said: Vec<Block> = Vec::new();
        for event in &state.events {
            if let Event::Assistant { block: Block::Text(text), .. } = event {
                said.push(Block::Text(text.clone()));
            } else if let Some(call) = client_call(event).filter(|call| calls.contains(call)) {
                said.push(tool_use(&call));
            }
        }
        let missing: Vec<Block> =
            calls.iter().map(tool_use).filter(|call| !said.contains(call)).collect();
        said.extend(missing);
        said
    }

    /// Ends the response of the current request with calls. No request waits after that. `held_back` are the calls for
    /// later responses.
    pub fn pause(&self, calls: &[ToolCall], held_back: &[ToolCall], mut result: TurnResult) {
        let mut state = self.lock();
        state.held_back = held_back.to_vec();
        state.paused_at = state.events.len();
        let used = Usage::total(state.usage.values());
        result.usage = used;
        let result = with_rest(result, state.reported);
        state.reported = used;
        if let Some(listener) = state.listener.take() {
            let calls = calls.iter().map(tool_use).collect();
            let _ = listener.sender.send(Ok(Event::Paused(PausedTurn { calls, result })));
        }
    }

    /// Continues for another request, which has answered these calls and lets the agent call the `offered` tools.
    pub fn resume(&self, listener: Listener, answered: Vec<String>, offered: Vec<String>) {
        let mut state = self.lock();
        state.offered = offered;
        listener.origin.send_replace(Some(Origin::Warm));
        // What the agent has said during the pause belongs to this request.
        let paused_at = std::mem::take(&mut state.paused_at);
        state.events.drain(..paused_at);
        for event in &state.events {
            let _ = listener.sender.send(Ok(event.clone()));
        }
        state.listener = Some(listener);
        state.answered = answered;
    }
}

/// Returns the result with the part of its usage that the client does not know yet.
fn with_rest(mut result: TurnResult, reported: Usage) -> TurnResult {
    let usage = &mut result.usage;
    usage.input_tokens = usage.input_tokens.saturating_sub(reported.input_tokens);
    usage.output_tokens = usage.output_tokens.saturating_sub(reported.output_tokens);
    usage.cache_creation_input_tokens =
        usage.cache_creation_input_tokens.saturating_sub(reported.cache_creation_input_tokens);
    usage.cache_read_input_tokens =
        usage.cache_read_input_tokens.saturating_sub(reported.cache_read_input_tokens);
    result
}

fn client_call(event: &Event) -> Option<ToolCall> {
    let Event::Assistant { block: Block::ToolUse { id, name, input }, .. } = event else {
        return None;
    };
    let name = name.strip_prefix(NAME_PREFIX)?.to_owned();
    Some(ToolCall { id: id.clone(), name, input: input.clone() })
}

fn tool_use(call: &ToolCall) -> Block {
    let ToolCall { id, name, input } = call.clone();
    Block::ToolUse { id, name, input }
}
