//! Being one of several nodes on one ledger.
//!
//! A session's turns run on the node that holds it. Whatever another node is asked that only the holder can do goes
//! through the ledger: a turn is taken in there, anything else is an [`super::errand`], and a bell is rung. Whoever
//! hears looks at the ledger; so a bell that is missed costs time and nothing else.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use hob_domain::session::SessionId;
use hob_domain::{
    AppName, ClusterEvent, ClusterStore, LeaseOutcome, LeasedSession, NodeId, StoreError, Timestamp,
};
use tokio::sync::{Notify, OwnedMutexGuard, watch};

use super::super::actor::Actor;
use super::super::error::SessionError;
use super::super::handle::Entry;
use super::super::sessions::Sessions;

/// Bells of one moment are rung together.
const TOGETHER: Duration = Duration::from_millis(10);

/// So many sessions are taken at a time.
const TAKES: usize = 12;
/// An agent that is told to end does so in less.
const ENDING: Duration = Duration::from_secs(10);

/// Where the other nodes are met.
#[derive(Clone)]
pub struct ClusterOptions {
    pub store: Arc<dyn ClusterStore>,
    /// Who was not heard of for so long has nothing any more.
    pub lease: Duration,
    /// Open sessions of all nodes together; zero is no limit.
    pub max_live: usize,
    /// Who we were in an earlier run. That one is gone.
    pub earlier: Option<NodeId>,
}

pub(in crate::session) struct Cluster {
    pub options: ClusterOptions,
    /// A session is taken by one at a time: taken twice at once, the first hold would be worth nothing.
    claiming: Mutex<HashMap<SessionId, Weak<tokio::sync::Mutex<()>>>>,
    bells: Mutex<HashMap<SessionId, watch::Sender<()>>>,
    /// In which there is something new, for the others to know.
    changed: Mutex<HashSet<SessionId>>,
    has_changed: Notify,
    /// In which others say there is something new, until it was looked at.
    rung: Mutex<HashSet<SessionId>>,
    look: Notify,
    beats: Mutex<Beats>,
    has_others: AtomicBool,
    /// Errands that are being run.
    pub errands: Mutex<HashSet<String>>,
    /// Sessions taken from nodes that were gone, since the start.
    taken: AtomicU64,
}

/// When we were last heard of, on our own clock, and never later than on the ledger's: the time before it was sent.
struct Beats {
    sent: Instant,
    last: Instant,
}

/// Where the turns of an open session run.
pub(in crate::session) enum Place {
    Here(Arc<Entry>),
    Elsewhere,
}

impl Cluster {
    pub fn new(options: ClusterOptions) -> Cluster {
        let now = Instant::now();
        Cluster {
            options,
            claiming: Mutex::default(),
            bells: Mutex::default(),
            changed: Mutex::default(),
            has_changed: Notify::new(),
            rung: Mutex::default(),
            look: Notify::new(),
            beats: Mutex::new(Beats { sent: now, last: now }),
            has_others: AtomicBool::new(false),
            errands: Mutex::default(),
            taken: AtomicU64::new(0),
        }
    }

    /// Waits until nobody else here takes this session.
    async fn claim(&self, id: &SessionId) -> OwnedMutexGuard<()> {
        let one = {
            let mut claiming = lock(&self.claiming);
            match claiming.get(id).and_then(Weak::upgrade) {
                Some(one) => one,
                None => {
                    claiming.retain(|_, one| one.strong_count() > 0);
                    let one = Arc::default();
                    claiming.insert(id.clone(), Arc::downgrade(&one));
                    one
                }
            }
        };
        one.lock_owned().await
    }

    /// Hears when there is something new in a session, whoever has it.
    pub fn bell(&self, id: &SessionId) -> watch::Receiver<()> {
        let mut bells = lock(&self.bells);
        bells.retain(|_, bell| bell.receiver_count() > 0);
        bells.entry(id.clone()).or_insert_with(|| watch::channel(()).0).subscribe()
    }

    fn ring_here(&self, id: &SessionId) {
        if let Some(bell) = lock(&self.bells).get(id) {
            let _ = bell.send(());
        }
    }

    /// There is something new in a session of ours.
    pub fn note_change(&self, id: &SessionId) {
        self.ring_here(id);
        if self.has_others.load(Ordering::Relaxed) {
            lock(&self.changed).insert(id.clone());
            self.has_changed.notify_one();
        }
    }

    /// Whether we may still count as holding what we hold: a quarter of the lease is for the way.
    pub fn is_heard_of(&self) -> bool {
        lock(&self.beats).last.elapsed() < self.options.lease * 3 / 4
    }

