//! Following a session's events from any point on: first from the store, then as they come. Of a session that another node
//! has, one hears that there is something new, and reads it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hob_domain::session::{SessionEvent, SessionId};
use hob_domain::{AppName, StoreError};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::watch;

use super::handle::News;
use super::sessions::Sessions;

/// How many events are read at a time.
const PAGE: usize = 500;
/// How often one looks without having heard of anything: a bell may be missed.
const LOOK: Duration = Duration::from_secs(1);

/// How one hears of a session.
pub(super) enum Live {
    Here(broadcast::Receiver<News>),
    Elsewhere(Elsewhere),
    /// It is closed: nothing comes any more.
    Over,
}

/// A session that another node has, or nobody.
pub(super) struct Elsewhere {
    bell: watch::Receiver<()>,
}

impl Live {
    pub fn elsewhere(bell: watch::Receiver<()>) -> Live {
        Live::Elsewhere(Elsewhere { bell })
    }
}

impl Elsewhere {
    /// Returns when there may be something new.
    pub async fn news(&mut self) {
        let _ = tokio::time::timeout(LOOK, self.bell.changed()).await;
    }
}

/// The events of a session after some number, without gap or repeat.
pub struct Follow {
    pub(super) sessions: Sessions,
    pub(super) app: AppName,
    pub(super) id: SessionId,
    /// The number of the last event that was returned or read.
    pub(super) last: u64,
    pub(super) read: VecDeque<Arc<SessionEvent>>,
    /// Whether the store may hold more than was read.
    pub(super) behind: bool,
    pub(super) live: Live,
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
                self.read_more().await?;
                if !self.read.is_empty() {
                    continue;
                }
            }
            match &mut self.live {
                Live::Over => return Ok(None),
                Live::Elsewhere(elsewhere) => {
                    elsewhere.news().await;
                    self.behind = true;
                }
                Live::Here(news) => match news.recv().await {
                    Ok(News::Event(event)) if event.seq <= self.last => {}
                    Ok(News::Event(event)) if event.seq == self.last + 1 => {
                        self.last = event.seq;
                        return Ok(Some(event));
                    }
                    Ok(_) | Err(RecvError::Lagged(_)) => self.behind = true,
                    Err(RecvError::Closed) => {
                        // It is closed, or another node has it.
                        self.live = self.sessions.live(&self.app, &self.id);
                        self.behind = true;
                    }
                },
            }
        }
    }

    async fn read_more(&mut self) -> Result<(), StoreError> {
        let store = self.sessions.store();
        let events = store.events(&self.app, &self.id, self.last, PAGE).await?;
        // Deleted, or closed, which is the last thing that happens to a session.
        let is_over = events.as_ref().is_none_or(|events| {
            events.last().is_some_and(|last| matches!(&*last.event.kind, "close" | "sweep_close"))
        });
        let events = events.unwrap_or_default();
        self.behind = events.len() == PAGE;
        self.last = events.last().map_or(self.last, |event| event.seq);
        self.read.extend(events.into_iter().map(Arc::new));
        if is_over {
            self.live = Live::Over;
        }
        Ok(())
    }
}
