//! Following a session's events from any point: first from the store, then as they arrive.
//!
//! For a session on another node, a notification says that there is something new, and the store
//! has it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hob_domain::session::{EventKind, EventRange, SessionEvent, SessionId, SessionTurn};
use hob_domain::{AppName, StoreError};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::watch;

use super::context::SessionContext;
use super::error::SessionError;
use super::handle::SessionUpdate;
use super::local::LocalSessions;
use super::placement::Placement;

/// How many events are read at a time.
const PAGE_EVENTS: usize = 500;
/// How often the store is read without a notification: notifications may be missed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Where news of a session comes from.
enum UpdateSource {
    Here(broadcast::Receiver<SessionUpdate>),
    /// Another node holds the session, or no node does.
    Elsewhere(watch::Receiver<()>),
    /// The session is closed, so there will be no news.
    Closed,
}

/// Returns once a session on another node may have news.
async fn wait_for_news(news: &mut watch::Receiver<()>) {
    let _ = tokio::time::timeout(POLL_INTERVAL, news.changed()).await;
}

/// Opens event streams of sessions. Cloning shares it.
#[derive(Clone)]
pub(super) struct EventFeed {
    local: Arc<LocalSessions>,
    placement: Arc<dyn Placement>,
}

impl EventFeed {
    pub fn new(local: Arc<LocalSessions>, placement: Arc<dyn Placement>) -> EventFeed {
        EventFeed { local, placement }
    }

    fn context(&self) -> &SessionContext {
        &self.local.context
    }

    fn subscribe(&self, app: &AppName, id: &SessionId) -> UpdateSource {
        if let Some(handle) = self.local.registry.leased(app, id) {
            return UpdateSource::Here(handle.subscribe());
        }
        self.placement.watch(id).map_or(UpdateSource::Closed, UpdateSource::Elsewhere)
    }

    /// Follows a session's events after this number.
    pub async fn follow(
        &self,
        app: &AppName,
        id: &SessionId,
        after: u64,
    ) -> Result<Follow, SessionError> {
        // The subscription starts before the store is read, so that no event falls between.
        let source = self.subscribe(app, id);
        let is_closed = self.context().session(app, id).await?.closed_at.is_some();
        Ok(Follow {
            feed: self.clone(),
            app: app.clone(),
            id: id.clone(),
            last: after,
            buffer: VecDeque::new(),
            has_unread: true,
            source: if is_closed { UpdateSource::Closed } else { source },
        })
    }

    /// Follows a turn's events after this number, and then whatever happens in the session.
    pub async fn follow_turn(
        &self,
        app: &AppName,
        id: &SessionId,
        turn: u32,
        after: u64,
    ) -> Result<Follow, SessionError> {
        let source = self.subscribe(app, id);
        let session = self.context().session(app, id).await?;
        let events = self.context().store().events(app, id, EventRange::Turn(turn)).await?;
        let events = events.unwrap_or_default().into_iter();
        let mut buffer: VecDeque<_> = events.map(Arc::new).collect();
        // A caller that has seen the turn's end has seen all of it.
        let seen =
            |event: &Arc<SessionEvent>| event.event.kind == EventKind::Turn && event.seq <= after;
        let is_complete = buffer.iter().any(seen);
        let is_closed = is_complete || session.closed_at.is_some();
        // Before the turn's first event, the next one comes after all that the session has now.
        let last = if buffer.is_empty() { session.last_event } else { after };
        buffer.retain(|event| event.seq > after);
        Ok(Follow {
            feed: self.clone(),
            app: app.clone(),
            id: id.clone(),
            last: buffer.back().map_or(last.max(after), |event| event.seq),
            buffer,
            has_unread: !is_complete,
            source: if is_closed { UpdateSource::Closed } else { source },
        })
    }

    /// Returns a turn once it is over.
    pub async fn turn_ended(
        &self,
        app: &AppName,
        id: &SessionId,
        turn: u32,
    ) -> Result<SessionTurn, SessionError> {
        let mut source = self.subscribe(app, id);
        loop {
            let found = self.context().turn(app, id, turn).await?;
            let found = found.ok_or(SessionError::NotFound)?;
            if found.state.is_over() {
                return Ok(found);
            }
            match &mut source {
                UpdateSource::Closed => return Ok(found),
                UpdateSource::Elsewhere(news) => wait_for_news(news).await,
                UpdateSource::Here(updates) => {
                    if wait_for_end(updates, turn).await.is_err() {
                        source = self.subscribe(app, id);
                    }
                }
            }
        }
    }
}

/// The session's handle is gone from this node.
struct HandleGone;

/// Returns once a turn may have ended.
async fn wait_for_end(
    updates: &mut broadcast::Receiver<SessionUpdate>,
    turn: u32,
) -> Result<(), HandleGone> {
    loop {
        match updates.recv().await {
            Ok(SessionUpdate::Event(stored)) => {
                if stored.event.kind == EventKind::Turn && stored.event.turn == Some(turn) {
                    return Ok(());
                }
            }
            Ok(SessionUpdate::Reload) | Err(RecvError::Lagged(_)) => return Ok(()),
            Err(RecvError::Closed) => return Err(HandleGone),
        }
    }
}

/// A stream of a session's events after some number, without gap or repeat.
pub struct Follow {
    feed: EventFeed,
    app: AppName,
    id: SessionId,
    /// The number of the last event that was returned or buffered.
    last: u64,
    buffer: VecDeque<Arc<SessionEvent>>,
    /// Whether the store may have more events than were read.
    has_unread: bool,
    source: UpdateSource,
}

impl Follow {
    /// Returns the next event; `None` after the last event of a closed session. Dropping the future
    /// loses no event.
    pub async fn next(&mut self) -> Result<Option<Arc<SessionEvent>>, StoreError> {
        loop {
            if let Some(event) = self.buffer.pop_front() {
                return Ok(Some(event));
            }
            if self.has_unread {
                self.read_page().await?;
                if !self.buffer.is_empty() {
                    continue;
                }
            }
            match &mut self.source {
                UpdateSource::Closed => return Ok(None),
                UpdateSource::Elsewhere(news) => {
                    wait_for_news(news).await;
                    self.has_unread = true;
                }
                UpdateSource::Here(updates) => match updates.recv().await {
                    Ok(SessionUpdate::Event(event)) if event.seq <= self.last => {}
                    Ok(SessionUpdate::Event(event)) if event.seq == self.last + 1 => {
                        self.last = event.seq;
                        return Ok(Some(event));
                    }
                    Ok(_) | Err(RecvError::Lagged(_)) => self.has_unread = true,
                    Err(RecvError::Closed) => {
                        // The session is closed, or another node has it.
                        self.source = self.feed.subscribe(&self.app, &self.id);
                        self.has_unread = true;
                    }
                },
            }
        }
    }

    async fn read_page(&mut self) -> Result<(), StoreError> {
        let store = self.feed.context().store();
        let page = EventRange::After { after: self.last, limit: PAGE_EVENTS };
        let events = store.events(&self.app, &self.id, page).await?;
        // A session without events was deleted. One whose last event is its close gets no more of
        // them.
        let is_closed = events
            .as_ref()
            .is_none_or(|events| events.last().is_some_and(|last| last.event.kind.is_close()));
        let events = events.unwrap_or_default();
        self.has_unread = events.len() == PAGE_EVENTS;
        self.last = events.last().map_or(self.last, |event| event.seq);
        self.buffer.extend(events.into_iter().map(Arc::new));
        if is_closed {
            self.source = UpdateSource::Closed;
        }
        Ok(())
    }
}
