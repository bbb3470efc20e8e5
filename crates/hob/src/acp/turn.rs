//! A turn of a session, followed to its end.

use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hob_gateway::acp_protocol::INTERNAL_ERROR;
use hob_gateway::acp_questions::{self, OpenQuestions, Question, RequestedCalls};
use hob_gateway::client::{Client, Method, StreamEvent};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::wire::{AcpError, Editor};
use crate::owner_client;

/// How long the server may be away while a turn is followed.
const MAX_OUTAGE: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Events within this time are read together.
const EVENT_DELAY: Duration = Duration::from_millis(20);

/// The status of a server that is stopping.
const STOPPING: u16 = 503;
const NOT_TAKEN: &str = "the server takes no turns; send the prompt again after its start";

/// The turns of a session, for the editor.
pub struct Turns<'a> {
    pub socket: &'a Path,
    pub editor: &'a Editor,
    pub session: &'a str,
}

/// What a server says to a prompt that was sent again.
enum Found {
    /// The number of its turn.
    Turn(u64),
    /// The error.
    Refused(Value),
    /// Nothing: the prompt was cancelled first.
    Cancelled,
}

/// What has happened in a turn since an event.
struct News {
    /// The turn's answer, if it has ended.
    answer: Option<Value>,
    /// The questions without an answer.
    open: Vec<Question>,
}

