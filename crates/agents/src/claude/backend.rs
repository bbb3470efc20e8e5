//! The backend: it takes conversations, returns turns, and keeps processes warm in between.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::Stream;
use hob_domain::{Fingerprint, fingerprint};
use hob_transcript::claude::{Event, TurnResult, Usage};
use serde_json::Value;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::cost::{CostMeter, LATE_COST_WINDOW, last_growth};
use super::counts::{BackendFigures, Origin, OriginCounts};
use super::error::BackendError;
use super::input::preamble;
use super::options::{BackendOptions, HistoryMode, LateCost};
use super::pool::Pool;
use super::process_list::ProcessInfo;
use super::profile::Profile;
use super::request::CompletionRequest;
use super::starter::{PooledProcess, ProcessStarter};
use super::turn_output::{Continuation, Listener, TurnOutput, WaitingTurn};
use crate::client_tools::ToolServer;
use crate::live_limit::IdleAgents;

/// A turn that has waited this long for its client's tools ends if another call needs its place. Most tools have answered by
/// then, and what the agent did itself in the turn is lost with its process.
const MIN_WAIT_FOR_CLIENT: Duration = Duration::from_secs(2);
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
    starter: ProcessStarter,
    closing: CancellationToken,
    pool: Mutex<Pool<PooledProcess>>,
    /// Turns that wait for the results of the client's tools.
    waiting: Mutex<Pool<WaitingTurn>>,
    /// Wakes the task that ends processes which have been idle for too long.
    pooled: Notify,
    counts: OriginCounts,
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
        let inner = Arc::new(BackendState {
            starter: ProcessStarter::new(options),
            closing: CancellationToken::new(),
            pool: Mutex::default(),
            waiting: Mutex::default(),
            pooled: Notify::new(),
            counts: OriginCounts::default(),
        });
        inner.starter.tasks.spawn(expire(inner.clone()));
        let idle: Arc<dyn IdleAgents> = inner.clone();
        inner.starter.options.runtime.live.set_idle_agents(Arc::downgrade(&idle));
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
                let listener = Listener { sender, origin: origin_sender, cancel };
                let continuation = Box::new(Continuation { request, listener });
                if let Some(unclaimed) = self.inner.resume(continuation) {
                    let inner = self.inner.clone();
                    let Continuation { request, listener } = *unclaimed;
                    self.inner
                        .starter
                        .tasks
                        .spawn(async move { inner.perform(request, listener).await });
                }
            }
        }
        Completion { events, origin, _guard: guard }
    }

    /// Returns every live process, in a turn or idle.
    pub fn live_sessions(&self) -> Vec<ProcessInfo> {
        self.inner.starter.live.entries()
    }

    /// Returns the backend's figures.
    pub fn figures(&self) -> BackendFigures {
        self.inner.counts.with(&self.inner.starter.live.entries())
    }

    /// Ends the idle processes of an app, and waits for those whose turn was cancelled.
    pub async fn forget_app(&self, app: &str) {
        let until = Instant::now() + FORGET_APP_TIMEOUT;
        while self.live_sessions().iter().any(|info| info.app == app) && Instant::now() < until {
            drop(self.inner.waiting().take_where(|turn| turn.app == app));
            let idle = self.inner.pool().take_where(|pooled| pooled.entry.app() == app);
            end_all(idle).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends every process and removes every temporary file. Later calls fail.
    pub async fn close(&self) {
        self.inner.closing.cancel();
        self.inner.starter.tasks.close();
        // Idle processes first, since they have tasks too; then those whose turn has just ended.
        self.inner.end_idle().await;
        self.inner.starter.tasks.wait().await;
        self.inner.end_idle().await;
        self.inner.starter.argument_files.remove();
    }
}

impl BackendState {
    fn pool(&self) -> MutexGuard<'_, Pool<PooledProcess>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, Pool<WaitingTurn>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn end_idle(&self) {
        let idle = self.pool().take_all();
        end_all(idle).await;
    }

    /// Hands the results of the client's tools to the turn that waits for them. Returns the request if none does.
    fn resume(&self, mut continuation: Box<Continuation>) -> Option<Box<Continuation>> {
        if continuation.request.results.is_empty() {
            return Some(continuation);
        }
        let key = continuation.request.paused_key();
        loop {
            let taken = self.waiting().take(key);
            let Some(turn) = taken else { return Some(continuation) };
            if turn.scope != continuation.request.scope {
                // Other tools or another form: only a new process can have them. This one ends.
                continue;
            }
            match turn.resume.send(continuation) {
                Ok(()) => return None,
                // That turn has ended meanwhile.
                Err(back) => continuation = back,
            }
        }
    }

    /// Runs one turn, from finding its process to returning it to the pool. A process whose turn failed
    /// or was cancelled is ended before the listener hears of it.
    async fn perform(&self, mut request: CompletionRequest, listener: Listener) {
        let scope = request.scope.clone();
        let mut cancel = listener.cancel.clone();
        let output = TurnOutput::new(listener, request.offered_tools());
        let end = loop {
            let found = tokio::select! {
                found = self.find(&request) => found,
                () = cancel.cancelled() => Err(BackendError::Cancelled),
            };
            let (mut pooled, prompt, origin) = match found {
                Ok(found) => found,
                Err(error) => break Err(error),
            };
            let mut result = self
                .run_turn(&mut pooled, &prompt, origin, &mut request, &mut cancel, &output)
                .await;
            let objection = match &result {
                Ok(first) => request
                    .objection(first, &output.events())
                    .map(|objection| (objection.prompt, first.usage, first.cost_usd)),
                Err(_) => None,
            };
            let mut unreported = 0.0;
            if let Some((prompt, used, cost_usd)) = objection {
                unreported = cost_usd;
                result = self
                    .run_turn(&mut pooled, &prompt, origin, &mut request, &mut cancel, &output)
                    .await;
                result = result.and_then(|mut second| {
                    second.usage = Usage::total([&used, &second.usage]);
                    second.cost_usd += cost_usd;
                    unreported = second.cost_usd;
                    match request.objection(&second, &output.events()) {
                        Some(objection) => Err(objection.error),
                        None => Ok(second),
                    }
                });
            }
            match result {
                // No later turn will use the process.
                Ok(mut result) if self.starter.options.runtime.stopping.is_cancelled() => {
                    // Late costs are not taken any more.
                    result.cost_usd += last_growth(pooled.process.late_cost()).await;
                    pooled.end().await;
                    break Ok(result);
                }
                Ok(result) => {
                    // The process must be back in the pool before the caller sees the end.
                    self.keep(pooled, request.keys(&scope, &output.events()));
                    break Ok(result);
                }
                Err(error) => {
                    let usd = unreported + last_growth(pooled.process.late_cost()).await;
                    self.report_cost(pooled.entry.app(), usd);
                    pooled.end().await;
                    // A warm process that died before it accepted the prompt has done nothing, so
                    // another process may run the turn.
                    let untouched = origin == Origin::Warm && output.events().is_empty();
                    if !(untouched && matches!(error, BackendError::Died { .. })) {
                        break Err(error);
                    }
                }
            }
        };
        output.end(end);
    }

    /// Runs a turn on its process. Whenever the agent calls the client's tools, the response to the current request ends,
    /// and `request` and `cancel` become those of the request that brings the results.
    async fn run_turn(
        &self,
        pooled: &mut PooledProcess,
        prompt: &str,
        origin: Origin,
        request: &mut CompletionRequest,
        cancel: &mut CancellationToken,
        output: &TurnOutput,
    ) -> Result<TurnResult, BackendError> {
        let started = Instant::now();
        let exchange = pooled.tools.as_ref().map(ToolServer::exchange);
        let (session_id, turns) = pooled.entry.session();
        let scope = request.scope.clone();
        if let Some(exchange) = &exchange {
            exchange.offer(request.offered_tools());
        }
        let turn = pooled.process.turn(prompt, self.starter.limits(), |event| {
            if output.push(event, origin) {
                self.counts.add(origin);
            }
        });
        tokio::pin!(turn);
        loop {
            let calls = tokio::select! {
                result = &mut turn => return result,
                () = cancel.cancelled() => return Err(BackendError::Cancelled),
                calls = output.client_calls(exchange.as_deref()) => calls,
            };
            let (resume, resumed) = oneshot::channel();
            let app = request.profile.app.clone();
            let given = if request.one_call_at_a_time { 1 } else { calls.len() };
            let (calls, held_back) = calls.split_at(given);
            let keys = request.keys_after_pause(&output.said(calls));
            // The next request must find the turn as soon as the client has the calls.
            let waiting = WaitingTurn {
                app,
                session_id: session_id.clone(),
                scope: scope.clone(),
                is_call_required: request.choice.is_required(),
                resume,
            };
            self.waiting().put(waiting, keys, Instant::now());
            output.pause(
                calls,
                held_back,
                TurnResult {
                    subtype: "success".to_owned(),
                    duration_ms: started.elapsed().as_millis() as u64,
                    num_turns: turns,
                    session_id: session_id.clone(),
                    stop_reason: "tool_use".to_owned(),
                    usage: Default::default(),
                    cost_usd: 0.0,
                },
            );
            let limit = self.starter.options.tool_result_timeout;
            let continued = tokio::select! {
                result = &mut turn => Err(result),
                continued = resumed => continued.map_err(|_| Err(BackendError::Cancelled)),
                () = tokio::time::sleep(limit) => Err(Err(BackendError::Cancelled)),
                () = self.starter.options.runtime.stopping.cancelled() => Err(Err(BackendError::Cancelled)),
                () = self.closing.cancelled() => Err(Err(BackendError::Cancelled)),
            };
            match continued {
                Ok(continuation) => {
                    let Continuation { request: next, listener } = *continuation;
                    *cancel = listener.cancel.clone();
                    let ids = next.results.iter().map(|(id, _)| id.clone()).collect();
                    output.resume(listener, ids, next.offered_tools());
                    if let Some(exchange) = &exchange {
                        next.answer(exchange);
                        exchange.offer(next.offered_tools());
                    }
                    *request = next;
                }
                Err(end) => {
                    drop(self.waiting().take_where(|turn| turn.resume.is_closed()));
                    return end;
                }
            }
        }
    }

    /// Ends the turn that has waited longest for its client's tools: one whose client required the call, or one that has
    /// waited long. Returns whether it did.
    async fn end_waiting(&self) -> bool {
        let now = Instant::now();
        let taken = self.waiting().take_oldest_where(|turn, since| {
            turn.is_call_required || now.saturating_duration_since(since) >= MIN_WAIT_FOR_CLIENT
        });
        let Some(WaitingTurn { session_id, resume, .. }) = taken else { return false };
        drop(resume);
        let is_live =
            || self.starter.live.entries().iter().any(|info| info.session_id == session_id);
        while is_live() && now.elapsed() < FORGET_APP_TIMEOUT {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        true
    }

    /// Returns an idle process to the pool.
    fn keep(&self, pooled: PooledProcess, keys: Vec<Fingerprint>) {
        if let Some(meter) = pooled.process.late_cost() {
            self.report_late_cost(pooled.entry.app(), meter);
        }
        let turns = pooled.process.turns();
        pooled.entry.update(|info| (info.busy, info.turns) = (false, turns));
        // A process into which a person has typed may have diverged. It stays alive for that person, but
        // no request can find it.
        let keys = if pooled.process.has_human_input() { Vec::new() } else { keys };
        self.pool().put(pooled, keys, Instant::now());
        self.pooled.notify_one();
    }

    /// Reports a cost that no result names.
    fn report_cost(&self, app: String, usd: f64) {
        if let Some(costs) = self.starter.options.late_costs.as_ref().filter(|_| usd > 0.0) {
            let _ = costs.send(LateCost { app, usd });
        }
    }

    /// Reports by how much the cost of a turn grows after its result. The next turn of the process takes what is left.
    fn report_late_cost(&self, app: String, meter: CostMeter) {
        let Some(costs) = self.starter.options.late_costs.clone() else { return };
        let stopping = self.starter.options.runtime.stopping.clone();
        let closing = self.closing.clone();
        self.starter.tasks.spawn(async move {
            // Later turns renew the time of the meter, and have tasks of their own.
            let mut end = std::pin::pin!(tokio::time::sleep(LATE_COST_WINDOW));
            loop {
                tokio::select! {
                    usd = meter.late_growth() => drop(costs.send(LateCost { app: app.clone(), usd })),
                    () = &mut end => return,
                    () = stopping.cancelled() => return,
                    () = closing.cancelled() => return,
                }
            }
        });
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
                return Ok((pooled, request.told_prompt(), Origin::Warm));
            }
            pooled.end().await;
        }
        let fresh = request.history().is_empty();
        let origin = if fresh { Origin::Fresh } else { Origin::Seeded };
        let prompt = match self.starter.options.history {
            HistoryMode::ConcatMessage if !fresh => {
                preamble(&request.seed(), &request.told_prompt())
            }
            _ => request.told_prompt(),
        };
        Ok((self.starter.start(request).await?, prompt, origin))
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
            None => self.end_waiting().await,
        }
    }

    fn next_end(&self) -> Option<Duration> {
        let at = self.waiting().next_expiry(MIN_WAIT_FOR_CLIENT)?;
        Some(at.saturating_duration_since(Instant::now()))
    }
}

/// Ends all processes concurrently.
async fn end_all(processes: Vec<PooledProcess>) {
    futures_util::future::join_all(processes.into_iter().map(PooledProcess::end)).await;
}

/// Ends processes that have been idle for too long, and all idle ones once no new work may begin. It
/// sleeps until the next one expires.
async fn expire(inner: Arc<BackendState>) {
    let limit = inner.starter.options.idle_timeout;
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
            () = inner.starter.options.runtime.stopping.cancelled() => return inner.end_idle().await,
            () = inner.closing.cancelled() => return,
        }
        let expired = inner.pool().take_expired(limit, Instant::now());
        end_all(expired).await;
    }
}
