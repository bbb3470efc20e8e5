//! Stateless completions with Claude Code: the caller sends the whole conversation with every
//! request.
//!
//! This file decides the folder, the permissions and the limits of a turn, and stores its usage.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use hob_domain::session::{
    CostTarget, Permissions, RememberedTurn, SessionStore, SessionlessTurn, TurnState, TurnUsage,
    UsageNote,
};
use hob_domain::{App, AppFilter, AppName, AppStore, Block, Timestamp};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::session::{SessionError, Sessions};
use crate::turn_count::count_turn;
use hob_agents::Runtime;
use hob_agents::call_choice::CallChoice;
use hob_agents::claude::{
    AnswerCheck, BackendError, BackendFigures, ClaudeBackend, ClaudeTransport, Completion,
    CompletionRequest, Event, LateCost, Origin, ProcessInfo, Profile, TurnResult, temporary_scope,
};
use hob_agents::client_tools::ClientTool;
use hob_files::owned;

/// What completions get from the rest of Hob.
pub struct CompletionsOptions {
    pub runtime: Runtime,
    pub backend: ClaudeBackend,
    /// Checks the limits of an app.
    pub sessions: Sessions,
    pub store: Arc<dyn SessionStore>,
    /// The folder in which apps without a `cwd` get their own folders.
    pub workspaces: PathBuf,
    /// The agent's name in the memory.
    pub agent: String,
    /// Instructions for the user if the agent is not installed.
    pub install: String,
    /// The transport for apps whose setup names none; `None` if the agent is not Claude Code.
    pub transport: Option<ClaudeTransport>,
    /// The setups of apps.
    pub setups: BTreeMap<AppName, ConversationSetup>,
}

/// How an app's conversations run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConversationSetup {
    pub transport: Option<ClaudeTransport>,
    /// An existing folder; without one, Hob makes a folder for the app.
    pub cwd: Option<PathBuf>,
    /// What happens to tools that would ask for a permission: no one can answer.
    pub permissions: Permissions,
}

/// A conversation that the next turn continues.
#[derive(Clone, Default)]
pub struct Conversation {
    /// All messages in Anthropic's format. The last one is the user's.
    pub messages: Vec<Value>,
    /// The text of the prompt, if it differs from the last message's text.
    pub prompt: Option<String>,
    pub system: Option<String>,
    pub model: Option<String>,
    /// Tools that the client runs.
    pub tools: Vec<ClientTool>,
    /// Checks the text of the answer.
    pub answer_check: Option<AnswerCheck>,
    /// Which of the tools the answer may call, or must call.
    pub choice: CallChoice,
    /// Whether an answer may have only one call.
    pub one_call_at_a_time: bool,
}

/// A turn that was validated and counted, and has not begun.
pub struct AdmittedCompletion {
    app: AppName,
    request: CompletionRequest,
    /// The agent's working folder.
    cwd: String,
    prompt: String,
}

/// Why a completion failed.
#[derive(Debug, thiserror::Error)]
pub enum CompletionError {
    /// The app's limits refuse the turn.
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// Runs completions. Cloning shares it.
#[derive(Clone)]
pub struct Completions {
    shared: Arc<CompletionsState>,
}

struct CompletionsState {
    options: CompletionsOptions,
    /// Cancels the running turns of an app that is removed.
    apps: Mutex<HashMap<AppName, CancellationToken>>,
    /// What paused turns have said before their last pause, by the agent's session id.
    paused: Mutex<HashMap<String, TurnSoFar>>,
}

/// The part of a turn before a pause.
#[derive(Default)]
struct TurnSoFar {
    app: Option<AppName>,
    prompt: String,
    texts: Vec<String>,
    asked_at: Timestamp,
    usage: TurnUsage,
}

/// A running turn. Dropping it before its end cancels the turn and closes its process.
pub struct CompletionStream {
    pub origin: Origin,
    events: mpsc::UnboundedReceiver<Result<Event, BackendError>>,
    _guard: DropGuard,
}

impl Stream for CompletionStream {
    type Item = Result<Event, BackendError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_recv(context)
    }
}