    /// How long ago we were last heard of.
    pub fn silence(&self) -> Duration {
        lock(&self.beats).last.elapsed()
    }

    /// How many sessions were taken that nobody had.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    fn hear(&self, heard: ClusterEvent) {
        match heard {
            ClusterEvent::HeartbeatSent => lock(&self.beats).sent = Instant::now(),
            ClusterEvent::Heartbeat { others } => {
                let mut beats = lock(&self.beats);
                beats.last = beats.sent;
                self.has_others.store(others, Ordering::Relaxed);
            }
            ClusterEvent::Notified(sessions) => {
                self.has_others.store(true, Ordering::Relaxed);
                sessions.iter().for_each(|id| self.ring_here(id));
                lock(&self.rung).extend(sessions);
                self.look.notify_one();
            }
            ClusterEvent::Disconnected(error) => {
                tracing::warn!(error, "the connection to the other nodes is lost");
            }
            ClusterEvent::Connected => {
                for bell in lock(&self.bells).values() {
                    let _ = bell.send(());
                }
                self.look.notify_one();
            }
        }
    }
}

impl Sessions {
    /// Begins to take part, and takes up what an earlier run on this home had. Called once, before anything is asked of us.
    pub(in crate::session) async fn join(&self) -> Result<(), StoreError> {
        let Some(cluster) = &self.inner.cluster else { return Ok(()) };
        let (options, store) = (&self.inner.options, &cluster.options.store);
        store.heartbeat(&options.node).await?;
        // From now on we are heard of: to take up much may take longer than a lease.
        options.tasks.spawn(self.clone().attend());
        if let Some(earlier) = &cluster.options.earlier {
            let held = store.leased_sessions(earlier).await?;
            store.remove_node(earlier).await?;
            // One that can't be taken now is taken by whoever is asked for it.
            self.take_all(held.into_iter().map(|held| (held.app, held.lease.session))).await;
        }
        // The others know that there is somebody now.
        store.notify(&options.node, &[]).await?;
        options.tasks.spawn(self.clone().keep_watch());
        options.tasks.spawn(self.clone().keep_ringing());
        Ok(())
    }

    /// Is heard of and hears, until everything was handed over.
    async fn attend(self) {
        let Some(cluster) = &self.inner.cluster else { return };
        let options = &self.inner.options;
        let tell = |heard| cluster.hear(heard);
        let every = cluster.options.lease / 4;
        tokio::select! {
            () = cluster.options.store.run_heartbeat(&options.node, every, &tell) => {}
            () = self.all_left() => {}
        }
        if let Err(error) = cluster.options.store.remove_node(&options.node).await {
            tracing::warn!(%error, "the other nodes were not told that this one ends");
        }
    }

    /// Returns once we are told to stop and no session is left here.
    async fn all_left(&self) {
        self.inner.options.stopping.cancelled().await;
        loop {
            let entry = self.open().values().next().cloned();
            let Some(entry) = entry else { return };
            entry.ended.cancelled().await;
            self.drop_entry(&entry);
        }
    }

    /// Says to the others in which sessions there is something new.
    async fn keep_ringing(self) {
        let Some(cluster) = &self.inner.cluster else { return };
        let options = &self.inner.options;
        loop {
            tokio::select! {
                () = cluster.has_changed.notified() => tokio::time::sleep(TOGETHER).await,
                () = self.all_left() => {}
            }
            let sessions: Vec<SessionId> = lock(&cluster.changed).drain().collect();
            if sessions.is_empty() && options.stopping.is_cancelled() && self.open().is_empty() {
                return;
            }
            if let Err(error) = cluster.options.store.notify(&options.node, &sessions).await {
                tracing::debug!(%error, "the other nodes were not told what is new");
            }
        }
    }

    /// Does what others want of us, takes what nobody has, and lets go of what is no longer ours.
    async fn keep_watch(self) {
        let Some(cluster) = &self.inner.cluster else { return };
        let stopping = self.inner.options.stopping.clone();
        let mut fence = tokio::time::interval(cluster.options.lease / 16);
        let mut look = tokio::time::interval(cluster.options.lease / 4);
        let mut looking = None;
        loop {
            tokio::select! {
                () = self.all_left() => return,
                _ = fence.tick() => {
                    if !cluster.is_heard_of() {
                        self.lose_all();
                    }
                    continue;
                }
                () = async { looking.as_mut().expect("it is asked for").await }, if looking.is_some() => {
                    looking = None;
                    continue;
                }
                _ = look.tick(), if looking.is_none() => {}
                () = cluster.look.notified(), if looking.is_none() => {}
            }
            // It may take long while the ledger is not there; the fence must not wait for it.
            let sessions = self.clone();
            let taking = !stopping.is_cancelled();
            looking = Some(Box::pin(async move { sessions.look_around(taking).await }));
        }
    }

