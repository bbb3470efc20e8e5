//! The durable sessions of all apps, as the rest of Hob uses them.

use std::collections::HashMap;
use std::sync::Arc;

use hob_domain::session::{
    EventRange, IdempotencyKey, Session, SessionEvent, SessionFilter, SessionId, SessionPage,
    SessionStore, SessionTurn, TurnRange, TurnState, UsageDay,
};
use hob_domain::{AppName, CommandOutcome, SessionCommand, SettingChange, StoreError, Timestamp};
use hob_files::owned;
use serde_json::Value;

use super::context::SessionContext;
use super::counters::SessionFigures;
use super::create::SessionCreator;
use super::error::SessionError;
use super::follow::{EventFeed, Follow};
use super::intake::{TurnIntake, TurnSubmission};
use super::local_sessions::LocalSessions;
use super::offered_models;
use super::options::{NewSession, SessionsOptions};
use super::placement::{ClusterNode, Placement, SingleNode};
use super::settings::ChangedSettings;
use super::sweep::Sweeper;
use super::turn_answer::TurnMessages;
use super::workspace_files::SessionWorkspace;
use crate::files::UploadStore;
use hob_agents::driver::{AgentSettings, SettingRefusal};

/// How many sessions of a list are read at once.
pub const MAX_LISTED_AT_ONCE: usize = 500;

/// All sessions of all apps. Cloning shares it.
#[derive(Clone)]
pub struct Sessions {
    parts: Arc<SessionParts>,
}

/// What [`Sessions`] hands its calls on to.
struct SessionParts {
    context: Arc<SessionContext>,
    local: Arc<LocalSessions>,
    placement: Arc<dyn Placement>,
    creator: SessionCreator,
    intake: TurnIntake,
    feed: EventFeed,
}

/// What a cancel did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CancelOutcome {
    /// The turn that was ended; `None` when nothing ran.
    pub turn: Option<u32>,
}

impl Sessions {
    /// Restores the sessions of an earlier run: turns that ran then are interrupted, turns that
    /// waited run now, and open sessions are open. In a cluster, a session without a lease holder
    /// is opened when it is used or has turns waiting.
    pub async fn restore(mut options: SessionsOptions) -> Result<Sessions, StoreError> {
        // A killed run may have left its agents' MCP configurations.
        let _ = owned::remove_dir_all(options.claude.join("mcp"));
        let cluster = options.cluster.take();
        let context = Arc::new(SessionContext::new(options));
        let (local, placement): (_, Arc<dyn Placement>) = match cluster {
            None => {
                let node = SingleNode::restore(context.clone()).await?;
                (node.local(), Arc::new(node))
            }
            Some(cluster) => {
                let node = ClusterNode::join(context.clone(), cluster).await?;
                (node.local(), node)
            }
        };
        let parts = SessionParts {
            creator: SessionCreator::new(local.clone(), placement.clone()),
            intake: TurnIntake::new(local.clone(), placement.clone()),
            feed: EventFeed::new(local.clone(), placement.clone()),
            context,
            local,
            placement,
        };
        Ok(Sessions { parts: Arc::new(parts) })
    }

    fn store(&self) -> &Arc<dyn SessionStore> {
        self.parts.context.store()
    }

    /// Returns the store of uploaded files.
    pub fn files(&self) -> &UploadStore {
        &self.parts.context.options.files
    }

    /// Creates a session and starts its agent, so that it is warm when the first turn comes.
    pub async fn create(
        &self,
        app: &AppName,
        request: NewSession,
    ) -> Result<Session, SessionError> {
        let (parts, app) = (self.parts.clone(), app.clone());
        let change = async move { parts.creator.create(&app, request).await };
        self.parts.context.detach(change).await
    }

    /// Checks that a run fits the limit on open sessions of all nodes.
    pub async fn check_capacity(&self) -> Result<(), SessionError> {
        self.parts.placement.check_capacity().await
    }

