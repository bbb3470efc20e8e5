//! A reply for both dialects: its texts, streamed or complete.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::Event;
use futures_util::StreamExt;
use hob_agents::claude::{BackendError, Event as Happened, Origin, TurnResult};
use hob_domain::{App, Block};
use hob_sessions::{AdmittedCompletion, CompletionStream, Conversation};

use super::dialect::Problem;
use super::parts::{AbandonedCall, ClientCall, Part, StreamedCalls, Texts};
use super::structured::json_text;
use crate::state::Gateway;

/// Interval of keep-alive comments on a quiet stream.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a stream waits for its first part before it begins without one.
const FIRST_PIECE: Duration = Duration::from_secs(10);

/// A reply in progress. Dropping it before its end ends the turn.
pub(super) struct Reply {
    answering: CompletionStream,
    /// The model that answers; known after its first output.
    pub model: Option<String>,
    texts: Texts,
    calls: StreamedCalls,
    ready: VecDeque<Part>,
    in_pieces: bool,
    over: bool,
    /// Why the answer fails after the parts that are ready.
    failure: Option<BackendError>,
    /// The texts so far, if the answer is to have a form: then the last message is the whole answer.
    formed: Option<HeldTexts>,
}

/// Texts that are held back until the answer ends.
#[derive(Default)]
struct HeldTexts {
    /// The texts before the last message.
    before: Vec<String>,
    /// The id of the last message.
    id: String,
    /// The texts of the last message.
    last: Vec<String>,
}

/// A reply that may begin.
pub(super) struct AdmittedReply {
    turn: AdmittedCompletion,
    /// The names of the tools whose calls are sent in pieces.
    streamed_tools: Vec<String>,
    formed: Option<HeldTexts>,
}

impl AdmittedReply {
    /// Sends the prompt and returns once the agent has accepted it.
    pub async fn start(self, gateway: &Arc<Gateway>) -> Result<Reply, Problem> {
        let AdmittedReply { turn, streamed_tools, formed } = self;
        let answering = gateway.completions.start(turn).await?;
        Ok(Reply {
            answering,
            model: None,
            texts: Texts::default(),
            calls: StreamedCalls::of(streamed_tools),
            ready: VecDeque::new(),
            in_pieces: formed.is_none(),
            over: false,
            failure: None,
            formed,
        })
    }
}

/// A complete reply.
pub(super) struct Whole {
    /// What the agent thought and wrote, in order.
    pub said: Vec<Said>,
    pub calls: Vec<ClientCall>,
    pub model: Option<String>,
    pub result: TurnResult,
}

/// A block of a complete reply.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    Thought(String),
    Text(String),
}

impl Whole {
    /// Returns the texts in order, without what the agent thought.
    pub fn texts(&self) -> Vec<&str> {
        let texts = self.said.iter().filter_map(|block| match block {
            Said::Text(text) => Some(text.as_str()),
            Said::Thought(_) => None,
        });
        texts.collect()
    }
}

impl Reply {
    /// Sends the prompt and returns once the agent has accepted it.
    pub async fn to(
        gateway: &Arc<Gateway>,
        app: &App,
        asked: Conversation,
    ) -> Result<Reply, Problem> {
        Reply::admit(gateway, app, asked).await?.start(gateway).await
    }

    /// Validates a prompt and counts it against the app's limits.
    pub async fn admit(
        gateway: &Arc<Gateway>,
        app: &App,
        asked: Conversation,
    ) -> Result<AdmittedReply, Problem> {
        let has_form = asked.answer_check.is_some();
        // A client that wants one call at a time does not get all calls that the agent begins.
        let streamed_tools = match asked.one_call_at_a_time {
            true => Vec::new(),
            false => asked.tools.iter().map(|tool| tool.name.clone()).collect(),
        };
        let turn = gateway.completions.admit(app, asked).await?;
        Ok(AdmittedReply { turn, streamed_tools, formed: has_form.then(HeldTexts::default) })
    }

