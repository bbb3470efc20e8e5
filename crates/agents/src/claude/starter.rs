//! Starts the processes of conversations, with their files, arguments and tool servers.

use std::path::Path;

use hob_child::Owner;
use hob_domain::Timestamp;
use hob_domain::session::Permissions;
use hob_files::Trash;
use hob_transcript::claude::{SeedContext, seed_transcript};
use serde_json::Value;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::argument_files::ArgumentFiles;
use super::config::ConfigFolder;
use super::cost::{CostMeter, FirstCost};
use super::error::BackendError;
use super::options::{BackendOptions, HistoryMode};
use super::process::ClaudeProcess;
use super::process_list::{ProcessEntry, ProcessList};
use super::profile::{ArgumentPaths, ClaudeTransport, Profile};
use super::request::CompletionRequest;
use super::stream_session::StreamSession;
use super::terminal_session::{Launch, TerminalSession, TurnTimeouts};
use super::transcript_file::TranscriptFile;
use super::transcript_tail::TranscriptWatcher;
use crate::client_tools::ToolServer;
use hob_terminal::{TerminalKind, TerminalRegistrar};

/// The longest result of a client's tool that the agent reads, in tokens. Its own default is smaller.
const MAX_TOOL_RESULT_TOKENS: &str = "200000";

/// A live process with its entry in the list. Dropping it ends the process and removes the entry.
pub(super) struct PooledProcess {
    pub process: ClaudeProcess,
    pub entry: ProcessEntry,
    /// The transcript, if it lies in Hob's own configuration folder. Nobody else resumes it.
    transcript: Option<OwnTranscript>,
    /// The files that its arguments name.
    arguments: ArgumentPaths,
    /// The server of the client's tools, if the client has any.
    pub tools: Option<ToolServer>,
}

/// A transcript that is removed with its process, and what lies in the folder of its session.
struct OwnTranscript {
    file: TranscriptFile,
    trash: Trash,
}

impl Drop for OwnTranscript {
    fn drop(&mut self) {
        let _ = self.file.remove();
        let _ = self.file.remove_session_folder(&self.trash);
    }
}

/// Starts processes, and lists those that live.
pub(super) struct ProcessStarter {
    pub options: BackendOptions,
    changes: TranscriptWatcher,
    pub argument_files: ArgumentFiles,
    pub tasks: TaskTracker,
    pub live: ProcessList,
}

impl ProcessStarter {
    pub fn new(options: BackendOptions) -> ProcessStarter {
        ProcessStarter {
            argument_files: ArgumentFiles::new(options.runtime_folder.clone()),
            options,
            changes: TranscriptWatcher::start(),
            tasks: TaskTracker::new(),
            live: ProcessList::default(),
        }
    }

    pub fn limits(&self) -> TurnTimeouts {
        let options = &self.options;
        TurnTimeouts {
            ready: options.ready_timeout,
            turn: options.turn_timeout,
            stall: options.stall_after,
        }
    }

    /// Starts a process, seeded with the history if the mode says so.
    pub async fn start(&self, request: &CompletionRequest) -> Result<PooledProcess, BackendError> {
        let session_id = Uuid::new_v4().to_string();
        let entry = self.enter_list(request, &session_id).await?;
        let pooled = self.start_process(request, session_id, entry).await?;
        pooled.entry.update(|info| {
            info.pid = Some(pooled.process.pid());
            info.output = Some(pooled.process.output().clone());
        });
        let Some(exchange) = pooled.tools.as_ref().map(ToolServer::exchange) else {
            return Ok(pooled);
        };
        // The agent does not wait for its MCP servers, and a prompt that came first would be answered without the tools.
        match tokio::time::timeout(self.options.ready_timeout, exchange.listed()).await {
            Ok(()) => Ok(pooled),
            Err(_) => {
                pooled.end().await;
                let text = "the agent did not connect to the server of the client's tools";
                Err(BackendError::Internal(text.to_owned()))
            }
        }
    }