    async fn look_around(&self, taking: bool) {
        if let Err(error) = self.look_at_ledger(taking).await {
            tracing::warn!(%error, "what the ledger wants of this node is not known");
        }
    }

    async fn look_at_ledger(&self, taking: bool) -> Result<(), SessionError> {
        let Some(cluster) = &self.inner.cluster else { return Ok(()) };
        if !cluster.is_heard_of() {
            return Ok(());
        }
        let node = &self.inner.options.node;
        // Those that are here before the ledger is asked: what comes later is ours, though the answer may not say so.
        let here: Vec<Arc<Entry>> = self.open().values().cloned().collect();
        let held = cluster.options.store.leased_sessions(node).await?;
        let mut ours = HashMap::new();
        for session in held {
            ours.insert(session.lease.session.clone(), session);
        }
        for entry in here {
            if entry.is_lost() {
                // It goes when its agent is gone; by the ledger it may still be ours, and is taken again below.
                self.lose(&entry);
                continue;
            }
            match ours.remove(&entry.id) {
                Some(held) if held.lease == entry.lease => entry.enqueue_missing(&held.queued),
                _ if entry.closing.is_cancelled() => {}
                _ => self.lose(&entry),
            }
        }
        if taking {
            // Ours by the ledger, but not here: they were let go of in a silence that is over.
            let busy = |held: &LeasedSession| held.running || !held.queued.is_empty();
            let ours = ours.into_values().filter(busy).map(|held| (held.app, held.lease.session));
            self.take_all(ours).await;
            let orphans = cluster.options.store.orphans(cluster.options.lease).await?;
            self.take_all(orphans.into_iter()).await;
        }
        for errand in cluster.options.store.pending_commands(node).await? {
            self.run_errand(errand);
        }
        let rung = lock(&cluster.rung).drain().collect();
        self.drop_places(rung).await;
        Ok(())
    }

    async fn take_all(&self, sessions: impl Iterator<Item = (AppName, SessionId)>) {
        let take = |(app, id)| async move { drop(self.here_or_taken(&app, &id).await) };
        futures_util::stream::iter(sessions).for_each_concurrent(TAKES, take).await;
    }

    /// Where a session's turns run; `None` when it is closed. One that nobody has is taken.
    pub(in crate::session) async fn place(
        &self,
        app: &AppName,
        id: &SessionId,
    ) -> Result<Option<Place>, SessionError> {
        if let Some(entry) = self.entry(app, id).filter(|entry| !entry.is_lost()) {
            return Ok(Some(Place::Here(entry)));
        }
        if self.inner.cluster.is_none() {
            self.get(app, id).await?;
            return Ok(None);
        }
        match self.get(app, id).await?.closed_at {
            Some(_) => Ok(None),
            None => self.claim(app, id).await,
        }
    }

    /// A session that is here, or that nobody has.
    pub(in crate::session) async fn here_or_taken(
        &self,
        app: &AppName,
        id: &SessionId,
    ) -> Option<Arc<Entry>> {
        if self.inner.cluster.is_none() {
            return self.entry(app, id);
        }
        match self.claim(app, id).await {
            Ok(Some(Place::Here(entry))) => Some(entry),
            Ok(_) | Err(SessionError::NotFound) => None,
            Err(error) => {
                tracing::warn!(%error, session = %id, "it is not known who has a session");
                None
            }
        }
    }

