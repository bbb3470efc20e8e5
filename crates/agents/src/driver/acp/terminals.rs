//! Commands that an agent runs through Hob: in its session's folder, in the same sandbox, and ended with it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol::v1::Responder;
use agent_client_protocol::v1::schema::{
    CreateTerminalRequest, CreateTerminalResponse, KillTerminalRequest, KillTerminalResponse,
    ReleaseTerminalRequest, ReleaseTerminalResponse, TerminalExitStatus, TerminalOutputRequest,
    TerminalOutputResponse, WaitForTerminalExitRequest, WaitForTerminalExitResponse,
};
use agent_client_protocol::{Error, ErrorCode};
use hob_child::{Child, ChildSpec, Children, Exit, Stdin, StopLadder, Streams};
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::files::FileAccess;
use crate::driver::start::StartOptions;

/// How much of a command's output is kept, whatever the agent requests.
const MAX_OUTPUT_BYTES: usize = 1 << 20;
/// How many commands one agent may run concurrently.
const MAX_TERMINALS: usize = 32;

/// The commands of one agent. Dropping the last clone ends them.
#[derive(Clone)]
pub(super) struct AgentTerminals {
    inner: Arc<TerminalsState>,
}

struct TerminalsState {
    children: Children,
    tasks: TaskTracker,
    /// The spec that every command starts from.
    child: ChildSpec,
    file_access: FileAccess,
    open: Mutex<HashMap<String, CommandTerminal>>,
}

struct CommandTerminal {
    shown: Arc<Mutex<OutputTail>>,
    exit: watch::Receiver<Option<Exit>>,
    /// Cancelled to end the command.
    ending: CancellationToken,
    _end_on_drop: DropGuard,
}

/// The last bytes of a command's output.
#[derive(Debug, Default)]
struct OutputTail {
    bytes: Vec<u8>,
    limit: usize,
    truncated: bool,
}

impl AgentTerminals {
    pub fn new(start: &StartOptions, file_access: FileAccess) -> AgentTerminals {
        AgentTerminals {
            inner: Arc::new(TerminalsState {
                children: start.children.clone(),
                tasks: start.tasks.clone(),
                child: start.child.clone(),
                file_access,
                open: Mutex::default(),
            }),
        }
    }

    pub fn create(
        &self,
        request: CreateTerminalRequest,
        responder: Responder<CreateTerminalResponse>,
    ) {
        let inner = self.inner.clone();
        self.inner.tasks.spawn(async move {
            let _ = responder.respond_with_result(inner.create(request).await);
        });
    }

    pub fn output(&self, request: &TerminalOutputRequest) -> Result<TerminalOutputResponse, Error> {
        self.inner.with(&request.terminal_id.0, |terminal| {
            let shown = terminal.shown.lock().unwrap_or_else(PoisonError::into_inner);
            let text = String::from_utf8_lossy(&shown.bytes).into_owned();
            let status = terminal.exit.borrow().map(status);
            TerminalOutputResponse::new(text, shown.truncated).exit_status(status)
        })
    }

    pub fn wait(
        &self,
        request: &WaitForTerminalExitRequest,
        responder: Responder<WaitForTerminalExitResponse>,
    ) {
        let exit = self.inner.with(&request.terminal_id.0, |terminal| terminal.exit.clone());
        let mut exit = match exit {
            Ok(exit) => exit,
            Err(error) => return drop(responder.respond_with_error(error)),
        };
        self.inner.tasks.spawn(async move {
            let ended = exit.wait_for(Option::is_some).await.ok().and_then(|exit| *exit);
            let status = status(ended.unwrap_or(Exit::Unknown));
            let _ = responder.respond(WaitForTerminalExitResponse::new(status));
        });
    }

    pub fn kill(&self, request: &KillTerminalRequest) -> Result<KillTerminalResponse, Error> {
        self.inner.with(&request.terminal_id.0, |terminal| terminal.ending.cancel())?;
        Ok(KillTerminalResponse::new())
    }

    pub fn release(
        &self,
        request: &ReleaseTerminalRequest,
    ) -> Result<ReleaseTerminalResponse, Error> {
        let known = self.inner.open().remove(request.terminal_id.0.as_ref()).is_some();
        if known { Ok(ReleaseTerminalResponse::new()) } else { Err(unknown()) }
    }
}