    async fn start_process(
        &self,
        request: &CompletionRequest,
        session_id: String,
        entry: ProcessEntry,
    ) -> Result<PooledProcess, BackendError> {
        let profile = &request.profile;
        let mut launch_spec =
            self.options.launch_specs.launch_spec(profile).map_err(|error| match error.kind() {
                // The agent's settings demand a sandbox that this machine does not have.
                std::io::ErrorKind::Unsupported => BackendError::NotInstalled(error.to_string()),
                _ => internal(error),
            })?;
        launch_spec.unattended();
        let transcript = TranscriptFile::new(&launch_spec.config, &profile.cwd, &session_id);
        let folder = transcript.create_folder().map_err(internal)?;
        // Created before anything is written, so that a later failure removes the file too.
        let is_own = matches!(launch_spec.config, ConfigFolder::Own(_));
        let trash = &self.options.runtime.trash;
        let own = is_own.then(|| OwnTranscript { file: transcript.clone(), trash: trash.clone() });
        let mut arguments = self.session_arguments(request, &session_id, &transcript)?;
        let tools = self.open_tool_server(profile);
        let config = tools.as_ref().map(|tools| self.tool_server_config(tools)).transpose()?;
        if tools.is_some() {
            // All tools are shown to the model at once, as they would be by the model's API.
            launch_spec.set("ENABLE_TOOL_SEARCH", "false");
            launch_spec.set_default("MAX_MCP_OUTPUT_TOKENS", MAX_TOOL_RESULT_TOKENS);
        }
        let paths = profile.argument_files(&self.argument_files, config).map_err(internal)?;
        paths.all().for_each(|path| launch_spec.show_path(path));
        if profile.permission_mode.as_deref() == Some("bypassPermissions") {
            launch_spec.permit(Permissions::Allow);
        }
        if let Some(file) = paths.cost() {
            launch_spec.report_cost(file, &profile.cwd).map_err(internal)?;
        }
        arguments.extend(launch_spec.settings_argument());
        arguments.extend(profile.arguments(&paths));
        if profile.transport == ClaudeTransport::Terminal {
            launch_spec.set("TERM", "xterm-256color");
        }
        let id = session_id.clone();
        let permits = self.options.runtime.reading_permits(&profile.app);
        let launch = Launch {
            command: launch_spec.command,
            arguments,
            environment: launch_spec.environment,
            cwd: profile.cwd.clone(),
            owner: Owner { app: profile.app.clone(), git_hosts: launch_spec.git_hosts },
            session_id,
            transcript: transcript.clone(),
            watch: self.changes.watch(&folder),
            confinement: launch_spec.confinement,
            records: permits.records,
            registrar: TerminalRegistrar {
                terminals: self.options.runtime.terminals.clone(),
                id,
                kind: TerminalKind::Backend,
                agent: "claude".to_owned(),
            },
            // Its session id is new, so nothing was spent in it before.
            cost: CostMeter::new(paths.cost().map(Path::to_owned), FirstCost::Own),
        };
        let children = &self.options.runtime.children;
        let process = match profile.transport {
            ClaudeTransport::Terminal => {
                let session = TerminalSession::start(children, launch, self.limits()).await?;
                ClaudeProcess::Terminal(Box::new(session))
            }
            ClaudeTransport::Stream => {
                let long_lines = permits.long_lines;
                let session = StreamSession::start(children, &self.tasks, launch, long_lines);
                ClaudeProcess::Stream(session.await?)
            }
        };
        Ok(PooledProcess { process, entry, transcript: own, arguments: paths, tools })
    }

    fn open_tool_server(&self, profile: &Profile) -> Option<ToolServer> {
        let servers = &self.options.runtime.tool_servers;
        let tools = &profile.client_tools;
        (!tools.is_empty()).then(|| servers.open(&profile.app, tools.clone()))
    }

    /// Returns the entry of a tool server in the agent's MCP configuration.
    fn tool_server_config(&self, tools: &ToolServer) -> Result<Value, BackendError> {
        let program = hob_child::own_program().map_err(internal)?;
        let socket = &self.options.runtime.sandbox.socket;
        Ok(tools.config(&program.to_string_lossy(), &socket.to_string_lossy()))
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
        let text = seed_transcript(&request.seed(), &context, || Uuid::new_v4().to_string());
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
        let permit = live.acquire(&request.profile.app).await;
        let permit = permit.ok_or_else(|| BackendError::PoolFull {
            limit: live.limit(),
            retry_after: live.retry_after(),
        })?;
        Ok(self.live.enter(permit, &request.profile, session_id))
    }
}

impl PooledProcess {
    /// Ends the process. Its entry stays in the list until the process tree is gone.
    pub async fn end(self) {
        let PooledProcess { process, entry, transcript, arguments, tools } = self;
        process.end().await;
        drop((transcript, arguments, entry, tools));
    }
}

fn internal(error: std::io::Error) -> BackendError {
    BackendError::Internal(error.to_string())
}
