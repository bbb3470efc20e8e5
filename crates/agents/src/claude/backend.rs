//! The backend: conversations in, turns out, processes kept warm between them.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::Stream;
use hob_child::Children;
use hob_domain::session::Permissions;
use hob_domain::{Fingerprint, Timestamp, fingerprint};
use hob_transcript::claude::{
    Event, SeedContext, TurnResult, preamble, seed_transcript, transcript_path,
};
use serde_json::Value;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::config::ConfigFolder;
use super::counts::{BackendFigures, Counts, Origin};
use super::error::BackendError;
use super::list::{Listed, LiveInfo, LiveList};
use super::live::{Launch, Limits, LiveSession};
use super::mcp_config::McpConfigs;
use super::options::{BackendOptions, HistoryMode, Profile, Way};
use super::pool::Pool;
use super::process::Process;
use super::request::Request;
use super::stream::StreamSession;
use super::tail::Changes;
use crate::Spare;
use hob_terminal::{Entering, Kind};

/// How long the processes of an app that is removed may take to end.
const FORGOTTEN: Duration = Duration::from_secs(5);

/// Claude Code behind a conversation-shaped call. Cloning shares it.
///
/// ```no_run
/// use futures_util::StreamExt;
/// use hob_agents::claude::{BackendOptions, ClaudeBackend, ConfigFolder, Event, Outfit, Profile};
/// # async fn example(children: hob_child::Children) -> Result<(), Box<dyn std::error::Error>> {
/// let config = ConfigFolder::Users("/home/me/.claude".into());
/// let outfit = Outfit::new(vec!["claude".into()], config);
/// let options = BackendOptions::new(outfit, "/tmp/claude-run".into());
/// let backend = ClaudeBackend::new(options, children);
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
    inner: Arc<Inner>,
}

struct Inner {
    options: BackendOptions,
    children: Children,
    changes: Changes,
    mcp: McpConfigs,
    tasks: TaskTracker,
    closing: CancellationToken,
    pool: Mutex<Pool<Pooled>>,
    live: LiveList,
    /// Wakes the task that ends what has been idle for too long.
    pooled: Notify,
    counts: Counts,
}

/// A live process with its place in the list. Dropping it ends the process and leaves the list.
struct Pooled {
    process: Process,
    listed: Listed,
    /// Its transcript, where that lies in a folder of ours: nobody goes on with it.
    transcript: Option<OwnTranscript>,
}

/// Removed with its process.
struct OwnTranscript(PathBuf);

impl Drop for OwnTranscript {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The events of one turn. Dropping it before the end cancels the turn and closes its process.
pub struct Completion {
    events: mpsc::UnboundedReceiver<Result<Event, BackendError>>,
    origin: watch::Receiver<Option<Origin>>,
    _guard: DropGuard,
}

impl Completion {
    /// How the process was come by, known with the first event; `None` when the turn failed before.
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
    /// A backend with no process yet. Must be called within a tokio runtime.
    pub fn new(options: BackendOptions, children: Children) -> ClaudeBackend {
        let mcp = McpConfigs::new(options.runtime_folder.clone());
        let inner = Arc::new(Inner {
            options,
            children,
            changes: Changes::new(),
            mcp,
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            pool: Mutex::default(),
            live: LiveList::default(),
            pooled: Notify::new(),
            counts: Counts::default(),
        });
        inner.tasks.spawn(expire(inner.clone()));
        let spare: Arc<dyn Spare> = inner.clone();
        inner.options.live.spare(Arc::downgrade(&spare));
        ClaudeBackend { inner }
    }

    /// Continues a conversation by one turn. `messages` is all of it, in Anthropic's shape; the last
    /// message is the user's.
    pub fn complete(&self, profile: &Profile, messages: &[Value]) -> Completion {
        self.begin(Request::new(profile, messages, None))
    }

