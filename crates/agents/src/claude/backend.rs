//! The backend: it takes conversations, returns turns, and keeps processes warm in between.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::Stream;
use hob_domain::session::Permissions;
use hob_domain::{Fingerprint, Timestamp, fingerprint};
use hob_transcript::claude::{Event, SeedContext, TurnResult, preamble, seed_transcript};
use serde_json::Value;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::argument_files::ArgumentFiles;
use super::config::ConfigFolder;
use super::counts::{BackendFigures, Origin, OriginCounts};
use super::error::BackendError;
use super::options::{BackendOptions, HistoryMode};
use super::pool::Pool;
use super::process::ClaudeProcess;
use super::process_list::{ProcessEntry, ProcessInfo, ProcessList};
use super::profile::{ArgumentPaths, ClaudeTransport, Profile};
use super::request::CompletionRequest;
use super::stream_session::StreamSession;
use super::terminal_session::{Launch, TerminalSession, TurnTimeouts};
use super::transcript_file::TranscriptFile;
use super::transcript_tail::TranscriptWatcher;
use crate::live_limit::IdleAgents;
use hob_terminal::{TerminalKind, TerminalRegistrar};

/// How long the processes of a removed app may take to end.
const FORGET_APP_TIMEOUT: Duration = Duration::from_secs(5);

/// Claude Code as a function of a conversation. Clones share the backend.
///
/// ```no_run
/// use futures_util::StreamExt;
/// use hob_agents::claude::{BackendOptions, ClaudeBackend, ConfigFolder, Event, LaunchSpec, Profile};
/// # async fn example(runtime: hob_agents::Runtime) -> Result<(), Box<dyn std::error::Error>> {
/// let config = ConfigFolder::Users("/home/me/.claude".into());
/// let launch_spec = LaunchSpec::new(vec!["claude".into()], config);
/// let options = BackendOptions::new(runtime, launch_spec, "/tmp/claude-run".into());
/// let backend = ClaudeBackend::new(options);
/// let messages = [serde_json::json!({"role": "user", "content": "Say hello."})];
/// let mut events = backend.complete(&Profile::new("/home/me/project"), &messages);
/// while let Some(event) = events.next().await {
///     if let Event::Result(result) = event? {
///         println!("{} after {} ms", result.stop_reason, result.duration_ms);
///     }
/// }
/// backend.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ClaudeBackend {
    inner: Arc<BackendState>,
}

struct BackendState {
    options: BackendOptions,
    changes: TranscriptWatcher,
    argument_files: ArgumentFiles,
    tasks: TaskTracker,
    closing: CancellationToken,
    pool: Mutex<Pool<PooledProcess>>,
    live: ProcessList,
    /// Wakes the task that ends processes which have been idle for too long.
    pooled: Notify,
    counts: OriginCounts,
}

/// A live process with its entry in the list. Dropping it ends the process and removes the entry.
struct PooledProcess {
    process: ClaudeProcess,
    entry: ProcessEntry,
    /// The transcript, if it lies in Hob's own configuration folder. Nobody else resumes it.
    transcript: Option<OwnTranscript>,
    /// The files that its arguments name.
    arguments: ArgumentPaths,
}

/// A transcript that is removed with its process.
struct OwnTranscript(TranscriptFile);

impl Drop for OwnTranscript {
    fn drop(&mut self) {
        let _ = self.0.remove();
    }
}

/// The events of one turn. Dropping it before the end cancels the turn and closes its process.
pub struct Completion {
    events: mpsc::UnboundedReceiver<Result<Event, BackendError>>,
    origin: watch::Receiver<Option<Origin>>,
    _guard: DropGuard,
}

impl Completion {
    /// Returns the origin of the process, known with the first event, or `None` if the turn failed before.
    pub async fn origin(&mut self) -> Option<Origin> {
        let found = self.origin.wait_for(Option::is_some).await;
        found.ok().and_then(|origin| *origin)
    }
}

impl Stream for Completion {
    type Item = Result<Event, BackendError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_recv(context)
    }
}

