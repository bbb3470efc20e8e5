//! The streams of one agent and the protocol library on top of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use agent_client_protocol::v1::schema::{
    CreateTerminalRequest, KillTerminalRequest, ReadTextFileRequest, ReleaseTerminalRequest,
    RequestPermissionRequest, RequestPermissionResponse, TerminalOutputRequest,
    WaitForTerminalExitRequest, WriteTextFileRequest,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, ConnectTo, Lines, on_receive_request};
use hob_child::Child;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::files::FileAccess;
use super::terminals::AgentTerminals;
use crate::driver::start::{StartError, StartOptions};
use crate::json_lines::{self, JsonLine, LineKind};

/// Lines that may wait to be stored. When the channel is full, the agent itself waits.
const MAX_PENDING_LINES: usize = 256;

/// A permission request with its responder.
pub(super) struct Asked {
    pub request: RequestPermissionRequest,
    pub responder: Responder<RequestPermissionResponse>,
}

/// A live agent's process and streams. Dropping it ends the process tree.
pub(super) struct Connection {
    pub child: Child,
    pub wire: ConnectionTo<Agent>,
    pub lines: mpsc::Receiver<JsonLine>,
    pub asks: mpsc::UnboundedReceiver<Asked>,
    listening: Arc<AtomicBool>,
    writing: Arc<Writing>,
    input: Option<DropGuard>,
}

impl Connection {
    pub fn open(mut child: Child, start: &StartOptions) -> Result<Connection, StartError> {
        let internal = |text: &str| StartError::Internal(text.to_owned());
        let stdin = child.stdin.take().ok_or_else(|| internal("the agent has no input"))?;
        let stdout = child.stdout.take().ok_or_else(|| internal("the agent has no output"))?;
        let (for_library, library) = mpsc::unbounded_channel();
        let (lines_sender, lines) = mpsc::channel(MAX_PENDING_LINES);
        let (asks_sender, asks) = mpsc::unbounded_channel();
        let listening = Arc::new(AtomicBool::new(false));
        let closed = CancellationToken::new();
        start.tasks.spawn(read(stdout, lines_sender, for_library, listening.clone()));
        let writing = Arc::new(Writing::default());
        let outgoing = futures_util::sink::unfold((stdin, writing.clone()), write);
        let incoming = UnboundedReceiverStream::new(library);
        let transport = Lines::new(outgoing, incoming);
        let sandbox = start.child.confinement.as_ref();
        let hidden = sandbox.and_then(|sandbox| sandbox.hidden.first()).map(|path| path.as_path());
        let file_access = FileAccess::new(&start.child.cwd, &start.files, hidden);
        let terminals = AgentTerminals::new(start, file_access.clone());
        let (wire_sender, mut wire) = oneshot::channel();
        let handlers = Handlers { file_access, terminals, asks: asks_sender };
        let mut library = Box::pin(handlers.serve(transport, wire_sender, closed.clone()));
        // The first poll yields the connection handle; a task runs the rest.
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let _ = library.as_mut().poll(&mut context);
        let wire = wire.try_recv().map_err(|_| internal("the protocol did not start"))?;
        start.tasks.spawn(async move {
            if let Err(error) = library.await {
                tracing::debug!(
                    code = error.code.value(),
                    "the protocol connection of an agent ended early"
                );
            }
        });
        let input = Some(closed.drop_guard());
        Ok(Connection { child, wire, lines, asks, listening, writing, input })
    }

    /// Starts to report the agent's lines. Earlier lines belong to the handshake or repeat an old
    /// conversation.
    pub fn listen(&self) {
        self.listening.store(true, Ordering::Release);
    }

    /// Returns what is known about prompts that were written.
    pub fn writing(&self) -> Arc<Writing> {
        self.writing.clone()
    }

    /// Closes the agent's input, after which it should exit by itself.
    pub fn without_input(mut self) -> Connection {
        self.input = None;
        self
    }
}

/// The handlers of an agent's requests.
struct Handlers {
    file_access: FileAccess,
    terminals: AgentTerminals,
    asks: mpsc::UnboundedSender<Asked>,
}