impl TerminalsState {
    fn open(&self) -> MutexGuard<'_, HashMap<String, CommandTerminal>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, id: &str, look: impl FnOnce(&CommandTerminal) -> T) -> Result<T, Error> {
        self.open().get(id).map(look).ok_or_else(unknown)
    }

    async fn create(
        &self,
        request: CreateTerminalRequest,
    ) -> Result<CreateTerminalResponse, Error> {
        let invalid = |text: String| Error::new(ErrorCode::INVALID_PARAMS, text);
        if self.open().len() >= MAX_TERMINALS {
            return Err(invalid(format!(
                "{MAX_TERMINALS} terminals are open, which is the limit; release one"
            )));
        }
        let mut spec = self.child.clone();
        if let Some(cwd) = request.cwd {
            if !self.file_access.contains(&cwd).await {
                return Err(invalid("cwd: must be in the session's folder".to_owned()));
            }
            spec.cwd = cwd;
        }
        for variable in request.env {
            let name = variable.name.into();
            spec.env.retain(|(known, _)| *known != name);
            spec.env.push((name, variable.value.into()));
        }
        // Standard output and error are one stream, as in a terminal.
        spec.program = "sh".into();
        let words = ["-c", "exec \"$0\" \"$@\" 2>&1"].map(str::to_owned).into_iter();
        spec.args = words.chain([request.command]).chain(request.args).map(Into::into).collect();
        spec.streams = Streams::Pipes { stdin: Stdin::Null };
        let child = self.children.spawn(spec).await.map_err(|error| invalid(error.to_string()))?;
        let id = uuid::Uuid::new_v4().simple().to_string();
        let limit = request
            .output_byte_limit
            .map_or(MAX_OUTPUT_BYTES, |limit| (limit as usize).min(MAX_OUTPUT_BYTES));
        let shown = Arc::new(Mutex::new(OutputTail { limit, ..OutputTail::default() }));
        let (exit_sender, exit) = watch::channel(None);
        let ending = CancellationToken::new();
        self.tasks.spawn(supervise(child, shown.clone(), exit_sender, ending.clone()));
        let _end_on_drop = ending.clone().drop_guard();
        self.open().insert(id.clone(), CommandTerminal { shown, exit, ending, _end_on_drop });
        Ok(CreateTerminalResponse::new(id))
    }
}

/// Reads a command's output until it exits or is ended.
async fn supervise(
    mut child: Child,
    shown: Arc<Mutex<OutputTail>>,
    exit: watch::Sender<Option<Exit>>,
    ending: CancellationToken,
) {
    let output = child.stdout.take();
    let reading = async {
        let Some(mut output) = output else { return };
        let mut buffer = vec![0; 8 << 10];
        while let Ok(count @ 1..) = output.read(&mut buffer).await {
            shown.lock().unwrap_or_else(PoisonError::into_inner).push(&buffer[..count]);
        }
    };
    let ended = tokio::select! {
        ((), ended) = async { tokio::join!(reading, child.exited()) } => ended,
        () = ending.cancelled() => child.stop(StopLadder::AT_ONCE).await,
    };
    exit.send_replace(Some(ended));
}

impl OutputTail {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > self.limit {
            self.truncated = true;
            let cut = self.bytes.len() - self.limit;
            // Never cut within a character.
            let boundary = |at: &usize| self.bytes.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80);
            let cut = (cut..self.bytes.len()).find(boundary).unwrap_or(self.bytes.len());
            self.bytes.drain(..cut);
        }
    }
}

fn status(exit: Exit) -> TerminalExitStatus {
    match exit {
        Exit::Code(code) => TerminalExitStatus::new().exit_code(code as u32),
        Exit::Signal(signal) => TerminalExitStatus::new().signal(signal.to_string()),
        Exit::OverLimit(_) => TerminalExitStatus::new().signal(exit.to_string()),
        Exit::Unknown => TerminalExitStatus::new(),
    }
}

fn unknown() -> Error {
    Error::new(ErrorCode::RESOURCE_NOT_FOUND, "unknown terminal")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_cut_at_whole_characters() {
        let mut shown = OutputTail { limit: 5, ..OutputTail::default() };
        shown.push("abc".as_bytes());
        assert_eq!((shown.bytes.as_slice(), shown.truncated), (&b"abc"[..], false));
        shown.push("déf".as_bytes());
        assert_eq!((std::str::from_utf8(&shown.bytes), shown.truncated), (Ok("cdéf"), true));
        shown.push("é".as_bytes());
        assert_eq!(std::str::from_utf8(&shown.bytes), Ok("éfé"));
        shown.push("ü".as_bytes());
        assert_eq!(std::str::from_utf8(&shown.bytes), Ok("féü"));
    }
}