impl ClaudeBackend {
    /// Creates a backend without processes. Must be called within a tokio runtime.
    pub fn new(options: BackendOptions) -> ClaudeBackend {
        let argument_files = ArgumentFiles::new(options.runtime_folder.clone());
        let inner = Arc::new(BackendState {
            options,
            changes: TranscriptWatcher::start(),
            argument_files,
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            pool: Mutex::default(),
            live: ProcessList::default(),
            pooled: Notify::new(),
            counts: OriginCounts::default(),
        });
        inner.tasks.spawn(expire(inner.clone()));
        let idle: Arc<dyn IdleAgents> = inner.clone();
        inner.options.runtime.live.set_idle_agents(Arc::downgrade(&idle));
        ClaudeBackend { inner }
    }

    /// Continues a conversation by one turn. `messages` is the whole conversation in Anthropic's format;
    /// the last message is the user's.
    pub fn complete(&self, profile: &Profile, messages: &[Value]) -> Completion {
        self.begin(CompletionRequest::new(profile, messages, None))
    }

    /// Starts the turn of a request. An invalid request yields its error as the only event.
    pub fn begin(&self, request: Result<CompletionRequest, BackendError>) -> Completion {
        let (sender, events) = mpsc::unbounded_channel();
        let (origin_sender, origin) = watch::channel(None);
        let cancel = self.inner.closing.child_token();
        let guard = cancel.clone().drop_guard();
        let open = !self.inner.closing.is_cancelled();
        match if open { request } else { Err(BackendError::Closed) } {
            Err(error) => drop(sender.send(Err(error))),
            Ok(request) => {
                let inner = self.inner.clone();
                self.inner.tasks.spawn(async move {
                    let emit = |event| drop(sender.send(Ok(event)));
                    let end = inner.perform(request, &cancel, &origin_sender, emit).await;
                    drop(sender.send(end.map(Event::Result)));
                });
            }
        }
        Completion { events, origin, _guard: guard }
    }

    /// Returns every live process, in a turn or idle.
    pub fn live_sessions(&self) -> Vec<ProcessInfo> {
        self.inner.live.entries()
    }

    /// Returns the backend's figures.
    pub fn figures(&self) -> BackendFigures {
        self.inner.counts.with(&self.inner.live.entries())
    }

