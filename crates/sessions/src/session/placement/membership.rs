//! A node's part in the cluster: its heartbeats, and the notifications it sends and receives.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use hob_domain::session::SessionId;
use hob_domain::{ClusterEvent, ClusterStore, NodeId};
use tokio::sync::{Notify, OwnedMutexGuard, watch};

use super::super::node_link::{LeaseStatus, NodeLink};
use super::super::options::ClusterOptions;

/// Notifications within this time are sent together.
pub(super) const NOTIFICATION_DELAY: Duration = Duration::from_millis(10);

/// The state of one node among the others.
pub(super) struct Membership {
    pub node: NodeId,
    pub options: ClusterOptions,
    /// One lock per session that is being acquired: of two acquisitions at once, the second would
    /// void the first one's lease.
    acquiring: Mutex<HashMap<SessionId, Weak<tokio::sync::Mutex<()>>>>,
    watchers: Mutex<HashMap<SessionId, watch::Sender<()>>>,
    /// Sessions with news that the other nodes have not been notified of.
    changed: Mutex<HashSet<SessionId>>,
    has_changed: Notify,
    /// Sessions of which other nodes sent notifications, until the next poll.
    notified: Mutex<HashSet<SessionId>>,
    poll: Notify,
    heartbeats: Mutex<Heartbeats>,
    has_others: AtomicBool,
    /// Ids of the remote commands that are being executed.
    executing: Mutex<HashSet<String>>,
    taken_over: AtomicU64,
}

/// When the last heartbeats were sent, by this node's clock. The ledger never records an earlier
/// time than that.
struct Heartbeats {
    sent: Instant,
    /// When the last heartbeat that arrived was sent.
    arrived: Instant,
}

impl Membership {
    pub fn new(node: NodeId, options: ClusterOptions) -> Membership {
        let now = Instant::now();
        Membership {
            node,
            options,
            acquiring: Mutex::default(),
            watchers: Mutex::default(),
            changed: Mutex::default(),
            has_changed: Notify::new(),
            notified: Mutex::default(),
            poll: Notify::new(),
            heartbeats: Mutex::new(Heartbeats { sent: now, arrived: now }),
            has_others: AtomicBool::new(false),
            executing: Mutex::default(),
            taken_over: AtomicU64::new(0),
        }
    }

    pub fn store(&self) -> &dyn ClusterStore {
        self.options.store.as_ref()
    }

    /// Waits until no other task of this node acquires the session.
    pub async fn lock_acquisition(&self, id: &SessionId) -> OwnedMutexGuard<()> {
        let session_lock = {
            let mut acquiring = lock(&self.acquiring);
            match acquiring.get(id).and_then(Weak::upgrade) {
                Some(session_lock) => session_lock,
                None => {
                    acquiring.retain(|_, session_lock| session_lock.strong_count() > 0);
                    let session_lock = Arc::default();
                    acquiring.insert(id.clone(), Arc::downgrade(&session_lock));
                    session_lock
                }
            }
        };
        session_lock.lock_owned().await
    }

    /// Returns a channel that signals news of a session, whichever node holds it.
    pub fn watch(&self, id: &SessionId) -> watch::Receiver<()> {
        let mut watchers = lock(&self.watchers);
        watchers.retain(|_, watcher| watcher.receiver_count() > 0);
        watchers.entry(id.clone()).or_insert_with(|| watch::channel(()).0).subscribe()
    }

    fn wake_watchers(&self, id: &SessionId) {
        if let Some(watcher) = lock(&self.watchers).get(id) {
            let _ = watcher.send(());
        }
    }

    /// Waits until a session has news for the other nodes.
    pub async fn changed(&self) {
        self.has_changed.notified().await;
    }

    /// Removes and returns the sessions that the other nodes have to be notified of.
    pub fn take_changed(&self) -> Vec<SessionId> {
        lock(&self.changed).drain().collect()
    }

    /// Waits until the ledger has to be polled before its time.
    pub async fn poll_requested(&self) {
        self.poll.notified().await;
    }

    /// Removes and returns the sessions of which other nodes sent notifications.
    pub fn take_notified(&self) -> Vec<SessionId> {
        lock(&self.notified).drain().collect()
    }

    /// Returns the time between two heartbeats of this node.
    pub fn heartbeat_interval(&self) -> Duration {
        self.options.lease / 4
    }

    /// Returns whether this node may rely on its leases. A quarter of the lease time is kept back
    /// for delays.
    pub fn is_reachable(&self) -> bool {
        self.silence() < self.options.lease * 3 / 4
    }

    /// Returns the time since the last heartbeat that arrived.
    pub fn silence(&self) -> Duration {
        lock(&self.heartbeats).arrived.elapsed()
    }

    /// Counts a session that this node took over.
    pub fn count_takeover(&self) {
        self.taken_over.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many sessions this node took over.
    pub fn takeovers(&self) -> u64 {
        self.taken_over.load(Ordering::Relaxed)
    }

    /// Marks a remote command as being executed. Returns `false` if it is already.
    pub fn start_command(&self, id: &str) -> bool {
        lock(&self.executing).insert(id.to_owned())
    }

    /// Marks a remote command as no longer being executed.
    pub fn finish_command(&self, id: &str) {
        lock(&self.executing).remove(id);
    }

    /// Takes note of an event of the heartbeat loop.
    pub fn handle_event(&self, event: ClusterEvent) {
        match event {
            ClusterEvent::HeartbeatSent => lock(&self.heartbeats).sent = Instant::now(),
            ClusterEvent::Heartbeat { others } => {
                let mut heartbeats = lock(&self.heartbeats);
                heartbeats.arrived = heartbeats.sent;
                self.has_others.store(others, Ordering::Relaxed);
            }
            ClusterEvent::Notified(sessions) => {
                self.has_others.store(true, Ordering::Relaxed);
                sessions.iter().for_each(|id| self.wake_watchers(id));
                lock(&self.notified).extend(sessions);
                self.poll.notify_one();
            }
            ClusterEvent::Disconnected(error) => {
                tracing::warn!(error, "lost the notification connection to the ledger");
            }
            ClusterEvent::Connected => {
                for watcher in lock(&self.watchers).values() {
                    let _ = watcher.send(());
                }
                self.poll.notify_one();
            }
        }
    }
}

impl NodeLink for Membership {
    fn notify(&self, id: &SessionId) {
        self.wake_watchers(id);
        if self.has_others.load(Ordering::Relaxed) {
            lock(&self.changed).insert(id.clone());
            self.has_changed.notify_one();
        }
    }

    fn lease_status(&self) -> LeaseStatus {
        if self.is_reachable() { LeaseStatus::Valid } else { LeaseStatus::Expired }
    }

    fn poll_soon(&self) {
        self.poll.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