    /// Waits a while for the first part that is not thinking. A failure before it is still a response with its own status,
    /// which clients handle better than a stream that breaks off.
    pub async fn begun(mut self) -> Result<Reply, Problem> {
        let mut thoughts = Vec::new();
        let first = async {
            loop {
                match self.next().await {
                    Some(Ok(thought @ Part::Thought(_))) => thoughts.push(thought),
                    part => return part,
                }
            }
        };
        let first = tokio::time::timeout(FIRST_PIECE, first).await;
        if let Ok(Some(part)) = first {
            self.ready.push_front(part?);
        }
        for thought in thoughts.into_iter().rev() {
            self.ready.push_front(thought);
        }
        Ok(self)
    }

    pub fn origin(&self) -> Origin {
        self.answering.origin
    }

    /// Returns the next part, or `None` after the end.
    pub async fn next(&mut self) -> Option<Result<Part, BackendError>> {
        loop {
            if let Some(part) = self.ready.pop_front() {
                return Some(Ok(part));
            }
            if let Some(error) = self.failure.take() {
                self.over = true;
                return Some(Err(error));
            }
            if self.over {
                return None;
            }
            match self.answering.next().await {
                Some(Ok(event)) => self.take(event),
                Some(Err(error)) => {
                    self.over = true;
                    return Some(Err(error));
                }
                None => {
                    self.over = true;
                    return Some(Err(BackendError::Cancelled));
                }
            }
        }
    }

    /// Makes the texts come as complete blocks.
    pub fn in_blocks(mut self) -> Reply {
        self.in_pieces = false;
        self
    }

    /// Waits for the complete reply.
    pub async fn whole(mut self) -> Result<Whole, BackendError> {
        self.in_pieces = false;
        let (mut said, mut calls) = (Vec::new(), Vec::new());
        while let Some(part) = self.next().await {
            match part? {
                Part::Begin => said.push(Said::Text(String::new())),
                Part::Text(piece) => {
                    if let Some(Said::Text(text)) = said.last_mut() {
                        text.push_str(&piece);
                    }
                }
                Part::End => {}
                Part::Thought(thought) => said.push(Said::Thought(thought)),
                Part::Call(call) => calls.push(call),
                // Without pieces, calls come whole.
                Part::CallBegin { .. } | Part::CallPiece(_) | Part::CallEnd => {}
                Part::Over(result) => {
                    return Ok(Whole { said, calls, model: self.model, result });
                }
            }
        }
        Err(BackendError::Cancelled)
    }