    /// Takes a session, unless somebody who lives has it.
    async fn claim(&self, app: &AppName, id: &SessionId) -> Result<Option<Place>, SessionError> {
        let Some(cluster) = &self.inner.cluster else { return Ok(None) };
        let options = &self.inner.options;
        let _one = cluster.claim(id).await;
        if let Some(entry) = self.entry(app, id) {
            if !entry.is_lost() {
                return Ok(Some(Place::Here(entry)));
            }
            // The agent that it had here is ending; the next one works in the same folder.
            let _ = tokio::time::timeout(ENDING, entry.ended.cancelled()).await;
        }
        if !cluster.is_heard_of() {
            let text = "this node is not heard of by the others".to_owned();
            return Err(StoreError::Unavailable(text).into());
        }
        let lease_timeout = cluster.options.lease;
        // To ask costs less than to try, and keeps nobody from writing.
        match cluster.options.store.lease_holder(id, lease_timeout).await? {
            Some(holder) if holder != options.node => return Ok(Some(Place::Elsewhere)),
            _ => {}
        }
        let taken =
            self.store().acquire_lease(id, &options.node, lease_timeout, Timestamp::now()).await?;
        let (lease, interrupted) = match taken {
            LeaseOutcome::HeldBy(_) => return Ok(Some(Place::Elsewhere)),
            LeaseOutcome::Missing => return Err(SessionError::NotFound),
            LeaseOutcome::Acquired(lease, interrupted) => (lease, interrupted),
        };
        cluster.taken.fetch_add(1, Ordering::Relaxed);
        tracing::info!(session = %id, fence = lease.fence, interrupted = interrupted.len(), "a session was taken");
        // Whoever waits for a turn that was interrupted by this is told.
        cluster.note_change(id);
        let session = self.get(app, id).await?;
        if session.closed_at.is_some() {
            return Ok(None);
        }
        if options.stopping.is_cancelled() {
            self.store().release_lease(&lease).await?;
            return Err(SessionError::Stopping);
        }
        // It was let in when it was made, wherever that was.
        let permit = options.live.acquire_above_limit();
        let queue = self.store().queued_turns(id).await?;
        let (entry, answered) = self.enter(&session, lease, permit, queue);
        self.start_actor(Actor::of(&self.inner, entry.clone(), answered));
        Ok(Some(Place::Here(entry)))
    }

    /// The holder of a session finds a new turn in it.
    pub(in crate::session) async fn call_holder(&self, id: &SessionId) {
        let Some(cluster) = &self.inner.cluster else { return };
        let node = &self.inner.options.node;
        if let Err(error) = cluster.options.store.notify(node, std::slice::from_ref(id)).await {
            // It looks now and then all the same.
            tracing::debug!(%error, session = %id, "the holder of a session was not told of a turn");
        }
    }

    /// Turns that others have taken in for a session of ours are known from now on.
    pub(in crate::session) async fn hear_of_turns(&self, entry: &Arc<Entry>) {
        match self.store().queued_turns(&entry.id).await {
            Ok(turns) => entry.enqueue_missing(&turns),
            Err(error) => {
                tracing::debug!(%error, session = %entry.id, "it is not known which turns wait");
                self.look_soon();
            }
        }
    }

    /// Looks at the ledger before it is time.
    pub(in crate::session) fn look_soon(&self) {
        if let Some(cluster) = &self.inner.cluster {
            cluster.look.notify_one();
        }
    }

    /// A session is no longer ours: its agent ends, and nothing is written. Its entry stays until the agent is gone, so that it
    /// is not taken again before that.
    pub(in crate::session) fn lose(&self, entry: &Arc<Entry>) {
        if entry.lose() {
            tracing::warn!(session = %entry.id, fence = entry.lease.fence, "a session is no longer ours");
        }
        entry.release();
        if entry.ended.is_cancelled() {
            self.drop_entry(entry);
        }
    }

    /// A session was deleted: its folder goes, also on other nodes.
    pub(in crate::session) fn forget_place(&self, id: &SessionId) {
        self.remove_workspace(id);
        if let Some(cluster) = &self.inner.cluster {
            cluster.note_change(id);
        }
    }

    /// Removes the folders of sessions that another node has deleted.
    async fn drop_places(&self, rung: Vec<SessionId>) {
        for id in rung {
            let is_here = self.inner.options.workspaces.join(id.as_str()).is_dir();
            if is_here && let Ok(None) = self.store().app_of(&id).await {
                self.remove_workspace(&id);
            }
        }
    }

    fn lose_all(&self) {
        let entries: Vec<Arc<Entry>> = self.open().values().cloned().collect();
        entries.iter().for_each(|entry| self.lose(entry));
    }

    /// Forgets an entry, unless another has its place by now.
    pub(in crate::session) fn drop_entry(&self, entry: &Arc<Entry>) {
        entry.release();
        let mut open = self.open();
        if open.get(&entry.id).is_some_and(|found| Arc::ptr_eq(found, entry)) {
            open.remove(&entry.id);
        }
    }

    /// Whether this node takes part: not while it stops, nor while the others can't hear of it.
    pub fn is_ready(&self) -> bool {
        let heard = self.inner.cluster.as_ref().is_none_or(|cluster| cluster.is_heard_of());
        heard && !self.inner.options.stopping.is_cancelled()
    }
}

pub(in crate::session) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