impl Completions {
    /// Creates the part. `late_costs` are those of its backend. Must be called within a tokio runtime.
    pub fn new(
        options: CompletionsOptions,
        late_costs: mpsc::UnboundedReceiver<LateCost>,
    ) -> Completions {
        let Runtime { tasks, stopping, .. } = &options.runtime;
        tasks.spawn(store_late_costs(options.store.clone(), late_costs, stopping.clone()));
        Completions {
            shared: Arc::new(CompletionsState {
                options,
                apps: Mutex::default(),
                paused: Mutex::default(),
            }),
        }
    }

    /// Returns every live process, in a turn or idle.
    pub fn live_processes(&self) -> Vec<ProcessInfo> {
        self.shared.options.backend.live_sessions()
    }

    /// Starts a turn and returns once the agent has received the prompt. Dropping the future
    /// cancels the turn.
    pub async fn ask(
        &self,
        app: &App,
        asked: Conversation,
    ) -> Result<CompletionStream, CompletionError> {
        self.start(self.admit(app, asked).await?).await
    }

    /// Validates a turn and counts it against the app's limits.
    pub async fn admit(
        &self,
        app: &App,
        asked: Conversation,
    ) -> Result<AdmittedCompletion, CompletionError> {
        let options = &self.shared.options;
        if options.runtime.stopping.is_cancelled() {
            return Err(SessionError::Stopping.into());
        }
        let mut profile = self.profile(&app.name, &asked)?;
        profile.app_since = app.created_at.to_string();
        let app = &app.name;
        let Conversation { messages, prompt, answer_check, choice, one_call_at_a_time, .. } = asked;
        // An invalid request is refused before it counts against the limits.
        let mut request = CompletionRequest::new(&profile, &messages, prompt.as_deref())?;
        request.answer_check = answer_check;
        request.choice = choice;
        request.one_call_at_a_time = one_call_at_a_time;
        options.sessions.check_app(app).await?;
        let cwd = profile.cwd.display().to_string();
        let prompt = prompt.unwrap_or_default();
        Ok(AdmittedCompletion { app: app.clone(), request, cwd, prompt })
    }

    /// Sends an admitted prompt and returns once the agent has accepted it.
    pub async fn start(
        &self,
        admitted: AdmittedCompletion,
    ) -> Result<CompletionStream, CompletionError> {
        let options = &self.shared.options;
        let AdmittedCompletion { app, request, cwd, prompt } = admitted;
        let asked_at = Timestamp::now();
        let mut completion = options.backend.begin(Ok(request));
        let cancel = self.app_token(&app).child_token();
        let guard = cancel.clone().drop_guard();
        let origin = tokio::select! {
            origin = completion.origin() => origin,
            () = cancel.cancelled() => return Err(BackendError::Cancelled.into()),
        };
        let Some(origin) = origin else {
            let error = match completion.next().await {
                Some(Err(BackendError::NotInstalled(what))) => {
                    BackendError::NotInstalled(format!("{what}. {}", options.install))
                }
                Some(Err(error)) => error,
                _ => BackendError::Cancelled,
            };
            return Err(error.into());
        };
        let (sender, events) = mpsc::unbounded_channel();
        let forwarder = TurnForwarder {
            completion,
            store: options.store.clone(),
            app,
            agent: options.agent.clone(),
            cwd,
            asked_at,
            prompt,
            texts: Vec::new(),
            completions: self.clone(),
        };
        options.runtime.tasks.spawn(forwarder.run(sender, cancel));
        Ok(CompletionStream { origin, events, _guard: guard })
    }

