//! Following a session's events from any point on: first from the store, then as they come.

use std::collections::VecDeque;
use std::sync::Arc;

use hob_domain::session::{SessionEvent, SessionId, SessionStore};
use hob_domain::{AppName, StoreError};
use tokio::sync::broadcast::{self, error::RecvError};

use super::entry::News;

/// How many events are read at a time.
const PAGE: usize = 500;

/// The events of a session after some number, without gap or repeat.
pub struct Follow {
    pub(super) store: Arc<dyn SessionStore>,
    pub(super) app: AppName,
    pub(super) id: SessionId,
    /// The number of the last event that was returned or read.
    pub(super) last: u64,
    pub(super) read: VecDeque<Arc<SessionEvent>>,
    /// Whether the store may hold more than was read.
    pub(super) behind: bool,
    /// `None` for a session that is closed.
    pub(super) live: Option<broadcast::Receiver<News>>,
}

impl Follow {
    /// The next event; `None` once the session is closed and all is said. Nothing is lost when the
    /// caller stops waiting.
    pub async fn next(&mut self) -> Result<Option<Arc<SessionEvent>>, StoreError> {
        loop {
            if let Some(event) = self.read.pop_front() {
                return Ok(Some(event));
            }
            if self.behind {
                let events = self.store.events(&self.app, &self.id, self.last, PAGE).await?;
                let events = events.unwrap_or_default();
                self.behind = events.len() == PAGE;
                self.last = events.last().map_or(self.last, |event| event.seq);
                self.read.extend(events.into_iter().map(Arc::new));
                if !self.read.is_empty() {
                    continue;
                }
            }
            let Some(live) = &mut self.live else { return Ok(None) };
            match live.recv().await {
                Ok(News::Event(event)) if event.seq <= self.last => {}
                Ok(News::Event(event)) if event.seq == self.last + 1 => {
                    self.last = event.seq;
                    return Ok(Some(event));
                }
                Ok(_) | Err(RecvError::Lagged(_)) => self.behind = true,
                Err(RecvError::Closed) => {
                    self.live = None;
                    self.behind = true;
                }
            }
        }
    }
}
