//! The streams of one agent and the protocol library on top of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use agent_client_protocol::v1::schema::{
    CreateTerminalRequest, KillTerminalRequest, ReadTextFileRequest, ReleaseTerminalRequest,
    RequestPermissionRequest, RequestPermissionResponse, TerminalOutputRequest,
    WaitForTerminalExitRequest, WriteTextFileRequest,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, Lines, on_receive_request};
use hob_child::Child;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::files::Reach;
use super::lines::{self, Kind, Line};
use super::terminals::Terminals;
use super::{Start, StartError};

/// Lines that wait to be stored; then the agent itself waits.
const LINES: usize = 256;

/// A question with the way to answer it.
pub(super) struct Asked {
    pub request: RequestPermissionRequest,
    pub responder: Responder<RequestPermissionResponse>,
}

/// A live agent's process and streams. Dropping it ends the tree.
pub(super) struct Connection {
    pub child: Child,
    pub wire: ConnectionTo<Agent>,
    pub lines: mpsc::Receiver<Line>,
    pub asks: mpsc::UnboundedReceiver<Asked>,
    listening: Arc<AtomicBool>,
    writing: Arc<Writing>,
    input: Option<DropGuard>,
}

impl Connection {
    pub fn open(mut child: Child, start: &Start) -> Result<Connection, StartError> {
        let internal = |text: &str| StartError::Internal(text.to_owned());
        let stdin = child.stdin.take().ok_or_else(|| internal("the agent has no input"))?;
        let stdout = child.stdout.take().ok_or_else(|| internal("the agent has no output"))?;
        let (for_library, library) = mpsc::unbounded_channel();
        let (lines_sender, lines) = mpsc::channel(LINES);
        let (asks_sender, asks) = mpsc::unbounded_channel();
        let listening = Arc::new(AtomicBool::new(false));
        let closed = CancellationToken::new();
        start.tasks.spawn(read(stdout, lines_sender, for_library, listening.clone()));
        let writing = Arc::new(Writing::default());
        let outgoing = futures_util::sink::unfold((stdin, writing.clone()), write);
        let incoming = UnboundedReceiverStream::new(library);
        let transport = Lines::new(outgoing, incoming);
        let hidden = start.child.confinement.as_ref().map(|walls| walls.hidden.as_path());
        let reach = Reach::new(&start.child.cwd, &start.files, hidden);
        let terminals = Terminals::new(start, reach.clone());
        let (wire_sender, mut wire) = oneshot::channel();
        let until = closed.clone();
        let (for_reading, for_writing) = (reach.clone(), reach);
        let (creating, showing, waiting) =
            (terminals.clone(), terminals.clone(), terminals.clone());
        let (killing, releasing) = (terminals.clone(), terminals);
        let library = Client
            .v1()
            .name("hob")
            .on_receive_request(
                async move |request: RequestPermissionRequest, responder, _| {
                    // Answered from outside: whoever decides may take long.
                    let _ = asks_sender.send(Asked { request, responder });
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
                until.cancelled().await;
                Ok(())
            });
        let mut library = Box::pin(library);
        // The first step gives us the handle; the rest runs beside us.
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let _ = library.as_mut().poll(&mut context);
        let wire = wire.try_recv().map_err(|_| internal("the protocol did not begin"))?;
        start.tasks.spawn(async move {
            if let Err(error) = library.await {
                tracing::debug!(
                    code = error.code.value(),
                    "the protocol with an agent ended early"
                );
            }
        });
        let input = Some(closed.drop_guard());
        Ok(Connection { child, wire, lines, asks, listening, writing, input })
    }

    /// From now on the agent's lines are kept. What came before belongs to the greeting, or repeats an
    /// old conversation.
    pub fn listen(&self) {
        self.listening.store(true, Ordering::Release);
    }

    /// What is known of the way to the agent.
    pub fn writing(&self) -> Arc<Writing> {
        self.writing.clone()
    }

    /// Closes the agent's input, after which it should end by itself.
    pub fn without_input(mut self) -> Connection {
        self.input = None;
        self
    }
}

/// Which prompts may have reached the agent. In doubt they have: none is asked twice.
#[derive(Debug, Default)]
pub(super) struct Writing {
    /// Prompts that were about to be written.
    begun: AtomicU64,
    /// Whether something could not be written any more.
    refused: AtomicBool,
}

impl Writing {
    /// Whether the last of so many prompts certainly never reached the agent. To be asked when it is gone.
    pub fn is_unasked(&self, prompts: u64) -> bool {
        self.begun.load(Ordering::Acquire) < prompts || self.refused.load(Ordering::Acquire)
    }
}

type Input = (pipe::Sender, Arc<Writing>);

async fn write((mut stdin, writing): Input, line: String) -> std::io::Result<Input> {
    if lines::method(&line).as_deref() == Some("session/prompt") {
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

/// Reads the agent's output to its end. The library never waits for those who keep the lines, but lines
/// do: an agent that says more than can be stored is held up by its own pipe.
async fn read(
    stdout: pipe::Receiver,
    lines: mpsc::Sender<Line>,
    library: mpsc::UnboundedSender<std::io::Result<String>>,
    listening: Arc<AtomicBool>,
) {
    let mut input = BufReader::with_capacity(16 << 10, stdout);
    while let Some(line) = lines::next(&mut input).await {
        let for_library = (line.kind != Kind::Notification).then(|| line.text.clone());
        if listening.load(Ordering::Acquire) && lines.send(line).await.is_err() {
            return;
        }
        if let Some(text) = for_library {
            let _ = library.send(Ok(text));
        }
    }
}
