//! What every part of the sessions shares: the store, the options, the counters.

use std::sync::Arc;

use hob_domain::session::{Session, SessionId, SessionStore, SessionTurn, TurnRange};
use hob_domain::{AppName, StoreError};
use tokio::sync::Semaphore;

use super::counters::Counters;
use super::error::SessionError;
use super::limits::{
    MAX_LIST_READS, MAX_LONG_ANSWERS, MAX_LONG_PAGES, MAX_LONG_TURN_ENDS, MAX_PAGE_READS,
};
use super::options::SessionsOptions;
use hob_agents::app_permits::AppPermits;
use hob_agents::claude::TranscriptWatcher;
use hob_files::owned;

use crate::files::on_disk;

/// Subfolder of the workspaces with one last-turn marker per session.
pub(super) const TURN_MARKERS: &str = ".turns";

/// The common ground of all sessions.
pub(super) struct SessionContext {
    pub options: SessionsOptions,
    pub counters: Counters,
    /// The ends of long turns that may be stored at a time.
    pub long_turn_ends: Semaphore,
    /// The pages of events that may be read at a time.
    pub page_reads: AppPermits,
    /// The lists of sessions that may be read at a time.
    pub list_reads: AppPermits,
    /// The long pages that may wait for clients.
    pub long_pages: AppPermits,
    /// The long answers that may wait for clients.
    pub long_answers: AppPermits,
    /// One watcher of transcript files for all sessions: the system allows few of them.
    pub changes: TranscriptWatcher,
}

impl SessionContext {
    pub fn new(options: SessionsOptions) -> SessionContext {
        SessionContext {
            options,
            counters: Counters::default(),
            long_turn_ends: Semaphore::new(MAX_LONG_TURN_ENDS),
            page_reads: AppPermits::new(MAX_PAGE_READS),
            list_reads: AppPermits::new(MAX_LIST_READS),
            long_pages: AppPermits::new(MAX_LONG_PAGES),
            long_answers: AppPermits::new(MAX_LONG_ANSWERS),
            changes: TranscriptWatcher::start(),
        }
    }

    pub fn store(&self) -> &Arc<dyn SessionStore> {
        &self.options.store
    }

    /// Returns a session of an app.
    pub async fn session(&self, app: &AppName, id: &SessionId) -> Result<Session, SessionError> {
        self.store().session(app, id).await?.ok_or(SessionError::NotFound)
    }

    /// Returns a turn; `None` if there is no such turn or no such session.
    pub async fn turn(
        &self,
        app: &AppName,
        id: &SessionId,
        index: u32,
    ) -> Result<Option<SessionTurn>, StoreError> {
        let turns = self.store().turns(app, id, TurnRange::One(index)).await?;
        Ok(turns.and_then(|mut turns| turns.pop()))
    }

    /// Returns the numbers of the queued turns of a session, in order.
    pub async fn queued_turns(
        &self,
        app: &AppName,
        id: &SessionId,
    ) -> Result<Vec<u32>, StoreError> {
        let turns = self.store().turns(app, id, TurnRange::Queued).await?;
        Ok(turns.unwrap_or_default().iter().map(|turn| turn.index).collect())
    }

    /// Runs a change in a task of its own, so that it completes even if the caller goes away. Half
    /// a change would be a turn that never runs, or a session that is neither open nor closed.
    pub async fn detach<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, SessionError>> + Send + 'static,
    ) -> Result<T, SessionError> {
        let done = self.options.runtime.tasks.spawn(change).await;
        done.unwrap_or_else(|error| Err(StoreError::Failed(error.to_string()).into()))
    }

    /// Returns whether there is a folder that Hob made for a session.
    pub async fn has_workspace(&self, id: &SessionId) -> bool {
        let workspace = self.options.workspaces.join(id.as_str());
        on_disk(move || Ok(workspace.is_dir())).await.unwrap_or_default()
    }

    /// Removes the folder that Hob made for a session, and its last-turn marker.
    pub fn remove_workspace(&self, id: &SessionId) {
        let workspaces = &self.options.workspaces;
        let _ = owned::remove_file(workspaces.join(TURN_MARKERS).join(id.as_str()));
        self.options.runtime.discard(&workspaces.join(id.as_str()));
    }
}
