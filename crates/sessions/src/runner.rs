//! One-shot runs: a temporary folder, one process tree, one answer.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use hob_child::{
    Child, ChildSpec, Children, SpawnError, Stdin, StopLadder, Streams, cleaned_environment,
};
use hob_domain::{AgentSpec, AppName, Driver, RunError, RunReply, RunRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::driver::claude_print::{self, Invocation};
use crate::live::{LiveLimit, LivePermit};
use crate::workspace::{self, RunWorkspace};

/// An answer longer than this is not one.
const STDOUT_LIMIT: u64 = 64 << 20;

/// What runs need from outside.
pub struct RunnerOptions {
    pub children: Children,
    /// Where temporary folders are made.
    pub workspaces: PathBuf,
    /// The environment agents' variables are picked from.
    pub environment: Vec<(OsString, OsString)>,
    pub live: LiveLimit,
    /// Every run is a task of this tracker.
    pub tasks: TaskTracker,
    /// Cancelled when no new work may begin.
    pub stopping: CancellationToken,
    /// Cancelled when running work must end.
    pub ending: CancellationToken,
}

/// Starts one-shot runs.
pub struct Runner {
    options: RunnerOptions,
}

impl Runner {
    /// Removes what runs of a killed Hob left behind, then is ready.
    pub fn new(options: RunnerOptions) -> Runner {
        workspace::remove_leftovers(&options.workspaces);
        Runner { options }
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
        if options.stopping.is_cancelled() {
            return Err(RunError::Stopping);
        }
        let permit =
            options.live.try_take().ok_or(RunError::PoolFull { live: options.live.live() })?;
        let invocation = match agent.driver {
            Driver::ClaudeTui | Driver::ClaudeStream | Driver::Demo => {
                claude_print::invocation(&request)
            }
            Driver::Acp => {
                return Err(RunError::Unsupported(
                    "one-shot runs of ACP agents are not supported yet".to_owned(),
                ));
            }
        };
        let run = Run {
            permit,
            spec: self.child_spec(app, agent, &invocation),
            stdin: invocation.stdin,
            timeout: request.timeout,
            install: agent.install.clone(),
            children: options.children.clone(),
            workspaces: options.workspaces.clone(),
        };
        let cancel = options.ending.child_token();
        let guard = cancel.clone().drop_guard();
        let (sender, answer) = oneshot::channel();
        options.tasks.spawn(async move {
            let _ = sender.send(run.perform(cancel).await);
        });
        let answer = answer.await.unwrap_or_else(|_| {
            Err(RunError::Internal("the run's task ended without an answer".to_owned()))
        });
        drop(guard.disarm());
        answer
    }

    fn child_spec(&self, app: &AppName, agent: &AgentSpec, invocation: &Invocation) -> ChildSpec {
        let mut command = agent.command.iter();
        let program = command.next().cloned().unwrap_or_default();
        let env = cleaned_environment(
            self.options.environment.iter().cloned(),
            &agent.env_pass,
            agent.env.clone(),
        );
        ChildSpec {
            program: program.into(),
            args: command.chain(&invocation.args).map(OsString::from).collect(),
            env,
            cwd: PathBuf::new(),
            streams: Streams::Pipes {
                stdin: if invocation.stdin.is_some() { Stdin::Pipe } else { Stdin::Null },
            },
            owner: Some(app.as_str().to_owned()),
            confinement: None,
        }
    }
}

/// One run with everything it owns.
struct Run {
    permit: LivePermit,
    spec: ChildSpec,
    stdin: Option<String>,
    timeout: Duration,
    install: String,
    children: Children,
    workspaces: PathBuf,
}

impl Run {
    async fn perform(mut self, cancel: CancellationToken) -> Result<RunReply, RunError> {
        let workspace = RunWorkspace::create(&self.workspaces)
            .map_err(|error| RunError::Internal(format!("no folder for the run: {error}")))?;
        self.spec.cwd = workspace.path().to_owned();
        let mut child = self
            .children
            .spawn(self.spec.clone())
            .await
            .map_err(|error| self.not_started(error))?;
        let answer = tokio::select! {
            answer = converse(&mut child, self.stdin.take()) => answer,
            () = tokio::time::sleep(self.timeout) => Err(RunError::TimedOut(self.timeout)),
            () = cancel.cancelled() => Err(RunError::Cancelled),
        };
        // Whatever happened: the tree is gone before the folder is, and before anyone is told.
        child.stop(StopLadder::AT_ONCE).await;
        drop(workspace);
        drop(self.permit);
        answer
    }

    fn not_started(&self, error: SpawnError) -> RunError {
        match error {
            SpawnError::NotFound(_) | SpawnError::NotRunnable { .. } => {
                RunError::NotInstalled(format!("{error}. {}", self.install))
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

/// Writes the prompt, reads the whole answer and waits for the end.
async fn converse(child: &mut Child, stdin: Option<String>) -> Result<RunReply, RunError> {
    let mut input = child.stdin.take();
    let output = child.stdout.take();
    let writing = async {
        if let (Some(mut input), Some(text)) = (input.take(), stdin) {
            // An agent that does not read its prompt says why in its own way.
            let _ = input.write_all(text.as_bytes()).await;
        }
    };
    let reading = async {
        let mut bytes = Vec::new();
        if let Some(output) = output {
            // What was read before an error is still the best we have.
            let _ = output.take(STDOUT_LIMIT).read_to_end(&mut bytes).await;
        }
        bytes
    };
    // A descendant may hold the output open after the agent has ended; its shim ends it then.
    let ((), stdout) = tokio::join!(writing, reading);
    let exit = child.gone().await;
    let stdout = String::from_utf8_lossy(&stdout);
    claude_print::read_result(&stdout, exit.success(), &exit.to_string()).map_err(|failure| {
        RunError::AgentFailed {
            message: failure.message,
            stderr: child.output().tail_text(),
            stop_reason: failure.stop_reason,
        }
    })
}
