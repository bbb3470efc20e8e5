//! A node that has its ledger to itself: every open session runs here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use hob_domain::session::{Created, NewEvent, OpenLimits, Session, SessionFilter, SessionId};
use hob_domain::{
    AppName, CommandOutcome, Lease, LeaseOutcome, SessionCommand, StoreError, Timestamp,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::super::actor::AgentStart;
use super::super::context::SessionContext;
use super::super::counters::NodeFigures;
use super::super::error::SessionError;
use super::super::handle::{OpenSession, SessionHandle};
use super::super::limits::RateLimiter;
use super::super::local_sessions::LocalSessions;
use super::super::node_link::{LeaseStatus, NodeLink};
use super::super::options::SessionsOptions;
use super::traits::{Location, Placement};

/// How many leases are acquired at once. The store commits together what arrives together.
const MAX_CONCURRENT_ACQUISITIONS: usize = 256;

/// The placement without other nodes.
pub(in crate::session) struct SingleNode {
    local: Arc<LocalSessions>,
    rate: RateLimiter,
}

/// A link to no other node.
struct Unlinked;

impl NodeLink for Unlinked {
    fn notify(&self, _id: &SessionId) {}

    fn lease_status(&self) -> LeaseStatus {
        LeaseStatus::Exclusive
    }

    fn poll_soon(&self) {}
}

impl SingleNode {
    /// Opens the sessions that an earlier run left open. Turns that ran then are interrupted; those
    /// that waited run now.
    pub async fn restore(context: Arc<SessionContext>) -> Result<SingleNode, StoreError> {
        let leases = acquire_all(&context.options).await?;
        let local = Arc::new(LocalSessions::new(context.clone(), Arc::new(Unlinked)));
        for session in context.store().sessions(&SessionFilter::Open).await? {
            let Some(lease) = leases.get(&session.id).cloned() else { continue };
            let queue = context.queued_turns(&session.app, &session.id).await?;
            let permit = context.options.runtime.live.acquire_above_limit(session.app.as_str());
            let open = OpenSession { session: &session, lease, permit, queue };
            local.open(open, AgentStart::OnFirstTurn);
        }
        Ok(SingleNode { local, rate: RateLimiter::default() })
    }

    /// Returns the sessions of this node.
    pub fn local(&self) -> Arc<LocalSessions> {
        self.local.clone()
    }

    /// Returns an open session; `None` when it is closed.
    async fn find(
        &self,
        app: &AppName,
        id: &SessionId,
    ) -> Result<Option<Arc<SessionHandle>>, SessionError> {
        let handle = self.local.registry.leased(app, id);
        if handle.is_none() {
            self.local.context.session(app, id).await?;
        }
        Ok(handle)
    }
}

/// Acquires the leases of all sessions. Only an earlier run on this ledger can hold one. Turns that
/// ran in them are interrupted.
async fn acquire_all(options: &SessionsOptions) -> Result<HashMap<SessionId, Lease>, StoreError> {
    let (lease_timeout, now) = (Duration::ZERO, Timestamp::now());
    let mut attempts = JoinSet::new();
    let (mut leases, mut interrupted) = (HashMap::new(), 0);
    let unleased = SessionFilter::Unleased(lease_timeout);
    let mut unleased = options.store.sessions(&unleased).await?.into_iter();
    loop {
        for Session { id, .. } in
            unleased.by_ref().take(MAX_CONCURRENT_ACQUISITIONS - attempts.len())
        {
            let (store, node) = (options.store.clone(), options.node.clone());
            attempts
                .spawn(async move { store.acquire_lease(&id, &node, lease_timeout, now).await });
        }
        let Some(outcome) = attempts.join_next().await else { break };
        let outcome = outcome.map_err(|error| StoreError::Failed(error.to_string()))?;
        if let LeaseOutcome::Acquired(lease, turns) = outcome? {
            interrupted += turns.len();
            leases.insert(lease.session.clone(), lease);
        }
    }
    if interrupted > 0 {
        tracing::warn!(interrupted, "interrupted turns that ran when Hob last ended");
    }
    Ok(leases)
}

#[async_trait]
impl Placement for SingleNode {
    async fn locate(
        &self,
        app: &AppName,
        id: &SessionId,
    ) -> Result<Option<Location>, SessionError> {
        Ok(self.find(app, id).await?.map(Location::Here))
    }

    async fn acquire(&self, app: &AppName, id: &SessionId) -> Option<Arc<SessionHandle>> {
        self.local.registry.get(app, id)
    }

    async fn execute(
        &self,
        app: &AppName,
        id: &SessionId,
        command: SessionCommand,
    ) -> Result<Option<CommandOutcome>, SessionError> {
        let Some(handle) = self.find(app, id).await? else { return Ok(None) };
        match self.local.execute(&handle, command).await {
            // Another process has taken the ledger over, or deleted the session.
            Err(SessionError::Store(StoreError::Lost)) => {
                self.local.lose(&handle);
                self.local.context.session(app, id).await?;
                Ok(None)
            }
            outcome => outcome.map(Some),
        }
    }

    async fn notify_holder(&self, _id: &SessionId) {}

    fn poll_soon(&self) {}

    fn watch(&self, _id: &SessionId) -> Option<watch::Receiver<()>> {
        None
    }

    async fn open_count(&self, app: &AppName) -> Result<usize, StoreError> {
        Ok(self.local.registry.count_of(app))
    }

    /// Stores a new session. The limit on live agents of this node is checked by the caller.
    async fn create(
        &self,
        session: &Session,
        event: NewEvent,
        max_app_sessions: usize,
    ) -> Result<Created, StoreError> {
        let context = &self.local.context;
        let limits = OpenLimits { app: max_app_sessions, all: 0 };
        context.store().create_session(session, event, &context.options.node, limits).await
    }

    /// Accepts every run: the limit on live agents of this node is checked when the run starts.
    async fn check_capacity(&self) -> Result<(), SessionError> {
        Ok(())
    }

    async fn count_turn(
        &self,
        app: &AppName,
        max_per_minute: usize,
    ) -> Result<Result<(), Duration>, StoreError> {
        Ok(self.rate.count(app, max_per_minute, Instant::now()))
    }

    async fn delete_old_files(&self, _age: Duration) -> Result<(), StoreError> {
        Ok(())
    }

    fn is_reachable(&self) -> bool {
        true
    }

    fn figures(&self) -> Option<NodeFigures> {
        None
    }
}
