//! The events of a response in the background, for all clients that read them.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::response::sse::Event;
use serde_json::json;
use tokio::sync::watch;

/// How many bytes of events a log keeps. Then its readers get an error, and have to read the response when it has ended.
const MAX_LOG_BYTES: usize = 8 << 20;

/// The events of one response, in order. An event's number is its index.
#[derive(Debug)]
pub(crate) struct EventLog {
    state: Mutex<LogState>,
    /// Changes with every event.
    changes: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct LogState {
    events: Vec<(String, Arc<str>)>,
    bytes: usize,
    has_ended: bool,
}

impl Default for EventLog {
    fn default() -> EventLog {
        EventLog { state: Mutex::default(), changes: watch::channel(()).0 }
    }
}

impl EventLog {
    fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event, unless the log has ended.
    pub fn push(&self, kind: &str, data: &str) {
        let mut state = self.state();
        if state.has_ended {
            return;
        }
        state.bytes += data.len();
        if state.bytes > MAX_LOG_BYTES {
            let text = "the stream is too long; read the response when it has ended";
            let error = json!({"type": "error", "code": "server_error", "message": text,
                "param": null, "sequence_number": state.events.len()});
            state.events.push(("error".to_owned(), error.to_string().into()));
            state.has_ended = true;
        } else {
            state.events.push((kind.to_owned(), data.into()));
        }
        drop(state);
        self.changes.send_replace(());
    }

    /// Returns the size of all events.
    pub fn bytes(&self) -> usize {
        self.state().bytes
    }

    /// Returns how many events there are.
    pub fn len(&self) -> usize {
        self.state().events.len()
    }

    /// Ends the streams of all readers after the last event.
    pub fn end(&self) {
        self.state().has_ended = true;
        self.changes.send_replace(());
    }

    /// Returns the event with this number. Waits for it, or returns `None` if the log ends before.
    async fn event(&self, number: usize) -> Option<Event> {
        let mut changed = self.changes.subscribe();
        loop {
            {
                let state = self.state();
                if let Some((kind, data)) = state.events.get(number) {
                    return Some(Event::default().event(kind).data(data));
                }
                if state.has_ended {
                    return None;
                }
            }
            changed.changed().await.ok()?;
        }
    }

    /// Returns the events from a number on, as they come.
    pub fn follow(
        self: Arc<Self>,
        first: usize,
    ) -> impl futures_util::Stream<Item = Result<Event, Infallible>> {
        futures_util::stream::unfold((self, first), async |(log, number)| {
            let event = log.event(number).await?;
            Some((Ok(event), (log, number + 1)))
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    #[tokio::test]
    async fn every_reader_gets_all_events_until_the_end() {
        let log = Arc::new(EventLog::default());
        log.push("a", "1");
        let write = async {
            log.push("b", "2");
            log.end();
            log.push("c", "3");
        };
        let (early, ()) = tokio::join!(log.clone().follow(0).count(), write);
        assert_eq!(early, 2);
        assert_eq!(log.clone().follow(1).count().await, 1);
        assert_eq!(log.follow(5).count().await, 0);
    }

    #[tokio::test]
    async fn log_that_is_too_large_ends() {
        let log = Arc::new(EventLog::default());
        let long = "x".repeat(MAX_LOG_BYTES / 2);
        (0..9).for_each(|_| log.push("a", &long));
        assert_eq!(log.follow(0).count().await, 3, "two events and an error");
    }
}
