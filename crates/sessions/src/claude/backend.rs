//! The backend: conversations in, turns out, processes kept warm between them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use futures_util::Stream;
use hob_child::{Children, Output};
use hob_domain::{Fingerprint, Timestamp, fingerprint};
use serde_json::Value;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::config::ConfigFolder;
use super::event::{BackendError, Event, TurnResult};
use super::live::{Launch, Limits, LiveSession, TurnEnd};
use super::mcp_config::McpConfigs;
use super::options::{BackendOptions, HistoryMode, Profile};
use super::paths;
use super::pool::Pool;
use super::request::Request;
use super::seed::{self, SeedContext};
use super::tail::Changes;

/// Claude Code behind a conversation-shaped call. Cloning shares it.
///
/// ```no_run
/// use futures_util::StreamExt;
/// use hob_sessions::claude::{BackendOptions, ClaudeBackend, ConfigFolder, Event, Profile};
/// # async fn example(children: hob_child::Children) -> Result<(), Box<dyn std::error::Error>> {
/// let config = ConfigFolder::Users("/home/me/.claude".into());
/// let options = BackendOptions::new(vec!["claude".into()], config, "/tmp/claude-run".into());
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
    state: Mutex<State>,
    /// Wakes the task that ends what has been idle for too long.
    pooled: Notify,
    numbers: AtomicU64,
}

#[derive(Default)]
struct State {
    pool: Pool<Pooled>,
    live: BTreeMap<u64, LiveInfo>,
}

struct Pooled {
    number: u64,
    session: LiveSession,
}

/// A live process, as a person would want to see it.
#[derive(Debug, Clone)]
pub struct LiveInfo {
    pub number: u64,
    pub session_id: String,
    pub app: String,
    pub cwd: PathBuf,
    /// `None` while it is being started.
    pub pid: Option<i32>,
    /// Whether a turn runs.
    pub busy: bool,
    pub turns: u32,
    pub since: Timestamp,
    /// What its terminal shows.
    pub output: Option<Output>,
}

/// How a turn's process was come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A live process that had just said the last word of this history.
    Warm,
    /// A new process that was given the history.
    Seeded,
    /// A new process without a history.
    Fresh,
}

