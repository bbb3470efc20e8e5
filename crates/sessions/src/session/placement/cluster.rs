//! One of several nodes on one ledger.
//!
//! A session's turns run on the node that holds its lease. Requests that only the lease holder can
//! serve go through the ledger: a turn is stored there, anything else is a [remote
//! command](super::remote_command), and a notification is sent. A node that receives a notification
//! reads the ledger, so a missed one costs time and nothing else.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use hob_domain::session::{Created, NewEvent, OpenLimits, Session, SessionFilter, SessionId};
use hob_domain::{
    AppName, ClusterStore, CommandFilter, CommandOutcome, LeaseOutcome, LeasedSession, NodeEvent,
    NodeId, RemoteCommand, SessionCommand, StoreError, Timestamp,
};
use tokio::sync::{oneshot, watch};

use super::super::actor::AgentStart;
use super::super::context::SessionContext;
use super::super::counters::NodeFigures;
use super::super::error::SessionError;
use super::super::handle::{OpenSession, SessionHandle};
use super::super::local_sessions::LocalSessions;
use super::super::node_link::NodeLink;
use super::super::options::ClusterOptions;
use super::membership::{Membership, NOTIFICATION_DELAY};
use super::remote_command;
use super::traits::{Location, Placement};

/// How many leases are acquired at once.
const MAX_CONCURRENT_ACQUISITIONS: usize = 12;
/// How long to wait for the agent of a lost session to end before the session is acquired again.
const AGENT_END_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before a session whose lease has moved is looked up again.
const MOVED_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// The longest that a command may take. A turn that ignores its cancellation is ended before that.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// The placement among other nodes.
pub(in crate::session) struct ClusterNode {
    membership: Arc<Membership>,
    local: Arc<LocalSessions>,
}

impl ClusterNode {
    /// Joins the cluster and takes over the sessions of an earlier run on this home. Called once,
    /// before any request is served.
    pub async fn join(
        context: Arc<SessionContext>,
        options: ClusterOptions,
    ) -> Result<Arc<ClusterNode>, StoreError> {
        let membership = Arc::new(Membership::new(context.options.node.clone(), options));
        let local = Arc::new(LocalSessions::new(context.clone(), membership.clone()));
        let node = Arc::new(ClusterNode { membership, local });
        let store = node.store();
        store.note_node(node.id(), NodeEvent::Heartbeat).await?;
        // Heartbeats start first: taking over many sessions may last longer than a lease.
        context.options.runtime.tasks.spawn(node.clone().run_heartbeat());
        if let Some(earlier) = &node.membership.options.earlier {
            let held = store.leased_sessions(earlier).await?;
            store.note_node(earlier, NodeEvent::Left).await?;
            // A session that cannot be acquired now is acquired when it is next used.
            node.acquire_all(held.into_iter().map(|held| (held.lease.app, held.lease.session)))
                .await;
        }
        // An empty notification tells the other nodes that this one exists.
        store.notify(node.id(), &[]).await?;
        context.options.runtime.tasks.spawn(node.clone().run_monitor());
        context.options.runtime.tasks.spawn(node.clone().run_notifier());
        Ok(node)
    }

    /// Returns the sessions of this node.
    pub fn local(&self) -> Arc<LocalSessions> {
        self.local.clone()
    }

    fn context(&self) -> &SessionContext {
        &self.local.context
    }

    fn store(&self) -> &dyn ClusterStore {
        self.membership.store()
    }

    fn id(&self) -> &NodeId {
        &self.membership.node
    }