    /// Ends the idle processes of an app, and waits for those whose turn was cancelled.
    pub async fn forget_app(&self, app: &str) {
        let until = Instant::now() + FORGET_APP_TIMEOUT;
        while self.live_sessions().iter().any(|info| info.app == app) && Instant::now() < until {
            let idle = self.inner.pool().take_where(|pooled| pooled.entry.app() == app);
            end_all(idle).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends every process and removes every temporary file. Later calls fail.
    pub async fn close(&self) {
        self.inner.closing.cancel();
        self.inner.tasks.close();
        // Idle processes first, since they have tasks too; then those whose turn has just ended.
        self.inner.end_idle().await;
        self.inner.tasks.wait().await;
        self.inner.end_idle().await;
        self.inner.argument_files.remove();
    }
}

impl BackendState {
    fn pool(&self) -> MutexGuard<'_, Pool<PooledProcess>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn end_idle(&self) {
        let idle = self.pool().take_all();
        end_all(idle).await;
    }

    fn limits(&self) -> TurnTimeouts {
        let options = &self.options;
        TurnTimeouts {
            ready: options.ready_timeout,
            turn: options.turn_timeout,
            stall: options.stall_after,
        }
    }

    /// Runs one turn, from finding its process to returning it to the pool. A process whose turn failed
    /// or was cancelled is ended before this returns.
    async fn perform(
        &self,
        request: CompletionRequest,
        cancel: &CancellationToken,
        announced: &watch::Sender<Option<Origin>>,
        mut emit: impl FnMut(Event),
    ) -> Result<TurnResult, BackendError> {
        loop {
            let (mut pooled, prompt, origin) = tokio::select! {
                found = self.find(&request) => found?,
                () = cancel.cancelled() => return Err(BackendError::Cancelled),
            };
            let mut events = Vec::new();
            let turn = pooled.process.turn(&prompt, self.limits(), |event| {
                if announced.send_replace(Some(origin)).is_none() {
                    self.counts.add(origin);
                }
                if !matches!(event, Event::Piece { .. }) {
                    events.push(event.clone());
                }
                emit(event);
            });
            let result = tokio::select! {
                result = turn => result,
                () = cancel.cancelled() => Err(BackendError::Cancelled),
            };
            match result {
                // No later turn will use the process.
                Ok(result) if self.options.runtime.stopping.is_cancelled() => {
                    pooled.end().await;
                    return Ok(result);
                }
                Ok(result) => {
                    // The process must be back in the pool before the caller sees the end.
                    self.keep(pooled, request.keys(&events));
                    return Ok(result);
                }
                Err(error) => {
                    pooled.end().await;
                    // A warm process that died before it accepted the prompt has done nothing, so
                    // another process may run the turn.
                    let untouched = origin == Origin::Warm && events.is_empty();
                    if !(untouched && matches!(error, BackendError::Died { .. })) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Returns an idle process to the pool.
    fn keep(&self, pooled: PooledProcess, keys: Vec<Fingerprint>) {
        let turns = pooled.process.turns();
        pooled.entry.update(|info| (info.busy, info.turns) = (false, turns));
        // A process into which a person has typed may have diverged. It stays alive for that person, but
        // no request can find it.
        let keys = if pooled.process.has_human_input() { Vec::new() } else { keys };
        self.pool().put(pooled, keys, Instant::now());
        self.pooled.notify_one();
    }

    /// Finds or starts the process for a request. Returns it with the prompt to type.
    async fn find(
        &self,
        request: &CompletionRequest,
    ) -> Result<(PooledProcess, String, Origin), BackendError> {
        let key = fingerprint(&request.scope, request.history());
        while !request.history().is_empty() {
            let taken = self.pool().take(key);
            let Some(mut pooled) = taken else { break };
            if pooled.process.has_human_input() {
                self.pool().put(pooled, Vec::new(), Instant::now());
                continue;
            }
            if pooled.process.is_healthy() {
                pooled.entry.update(|info| info.busy = true);
                return Ok((pooled, request.prompt.clone(), Origin::Warm));
            }
            pooled.end().await;
        }
        let fresh = request.history().is_empty();
        let origin = if fresh { Origin::Fresh } else { Origin::Seeded };
        let prompt = match self.options.history {
            HistoryMode::ConcatMessage if !fresh => preamble(request.history(), &request.prompt),
            _ => request.prompt.clone(),
        };
        Ok((self.start(request).await?, prompt, origin))
    }

    /// Starts a process, seeded with the history if the mode says so.
    async fn start(&self, request: &CompletionRequest) -> Result<PooledProcess, BackendError> {
        let session_id = Uuid::new_v4().to_string();
        let entry = self.enter_list(request, &session_id).await?;
        let (process, transcript, arguments) = self.start_process(request, session_id).await?;
        entry.update(|info| {
            info.pid = Some(process.pid());
            info.output = Some(process.output().clone());
        });
        Ok(PooledProcess { process, entry, transcript, arguments })
    }

    async fn start_process(
        &self,
        request: &CompletionRequest,
        session_id: String,
    ) -> Result<(ClaudeProcess, Option<OwnTranscript>, ArgumentPaths), BackendError> {
        let profile = &request.profile;
        let mut launch_spec = self.options.launch_specs.launch_spec(profile).map_err(internal)?;
        launch_spec.unattended();
        let transcript = TranscriptFile::new(&launch_spec.config, &profile.cwd, &session_id);
        let folder = transcript.create_folder().map_err(internal)?;
        // Created before anything is written, so that a later failure removes the file too.
        let is_own = matches!(launch_spec.config, ConfigFolder::Own(_));
        let own = is_own.then(|| OwnTranscript(transcript.clone()));
        let mut arguments = self.session_arguments(request, &session_id, &transcript)?;
        let paths = profile.argument_files(&self.argument_files).map_err(internal)?;
        paths.all().for_each(|path| launch_spec.show_path(path));
        if profile.permission_mode.as_deref() == Some("bypassPermissions") {
            arguments.extend(launch_spec.permit(Permissions::Allow).1);
        }
        arguments.extend(profile.arguments(&paths));
        if profile.transport == ClaudeTransport::Terminal {
            launch_spec.set("TERM", "xterm-256color");
        }
        let id = session_id.clone();
        let launch = Launch {
            command: launch_spec.command,
            arguments,
            environment: launch_spec.environment,
            cwd: profile.cwd.clone(),
            app: profile.app.clone(),
            session_id,
            transcript: transcript.clone(),
            watch: self.changes.watch(&folder),
            confinement: launch_spec.confinement,
            registrar: TerminalRegistrar {
                terminals: self.options.runtime.terminals.clone(),
                id,
                kind: TerminalKind::Backend,
                agent: "claude".to_owned(),
            },
        };
        let children = &self.options.runtime.children;
        let process = match profile.transport {
            ClaudeTransport::Terminal => {
                let session = TerminalSession::start(children, launch, self.limits()).await?;
                ClaudeProcess::Terminal(Box::new(session))
            }
            ClaudeTransport::Stream => {
                ClaudeProcess::Stream(StreamSession::start(children, &self.tasks, launch).await?)
            }
        };
        Ok((process, own, paths))
    }

    /// Returns the arguments that name the session. A history is written as a transcript to resume, if
    /// the mode says so.
    fn session_arguments(
        &self,
        request: &CompletionRequest,
        session_id: &str,
        transcript: &TranscriptFile,
    ) -> Result<Vec<String>, BackendError> {
        let profile = &request.profile;
        let is_seeded =
            !request.history().is_empty() && self.options.history == HistoryMode::NativeJsonl;
        if !is_seeded {
            return Ok(vec!["--session-id".to_owned(), session_id.to_owned()]);
        }
        let now = Timestamp::now().to_string();
        let context = SeedContext {
            session: session_id,
            cwd: &profile.cwd.to_string_lossy(),
            now: &now,
            model: profile.model.as_deref().unwrap_or("claude"),
        };
        let text = seed_transcript(request.history(), &context, || Uuid::new_v4().to_string());
        transcript.create(&text).map_err(internal)?;
        Ok(vec!["--resume".to_owned(), session_id.to_owned()])
    }

    /// Adds the new process to the list. At the limit, the process that has been idle for longest is ended
    /// first.
    async fn enter_list(
        &self,
        request: &CompletionRequest,
        session_id: &str,
    ) -> Result<ProcessEntry, BackendError> {
        let live = &self.options.runtime.live;
        let permit = live.acquire().await.ok_or(BackendError::PoolFull(live.limit()))?;
        Ok(self.live.enter(permit, &request.profile, session_id))
    }
}

#[async_trait]
impl IdleAgents for BackendState {
    async fn end_one(&self) -> bool {
        let oldest = self.pool().take_oldest();
        match oldest {
            Some(pooled) => {
                pooled.end().await;
                true
            }
            None => false,
        }
    }
}

impl PooledProcess {
    /// Ends the process. Its entry stays in the list until the process tree is gone.
    async fn end(self) {
        let PooledProcess { process, entry, transcript, arguments } = self;
        process.end().await;
        drop((transcript, arguments, entry));
    }
}

fn internal(error: std::io::Error) -> BackendError {
    BackendError::Internal(error.to_string())
}

/// Ends all processes concurrently.
async fn end_all(processes: Vec<PooledProcess>) {
    futures_util::future::join_all(processes.into_iter().map(PooledProcess::end)).await;
}

/// Ends processes that have been idle for too long, and all idle ones once no new work may begin. It
/// sleeps until the next one expires.
async fn expire(inner: Arc<BackendState>) {
    let limit = inner.options.idle_timeout;
    loop {
        let next = inner.pool().next_expiry(limit);
        let sleep = async {
            match next {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep => {}
            () = inner.pooled.notified() => continue,
            () = inner.options.runtime.stopping.cancelled() => return inner.end_idle().await,
            () = inner.closing.cancelled() => return,
        }
        let expired = inner.pool().take_expired(limit, Instant::now());
        end_all(expired).await;
    }
}
