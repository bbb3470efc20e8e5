//! The streams of one agent and the protocol library on top of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CreateElicitationRequest, CreateTerminalRequest, KillTerminalRequest, ReadTextFileRequest,
    ReleaseTerminalRequest, RequestPermissionRequest, TerminalOutputRequest,
    WaitForTerminalExitRequest, WriteTextFileRequest,
};
use agent_client_protocol::{Agent, Client, ConnectTo, Lines, on_receive_request};
use hob_child::Child;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::answers::PendingAnswers;
use super::files::FileAccess;
use super::questions::Question;
use super::replay::{LineUse, ReplayFilter};
use super::terminals::AgentTerminals;
use crate::app_permits::PermitsOfApp;
use crate::driver::settings::AgentSettings;
use crate::driver::start::{StartError, StartOptions};
use crate::json_lines::{self, JsonLine, LineError, LineKind, LineReader};

/// Lines that may wait to be stored. When the channel is full, the agent itself waits.
const MAX_PENDING_LINES: usize = 32;
/// Lines that may wait for the protocol library.
const MAX_LIBRARY_LINES: usize = 32;

/// A live agent's process and streams. Dropping it ends the process tree.
pub(super) struct Connection {
    pub child: Child,
    pub wire: ConnectionTo<Agent>,
    pub lines: mpsc::Receiver<Result<JsonLine, LineError>>,
    pub questions: mpsc::UnboundedReceiver<Question>,
    /// Decides which of the agent's lines are reported. Lines of the handshake never are.
    pub replay: Arc<ReplayFilter>,
    /// What the agent offers.
    pub settings: AgentSettings,
    /// Whether the conversation is open, so that somebody can answer questions.
    pub is_started: Arc<AtomicBool>,
    writing: Arc<Writing>,
    input: Option<DropGuard>,
}

