//! One-shot runs: a temporary folder, one process tree, one answer.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hob_child::{Child, ChildSpec, SpawnError, Stdin, StopLadder, Streams};
use hob_domain::session::{SessionStore, TurnState, TurnUsage};
use hob_domain::{AgentSpec, AppName, Driver, RunError, RunReply, RunRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::files::on_disk;
use crate::one_turn::OneTurn;
use crate::run_workspace::{self, RunWorkspace};
use crate::turn_count::count_turn;
use hob_agents::claude::TranscriptWatcher;
use hob_agents::driver::claude_print::{self, Invocation};
use hob_agents::{LivePermit, Runtime};
use hob_files::owned;

/// The longest answer that is read from an agent.
const MAX_STDOUT_BYTES: u64 = 64 << 20;

/// How long a run's answer waits until the run is counted.
const MAX_COUNT_TIME: Duration = Duration::from_secs(1);

/// What runs get from the rest of Hob.
pub struct RunnerOptions {
    pub runtime: Runtime,
    /// The folder in which runs get their temporary folders.
    pub workspaces: PathBuf,
    /// Counts runs and what they use.
    pub store: Arc<dyn SessionStore>,
}

/// Starts one-shot runs.
pub struct Runner {
    options: RunnerOptions,
    changes: TranscriptWatcher,
    /// Cancelled when an app is removed.
    apps: Mutex<HashMap<AppName, CancellationToken>>,
}

impl Runner {
    /// Creates the runner, after removing what the runs of a killed Hob left.
    pub fn new(options: RunnerOptions) -> Runner {
        run_workspace::remove_leftovers(&options.workspaces, &options.runtime);
        Runner { options, changes: TranscriptWatcher::start(), apps: Mutex::default() }
    }

    /// Ends all runs of an app that is being removed.
    pub fn forget_app(&self, app: &AppName) {
        let token = self.apps.lock().unwrap_or_else(PoisonError::into_inner).remove(app);
        if let Some(token) = token {
            token.cancel();
        }
    }

    /// Returns a token that is cancelled with the runs of this app.
    fn cancellation(&self, app: &AppName) -> CancellationToken {
        let mut apps = self.apps.lock().unwrap_or_else(PoisonError::into_inner);
        let all = apps.entry(app.clone());
        all.or_insert_with(|| self.options.runtime.ending.child_token()).child_token()
    }

    /// Runs a prompt. Dropping the returned future cancels the run: its process tree is ended and
    /// its folder removed by the task that owns them.
    pub async fn run(
        &self,
        app: &AppName,
        agent: &AgentSpec,
        request: RunRequest,
    ) -> Result<RunReply, RunError> {
        let options = &self.options;
        if options.runtime.stopping.is_cancelled() {
            return Err(RunError::Stopping);
        }
        let permit = options.runtime.live.acquire(app.as_str()).await;
        let permit = permit.ok_or(RunError::PoolFull { live: options.runtime.live.in_use() })?;
        let run = ActiveRun {
            permit,
            app: app.clone(),
            method: self.method(app, agent, &request),
            agent: agent.clone(),
            runtime: options.runtime.clone(),
            timeout: request.timeout,
            workspaces: options.workspaces.clone(),
        };
        let cancel = self.cancellation(app);
        let guard = cancel.clone().drop_guard();
        let (sender, answer) = oneshot::channel();
        let (store, app) = (options.store.clone(), app.clone());
        let tasks = options.runtime.tasks.clone();
        options.runtime.tasks.spawn(async move {
            let answer = run.perform(cancel).await;
            // A database that does not answer must not hold up the run's answer.
            let (state, usage) = run_usage(&answer);
            let counted = tasks.spawn(async move { count_turn(&*store, app, state, usage).await });
            let _ = tokio::time::timeout(MAX_COUNT_TIME, counted).await;
            let _ = sender.send(answer);
        });
        let answer = answer.await.unwrap_or_else(|_| {
            Err(RunError::Internal("the run's task ended without an answer".to_owned()))
        });
        drop(guard.disarm());
        answer
    }

    /// Chooses how this agent is run once.
    fn method(&self, app: &AppName, agent: &AgentSpec, request: &RunRequest) -> RunMethod {
        match agent.driver {
            Driver::ClaudeTui | Driver::ClaudeStream => {
                RunMethod::Print(claude_print::invocation(request))
            }
            Driver::Acp | Driver::Demo => RunMethod::OneTurn(OneTurn {
                driver: agent.driver,
                prompt: request.prompt.clone(),
                model: request.model.clone(),
                system: request.system.clone(),
                files: self.options.runtime.sandbox.files_of(app),
                permits: self.options.runtime.reading_permits(app.as_str()),
                tasks: self.options.runtime.tasks.clone(),
                changes: self.changes.clone(),
            }),
        }
    }
}

/// Returns how a run ended, and what it used.
fn run_usage(answer: &Result<RunReply, RunError>) -> (TurnState, TurnUsage) {
    match answer {
        Ok(reply) => (TurnState::Finished, reply.usage),
        Err(RunError::Cancelled) => (TurnState::Cancelled, TurnUsage::default()),
        Err(_) => (TurnState::Failed, TurnUsage::default()),
    }
}

/// How an agent is run once.
enum RunMethod {
    /// As a program that prints its answer and ends.
    Print(Invocation),
    /// As a conversation of one turn.
    OneTurn(OneTurn),
}

/// One run with everything it owns.
struct ActiveRun {
    permit: LivePermit,
    app: AppName,
    agent: AgentSpec,
    method: RunMethod,
    runtime: Runtime,
    timeout: Duration,
    workspaces: PathBuf,
}

impl ActiveRun {
    async fn perform(self, cancel: CancellationToken) -> Result<RunReply, RunError> {
        let workspace = RunWorkspace::create(&self.workspaces, &self.runtime).map_err(|error| {
            RunError::Internal(format!("cannot make the run's folder: {error}"))
        })?;
        let scope = workspace.name();
        // In any case the process tree ends before its folder is removed and before the caller gets
        // an answer.
        let answer = match &self.method {
            RunMethod::Print(invocation) => self.print(invocation, workspace.path(), &cancel).await,
            RunMethod::OneTurn(turn) => self.one_turn(turn, workspace.path(), &cancel).await,
        };
        self.runtime.discard(&self.runtime.sandbox.temporary_of(&scope));
        drop(workspace);
        drop(self.permit);
        answer
    }

    fn child(
        &self,
        arguments: Vec<String>,
        folder: &Path,
        stdin: Stdin,
    ) -> Result<ChildSpec, RunError> {
        let streams = Streams::Pipes { stdin };
        let scope = folder.file_name().unwrap_or_default().to_string_lossy();
        self.runtime
            .sandbox
            .child(&self.app, &self.agent, arguments, folder, streams, &scope)
            .map_err(|error| match error.kind() {
                io::ErrorKind::Unsupported => RunError::AgentFailed {
                    message: error.to_string(),
                    stderr: String::new(),
                    stop_reason: "error".to_owned(),
                },
                _ => RunError::Internal(error.to_string()),
            })
    }

    async fn print(
        &self,
        invocation: &Invocation,
        folder: &Path,
        cancel: &CancellationToken,
    ) -> Result<RunReply, RunError> {
        let internal = |error: std::io::Error| RunError::Internal(error.to_string());
        let scope = folder.file_name().unwrap_or_default().to_string_lossy();
        let temporary = self.runtime.sandbox.temporary_of(&scope);
        let made = temporary.clone();
        on_disk(move || owned::create_dir_all(made)).await.map_err(internal)?;
        let arguments = invocation.arguments(&temporary).map_err(internal)?;
        let mut spec = self.child(arguments, folder, Stdin::Pipe)?;
        claude_print::configure(&mut spec, &temporary).map_err(internal)?;
        let spawned = self.runtime.children.spawn(spec).await;
        let mut child = spawned.map_err(|error| self.not_started(error))?;
        let answer = tokio::select! {
            answer = converse(&mut child, invocation.stdin.clone()) => answer,
            () = tokio::time::sleep(self.timeout) => Err(RunError::TimedOut(self.timeout)),
            () = cancel.cancelled() => Err(RunError::Cancelled),
        };
        child.stop(StopLadder::AT_ONCE).await;
        answer
    }

    async fn one_turn(
        &self,
        turn: &OneTurn,
        folder: &Path,
        cancel: &CancellationToken,
    ) -> Result<RunReply, RunError> {
        let child = self.child(Vec::new(), folder, Stdin::Pipe)?;
        let start = turn.start(self.runtime.children.clone(), child, &self.agent, self.timeout);
        let mut agent = None;
        let answer = tokio::select! {
            answer = turn.ask(start, &mut agent) => answer,
            () = tokio::time::sleep(self.timeout) => Err(RunError::TimedOut(self.timeout)),
            () = cancel.cancelled() => Err(RunError::Cancelled),
        };
        if let Some(agent) = agent {
            agent.stop().await;
        }
        answer
    }

    fn not_started(&self, error: SpawnError) -> RunError {
        match error {
            SpawnError::NotFound(_) | SpawnError::NotRunnable { .. } => {
                RunError::NotInstalled(format!("{error}. {}", self.agent.install))
            }
            SpawnError::Closing => RunError::Stopping,
            SpawnError::Invalid(_) => RunError::AgentFailed {
                message: error.to_string(),
                stderr: String::new(),
                stop_reason: "error".to_owned(),
            },
            SpawnError::Folder(_) | SpawnError::NotConfined(_) | SpawnError::System(_) => {
                RunError::Internal(error.to_string())
            }
        }
    }
}

/// Writes the prompt, reads the whole answer and waits for the process to end.
async fn converse(child: &mut Child, stdin: String) -> Result<RunReply, RunError> {
    let mut input = child.stdin.take();
    let output = child.stdout.take();
    let writing = async {
        if let Some(mut input) = input.take() {
            // An agent that does not read its prompt reports the reason in its output.
            let _ = input.write_all(stdin.as_bytes()).await;
        }
    };
    let reading = async {
        let mut bytes = Vec::new();
        if let Some(output) = output {
            // After a read error, the bytes read so far are the best answer there is.
            let _ = output.take(MAX_STDOUT_BYTES).read_to_end(&mut bytes).await;
        }
        bytes
    };
    // A descendant may keep the output open after the agent has ended. Its shim then ends the
    // descendant.
    let ((), stdout) = tokio::join!(writing, reading);
    let exit = child.gone().await;
    let stdout = String::from_utf8_lossy(&stdout);
    claude_print::read_result(&stdout, exit).map_err(|failure| RunError::AgentFailed {
        message: failure.message,
        stderr: child.output().tail_text(),
        stop_reason: failure.stop_reason,
    })
}