impl Handlers {
    /// Runs the protocol until `closed` is cancelled. The connection handle is sent first.
    async fn serve(
        self,
        transport: impl ConnectTo<Client> + 'static,
        wire_sender: oneshot::Sender<ConnectionTo<Agent>>,
        closed: CancellationToken,
    ) -> Result<(), agent_client_protocol::Error> {
        let Handlers { file_access, terminals, asks } = self;
        let (for_reading, for_writing) = (file_access.clone(), file_access);
        let (creating, showing, waiting) =
            (terminals.clone(), terminals.clone(), terminals.clone());
        let (killing, releasing) = (terminals.clone(), terminals);
        Client
            .v1()
            .name("hob")
            .on_receive_request(
                async move |request: RequestPermissionRequest, responder, _| {
                    // The answer comes from the caller, who may take long.
                    let _ = asks.send(Asked { request, responder });
                    Ok(())
                },
                on_receive_request!(),
            )
            .on_receive_request(
                async move |request: ReadTextFileRequest, responder, _| {
                    responder.respond_with_result(for_reading.read(&request))
                },
                on_receive_request!(),
            )
            .on_receive_request(
                async move |request: WriteTextFileRequest, responder, _| {
                    responder.respond_with_result(for_writing.write(&request))
                },
                on_receive_request!(),
            )
            .on_receive_request(
                async move |request: CreateTerminalRequest, responder, _| {
                    creating.create(request, responder);
                    Ok(())
                },
                on_receive_request!(),
            )
            .on_receive_request(
                async move |request: TerminalOutputRequest, responder, _| {
                    responder.respond_with_result(showing.output(&request))
                },
                on_receive_request!(),
            )
            .on_receive_request(
                async move |request: WaitForTerminalExitRequest, responder, _| {
                    waiting.wait(&request, responder);
                    Ok(())
                },
                on_receive_request!(),
            )
            .on_receive_request(
                async move |request: KillTerminalRequest, responder, _| {
                    responder.respond_with_result(killing.kill(&request))
                },
                on_receive_request!(),
            )
            .on_receive_request(
                async move |request: ReleaseTerminalRequest, responder, _| {
                    responder.respond_with_result(releasing.release(&request))
                },
                on_receive_request!(),
            )
            .connect_with(transport, async move |wire: ConnectionTo<Agent>| {
                let _ = wire_sender.send(wire);
                closed.cancelled().await;
                Ok(())
            })
            .await
    }
}

/// Which prompts may have reached the agent. In doubt a prompt counts as seen: none is sent twice.
#[derive(Debug, Default)]
pub(super) struct Writing {
    /// Prompts whose writing has started.
    begun: AtomicU64,
    /// Whether a write failed.
    refused: AtomicBool,
}

impl Writing {
    /// Returns whether the last of `prompts` prompts certainly never reached the agent. It is reliable once
    /// the agent has exited.
    pub fn is_unseen(&self, prompts: u64) -> bool {
        self.begun.load(Ordering::Acquire) < prompts || self.refused.load(Ordering::Acquire)
    }
}

type Input = (pipe::Sender, Arc<Writing>);

async fn write((mut stdin, writing): Input, line: String) -> std::io::Result<Input> {
    if json_lines::method(&line).as_deref() == Some("session/prompt") {
        writing.begun.fetch_add(1, Ordering::Release);
    }
    let mut bytes = line.into_bytes();
    bytes.push(b'\n');
    if let Err(error) = stdin.write_all(&bytes).await {
        writing.refused.store(true, Ordering::Release);
        return Err(error);
    }
    Ok((stdin, writing))
}

/// Reads the agent's output to its end. An agent that writes faster than its lines are stored is slowed
/// down by its own pipe; the protocol library never waits for the store.
async fn read(
    stdout: pipe::Receiver,
    lines: mpsc::Sender<JsonLine>,
    library: mpsc::UnboundedSender<std::io::Result<String>>,
    listening: Arc<AtomicBool>,
) {
    let mut input = BufReader::with_capacity(16 << 10, stdout);
    while let Some(line) = json_lines::next(&mut input).await {
        let for_library = (line.kind != LineKind::Notification).then(|| line.text.clone());
        if listening.load(Ordering::Acquire) && lines.send(line).await.is_err() {
            return;
        }
        if let Some(text) = for_library {
            let _ = library.send(Ok(text));
        }
    }
}