impl Origin {
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Warm => "warm",
            Origin::Seeded => "seeded",
            Origin::Fresh => "fresh",
        }
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
            state: Mutex::default(),
            pooled: Notify::new(),
            numbers: AtomicU64::new(1),
        });
        inner.tasks.spawn(expire(inner.clone()));
        ClaudeBackend { inner }
    }

    /// Continues a conversation by one turn. `messages` is all of it, in Anthropic's shape; the last
    /// message is the user's.
    pub fn complete(&self, profile: &Profile, messages: &[Value]) -> Completion {
        let (sender, events) = mpsc::unbounded_channel();
        let (origin_sender, origin) = watch::channel(None);
        let cancel = self.inner.closing.child_token();
        let guard = cancel.clone().drop_guard();
        let request = if self.inner.closing.is_cancelled() {
            Err(BackendError::Closed)
        } else {
            Request::new(profile, messages)
        };
        match request {
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
        self.inner.state().live.values().cloned().collect()
    }

    /// Ends every process and removes every temporary file. Later calls are refused.
    pub async fn close(&self) {
        self.inner.closing.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
        let idle = self.inner.state().pool.take_all();
        for pooled in idle {
            self.inner.end(pooled).await;
        }
        self.inner.mcp.remove();
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
            // Interrupting and keeping is the sessions' way; here a cancelled turn ends its process.
            let never = CancellationToken::new();
            let turn = pooled.session.turn(&prompt, self.limits(), &never, |event| {
                announced.send_replace(Some(origin));
                events.push(event.clone());
                emit(event);
            });
            let result = tokio::select! {
                result = turn => result,
                () = cancel.cancelled() => Err(BackendError::Cancelled),
            };
            let result = result.and_then(|end| match end {
                TurnEnd::Finished(result) => Ok(result),
                TurnEnd::Interrupted => Err(BackendError::Interrupted),
            });
            match result {
                Ok(result) => {
                    // Found again before the caller hears of the end.
                    self.pool(pooled, request.keys(&events));
                    return Ok(result);
                }
                Err(error) => {
                    self.end(pooled).await;
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
    fn pool(&self, pooled: Pooled, keys: Vec<Fingerprint>) {
        let mut state = self.state();
        if let Some(info) = state.live.get_mut(&pooled.number) {
            info.busy = false;
            info.turns = pooled.session.turns();
        }
        state.pool.put(pooled, keys, Instant::now());
        drop(state);
        self.pooled.notify_one();
    }

    /// The process for a request and what to type into it.
    async fn find(&self, request: &Request) -> Result<(Pooled, String, Origin), BackendError> {
        let key = fingerprint(&request.scope, request.history());
        while !request.history().is_empty() {
            let taken = self.state().pool.take(key);
            let Some(mut pooled) = taken else { break };
            if pooled.session.healthy() {
                if let Some(info) = self.state().live.get_mut(&pooled.number) {
                    info.busy = true;
                }
                return Ok((pooled, request.prompt.clone(), Origin::Warm));
            }
            self.end(pooled).await;
        }
        let fresh = request.history().is_empty();
        let origin = if fresh { Origin::Fresh } else { Origin::Seeded };
        let prompt = match self.options.history {
            HistoryMode::ConcatMessage if !fresh => {
                seed::preamble(request.history(), &request.prompt)
            }
            _ => request.prompt.clone(),
        };
        Ok((self.start(request).await?, prompt, origin))
    }

    /// A new process, with the history seeded where that is the way.
    async fn start(&self, request: &Request) -> Result<Pooled, BackendError> {
        let session_id = Uuid::new_v4().to_string();
        let number = self.make_room(request, &session_id).await?;
        let pooled = self.start_in(request, session_id, number).await;
        match pooled {
            Ok(session) => {
                let mut state = self.state();
                if let Some(info) = state.live.get_mut(&number) {
                    info.pid = Some(session.pid());
                    info.output = Some(session.output().clone());
                }
                Ok(Pooled { number, session })
            }
            Err(error) => {
                self.state().live.remove(&number);
                Err(error)
            }
        }
    }

    async fn start_in(
        &self,
        request: &Request,
        session_id: String,
        number: u64,
    ) -> Result<LiveSession, BackendError> {
        // A start that is cancelled leaves no trace in the list.
        let listed = Listed { inner: self, number: Some(number) };
        let internal = |error: std::io::Error| BackendError::Internal(error.to_string());
        let profile = &request.profile;
        let config = self.options.config.path();
        let transcript = paths::transcript(config, &profile.cwd, &session_id);
        let folder = transcript.parent().map(PathBuf::from).unwrap_or_default();
        std::fs::create_dir_all(&folder).map_err(internal)?;
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
            let text = seed::transcript(request.history(), &context, || Uuid::new_v4().to_string());
            write_private(&transcript, &text).map_err(internal)?;
            vec!["--resume".to_owned(), session_id.clone()]
        } else {
            vec!["--session-id".to_owned(), session_id.clone()]
        };
        let mcp = self.mcp.path(&profile.mcp_servers).map_err(internal)?;
        let mcp = mcp.map(|path| path.to_string_lossy().into_owned());
        arguments.extend(profile.arguments(mcp.as_deref()));
        let mut environment = self.options.environment.clone();
        environment.retain(|(name, _)| name != "CLAUDE_CONFIG_DIR" && name != "TERM");
        environment.push(("TERM".into(), "xterm-256color".into()));
        if let ConfigFolder::Own(path) = &self.options.config {
            environment.push(("CLAUDE_CONFIG_DIR".into(), path.into()));
        } else if let Some(own) =
            self.options.environment.iter().find(|(name, _)| name == "CLAUDE_CONFIG_DIR")
        {
            environment.push(own.clone());
        }
        let launch = Launch {
            command: self.options.command.clone(),
            arguments,
            environment,
            cwd: profile.cwd.clone(),
            session_id,
            transcript,
            watch: self.changes.watch(&folder),
        };
        let session = LiveSession::start(&self.children, launch, self.limits()).await?;
        listed.keep();
        Ok(session)
    }

    /// Enters the new process into the list; where that is full, the one that has been idle for
    /// longest makes way.
    async fn make_room(&self, request: &Request, session_id: &str) -> Result<u64, BackendError> {
        loop {
            let oldest = {
                let mut state = self.state();
                if state.live.len() < self.options.max_live {
                    let number = self.numbers.fetch_add(1, Ordering::Relaxed);
                    let info = LiveInfo {
                        number,
                        session_id: session_id.to_owned(),
                        app: request.profile.app.clone(),
                        cwd: request.profile.cwd.clone(),
                        pid: None,
                        busy: true,
                        turns: 0,
                        since: Timestamp::now(),
                        output: None,
                    };
                    state.live.insert(number, info);
                    return Ok(number);
                }
                state.pool.take_oldest()
            };
            match oldest {
                Some(pooled) => self.end(pooled).await,
                None => return Err(BackendError::PoolFull(self.options.max_live)),
            }
        }
    }

    /// Ends a process and takes it off the list.
    async fn end(&self, pooled: Pooled) {
        pooled.session.end().await;
        self.state().live.remove(&pooled.number);
    }
}

/// An entry of the list that goes away again unless it is kept.
struct Listed<'a> {
    inner: &'a Inner,
    number: Option<u64>,
}

impl Listed<'_> {
    fn keep(mut self) {
        self.number = None;
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.inner.state().live.remove(&number);
        }
    }
}

/// Ends what has been idle for too long. Sleeps until the next one expires.
async fn expire(inner: Arc<Inner>) {
    let limit = inner.options.idle_timeout;
    loop {
        let next = inner.state().pool.next_expiry(limit);
        let sleep = async {
            match next {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep => {}
            () = inner.pooled.notified() => continue,
            () = inner.closing.cancelled() => return,
        }
        let expired = inner.state().pool.take_expired(limit, Instant::now());
        for pooled in expired {
            inner.end(pooled).await;
        }
    }
}

fn write_private(path: &std::path::Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