    /// Accepts a turn and returns its number. It runs when the turns before it are over.
    pub async fn submit(
        &self,
        app: &AppName,
        id: &SessionId,
        ask: TurnSubmission,
    ) -> Result<u32, SessionError> {
        let (parts, app, id) = (self.parts.clone(), app.clone(), id.clone());
        let change = async move { parts.intake.accept(&app, &id, ask).await };
        self.parts.context.detach(change).await
    }

    /// Returns the turn that was accepted earlier under the same idempotency key, if any.
    pub async fn find_repeat(
        &self,
        app: &AppName,
        id: &SessionId,
        key: &IdempotencyKey,
    ) -> Result<Option<u32>, SessionError> {
        self.parts.intake.find_repeat(app, id, key).await
    }

    /// Counts a turn of an app outside of any session, or refuses it by the app's limits.
    pub async fn check_app(&self, app: &AppName) -> Result<(), SessionError> {
        self.parts.intake.check_app(app).await
    }

    /// Executes a command on the node that holds the session. Returns `None` when the session is
    /// closed.
    async fn execute(
        &self,
        app: &AppName,
        id: &SessionId,
        command: SessionCommand,
    ) -> Result<Option<CommandOutcome>, SessionError> {
        let (parts, app, id) = (self.parts.clone(), app.clone(), id.clone());
        let change = async move { parts.placement.execute(&app, &id, command).await };
        self.parts.context.detach(change).await
    }

    /// Cancels the running turn, else the first one that waits, and returns once it is over.
    pub async fn cancel(
        &self,
        app: &AppName,
        id: &SessionId,
    ) -> Result<CancelOutcome, SessionError> {
        match self.execute(app, id, SessionCommand::Cancel).await? {
            Some(CommandOutcome::Cancelled { turn }) => Ok(CancelOutcome { turn }),
            _ => Ok(CancelOutcome { turn: None }),
        }
    }

    /// Closes a session: its running turn is cancelled and its agent ended. Returns `false` if it
    /// was closed already.
    pub async fn close(&self, app: &AppName, id: &SessionId) -> Result<bool, SessionError> {
        let outcome = self.execute(app, id, SessionCommand::Close).await?;
        Ok(matches!(outcome, Some(CommandOutcome::Closed { now: true })))
    }

    /// Answers an agent's permission request with one of its options, by id or by kind, and with the fields of the form
    /// if the request has one.
    pub async fn answer(
        &self,
        app: &AppName,
        id: &SessionId,
        request: &str,
        option: &str,
        content: Option<Value>,
        message: Option<String>,
    ) -> Result<(), SessionError> {
        let (request, option) = (request.to_owned(), option.to_owned());
        let command = SessionCommand::Answer { request, option, content, message };
        let outcome = self.execute(app, id, command).await?;
        outcome.map(drop).ok_or(SessionError::NotFound)
    }

    /// Returns the result of a call of one of the caller's own tools to the agent. `content` is a string or content
    /// blocks in Anthropic's format.
    pub async fn return_tool_result(
        &self,
        app: &AppName,
        id: &SessionId,
        call: &str,
        content: Value,
        is_error: bool,
    ) -> Result<(), SessionError> {
        let command = SessionCommand::ToolResult { call: call.to_owned(), content, is_error };
        let outcome = self.execute(app, id, command).await?;
        outcome.map(drop).ok_or(SessionError::NotFound)
    }

    /// Returns the settings that the agent offers: an object with `modes`, `config_options` and `commands`. Starts an agent
    /// that does not run; if that fails, or the session is closed, there are no settings.
    pub async fn settings(&self, app: &AppName, id: &SessionId) -> Result<Value, SessionError> {
        match self.execute(app, id, SessionCommand::Settings).await? {
            Some(CommandOutcome::Settings { settings }) => Ok(settings),
            _ => Ok(AgentSettings::default().to_json()),
        }
    }

    /// Changes a setting of the agent. Starts an agent that does not run.
    pub async fn configure(
        &self,
        app: &AppName,
        id: &SessionId,
        change: SettingChange,
    ) -> Result<ChangedSettings, SessionError> {
        match self.execute(app, id, SessionCommand::Configure { change }).await? {
            Some(CommandOutcome::Settings { settings }) => Ok(ChangedSettings::Changed(settings)),
            Some(CommandOutcome::Refused { code, message }) => {
                Ok(ChangedSettings::Refused(SettingRefusal { code, message }))
            }
            _ => Err(SessionError::Closed),
        }
    }