    /// Sends heartbeats and receives notifications until every session of this node is handed over.
    async fn run_heartbeat(self: Arc<Self>) {
        // Heartbeats have a thread of their own: work that keeps the threads of the runtime busy must not cost this node
        // its leases.
        let (node, (ended, has_ended)) = (self.clone(), oneshot::channel::<()>());
        let beat = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(node.send_heartbeats());
            // A lookup of a name that hangs must not hold the end.
            runtime.shutdown_background();
            let _ = ended.send(());
            Ok::<(), std::io::Error>(())
        };
        let started = std::thread::Builder::new().name("heartbeat".to_owned()).spawn(beat);
        // Without an end in order, there is no such thread.
        if started.is_err() || has_ended.await.is_err() {
            tracing::error!("the thread for heartbeats ended; they are sent from the runtime");
            self.send_heartbeats().await;
        }
        if let Err(error) = self.store().note_node(self.id(), NodeEvent::Left).await {
            tracing::warn!(%error, "failed to sign this node off");
        }
    }

    async fn send_heartbeats(&self) {
        let on_event = |event| self.membership.handle_event(event);
        let interval = self.membership.heartbeat_interval();
        tokio::select! {
            () = self.store().run_heartbeat(self.id(), interval, &on_event) => {}
            () = self.drained() => {}
        }
    }

    /// Returns once Hob is stopping and no session is left on this node.
    async fn drained(&self) {
        self.context().options.runtime.stopping.cancelled().await;
        while let Some(handle) = self.local.registry.any() {
            handle.ended.cancelled().await;
            self.local.registry.remove(&handle);
        }
    }

    /// Notifies the other nodes of sessions with news.
    async fn run_notifier(self: Arc<Self>) {
        let stopping = &self.context().options.runtime.stopping;
        loop {
            tokio::select! {
                () = self.membership.changed() => tokio::time::sleep(NOTIFICATION_DELAY).await,
                () = self.drained() => {}
            }
            let sessions = self.membership.take_changed();
            if sessions.is_empty() && stopping.is_cancelled() && self.local.registry.is_empty() {
                return;
            }
            if let Err(error) = self.store().notify(self.id(), &sessions).await {
                tracing::debug!(%error, "failed to notify the other nodes");
            }
        }
    }

    /// Polls the ledger for work, and gives all sessions up when heartbeats no longer arrive.
    async fn run_monitor(self: Arc<Self>) {
        let lease = self.membership.options.lease;
        let mut check_lease = tokio::time::interval(lease / 16);
        let mut next_poll = tokio::time::interval(lease / 4);
        let mut polling = None;
        loop {
            tokio::select! {
                () = self.drained() => return,
                _ = check_lease.tick() => {
                    if !self.membership.is_reachable() {
                        self.lose_all();
                    }
                    continue;
                }
                () = async { polling.as_mut().expect("only polled while present").await },
                    if polling.is_some() =>
                {
                    polling = None;
                    continue;
                }
                _ = next_poll.tick(), if polling.is_none() => {}
                () = self.membership.poll_requested(), if polling.is_none() => {}
            }
            // A poll may hang while the ledger is away. The lease check must not wait for it.
            let node = self.clone();
            polling = Some(Box::pin(async move {
                if let Err(error) = node.poll_ledger().await {
                    tracing::warn!(%error, "failed to poll the ledger for work");
                }
            }));
        }
    }

    /// Compares the sessions of this node with the ledger, takes over sessions without a lease
    /// holder and executes remote commands.
    async fn poll_ledger(self: &Arc<Self>) -> Result<(), SessionError> {
        let stopping = self.context().options.runtime.stopping.is_cancelled();
        if !self.membership.is_reachable() {
            return Ok(());
        }
        // The open sessions are listed before the ledger is read. A session opened later is not
        // missed by mistake.
        let open = self.local.registry.all();
        let mut held: HashMap<SessionId, LeasedSession> = HashMap::new();
        for session in self.store().leased_sessions(self.id()).await? {
            held.insert(session.lease.session.clone(), session);
        }
        for handle in open {
            if handle.is_lost() {
                // The handle goes when its agent is gone. The ledger may still name this node as
                // the holder; then the session is acquired again below.
                self.local.lose(&handle);
                continue;
            }
            match held.remove(&handle.id) {
                Some(held) if held.lease == handle.lease => handle.enqueue_missing(&held.queued),
                _ if handle.closing.is_cancelled() => {}
                _ => self.local.lose(&handle),
            }
        }
        if !stopping {
            // The ledger names this node as their holder, but they were given up while heartbeats
            // did not arrive.
            let busy = |held: &LeasedSession| held.running || !held.queued.is_empty();
            let held = held.into_values().filter(busy).map(|held| held.lease);
            self.acquire_all(held.map(|lease| (lease.app, lease.session))).await;
            let orphaned = SessionFilter::Orphaned(self.membership.options.lease);
            let orphans = self.context().store().sessions(&orphaned).await?.into_iter();
            self.acquire_all(orphans.map(|session| (session.app, session.id))).await;
        }
        let pending = CommandFilter::Pending(self.id().clone());
        for command in self.store().commands(&pending).await? {
            self.execute_received(command);
        }
        self.remove_deleted_workspaces().await;
        Ok(())
    }

    async fn acquire_all(&self, sessions: impl Iterator<Item = (AppName, SessionId)>) {
        let acquire = |(app, id)| async move { drop(self.acquire(&app, &id).await) };
        let sessions = futures_util::stream::iter(sessions);
        sessions.for_each_concurrent(MAX_CONCURRENT_ACQUISITIONS, acquire).await;
    }

    /// Acquires a session's lease and opens it here, unless a live node holds it. Returns `None`
    /// when it is closed.
    async fn acquire_lease(
        &self,
        app: &AppName,
        id: &SessionId,
    ) -> Result<Option<Location>, SessionError> {
        let options = &self.context().options;
        let _acquiring = self.membership.lock_acquisition(id).await;
        if let Some(handle) = self.local.registry.get(app, id) {
            if !handle.is_lost() {
                return Ok(Some(Location::Here(handle)));
            }
            // Its agent here is ending. The next agent works in the same folder.
            let _ = tokio::time::timeout(AGENT_END_TIMEOUT, handle.ended.cancelled()).await;
        }
        if !self.membership.is_reachable() {
            let text = "this node's heartbeats do not reach the ledger".to_owned();
            return Err(StoreError::Unavailable(text).into());
        }
        let lease_timeout = self.membership.options.lease;
        let store = self.context().store();
        let outcome = store.acquire_lease(id, self.id(), lease_timeout, Timestamp::now()).await?;
        let (lease, interrupted) = match outcome {
            LeaseOutcome::HeldBy(_) => return Ok(Some(Location::Elsewhere)),
            LeaseOutcome::Missing => return Err(SessionError::NotFound),
            LeaseOutcome::Acquired(lease, interrupted) => (lease, interrupted),
        };
        self.membership.count_takeover();
        let (fence, interrupted) = (lease.fence, interrupted.len());
        tracing::info!(session = %id, fence, interrupted, "acquired a session");
        // Callers that wait for a turn which this acquisition interrupted read its end.
        self.membership.notify(id);
        let session = self.context().session(app, id).await?;
        if session.closed_at.is_some() {
            return Ok(None);
        }
        if options.runtime.stopping.is_cancelled() {
            store.release_lease(&lease).await?;
            return Err(SessionError::Stopping);
        }
        // The session passed the limit on live agents when it was created, on whichever node.
        let permit = options.runtime.live.acquire_above_limit(app.as_str());
        let queue = self.context().queued_turns(app, id).await?;
        let open = OpenSession { session: &session, lease, permit, queue };
        Ok(Some(Location::Here(self.local.open(open, AgentStart::OnFirstTurn))))
    }

    /// Removes the folders of sessions that other nodes have deleted.
    async fn remove_deleted_workspaces(&self) {
        for id in self.membership.take_notified() {
            let filter = SessionFilter::Id(id.clone());
            if self.context().has_workspace(&id).await
                && let Ok(found) = self.context().store().sessions(&filter).await
                && found.is_empty()
            {
                self.context().remove_workspace(&id);
            }
        }
    }

    fn lose_all(&self) {
        self.local.registry.all().iter().for_each(|handle| self.local.lose(handle));
    }

    /// Executes a command on a session of this node. A lost lease is an outcome, not an error: the
    /// caller looks for the new holder.
    async fn execute_here(
        &self,
        handle: &Arc<SessionHandle>,
        command: SessionCommand,
    ) -> Result<CommandOutcome, SessionError> {
        match self.local.execute(handle, command).await {
            Err(SessionError::Store(StoreError::Lost)) => {
                self.local.lose(handle);
                Ok(CommandOutcome::Elsewhere)
            }
            outcome => outcome,
        }
    }

    /// Executes a command wherever its session's lease is, until an outcome is known. Returns
    /// `None` when the session is closed.
    async fn execute_anywhere(
        &self,
        remote: &RemoteCommand,
    ) -> Result<Option<CommandOutcome>, SessionError> {
        let started = tokio::time::Instant::now();
        loop {
            let outcome = match self.locate(&remote.app, &remote.session).await? {
                None => return Ok(None),
                Some(Location::Here(handle)) => {
                    Some(self.execute_here(&handle, remote.body.clone()).await?)
                }
                Some(Location::Elsewhere) => remote_command::send(&self.membership, remote).await?,
            };
            match outcome {
                Some(CommandOutcome::Elsewhere) | None => {
                    if outcome.is_some() {
                        // The lease has moved: the new holder gets the command as a new one.
                        self.store().remove_command(&remote.id).await?;
                        tokio::time::sleep(MOVED_RETRY_INTERVAL).await;
                    }
                    if started.elapsed() >= COMMAND_TIMEOUT {
                        let text = "the node that holds the session does not answer".to_owned();
                        return Err(StoreError::Unavailable(text).into());
                    }
                }
                Some(CommandOutcome::NotFound) => return Err(SessionError::NotFound),
                Some(CommandOutcome::Invalid { message }) => {
                    return Err(SessionError::Invalid(message));
                }
                Some(CommandOutcome::Failed { message }) => {
                    return Err(StoreError::Unavailable(message).into());
                }
                Some(outcome) => return Ok(Some(outcome)),
            }
        }
    }

    /// Executes a command that another node sent, in a task of its own. A command that is being
    /// executed already is left alone.
    fn execute_received(self: &Arc<Self>, remote: RemoteCommand) {
        if !self.membership.start_command(&remote.id) {
            return;
        }
        let node = self.clone();
        self.context().options.runtime.tasks.spawn(async move {
            let outcome = node.outcome_of(&remote).await;
            remote_command::report(&node.membership, &remote, &outcome).await;
            node.membership.finish_command(&remote.id);
        });
    }

    async fn outcome_of(&self, remote: &RemoteCommand) -> CommandOutcome {
        let outcome = match self.locate(&remote.app, &remote.session).await {
            Ok(Some(Location::Here(handle))) => {
                self.execute_here(&handle, remote.body.clone()).await
            }
            Ok(_) => return CommandOutcome::Elsewhere,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(outcome) => outcome,
            Err(SessionError::NotFound) => CommandOutcome::NotFound,
            Err(SessionError::Invalid(message)) => CommandOutcome::Invalid { message },
            Err(error) => CommandOutcome::Failed { message: error.to_string() },
        }
    }
}