    pub fn begin(&self, request: Result<Request, BackendError>) -> Completion {
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

    /// Every live process, in a turn or idle.
    pub fn live_sessions(&self) -> Vec<LiveInfo> {
        self.inner.live.entries()
    }

    /// What it does, in figures.
    pub fn figures(&self) -> BackendFigures {
        self.inner.counts.with(&self.inner.live.entries())
    }

    /// Ends the idle processes of an app, and waits for those whose turn was cancelled.
    pub async fn forget_app(&self, app: &str) {
        let until = Instant::now() + FORGOTTEN;
        while self.live_sessions().iter().any(|info| info.app == app) && Instant::now() < until {
            let idle = self.inner.pool().take_where(|pooled| pooled.listed.app() == app);
            end_all(idle).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends every process and removes every temporary file. Later calls are refused.
    pub async fn close(&self) {
        self.inner.closing.cancel();
        self.inner.tasks.close();
        // Idle ones first: they have tasks too. Then those whose turn was just over.
        self.inner.end_idle().await;
        self.inner.tasks.wait().await;
        self.inner.end_idle().await;
        self.inner.mcp.remove();
    }
}

impl Inner {
    fn pool(&self) -> MutexGuard<'_, Pool<Pooled>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn end_idle(&self) {
        let idle = self.pool().take_all();
        end_all(idle).await;
    }

    fn limits(&self) -> Limits {
        let options = &self.options;
        Limits {
            ready: options.ready_timeout,
            turn: options.turn_timeout,
            stall: options.stall_after,
        }
    }

    /// One turn, from finding its process to giving it back. A process whose turn failed or was
    /// cancelled is closed before this returns.
    async fn perform(
        &self,
        request: Request,
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
                // Nobody will ask it again.
                Ok(result) if self.options.stopping.is_cancelled() => {
                    pooled.end().await;
                    return Ok(result);
                }
                Ok(result) => {
                    // Found again before the caller hears of the end.
                    self.keep(pooled, request.keys(&events));
                    return Ok(result);
                }
                Err(error) => {
                    pooled.end().await;
                    // A warm process that died before it took the prompt has done nothing yet, and
                    // another one can.
                    let untouched = origin == Origin::Warm && events.is_empty();
                    if !(untouched && matches!(error, BackendError::Died { .. })) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Makes an idle process findable.
    fn keep(&self, pooled: Pooled, keys: Vec<Fingerprint>) {
        let turns = pooled.process.turns();
        pooled.listed.change(|info| (info.busy, info.turns) = (false, turns));
        // A person has typed into it: its conversation may be another by now. It stays for them, but
        // nobody finds it.
        let keys = if pooled.process.is_touched() { Vec::new() } else { keys };
        self.pool().put(pooled, keys, Instant::now());
        self.pooled.notify_one();
    }

    /// The process for a request and what to type into it.
    async fn find(&self, request: &Request) -> Result<(Pooled, String, Origin), BackendError> {
        let key = fingerprint(&request.scope, request.history());
        while !request.history().is_empty() {
            let taken = self.pool().take(key);
            let Some(mut pooled) = taken else { break };
            if pooled.process.is_touched() {
                self.pool().put(pooled, Vec::new(), Instant::now());
                continue;
            }
            if pooled.process.healthy() {
                pooled.listed.change(|info| info.busy = true);
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

    /// A new process, with the history seeded where that is the way.
    async fn start(&self, request: &Request) -> Result<Pooled, BackendError> {
        let session_id = Uuid::new_v4().to_string();
        let listed = self.make_room(request, &session_id).await?;
        let (process, transcript) = self.start_process(request, session_id).await?;
        listed.change(|info| {
            info.pid = Some(process.pid());
            info.output = Some(process.output().clone());
        });
        Ok(Pooled { process, listed, transcript })
    }

    async fn start_process(
        &self,
        request: &Request,
        session_id: String,
    ) -> Result<(Process, Option<OwnTranscript>), BackendError> {
        let internal = |error: std::io::Error| BackendError::Internal(error.to_string());
        let profile = &request.profile;
        let mut outfit = self.options.outfitter.outfit(profile).map_err(internal)?;
        outfit.unattended();
        let transcript = transcript_path(outfit.config.path(), &profile.cwd, &session_id);
        let folder = transcript.parent().map(PathBuf::from).unwrap_or_default();
        std::fs::create_dir_all(&folder).map_err(internal)?;
        // Before anything is written: it goes with whatever fails from here on.
        let is_ours = matches!(outfit.config, ConfigFolder::Own(_));
        let own = is_ours.then(|| OwnTranscript(transcript.clone()));
        let seeded =
            !request.history().is_empty() && self.options.history == HistoryMode::NativeJsonl;
        let mut arguments = if seeded {
            let now = Timestamp::now().to_string();
            let context = SeedContext {
                session: &session_id,
                cwd: &profile.cwd.to_string_lossy(),
                now: &now,
                model: profile.model.as_deref().unwrap_or("claude"),
            };
            let text = seed_transcript(request.history(), &context, || Uuid::new_v4().to_string());
            hob_files::create(&transcript, text.as_bytes()).map_err(internal)?;
            vec!["--resume".to_owned(), session_id.clone()]
        } else {
            vec!["--session-id".to_owned(), session_id.clone()]
        };
        let mcp = self.mcp.path(&profile.mcp_servers).map_err(internal)?;
        if let Some(path) = &mcp {
            outfit.open(path);
        }
        let mcp = mcp.map(|path| path.to_string_lossy().into_owned());
        if profile.permission_mode.as_deref() == Some("bypassPermissions") {
            arguments.extend(outfit.permit(Permissions::Allow).1);
        }
        arguments.extend(profile.arguments(mcp.as_deref()));
        if profile.way == Way::Terminal {
            outfit.set("TERM", "xterm-256color");
        }
        let id = session_id.clone();
        let launch = Launch {
            command: outfit.command,
            arguments,
            environment: outfit.environment,
            cwd: profile.cwd.clone(),
            app: profile.app.clone(),
            session_id,
            transcript: transcript.clone(),
            watch: self.changes.watch(&folder),
            confinement: outfit.confinement,
            entering: Entering {
                terminals: self.options.terminals.clone(),
                id,
                kind: Kind::Backend,
                agent: "claude".to_owned(),
            },
        };
        let children = &self.children;
        let process = match profile.way {
            Way::Terminal => {
                let session = LiveSession::start(children, launch, self.limits()).await?;
                Process::Terminal(Box::new(session))
            }
            Way::Stream => {
                Process::Stream(StreamSession::start(children, &self.tasks, launch).await?)
            }
        };
        Ok((process, own))
    }

    /// Enters the new process into the list; where that is full, the one that has been idle for
    /// longest makes way.
    async fn make_room(&self, request: &Request, session_id: &str) -> Result<Listed, BackendError> {
        let live = &self.options.live;
        let permit = live.take().await.ok_or(BackendError::PoolFull(live.limit()))?;
        Ok(self.live.enter(permit, &request.profile, session_id))
    }
}

#[async_trait]
impl Spare for Inner {
    async fn give_one_up(&self) -> bool {
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

impl Pooled {
    /// Ends the process; it is on the list until its tree is gone.
    async fn end(self) {
        let Pooled { process, listed, transcript } = self;
        process.end().await;
        drop((transcript, listed));
    }
}

/// Ends them all at once.
async fn end_all(processes: Vec<Pooled>) {
    futures_util::future::join_all(processes.into_iter().map(Pooled::end)).await;
}

/// Ends what has been idle for too long, and everything idle when no new work may begin. Sleeps until the next one expires.
async fn expire(inner: Arc<Inner>) {
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
            () = inner.options.stopping.cancelled() => return inner.end_idle().await,
            () = inner.closing.cancelled() => return,
        }
        let expired = inner.pool().take_expired(limit, Instant::now());
        end_all(expired).await;
    }
}