    /// Ends and deletes all sessions of a removed app, with its configuration of Claude Code.
    pub async fn forget_app(&self, app: &AppName) -> Result<(), SessionError> {
        let (parts, name) = (self.parts.clone(), app.clone());
        self.parts.context.detach(async move { parts.local.delete_app(&name).await }).await?;
        let options = &self.parts.context.options;
        options.runtime.discard(&options.claude.join("apps").join(app.as_str()));
        Ok(())
    }

    /// Closes idle sessions and deletes old ones at regular intervals, until Hob stops.
    pub async fn run_sweeper(self) {
        let (local, placement) = (self.parts.local.clone(), self.parts.placement.clone());
        Sweeper::new(local, placement).run().await;
    }

    pub async fn get(&self, app: &AppName, id: &SessionId) -> Result<Session, SessionError> {
        self.parts.context.session(app, id).await
    }

    /// Returns the own folder of a session on this node, whether it exists or not; `None` if the session works in a folder of
    /// the caller.
    pub async fn workspace(
        &self,
        app: &AppName,
        id: &SessionId,
    ) -> Result<Option<SessionWorkspace>, SessionError> {
        let session = self.get(app, id).await?;
        Ok(SessionWorkspace::of(&self.parts.context.options.workspaces, &session))
    }

    /// Returns a page of a list of sessions. Each app reads one at a time.
    pub async fn page(&self, page: SessionPage) -> Result<Vec<Session>, SessionError> {
        let app = page.app.as_ref().map_or("", AppName::as_str);
        let _reading = self.parts.context.list_reads.of(app).acquire().await;
        Ok(self.store().sessions(&SessionFilter::Page(page)).await?)
    }