#[async_trait]
impl Placement for ClusterNode {
    async fn locate(
        &self,
        app: &AppName,
        id: &SessionId,
    ) -> Result<Option<Location>, SessionError> {
        if let Some(handle) = self.local.registry.leased(app, id) {
            return Ok(Some(Location::Here(handle)));
        }
        match self.context().session(app, id).await?.closed_at {
            Some(_) => Ok(None),
            None => self.acquire_lease(app, id).await,
        }
    }

    async fn acquire(&self, app: &AppName, id: &SessionId) -> Option<Arc<SessionHandle>> {
        match self.acquire_lease(app, id).await {
            Ok(Some(Location::Here(handle))) => Some(handle),
            Ok(_) | Err(SessionError::NotFound) => None,
            Err(error) => {
                tracing::warn!(%error, session = %id, "failed to acquire a session's lease");
                None
            }
        }
    }

    async fn execute(
        &self,
        app: &AppName,
        id: &SessionId,
        command: SessionCommand,
    ) -> Result<Option<CommandOutcome>, SessionError> {
        let remote = remote_command::new(app, id, command);
        let outcome = self.execute_anywhere(&remote).await;
        // A command that stays in the ledger is ignored after a minute.
        if let Err(error) = self.store().remove_command(&remote.id).await {
            tracing::debug!(%error, "failed to remove a remote command");
        }
        outcome
    }