    /// Ends the conversations of removed apps, at regular intervals.
    pub async fn run_sweeper(self, apps: Arc<dyn AppStore>, interval: Duration) {
        let options = &self.shared.options;
        loop {
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = options.runtime.stopping.cancelled() => return,
            }
            self.count_abandoned().await;
            let live: BTreeSet<String> =
                options.backend.live_sessions().into_iter().map(|info| info.app).collect();
            if live.is_empty() {
                continue;
            }
            let Ok(known) = apps.apps(AppFilter::All).await else { continue };
            for name in live.iter().filter_map(|name| AppName::stored(name.as_str()).ok()) {
                if !name.is_owner() && !known.iter().any(|app| app.name == name) {
                    self.forget_app(&name).await;
                }
            }
        }
    }

    /// Counts the turns whose client never returned the results of its tools.
    async fn count_abandoned(&self) {
        let live: BTreeSet<String> = self
            .shared
            .options
            .backend
            .live_sessions()
            .into_iter()
            .map(|info| info.session_id)
            .collect();
        let abandoned: Vec<TurnSoFar> = self
            .shared
            .paused()
            .extract_if(|session, _| !live.contains(session))
            .map(|(_, turn)| turn)
            .collect();
        for turn in abandoned {
            let Some(app) = turn.app else { continue };
            let (state, usage) = (TurnState::Cancelled, turn.usage);
            count_turn(&*self.shared.options.store, app, state, usage).await;
        }
    }

    /// Returns the backend's figures.
    pub fn figures(&self) -> BackendFigures {
        self.shared.options.backend.figures()
    }

    /// Ends all turns of an app and removes the folder that Hob made for it.
    pub async fn forget_app(&self, app: &AppName) {
        let token = self.shared.apps().remove(app);
        if let Some(token) = token {
            token.cancel();
        }
        let options = &self.shared.options;
        options.backend.forget_app(app.as_str()).await;
        let temporary = options.runtime.sandbox.temporary_of(&temporary_scope(app));
        options.runtime.discard(&temporary);
        options.runtime.discard(&self.own_folder(app));
        options.runtime.discard(&options.runtime.sandbox.private_of(app));
    }

    /// Ends every process.
    pub async fn close(&self) {
        self.shared.options.backend.close().await;
    }

    fn own_folder(&self, app: &AppName) -> PathBuf {
        conversation_folder(&self.shared.options.workspaces, app)
    }

    fn app_token(&self, app: &AppName) -> CancellationToken {
        self.shared.apps().entry(app.clone()).or_default().clone()
    }

    fn profile(&self, app: &AppName, asked: &Conversation) -> Result<Profile, CompletionError> {
        let options = &self.shared.options;
        let setup = options.setups.get(app).cloned().unwrap_or_default();
        let transport = setup.transport.or(options.transport).ok_or_else(|| {
            let agent = &options.agent;
            let text = format!(
                "the agent {agent:?} is not driven as Claude Code; set agents.{agent}.driver to \
                 claude-tui or claude-stream"
            );
            BackendError::NotInstalled(text)
        })?;
        let cwd = match setup.cwd {
            Some(cwd) => cwd,
            None => {
                let own = self.own_folder(app);
                let made = owned::create_dir_all(&own);
                made.map_err(|error| BackendError::Internal(error.to_string()))?;
                own
            }
        };
        let mut profile = Profile::new(cwd);
        profile.app = app.as_str().to_owned();
        profile.transport = transport;
        profile.model = asked.model.clone();
        profile.append_system_prompt = asked.system.clone();
        profile.client_tools = asked.tools.clone();
        if setup.permissions == Permissions::Allow {
            profile.allow_all_tools();
        }
        // The agent may read the files of a request without asking for a permission.
        profile.allow_reading(&options.runtime.sandbox.files_of(app));
        Ok(profile)
    }
}

/// Adds costs that become known after their turns to the usage of their apps, until Hob stops.
async fn store_late_costs(
    store: Arc<dyn SessionStore>,
    mut costs: mpsc::UnboundedReceiver<LateCost>,
    stopping: CancellationToken,
) {
    loop {
        let late = tokio::select! {
            late = costs.recv() => late,
            () = stopping.cancelled() => None,
        };
        let Some(LateCost { app, usd }) = late else { return };
        let Ok(name) = AppName::stored(app.as_str()) else { continue };
        let note = UsageNote::LateCost { target: CostTarget::Sessionless(name), cost_usd: usd };
        if let Err(error) = store.note_usage(&note, Timestamp::now()).await {
            tracing::error!(%error, app, "failed to count a cost");
        }
    }
}

/// Returns the folder in which the conversations of an app without a `cwd` work.
pub fn conversation_folder(workspaces: &Path, app: &AppName) -> PathBuf {
    workspaces.join(temporary_scope(app))
}

