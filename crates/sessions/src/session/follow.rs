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
use super::local_sessions::LocalSessions;
use super::placement::Placement;
use hob_agents::app_permits::AppPermit;

/// How many events are read at a time.
const PAGE_EVENTS: usize = 500;
/// Longer pages keep their permit until the caller has taken all of their events.
const LONG_PAGE_BYTES: usize = 64 << 10;
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
            permit: None,
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
        let (events, permit) = self.read_page(app, id, EventRange::Turn(turn)).await?;
        let events = events.unwrap_or_default().into_iter();
        let mut buffer: VecDeque<_> = events.map(Arc::new).collect();
        let is_complete = self.has_seen_end(app, id, turn, after, &buffer).await?;
        let is_closed = is_complete || session.closed_at.is_some();
        // Before the turn's first event, the next one comes after all that the session has now.
        let last = if buffer.is_empty() { session.last_event } else { after };
        buffer.retain(|event| event.seq > after);
        Ok(Follow {
            feed: self.clone(),
            app: app.clone(),
            id: id.clone(),
            last: buffer.back().map_or(last.max(after), |event| event.seq),
            permit,
            buffer,
            has_unread: !is_complete,
            source: if is_closed { UpdateSource::Closed } else { source },
        })
    }

    /// Reads a page of events. A long one comes with a permit, which must live as long as the page. Short ones never wait
    /// for clients that do not read.
    async fn read_page(
        &self,
        app: &AppName,
        id: &SessionId,
        range: EventRange,
    ) -> Result<(Option<Vec<SessionEvent>>, Option<AppPermit>), StoreError> {
        let context = self.context();
        let mut permit = None;
        loop {
            let reading = context.page_reads.of(app.as_str()).acquire().await;
            let events = context.store().events(app, id, range).await?;
            if !events.as_deref().is_some_and(is_long) {
                return Ok((events, None));
            }
            permit = permit.or_else(|| context.long_pages.of(app.as_str()).try_acquire());
            if permit.is_some() {
                return Ok((events, permit));
            }
            drop((events, reading));
            permit = Some(context.long_pages.of(app.as_str()).acquire().await);
        }
    }

    /// Returns whether a caller that has seen the events up to `after` has seen the end of a turn, of which `page` has the
    /// first events.
    async fn has_seen_end(
        &self,
        app: &AppName,
        id: &SessionId,
        turn: u32,
        after: u64,
        page: &VecDeque<Arc<SessionEvent>>,
    ) -> Result<bool, SessionError> {
        let is_end = |event: &SessionEvent| {
            event.event.kind == EventKind::Turn && event.event.turn == Some(turn)
        };
        if let Some(end) = page.iter().find(|event| is_end(event)) {
            return Ok(end.seq <= after);
        }
        let is_over = self.context().turn(app, id, turn).await?;
        let is_over = is_over.is_some_and(|turn| turn.state.is_over());
        if !is_over || page.back().is_none_or(|last| last.seq > after) {
            return Ok(false);
        }
        // The end lies beyond the page. Whatever the caller has not seen begins with an event of the turn.
        let next = EventRange::After { after, limit: 1 };
        let next = self.context().store().events(app, id, next).await?.unwrap_or_default();
        Ok(next.iter().all(|event| event.event.turn != Some(turn)))
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
            Ok(SessionUpdate::TurnStarted(_)) => {}
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
    /// Held while `buffer` has long events.
    permit: Option<AppPermit>,
    source: UpdateSource,
}

/// What happens in a session.
#[derive(Debug, Clone)]
pub enum SessionNews {
    Event(Arc<SessionEvent>),
    /// A turn runs now. It is announced only on the node that holds the session.
    TurnStarted(u32),
}

impl Follow {
    /// Returns the next event; `None` after the last event of a closed session. Dropping the future
    /// loses no event.
    pub async fn next(&mut self) -> Result<Option<Arc<SessionEvent>>, StoreError> {
        loop {
            match self.next_news().await? {
                Some(SessionNews::Event(event)) => return Ok(Some(event)),
                Some(SessionNews::TurnStarted(_)) => {}
                None => return Ok(None),
            }
        }
    }

    /// Returns what happens next; `None` after the last event of a closed session. Dropping the future
    /// loses no event.
    pub async fn next_news(&mut self) -> Result<Option<SessionNews>, StoreError> {
        loop {
            if let Some(event) = self.buffer.pop_front() {
                return Ok(Some(SessionNews::Event(event)));
            }
            self.permit = None;
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
                        return Ok(Some(SessionNews::Event(event)));
                    }
                    Ok(SessionUpdate::TurnStarted(turn)) => {
                        return Ok(Some(SessionNews::TurnStarted(turn)));
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

    /// Lets other pages of the app be read, although events of this one may be left.
    pub fn release_page(&mut self) {
        self.permit = None;
    }

    async fn read_page(&mut self) -> Result<(), StoreError> {
        let page = EventRange::After { after: self.last, limit: PAGE_EVENTS };
        let (events, permit) = self.feed.read_page(&self.app, &self.id, page).await?;
        // A session without events was deleted. One whose last event is its close gets no more of
        // them.
        let is_closed = events
            .as_ref()
            .is_none_or(|events| events.last().is_some_and(|last| last.event.kind.is_close()));
        let events = events.unwrap_or_default();
        self.has_unread = !events.is_empty();
        self.last = events.last().map_or(self.last, |event| event.seq);
        self.buffer.extend(events.into_iter().map(Arc::new));
        self.permit = permit;
        if is_closed {
            self.source = UpdateSource::Closed;
        }
        Ok(())
    }
}

fn is_long(page: &[SessionEvent]) -> bool {
    page.iter().map(|event| event.event.body.len()).sum::<usize>() > LONG_PAGE_BYTES
}