impl Connection {
    pub fn open(mut child: Child, start: &StartOptions) -> Result<Connection, StartError> {
        let internal = |text: &str| StartError::Internal(text.to_owned());
        let stdin = child.stdin.take().ok_or_else(|| internal("the agent has no input"))?;
        let stdout = child.stdout.take().ok_or_else(|| internal("the agent has no output"))?;
        let (for_library, library) = mpsc::channel(MAX_LIBRARY_LINES);
        let (lines_sender, lines) = mpsc::channel(MAX_PENDING_LINES);
        let (questions_sender, questions) = mpsc::unbounded_channel();
        let replay = Arc::new(ReplayFilter::new());
        let closed = CancellationToken::new();
        let answers = Arc::new(PendingAnswers::default());
        let settings = AgentSettings::default();
        let output = Output {
            lines: lines_sender,
            library: for_library,
            replay: replay.clone(),
            answers: answers.clone(),
            settings: settings.clone(),
        };
        start.tasks.spawn(read(stdout, start.permits.long_lines.clone(), output));
        let writing = Arc::new(Writing::default());
        let input = Input { stdin, writing: writing.clone(), answers: answers.clone() };
        let outgoing = futures_util::sink::unfold(input, write);
        let incoming = ReceiverStream::new(library);
        let transport = Lines::new(outgoing, incoming);
        let sandbox = start.child.confinement.as_ref();
        let hidden = sandbox.map_or(&[][..], |sandbox| &sandbox.hidden);
        let permits = start.permits.file_requests.clone();
        let file_access = FileAccess::new(&start.child.cwd, &start.files, hidden, permits);
        let terminals = AgentTerminals::new(start, file_access.clone());
        let (wire_sender, mut wire) = oneshot::channel();
        let is_started = Arc::new(AtomicBool::new(false));
        let handlers = Handlers {
            file_access,
            terminals,
            questions: questions_sender,
            answers,
            is_started: is_started.clone(),
        };
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
        Ok(Connection {
            child,
            wire,
            lines,
            questions,
            replay,
            settings,
            is_started,
            writing,
            input,
        })
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
    questions: mpsc::UnboundedSender<Question>,
    answers: Arc<PendingAnswers>,
    is_started: Arc<AtomicBool>,
}

impl Handlers {
    /// Runs the protocol until `closed` is cancelled. The connection handle is sent first.
    async fn serve(
        self,
        transport: impl ConnectTo<Client> + 'static,
        wire_sender: oneshot::Sender<ConnectionTo<Agent>>,
        closed: CancellationToken,
    ) -> Result<(), agent_client_protocol::Error> {
        let Handlers { file_access, terminals, questions, answers, is_started } = self;
        let forms = questions.clone();
        let (for_files, for_output) = (answers.clone(), answers);
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
                    let request = Box::new(request);
                    let _ = questions.send(Question::Permission { request, responder });
                    Ok(())
                },
                on_receive_request!(),
            )
            .on_receive_request(
                async move |request: CreateElicitationRequest, responder, _| {
                    let is_started = is_started.load(Ordering::Acquire);
                    if let Some(question) = Question::form(request, responder, is_started)? {
                        let _ = forms.send(question);
                    }
                    Ok(())
                },
                on_receive_request!(),
            )
            .on_receive_request(
                async move |request: ReadTextFileRequest, responder, _| {
                    for_files.wait_for_answers_to_be_read().await;
                    let (answer, permit) = for_reading.read(request).await;
                    let bytes = answer.as_ref().map_or(0, |answer| answer.content.len());
                    for_files.add_answer(responder.raw_id(), bytes, permit);
                    responder.respond_with_result(answer)
                },
                on_receive_request!(),
            )
            .on_receive_request(
                async move |request: WriteTextFileRequest, responder, _| {
                    responder.respond_with_result(for_writing.write(request).await)
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
                    for_output.wait_for_answers_to_be_read().await;
                    let answer = showing.output(&request);
                    let bytes = answer.as_ref().map_or(0, |answer| answer.output.len());
                    for_output.add_answer(responder.raw_id(), bytes, None);
                    responder.respond_with_result(answer)
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

/// Where the protocol library's lines go.
struct Input {
    stdin: pipe::Sender,
    writing: Arc<Writing>,
    answers: Arc<PendingAnswers>,
}

async fn write(mut input: Input, line: String) -> std::io::Result<Input> {
    if json_lines::method(&line).as_deref() == Some("session/prompt") {
        input.writing.begun.fetch_add(1, Ordering::Release);
    }
    let answered = input.answers.answered_by(&line);
    let mut bytes = line.into_bytes();
    bytes.push(b'\n');
    if let Err(error) = input.stdin.write_all(&bytes).await {
        input.writing.refused.store(true, Ordering::Release);
        return Err(error);
    }
    if let Some(id) = answered {
        input.answers.remove(&id);
    }
    Ok(input)
}

/// Where the agent's lines go.
struct Output {
    lines: mpsc::Sender<Result<JsonLine, LineError>>,
    library: mpsc::Sender<std::io::Result<String>>,
    replay: Arc<ReplayFilter>,
    answers: Arc<PendingAnswers>,
    settings: AgentSettings,
}

/// Reads the agent's output to its end. An agent that writes faster than its lines are stored is slowed
/// down by its own pipe, and so is one that asks without reading the answers.
async fn read(stdout: pipe::Receiver, long_lines: PermitsOfApp, output: Output) {
    let Output { lines, library, replay, answers, settings } = output;
    let mut reader = LineReader::new(BufReader::with_capacity(16 << 10, stdout), long_lines);
    loop {
        let mut line = match reader.next().await {
            Ok(Some(line)) => line,
            Ok(None) => return,
            Err(error) => {
                let _ = lines.send(Err(error)).await;
                return;
            }
        };
        let for_library = (line.kind != LineKind::Notification).then(|| line.text.clone());
        if let LineKind::Request(id) = &line.kind {
            tokio::select! {
                () = answers.wait_for_room() => {}
                () = lines.closed() => return,
            }
            // A file to write stays in memory until its turn. Other requests may wait for a person, so they must not
            // keep the permit from other agents.
            let is_write = line.permit.is_some()
                && json_lines::method(&line.text).as_deref() == Some("fs/write_text_file");
            let permit = if is_write { line.permit.take() } else { None };
            answers.add_request(id, line.text.len(), permit);
        }
        match line.kind {
            LineKind::Notification => settings.read(&line.text),
            LineKind::Response(_) => settings.read_models(&line.text),
            LineKind::Request(_) => {}
        }
        match replay.decide(&line) {
            LineUse::Discard => {}
            LineUse::ReportIfRoom => drop(lines.try_send(Ok(line))),
            LineUse::Report => {
                if lines.send(Ok(line)).await.is_err() {
                    return;
                }
            }
        }
        if let Some(text) = for_library {
            let _ = library.send(Ok(text)).await;
        }
    }
}