impl CompletionsState {
    fn paused(&self) -> std::sync::MutexGuard<'_, HashMap<String, TurnSoFar>> {
        self.paused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apps(&self) -> std::sync::MutexGuard<'_, HashMap<AppName, CancellationToken>> {
        self.apps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forwards a turn's events to the caller, and stores the turn's end first.
struct TurnForwarder {
    completion: Completion,
    store: Arc<dyn SessionStore>,
    app: AppName,
    agent: String,
    cwd: String,
    asked_at: Timestamp,
    prompt: String,
    texts: Vec<String>,
    completions: Completions,
}

impl TurnForwarder {
    async fn run(
        mut self,
        sender: mpsc::UnboundedSender<Result<Event, BackendError>>,
        cancel: CancellationToken,
    ) {
        loop {
            let event = tokio::select! {
                event = self.completion.next() => event,
                () = cancel.cancelled() => {
                    let _ = sender.send(Err(BackendError::Cancelled));
                    return self.count(TurnState::Cancelled).await;
                }
            };
            let Some(event) = event else { return };
            match &event {
                Ok(Event::User { text })
                    if self.prompt.is_empty() && text != hob_agents::claude::CONTINUE_PROMPT =>
                {
                    self.prompt = text.clone();
                }
                Ok(Event::Assistant { block: Block::Text(text), .. }) => {
                    self.texts.push(text.clone());
                }
                Ok(Event::Result(result)) => self.keep(result).await,
                Ok(Event::Paused(paused)) => {
                    self.pause(&paused.result);
                    let _ = sender.send(event);
                    return;
                }
                Err(_) => self.count(TurnState::Failed).await,
                Ok(_) => {}
            }
            // A caller that is gone has cancelled the turn.
            let _ = sender.send(event);
        }
    }

    /// Counts a turn without a result. Its usage is unknown.
    async fn count(&self, state: TurnState) {
        count_turn(&*self.store, self.app.clone(), state, TurnUsage::default()).await;
    }

    /// Returns the turn up to now, with its part before the last pause.
    fn so_far(&mut self, result: &TurnResult) -> TurnSoFar {
        let before = self.completions.shared.paused().remove(&result.session_id);
        let is_continued = before.is_some();
        let mut turn = before.unwrap_or_default();
        turn.app = Some(self.app.clone());
        if !is_continued {
            (turn.prompt, turn.asked_at) = (std::mem::take(&mut self.prompt), self.asked_at);
        }
        turn.texts.append(&mut self.texts);
        let used = &result.usage;
        turn.usage.add_tokens(&TurnUsage {
            input_tokens: used.input_tokens,
            output_tokens: used.output_tokens,
            cached_read_tokens: used.cache_read_input_tokens,
            cached_write_tokens: used.cache_creation_input_tokens,
            cost_usd: 0.0,
        });
        turn.usage.cost_usd += result.cost_usd;
        turn
    }

    /// Keeps the turn for the request that brings the results of the client's tools.
    fn pause(&mut self, result: &TurnResult) {
        let turn = self.so_far(result);
        self.completions.shared.paused().insert(result.session_id.clone(), turn);
    }

    /// What the turn used, and what is to be remembered of it. Its answer is given all the same.
    async fn keep(&mut self, result: &TurnResult) {
        let TurnSoFar { prompt, texts, asked_at, usage, .. } = self.so_far(result);
        let now = Timestamp::now();
        let remembered = RememberedTurn {
            session_id: result.session_id.clone(),
            turn_index: result.num_turns,
            cwd: self.cwd.clone(),
            agent: self.agent.clone(),
            prompt,
            answers: texts,
            asked_at,
            ended_at: now,
        };
        let (app, state) = (self.app.clone(), TurnState::Finished);
        let turn = SessionlessTurn { app, state, usage, outbox: Some(remembered) };
        if let Err(error) = self.store.note_usage(&UsageNote::SessionlessTurn(turn), now).await {
            tracing::error!(%error, app = %self.app, "a turn's usage and words were not stored");
        }
    }
}