    async fn notify_holder(&self, id: &SessionId) {
        if let Err(error) = self.store().notify(self.id(), std::slice::from_ref(id)).await {
            // The holder polls the ledger anyway.
            tracing::debug!(%error, session = %id, "failed to notify the lease holder of a turn");
        }
    }

    fn poll_soon(&self) {
        self.membership.poll_soon();
    }

    fn watch(&self, id: &SessionId) -> Option<watch::Receiver<()>> {
        Some(self.membership.watch(id))
    }

    async fn open_count(&self, app: &AppName) -> Result<usize, StoreError> {
        self.store().open_count(Some(app)).await
    }

    async fn create(
        &self,
        session: &Session,
        event: NewEvent,
        max_app_sessions: usize,
    ) -> Result<Created, StoreError> {
        let limits = OpenLimits { app: max_app_sessions, all: self.membership.options.max_live };
        self.context().store().create_session(session, event, self.id(), limits).await
    }

    async fn check_capacity(&self) -> Result<(), SessionError> {
        let max = self.membership.options.max_live;
        if max == 0 {
            return Ok(());
        }
        let live = self.store().open_count(None).await?;
        if live < max { Ok(()) } else { Err(SessionError::PoolFull { live }) }
    }

    async fn count_turn(
        &self,
        app: &AppName,
        max_per_minute: usize,
    ) -> Result<Result<(), Duration>, StoreError> {
        match max_per_minute {
            0 => Ok(Ok(())),
            max => self.store().pace(app, max).await,
        }
    }

    async fn delete_old_files(&self, age: Duration) -> Result<(), StoreError> {
        self.store().drop_files(age).await
    }

    fn is_reachable(&self) -> bool {
        self.membership.is_reachable()
    }

    fn figures(&self) -> Option<NodeFigures> {
        let stopping = self.context().options.runtime.stopping.is_cancelled();
        Some(NodeFigures {
            id: self.id().clone(),
            silence: self.membership.silence(),
            taken: self.membership.takeovers(),
            ready: self.is_reachable() && !stopping,
        })
    }
}
