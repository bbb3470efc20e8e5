//! Event streams (`text/event-stream`).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures_util::Stream;
use hob_domain::AppName;
use hob_domain::session::{EventKind, SessionEvent, SessionId};
use hob_sessions::session::{Follow, SessionError};
use tokio::time::Instant;

use super::shapes::{EventView, TurnAnswer};
use crate::error::ApiError;
use crate::sign_in_expiry::sleep_until;
use crate::state::Gateway;

/// Interval of keep-alive comments on a quiet stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Returns whether the caller accepts a stream.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let values = headers.get_all("accept").iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|kind| {
        let mut parts = kind.split(';').map(str::trim);
        let is_stream =
            parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("text/event-stream"));
        // A weight of 0 means "not acceptable".
        let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok());
        is_stream && weight != Some(0.0)
    })
}

/// Returns the event number to continue after; 0 if the caller has seen none.
pub(super) fn last_event_id(headers: &HeaderMap) -> Result<u64, ApiError> {
    let Some(value) = headers.get("last-event-id") else { return Ok(0) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| ApiError::bad_request("Last-Event-ID: must be the number of an event"))
}

/// Streams one turn: its messages, and last its answer.
pub(super) async fn turn(
    gateway: Arc<Gateway>,
    app: AppName,
    id: SessionId,
    turn: u32,
    after: u64,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let follow = gateway.sessions.follow_turn(&app, &id, turn, after).await?;
    let (only, until) = (Only::Turn(turn), None);
    Ok(stream(Following { gateway, app, id, follow, only, until, done: false }))
}

/// Streams a whole session while it is open and the caller is signed in.
pub(super) async fn session(
    gateway: Arc<Gateway>,
    app: AppName,
    id: SessionId,
    after: u64,
    until: Option<Instant>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let follow = gateway.sessions.follow(&app, &id, after).await?;
    let only = Only::Everything;
    Ok(stream(Following { gateway, app, id, follow, only, until, done: false }))
}

enum Only {
    Turn(u32),
    Everything,
}

struct Following {
    gateway: Arc<Gateway>,
    app: AppName,
    id: SessionId,
    follow: Follow,
    only: Only,
    /// When the caller's sign-in ends.
    until: Option<Instant>,
    done: bool,
}

fn stream(following: Following) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let events = futures_util::stream::unfold(following, |mut following| async move {
        let event = following.next().await?;
        Some((Ok(event), following))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

impl Following {
    async fn next(&mut self) -> Option<Event> {
        while !self.done {
            let stopping = self.gateway.runtime.stopping.clone();
            let next = tokio::select! {
                next = self.follow.next() => next,
                // A session's stream would delay shutdown; a turn ends by itself.
                () = sleep_until(self.until) => return None,
                () = stopping.cancelled(), if matches!(self.only, Only::Everything) => return None,
            };
            let stored = match next {
                Ok(stored) => stored?,
                Err(error) => {
                    tracing::error!(%error, session = %self.id, "failed to read a stream");
                    return None;
                }
            };
            if let Only::Turn(turn) = self.only {
                let kind = &stored.event.kind;
                let belongs = matches!(
                    kind,
                    EventKind::Message
                        | EventKind::Permission
                        | EventKind::Stalled
                        | EventKind::Turn
                );
                if stored.event.turn != Some(turn) || !belongs {
                    continue;
                }
                self.done = *kind == EventKind::Turn;
            }
            let event = self.event(&stored).await;
            if event.is_none() {
                tracing::error!(session = %self.id, "failed to read a stream");
            }
            return event;
        }
        None
    }

    /// Renders an event, identically in every stream. `None` if the ledger is unavailable: then the stream
    /// ends, and the client reconnects.
    async fn event(&mut self, stored: &SessionEvent) -> Option<Event> {
        let event = Event::default().id(stored.seq.to_string()).event(stored.event.kind.as_str());
        Some(match (&stored.event.kind, stored.event.turn) {
            (EventKind::Message, _) => event.data(&stored.event.body),
            (EventKind::Turn, Some(turn)) => match self.answer(turn).await {
                Ok(answer) => event.data(answer),
                // The session was deleted in between.
                Err(SessionError::NotFound) => event.data(view(stored)),
                Err(_) => return None,
            },
            _ => event.data(view(stored)),
        })
    }

    async fn answer(&mut self, turn: u32) -> Result<String, SessionError> {
        let found = self.gateway.sessions.turn(&self.app, &self.id, turn).await?;
        // A stream that waits for a page while it holds one could wait for itself.
        self.follow.release_page();
        let messages = self.gateway.sessions.turn_messages(&self.app, &self.id, &found).await?;
        let answer = TurnAnswer::new(self.id.to_string(), found, messages);
        Ok(serde_json::to_string(&answer).unwrap_or_default())
    }
}

fn view(stored: &SessionEvent) -> String {
    serde_json::to_string(&EventView::from(stored)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_asked_for_by_name() {
        let wanted = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("accept", value.parse().unwrap());
            is_wanted(&headers)
        };
        assert!(wanted("text/event-stream") && wanted("application/json, text/event-stream;q=0.9"));
        assert!(!wanted("*/*") && !wanted("application/json") && !is_wanted(&HeaderMap::new()));
    }
}