    /// Returns the sessions of an app that are wanted, oldest first, without their `meta`.
    pub async fn list(
        &self,
        app: &AppName,
        is_wanted: impl Fn(&Session) -> bool,
    ) -> Result<Vec<Session>, SessionError> {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let app = Some(app.clone());
            let page = SessionPage { app, after: after.take(), limit: MAX_LISTED_AT_ONCE };
            let found = self.page(page).await?;
            let Some(last) = found.last() else { return Ok(listed) };
            after = Some((last.created_at, last.id.clone()));
            listed.extend(found.into_iter().filter(&is_wanted).map(|mut session| {
                session.setup.meta = Value::Null;
                session
            }));
        }
    }

    /// Returns the place of a session in lists.
    pub async fn place_in_lists(
        &self,
        app: Option<&AppName>,
        id: &SessionId,
    ) -> Result<(Timestamp, SessionId), SessionError> {
        let found = self.store().sessions(&SessionFilter::Id(id.clone())).await?.pop();
        let found = found.filter(|session| app.is_none_or(|app| session.app == *app));
        found.map(|session| (session.created_at, session.id)).ok_or(SessionError::NotFound)
    }

    /// Returns the open sessions of all apps. For the owner only.
    pub async fn list_open(&self) -> Result<Vec<Session>, SessionError> {
        Ok(self.store().sessions(&SessionFilter::Open).await?)
    }

    /// Returns the app that a session belongs to. For the owner only.
    pub async fn app_of(&self, id: &SessionId) -> Result<AppName, SessionError> {
        let found = self.store().sessions(&SessionFilter::Id(id.clone())).await?.pop();
        found.map(|session| session.app).ok_or(SessionError::NotFound)
    }

    /// Returns a turn in its current state.
    pub async fn turn(
        &self,
        app: &AppName,
        id: &SessionId,
        turn: u32,
    ) -> Result<SessionTurn, SessionError> {
        self.parts.context.turn(app, id, turn).await?.ok_or(SessionError::NotFound)
    }

    /// Returns a turn once it is over.
    pub async fn turn_ended(
        &self,
        app: &AppName,
        id: &SessionId,
        turn: u32,
    ) -> Result<SessionTurn, SessionError> {
        self.parts.feed.turn_ended(app, id, turn).await
    }

    /// Returns the messages of a turn as the agent sent them, up to a limit.
    pub async fn turn_messages(
        &self,
        app: &AppName,
        id: &SessionId,
        turn: &SessionTurn,
    ) -> Result<TurnMessages, SessionError> {
        let permit = self.parts.context.long_answers.of(app.as_str()).acquire().await;
        TurnMessages::read(self.store().as_ref(), app, id, turn, permit).await
    }

    /// Follows a session's events after this number, from the log and then as they arrive.
    pub async fn follow(
        &self,
        app: &AppName,
        id: &SessionId,
        after: u64,
    ) -> Result<Follow, SessionError> {
        self.parts.feed.follow(app, id, after).await
    }

    /// Follows a turn's events after this number, and then whatever happens in the session.
    pub async fn follow_turn(
        &self,
        app: &AppName,
        id: &SessionId,
        turn: u32,
        after: u64,
    ) -> Result<Follow, SessionError> {
        self.parts.feed.follow_turn(app, id, turn, after).await
    }

    /// Returns events of a session, in order.
    pub async fn events(
        &self,
        app: &AppName,
        id: &SessionId,
        range: EventRange,
    ) -> Result<Vec<SessionEvent>, SessionError> {
        self.store().events(app, id, range).await?.ok_or(SessionError::NotFound)
    }

    /// Returns the last `limit` turns before this number, in order.
    pub async fn turns_before(
        &self,
        app: &AppName,
        id: &SessionId,
        before: u32,
        limit: usize,
    ) -> Result<Vec<SessionTurn>, SessionError> {
        let range = TurnRange::Before { before, limit };
        self.store().turns(app, id, range).await?.ok_or(SessionError::NotFound)
    }

    /// Returns usage by day and app from this day on. For the owner only.
    pub async fn usage_since(
        &self,
        first: Timestamp,
        app: Option<&AppName>,
    ) -> Result<Vec<UsageDay>, SessionError> {
        Ok(self.store().usage(first, None, app).await?)
    }

    /// Returns the models that each agent has offered to the app's sessions, by the names of the agents.
    pub async fn offered_models(
        &self,
        app: &AppName,
    ) -> Result<HashMap<String, Vec<String>>, SessionError> {
        let documents = self.parts.context.options.documents.as_ref();
        Ok(offered_models::offered(documents, app).await?)
    }

    /// Returns how many sessions wait for a permission answer, and how many turns are queued.
    pub fn waiting(&self) -> (usize, usize) {
        self.parts.local.registry.waiting()
    }

    /// Returns whether a session on this node waits for an answer to a permission request or a form.
    pub fn is_waiting(&self, id: &SessionId) -> bool {
        self.parts.local.registry.is_waiting(id)
    }

    /// Returns how many sessions each app has open on this node.
    pub fn open_by_app(&self) -> HashMap<AppName, usize> {
        self.parts.local.registry.counts_by_app()
    }

    /// Returns whether an open session of this app runs the agent's conversation of this name.
    pub fn is_conversation(&self, app: &str, name: &str) -> bool {
        self.parts.local.registry.has_conversation(app, name)
    }

    /// Returns whether this node serves sessions: not while it stops, nor while its heartbeats do
    /// not arrive.
    pub fn is_ready(&self) -> bool {
        self.parts.placement.is_reachable()
            && !self.parts.context.options.runtime.stopping.is_cancelled()
    }

    /// Returns the current figures, and the counters since the start.
    pub fn figures(&self) -> SessionFigures {
        let SessionParts { context, local, placement, .. } = &*self.parts;
        let (open, busy) = local.registry.open_and_busy();
        SessionFigures {
            open,
            busy,
            live: context.options.runtime.live.in_use(),
            live_limit: context.options.runtime.live.limit(),
            agents: context.options.runtime.children.live(),
            turns: TurnState::ALL.map(|state| (state, context.counters.turns(state))),
            messages: context.counters.messages(),
            node: placement.figures(),
        }
    }
}
