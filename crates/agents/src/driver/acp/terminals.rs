//! Commands an agent runs through us: in its session's folder, behind the same walls, gone with it.

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

use super::Start;
use super::files::Reach;

/// What is kept of a command's output, whatever the agent asks for.
const OUTPUT: usize = 1 << 20;
/// How many commands may run at once for one agent.
const AT_ONCE: usize = 32;

/// The commands of one agent. Dropping the last clone ends them.
#[derive(Clone)]
pub(super) struct Terminals {
    inner: Arc<Inner>,
}

struct Inner {
    children: Children,
    tasks: TaskTracker,
    /// What every command starts from.
    child: ChildSpec,
    reach: Reach,
    open: Mutex<HashMap<String, Terminal>>,
}

struct Terminal {
    shown: Arc<Mutex<Shown>>,
    exit: watch::Receiver<Option<Exit>>,
    /// Cancelled to end it.
    ending: CancellationToken,
    _gone: DropGuard,
}

/// The last bytes of an output.
#[derive(Debug, Default)]
struct Shown {
    bytes: Vec<u8>,
    limit: usize,
    truncated: bool,
}

impl Terminals {
    pub fn new(start: &Start, reach: Reach) -> Terminals {
        Terminals {
            inner: Arc::new(Inner {
                children: start.children.clone(),
                tasks: start.tasks.clone(),
                child: start.child.clone(),
                reach,
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

impl Inner {
    fn open(&self) -> MutexGuard<'_, HashMap<String, Terminal>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, id: &str, look: impl FnOnce(&Terminal) -> T) -> Result<T, Error> {
        self.open().get(id).map(look).ok_or_else(unknown)
    }

    async fn create(
        &self,
        request: CreateTerminalRequest,
    ) -> Result<CreateTerminalResponse, Error> {
        let invalid = |text: String| Error::new(ErrorCode::INVALID_PARAMS, text);
        if self.open().len() >= AT_ONCE {
            return Err(invalid(format!("{AT_ONCE} terminals are open; release one")));
        }
        let mut spec = self.child.clone();
        if let Some(cwd) = request.cwd {
            if !self.reach.holds(&cwd) {
                return Err(invalid("cwd is outside of the session's folder".to_owned()));
            }
            spec.cwd = cwd;
        }
        for variable in request.env {
            let name = variable.name.into();
            spec.env.retain(|(known, _)| *known != name);
            spec.env.push((name, variable.value.into()));
        }
        // Both outputs are one stream here, as a terminal shows them.
        spec.program = "sh".into();
        let words = ["-c", "exec \"$0\" \"$@\" 2>&1"].map(str::to_owned).into_iter();
        spec.args = words.chain([request.command]).chain(request.args).map(Into::into).collect();
        spec.streams = Streams::Pipes { stdin: Stdin::Null };
        let child = self.children.spawn(spec).await.map_err(|error| invalid(error.to_string()))?;
        let id = uuid::Uuid::new_v4().simple().to_string();
        let limit = request.output_byte_limit.map_or(OUTPUT, |limit| (limit as usize).min(OUTPUT));
        let shown = Arc::new(Mutex::new(Shown { limit, ..Shown::default() }));
        let (exit_sender, exit) = watch::channel(None);
        let ending = CancellationToken::new();
        self.tasks.spawn(look_after(child, shown.clone(), exit_sender, ending.clone()));
        let _gone = ending.clone().drop_guard();
        self.open().insert(id.clone(), Terminal { shown, exit, ending, _gone });
        Ok(CreateTerminalResponse::new(id))
    }
}

/// Reads a command's output until it ends or is ended.
async fn look_after(
    mut child: Child,
    shown: Arc<Mutex<Shown>>,
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

impl Shown {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > self.limit {
            self.truncated = true;
            let cut = self.bytes.len() - self.limit;
            // Never in the middle of a character.
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
        Exit::Unknown => TerminalExitStatus::new(),
    }
}

fn unknown() -> Error {
    Error::new(ErrorCode::RESOURCE_NOT_FOUND, "there is no such terminal")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_are_kept_as_whole_characters() {
        let mut shown = Shown { limit: 5, ..Shown::default() };
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