impl Turns<'_> {
    /// Sends the prompt and calls `show` with the agent's messages. Returns the turn's answer. If the server is restarted
    /// meanwhile, the turn is followed in the new one, unless the editor has `cancelled` the prompt.
    pub async fn run(
        &self,
        prompt: &str,
        cancelled: &CancellationToken,
        show: impl Fn(&Value),
    ) -> Result<Value, AcpError> {
        let key = Uuid::new_v4().simple().to_string();
        let mut client = owner_client::connect(self.socket).await?;
        let path = format!("/sessions/{}/turn", self.session);
        let body = json!({"prompt": prompt});
        let headers = [("accept", "text/event-stream"), ("idempotency-key", key.as_str())];
        let (mut last_event, mut calls) = (0, RequestedCalls::default());
        // Somebody else may answer a request, so that the turn goes on while the editor still asks.
        let mut asks = FuturesUnordered::new();
        // Without an answer, nobody knows yet whether the server has the prompt.
        if let Ok(mut reply) = client.ask_with(Method::POST, &path, &headers, Some(&body)).await {
            if reply.status >= 400 {
                return Ok(reply.json().await.map_err(anyhow::Error::from)?);
            }
            loop {
                let event = tokio::select! {
                    event = reply.next_event() => event,
                    Some(()) = asks.next(), if !asks.is_empty() => continue,
                };
                let Ok(Some(StreamEvent { id, event, data })) = event else { break };
                last_event = id.parse().unwrap_or(last_event);
                let data: Value = serde_json::from_str(&data).unwrap_or_default();
                match event.as_str() {
                    "turn" => return Ok(data),
                    "message" => {
                        calls.note(&data);
                        show(&data);
                    }
                    "permission" if data["status"] == "asked" => {
                        asks.push(self.ask_permission(Question::new(data, &mut calls)));
                    }
                    "permission" => {
                        calls.forget(data["request_id"].as_str().unwrap_or_default());
                    }
                    _ => {}
                }
            }
        }
        drop(asks);
        match self.find(&body, &key, cancelled).await? {
            Found::Turn(turn) => {
                // The editor's own request may have come before the prompt was sent again.
                if cancelled.is_cancelled() {
                    let _ = self.cancel(turn).await;
                }
                let asked = OpenQuestions { calls, open: Vec::new() };
                self.follow(turn, last_event, asked, show).await
            }
            Found::Refused(answer) if !cancelled.is_cancelled() => Ok(answer),
            Found::Refused(_) | Found::Cancelled => {
                Ok(json!({"ok": true, "stop_reason": "cancelled"}))
            }
        }
    }

    /// Cancels a turn that is not over. The server would cancel the next one in the place of one that is.
    async fn cancel(&self, turn: u64) -> anyhow::Result<()> {
        let mut client = owner_client::connect(self.socket).await?;
        let session = format!("/sessions/{}", self.session);
        if !is_over(&get(&mut client, &format!("{session}/turns/{turn}")).await?) {
            let path = format!("{session}/cancel");
            owner_client::request(&mut client, Method::POST, &path, None).await?;
        }
        Ok(())
    }

    /// Asks the editor, and passes its answer on. Without one, the server rejects the request after a while.
    async fn ask_permission(&self, question: Question) {
        let request = question.request_id();
        let (method, params) = question.request(self.session, self.editor.shows_forms());
        let answer = self.editor.ask(method, params).await.unwrap_or_default();
        let path = format!("/sessions/{}/permissions/{request}", self.session);
        let Ok(mut client) = owner_client::connect(self.socket).await else { return };
        // If the answer does not fit its question, the question is declined.
        for body in [acp_questions::chosen(&answer), json!({"option": "reject_once"})] {
            let sent = client.ask(Method::POST, &path, "application/json", Some(&body)).await;
            // Another client may have answered it; the turn goes on.
            let Ok(reply) = sent else { return };
            if reply.status != 400 || reply.json().await.is_err() {
                return;
            }
        }
    }

    /// Sends the prompt again under its key, which starts no second turn, and returns the turn that it has. Waits for a
    /// server that is being restarted. A prompt that the editor has cancelled is not sent.
    async fn find(
        &self,
        body: &Value,
        key: &str,
        cancelled: &CancellationToken,
    ) -> Result<Found, AcpError> {
        let lost_at = Instant::now();
        loop {
            if cancelled.is_cancelled() {
                return Ok(Found::Cancelled);
            }
            match self.repeat(body, key).await {
                Ok(Some(found)) => return Ok(found),
                Err(error) if lost_at.elapsed() > MAX_OUTAGE => return Err(error.into()),
                Ok(None) if lost_at.elapsed() > MAX_OUTAGE => {
                    return Err(AcpError::new(INTERNAL_ERROR, NOT_TAKEN));
                }
                Ok(None) | Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
    }

    /// Returns `None` if the server takes no turns at the moment.
    async fn repeat(&self, body: &Value, key: &str) -> anyhow::Result<Option<Found>> {
        let mut client = owner_client::connect(self.socket).await?;
        let path = format!("/sessions/{}/turn", self.session);
        let headers =
            [("accept", "application/json"), ("idempotency-key", key), ("prefer", "respond-async")];
        let reply = client.ask_with(Method::POST, &path, &headers, Some(body)).await?;
        let status = reply.status;
        let answer = reply.json().await?;
        Ok(match (status, answer["turn_index"].as_u64()) {
            (STOPPING, _) => None,
            (..400, Some(turn)) => Some(Found::Turn(turn)),
            _ => Some(Found::Refused(answer)),
        })
    }

    /// Follows a turn after an event, and puts the questions that are open already to the editor. Returns the turn's answer.
    pub async fn follow(
        &self,
        turn: u64,
        mut last_event: u64,
        asked: OpenQuestions,
        show: impl Fn(&Value),
    ) -> Result<Value, AcpError> {
        let OpenQuestions { mut calls, open } = asked;
        let mut asks = FuturesUnordered::new();
        asks.extend(open.into_iter().map(|question| self.ask_permission(question)));
        let mut lost_at = Instant::now();
        loop {
            match self.poll(turn, &mut last_event, &mut calls, &show).await {
                Ok(News { answer: Some(answer), .. }) => return Ok(answer),
                Ok(News { open, .. }) => {
                    asks.extend(open.into_iter().map(|question| self.ask_permission(question)));
                    lost_at = Instant::now();
                }
                Err(error) if lost_at.elapsed() > MAX_OUTAGE => return Err(error.into()),
                Err(_) => {}
            }
            tokio::select! {
                () = self.next_event(last_event) => {}
                Some(()) = asks.next(), if !asks.is_empty() => {}
            }
        }
    }

    /// Waits until there is an event after this one.
    async fn next_event(&self, last_event: u64) {
        let wait = async {
            let mut client = owner_client::connect(self.socket).await.ok()?;
            let path = format!("/sessions/{}/events?after={last_event}", self.session);
            let reply = client.ask(Method::GET, &path, "text/event-stream", None).await;
            reply.ok()?.next_event().await.ok()?
        };
        if wait.await.is_none() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        // What comes soon after it is read together with it.
        tokio::time::sleep(EVENT_DELAY).await;
    }

    /// Shows what has happened in a turn since the last event.
    async fn poll(
        &self,
        turn: u64,
        last_event: &mut u64,
        calls: &mut RequestedCalls,
        show: &impl Fn(&Value),
    ) -> anyhow::Result<News> {
        let mut client = owner_client::connect(self.socket).await?;
        let session = format!("/sessions/{}", self.session);
        // The events are read before the turn, so that its end is not read without its answer, and after it, so that
        // none is missing when it is over.
        let mut events = owner_client::events_after(&mut client, &session, *last_event).await?;
        let answer = get(&mut client, &format!("{session}/turns/{turn}")).await?;
        let is_over = is_over(&answer);
        let last = |events: &[Value]| events.last().and_then(|event| event["seq"].as_u64());
        if is_over {
            let after = last(&events).unwrap_or(*last_event);
            events.extend(owner_client::events_after(&mut client, &session, after).await?);
        }
        *last_event = last(&events).unwrap_or(*last_event);
        let of_turn = events.iter().filter(|event| event["turn_index"] == turn);
        for event in of_turn.clone().filter(|event| event["event"] == "message") {
            show(&event["message"]);
        }
        let questions = open_questions(std::mem::take(calls), of_turn);
        *calls = questions.calls;
        Ok(News { answer: is_over.then_some(answer), open: questions.open })
    }
}

/// Returns the questions among events. `calls` are those of earlier events.
pub fn open_questions<'e>(
    calls: RequestedCalls,
    events: impl Iterator<Item = &'e Value>,
) -> OpenQuestions {
    let mut questions = OpenQuestions { calls, open: Vec::new() };
    for event in events {
        match event["event"].as_str() {
            Some("message") => questions.calls.note(&event["message"]),
            Some("permission") => questions.permission(event.clone()),
            _ => {}
        }
    }
    questions
}

/// Returns whether a turn is over.
fn is_over(turn: &Value) -> bool {
    !matches!(turn["state"].as_str(), Some("queued" | "running"))
}

async fn get(client: &mut Client, path: &str) -> anyhow::Result<Value> {
    owner_client::request(client, Method::GET, path, None).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn cancelled_prompt_is_not_sent_again() {
        let editor = Editor::default();
        let turns = Turns { socket: Path::new("/nowhere"), editor: &editor, session: "s" };
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        let found = turns.find(&json!({"prompt": "x"}), "key", &cancelled).await;
        assert!(matches!(found, Ok(Found::Cancelled)));
    }
}