    fn take(&mut self, event: Happened) {
        match event {
            Happened::Piece { text } if self.in_pieces => self.texts.piece(text, &mut self.ready),
            Happened::CallBegin { id, name } if self.in_pieces && self.calls.has_tool(&name) => {
                self.texts.close(&mut self.ready);
                let begun = self.calls.begin(id, name, &mut self.ready);
                self.check(begun);
            }
            Happened::CallPiece { json } => self.calls.piece(json, &mut self.ready),
            Happened::ToolResult { block: Block::ToolResult { tool_use_id, .. } } => {
                let answered = self.calls.answered(&tool_use_id);
                self.check(answered);
            }
            Happened::Assistant { block, model, message_id, .. } => {
                if !model.is_empty() {
                    self.model.get_or_insert(model);
                }
                if let Block::Thinking { thinking, .. } = &block
                    && !thinking.is_empty()
                {
                    self.texts.close(&mut self.ready);
                    self.ready.push_back(Part::Thought(thinking.clone()));
                }
                if let Some(held) = &mut self.formed {
                    return held.take(message_id, block);
                }
                if let Block::ToolUse { id, input, .. } = &block {
                    let completed = self.calls.block(id, input, &mut self.ready);
                    self.check(completed);
                }
                match block {
                    Block::Text(text) => self.texts.block(text, &mut self.ready),
                    _ => self.texts.close(&mut self.ready),
                }
            }
            Happened::Result(result) => {
                if let Err(abandoned) = self.calls.end(&[]) {
                    return self.check(Err(abandoned));
                }
                if let Some(held) = self.formed.take() {
                    let text = held.last.join("\n\n");
                    self.texts.block(json_text(&text).to_owned(), &mut self.ready);
                }
                self.texts.close(&mut self.ready);
                self.ready.push_back(Part::Over(result));
                self.over = true;
            }
            Happened::Paused(paused) => {
                let held = self.formed.take().unwrap_or_default();
                for text in held.before.into_iter().chain(held.last) {
                    self.texts.block(text, &mut self.ready);
                }
                self.texts.close(&mut self.ready);
                let calls = paused.calls.into_iter().filter_map(|call| match call {
                    Block::ToolUse { id, name, input } => Some(ClientCall { id, name, input }),
                    _ => None,
                });
                let calls: Vec<ClientCall> = calls.collect();
                if let Err(abandoned) = self.calls.end(&calls) {
                    return self.check(Err(abandoned));
                }
                let unsent = calls.into_iter().filter(|call| !self.calls.has_sent(&call.id));
                self.ready.extend(unsent.map(Part::Call));
                self.ready.push_back(Part::Over(paused.result));
                self.over = true;
            }
            Happened::User { .. }
            | Happened::Piece { .. }
            | Happened::CallBegin { .. }
            | Happened::MessageEnd
            | Happened::ToolResult { .. }
            | Happened::Stalled { .. } => {}
        }
    }

    /// Fails the answer if a call that the client has received, whole or in part, is not made.
    fn check(&mut self, result: Result<(), AbandonedCall>) {
        if result == Err(AbandonedCall) {
            let text =
                "the agent began a call of a tool and did not make it; send the request again";
            self.failure.get_or_insert(BackendError::Api {
                status: None,
                kind: String::new(),
                message: text.to_owned(),
            });
        }
    }
}

impl HeldTexts {
    fn take(&mut self, id: String, block: Block) {
        if self.id != id {
            self.id = id;
            self.before.append(&mut self.last);
        }
        if let Block::Text(text) = block {
            self.last.push(text);
        }
    }
}

/// Renders a reply as the events of a dialect's stream.
pub(super) trait Wording: Send + 'static {
    /// Returns the events of one part.
    fn part(&mut self, part: Part, events: &mut VecDeque<Event>);

    /// Notes which model answers, once that is known.
    fn model(&mut self, _model: &str) {}

    /// Does what is to be done before the client sees that the reply has ended.
    fn ended(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Returns the last events of a stream that fails.
    fn problem(&mut self, problem: &Problem, events: &mut VecDeque<Event>);
}

/// Renders a reply as a stream of events. `first` precedes the first part.
pub(super) fn in_words(
    reply: Reply,
    wording: impl Wording,
    first: VecDeque<Event>,
) -> impl futures_util::Stream<Item = Result<Event, Infallible>> {
    futures_util::stream::unfold(
        (reply, wording, first),
        async |(mut reply, mut wording, mut ready)| {
            while ready.is_empty() {
                next_words(&mut reply, &mut wording, &mut ready).await?;
            }
            let event = ready.pop_front()?;
            Some((Ok(event), (reply, wording, ready)))
        },
    )
}

/// Renders the next part of a reply. Returns `None` after the end.
pub(super) async fn next_words(
    reply: &mut Reply,
    wording: &mut impl Wording,
    events: &mut VecDeque<Event>,
) -> Option<()> {
    match reply.next().await? {
        Ok(part) => {
            let is_over = matches!(part, Part::Over(_));
            if let Some(model) = &reply.model {
                wording.model(model);
            }
            wording.part(part, events);
            if is_over {
                wording.ended().await;
            }
        }
        Err(error) => {
            let problem = Problem::from(error);
            tracing::info!(code = problem.code(), "a reply failed while streaming");
            wording.problem(&problem, events);
            wording.ended().await;
        }
    }
    Some(())
}
