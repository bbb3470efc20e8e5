//! The server side of the socket.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hob_agents::Runtime;
use hob_agents::client_tools::{ToolExchange, ToolServers};
use hob_child::{Children, Placed};
use hob_domain::json_size::has_too_many_values;
use hob_domain::memory::{Forget, Principal, ProjectLocation, RecordId, Stored, TurnSource};
use hob_domain::{AppFilter, AppName, LedgerStore, StoreError, Timestamp};
use hob_gateway::{Connections, Router, serve_owner};
use hob_mcp::{CallerContext, McpServer, Tools};
use hob_memory::locate_project;
use hob_sessions::session::Sessions;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::frame;
use super::owner_git;
use super::peer_limits::{
    AGENT_FRAME_LIMIT, LONG_MESSAGE_BYTES, MESSAGE_TIMEOUT, Peer, PeerLimits,
};
use super::protocol::{Answer, Call, FRAME_LIMIT, GitRequest, Hello, PROTOCOL};
use super::tool_backends::{ClientTools, PeerTools, call_tool};

/// A connection with one message per line.
type LineStream = tokio::io::Join<Box<dyn AsyncRead + Send + Unpin>, OwnedWriteHalf>;

/// The service of such a connection.
type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The parts of the server that answer calls.
pub struct Service {
    pub hello: Hello,
    pub tools: Tools,
    children: Children,
    tool_servers: ToolServers,
    sessions: Sessions,
    /// The HTTP API, for the owner.
    router: Router,
    /// Cancelled at the end of a shutdown: all connections must close.
    disconnect: CancellationToken,
    /// Holds the audit log.
    ledger: Arc<dyn LedgerStore>,
    limits: Arc<PeerLimits>,
}

impl Service {
    pub fn new(
        hello: Hello,
        tools: Tools,
        runtime: &Runtime,
        sessions: Sessions,
        router: Router,
        disconnect: CancellationToken,
        ledger: Arc<dyn LedgerStore>,
    ) -> Service {
        Service {
            hello,
            tools,
            children: runtime.children.clone(),
            tool_servers: runtime.tool_servers.clone(),
            sessions,
            router,
            disconnect,
            ledger,
            limits: Arc::new(PeerLimits::new()),
        }
    }

    /// Identifies a peer by its process, not by what it claims: a descendant of an app's agent acts
    /// for that app. Returns `None` if the process is gone.
    fn peer(&self, stream: &UnixStream) -> Option<Peer> {
        match self.children.placed(stream.as_fd()) {
            Placed::Elsewhere | Placed::Under(None) => Some(Peer::Owner),
            Placed::Under(Some(owner)) => Some(Peer::AgentOf(owner.app)),
            Placed::Gone => None,
        }
    }
}

/// What follows after the framed part of a connection.
enum NextProtocol {
    /// The connection ends.
    None,
    /// HTTP, with the owner's rights.
    Http(UnixStream),
}

/// Accepts connections until `stopping` is cancelled. Every connection is a task of `tasks` and
/// ends at `stopping`, too.
pub async fn serve(
    listener: UnixListener,
    service: Arc<Service>,
    connections: Connections,
    tasks: TaskTracker,
    stopping: CancellationToken,
) {
    let owner = nix::unistd::getuid().as_raw();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection to the socket");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            },
            () = stopping.cancelled() => return,
        };
        // The mode of the file keeps other users out. This check also refuses root and passed
        // descriptors.
        let Ok(user) = stream.peer_cred() else { continue };
        if user.uid() != owner {
            continue;
        }
        let Some(peer) = service.peer(&stream) else { continue };
        let Some(permit) = service.limits.connection(&peer) else {
            tracing::warn!(?peer, "closed a connection of an app that has too many");
            continue;
        };
        let open = connections.open();
        let (service, stopping) = (service.clone(), stopping.clone());
        tasks.spawn(async move {
            let next = tokio::select! {
                result = serve_frames(stream, &service, &peer) => result.unwrap_or_else(|error| {
                    tracing::debug!(%error, "a connection to the socket ended early");
                    NextProtocol::None
                }),
                () = stopping.cancelled() => NextProtocol::None,
            };
            if let NextProtocol::Http(stream) = next {
                // As over TCP, running requests get their answer during the grace period.
                tokio::select! {
                    () = serve_owner(stream, service.router.clone(), stopping) => {}
                    () = service.disconnect.cancelled() => {}
                }
            }
            drop((open, permit));
        });
    }
}

/// Answers framed calls until the peer closes the connection or switches to another protocol.
async fn serve_frames(
    mut stream: UnixStream,
    service: &Service,
    peer: &Peer,
) -> io::Result<NextProtocol> {
    let principal = peer.principal();
    loop {
        let Some(length) = frame::read_length(&mut stream).await? else {
            return Ok(NextProtocol::None);
        };
        let limit = match peer {
            Peer::Owner => FRAME_LIMIT,
            Peer::AgentOf(_) => AGENT_FRAME_LIMIT,
        };
        if length > limit {
            let error = format!("a frame of {length} bytes is too large (maximum: {limit})");
            send(&mut stream, &Answer::Error(error)).await?;
            return Ok(NextProtocol::None);
        }
        // It is held until the answer is on its way.
        let permit = match peer {
            Peer::AgentOf(_) if length > LONG_MESSAGE_BYTES => {
                Some(service.limits.long_message(peer).await?)
            }
            _ => None,
        };
        let body = frame::read_body(&mut stream, length).await?;
        if *peer != Peer::Owner && has_too_many_values(&body) {
            send(&mut stream, &Answer::Error("the call has too many values".to_owned())).await?;
            return Ok(NextProtocol::None);
        }
        let call = serde_json::from_slice(&body);
        // The connection may go on for long.
        drop(body);
        let answer = match call {
            // A hello needs no permit: a probe must not wait for running calls.
            Ok(Call::Hello { protocol, home }) => service.greet(peer, protocol, home.as_deref()),
            Ok(Call::Mcp { cwd }) => {
                send(&mut stream, &Answer::Mcp).await?;
                let location = service.locate(peer, cwd).await;
                drop(permit);
                let note_source = TurnSource::Mcp;
                let caller = CallerContext { principal, location, note_source };
                let tools = service.memory_tools(peer, caller);
                let server = McpServer::new(Arc::new(tools));
                let serving =
                    |stream| -> Serving { Box::pin(hob_mcp::serve_stream(server, stream)) };
                return serve_lines(stream, service, peer, serving).await;
            }
            Ok(Call::ClientTools { key }) => match service.client_tools(peer, &key) {
                Some(tools) => {
                    drop(permit);
                    send(&mut stream, &Answer::Mcp).await?;
                    let tools = Arc::new(ClientTools(tools));
                    let serving = |stream| -> Serving {
                        Box::pin(hob_mcp::serve_client_tools(tools, stream))
                    };
                    return serve_lines(stream, service, peer, serving).await;
                }
                None => Answer::Refused("no client is connected to run this tool".to_owned()),
            },
            Ok(Call::Http) if *peer == Peer::Owner => {
                send(&mut stream, &Answer::Http).await?;
                return Ok(NextProtocol::Http(stream));
            }
            Ok(Call::Http) => {
                let text = "inside an agent, use the app's own token over HTTP".to_owned();
                Answer::Refused(text)
            }
            Ok(Call::GitCredential { request }) => {
                let _call_permit = service.limits.call(peer).await?;
                service.git_credential(&stream, &request).await
            }
            Ok(Call::Unseal { .. } | Call::Forget { .. }) if *peer != Peer::Owner => {
                Answer::Refused(
                    "an agent cannot do this; run the command yourself in a terminal".to_owned(),
                )
            }
            Ok(call) => {
                let _call_permit = service.limits.call(peer).await?;
                service.answer(peer, &principal, call).await
            }
            Err(error) => Answer::Error(format!("unknown call: {error}")),
        };
        // A peer that does not read keeps what it asked for in memory only for a while.
        tokio::time::timeout(MESSAGE_TIMEOUT, send(&mut stream, &answer)).await??;
        drop(permit);
    }
}

/// Serves a protocol that has one message per line until the peer closes the connection. The lines of agents are bounded.
async fn serve_lines(
    stream: UnixStream,
    service: &Service,
    peer: &Peer,
    serve: impl FnOnce(LineStream) -> Serving,
) -> io::Result<NextProtocol> {
    let (reading, writing) = stream.into_split();
    if *peer == Peer::Owner {
        serve(tokio::io::join(Box::new(reading), writing)).await;
        return Ok(NextProtocol::None);
    }
    let (to, passed) = tokio::io::duplex(LONG_MESSAGE_BYTES);
    let lines = async {
        match service.limits.pass_lines(peer, BufReader::new(reading), to).await {
            // The agent sends no more, and may still read answers.
            Ok(()) => std::future::pending().await,
            Err(error) => error,
        }
    };
    tokio::select! {
        () = serve(tokio::io::join(Box::new(passed), writing)) => Ok(NextProtocol::None),
        error = lines => Err(error),
    }
}

async fn send(stream: &mut UnixStream, answer: &Answer) -> io::Result<()> {
    let body = serde_json::to_vec(answer)?;
    stream.write_all(&(body.len() as u32).to_be_bytes()).await?;
    stream.write_all(&body).await
}

impl Service {
    /// Returns the project of a folder that a peer names. Runs on a blocking thread, because the folder may lie on a disk that
    /// hangs. The thread keeps the permit, also when the peer has gone.
    async fn locate(&self, peer: &Peer, folder: Option<String>) -> Option<ProjectLocation> {
        let folder = folder?;
        let permit = self.limits.lookup(peer).await.ok()?;
        let look_up = move || {
            let _permit = permit;
            locate_project(Path::new(&folder))
        };
        tokio::task::spawn_blocking(look_up).await.ok()
    }

    /// Returns the tools of a client, if the peer is an agent of the client's app.
    fn client_tools(&self, peer: &Peer, key: &str) -> Option<Arc<ToolExchange>> {
        let owner = AppName::owner();
        let app = match peer {
            Peer::Owner => owner.as_str(),
            Peer::AgentOf(app) => app,
        };
        self.tool_servers.find(key, app)
    }

    fn is_session(&self, principal: &Principal, name: &str) -> bool {
        let owner = AppName::owner();
        let app = match principal {
            Principal::Owner => owner.as_str(),
            Principal::App(app) => app,
        };
        self.sessions.is_conversation(app, name)
    }

    /// Records an act of the owner.
    async fn audit(&self, action: &str, target: &str) -> Result<(), StoreError> {
        self.audit_with(action, target, &json!({})).await
    }

    async fn audit_with(
        &self,
        action: &str,
        target: &str,
        detail: &Value,
    ) -> Result<(), StoreError> {
        self.ledger.append_audit(Timestamp::now(), action, target, detail).await.map(drop)
    }

    /// Returns an app as the one whose memory is used. Only the owner may use an app's memory.
    async fn principal_of_app(&self, peer: &Peer, app: &str) -> Result<Principal, String> {
        if *peer != Peer::Owner {
            return Err("an agent cannot use the memory of another app".to_owned());
        }
        let apps = self.ledger.apps(AppFilter::All).await.map_err(|error| error.to_string())?;
        match apps.iter().any(|known| known.name.as_str() == app) {
            true => Ok(Principal::App(app.to_owned())),
            false => Err(format!("no app has the name {app}; `hob app list` shows them")),
        }
    }

    /// Asks Git for the owner's credential for a host, if the entry of the peer's agent names the host.
    async fn git_credential(&self, stream: &UnixStream, request: &GitRequest) -> Answer {
        let owner = match self.children.placed(stream.as_fd()) {
            Placed::Under(Some(owner)) => owner,
            _ => return Answer::Refused("this command is for agents".to_owned()),
        };
        let filled = match owner_git::check(request, &owner.git_hosts) {
            Ok(()) => owner_git::fill(&self.children, request).await,
            Err(refusal) => return Answer::Refused(refusal),
        };
        let credential = match filled {
            Ok(credential) => credential,
            Err(refusal) => return Answer::Refused(refusal),
        };
        let detail = json!({"app": owner.app, "username": credential["username"]});
        let audited = match self.limits.is_noted(&format!("{} {detail}", request.host)) {
            true => Ok(()),
            false => self.audit_with("git_credential", &request.host, &detail).await,
        };
        match audited {
            Ok(()) => Answer::Result(credential),
            Err(error) => Answer::Error(error.to_string()),
        }
    }

    fn greet(&self, peer: &Peer, protocol: u32, home: Option<&str>) -> Answer {
        // An agent in its sandbox sees another folder in place of the home.
        if *peer == Peer::Owner && home.is_some_and(|home| home != self.hello.home) {
            let text = "this server serves another home; set HOB_SOCKET to a path of its own for each home";
            return Answer::Error(text.to_owned());
        }
        match protocol {
            0..=PROTOCOL => Answer::Hello(self.hello.clone()),
            _ => Answer::Error(format!(
                "this server ({}) speaks protocol {PROTOCOL}, not {protocol}: restart `hob serve`",
                self.hello.version
            )),
        }
    }

    /// Returns the memory's tools for a peer.
    fn memory_tools(&self, peer: &Peer, caller: CallerContext) -> PeerTools {
        let (tools, limits) = (self.tools.clone(), self.limits.clone());
        PeerTools { tools, caller, peer: peer.clone(), limits }
    }

    /// Answers a call, whose permit the caller holds.
    async fn answer(&self, peer: &Peer, principal: &Principal, call: Call) -> Answer {
        let engine = &self.tools.engine;
        match call {
            // The session itself stores the turns of its agent; the hooks of that agent only repeat
            // them.
            Call::Capture { batch } if self.is_session(principal, &batch.session) => {
                let duplicates = batch.turns.len();
                Answer::Captured(Stored { duplicates, ..Stored::default() })
            }
            Call::Capture { mut batch } => {
                if *peer != Peer::Owner {
                    batch.source = TurnSource::Agent;
                }
                match engine.capture(principal, batch, Vec::new()).await {
                    Ok(stored) => Answer::Captured(stored),
                    Err(error) => Answer::Error(error.to_string()),
                }
            }
            Call::Tool { name, arguments, cwd, app } => {
                let principal = match app {
                    None => principal.clone(),
                    Some(app) => match self.principal_of_app(peer, &app).await {
                        Ok(principal) => principal,
                        Err(refusal) => return Answer::Refused(refusal),
                    },
                };
                let location = self.locate(peer, cwd).await;
                let note_source = match peer {
                    Peer::Owner => TurnSource::Owner,
                    Peer::AgentOf(_) => TurnSource::Mcp,
                };
                let caller = CallerContext { principal, location, note_source };
                match call_tool(&self.tools, &caller, &name, arguments).await {
                    Ok(value) => Answer::Result(value),
                    Err(reason) => Answer::Refused(reason),
                }
            }
            Call::Hello { .. }
            | Call::Mcp { .. }
            | Call::ClientTools { .. }
            | Call::GitCredential { .. }
            | Call::Http => Answer::Error("unexpected call".to_owned()),
            Call::SessionStart { cwd, session_id, budget_tokens } => {
                let location = self.locate(peer, Some(cwd)).await;
                let project = location.map(|place| place.project).unwrap_or_default();
                let session = session_id.as_deref();
                let text = engine.session_start(principal, &project, session, budget_tokens).await;
                match text {
                    Ok(text) => Answer::Text(text),
                    Err(error) => Answer::Error(error.to_string()),
                }
            }
            Call::Unseal { record_id } => {
                match engine.record(principal, &RecordId::new(record_id.as_str())).await {
                    Ok(Some(record)) => match engine.unseal(&record) {
                        Some(text) => match self.audit("unseal", &record_id).await {
                            Ok(()) => Answer::Text(text),
                            Err(error) => Answer::Error(error.to_string()),
                        },
                        None => Answer::Refused(format!(
                            "cannot decrypt the secrets of record {record_id}: they were encrypted with another key, or are damaged"
                        )),
                    },
                    Ok(None) => Answer::Refused(format!("no record has the ID {record_id}")),
                    Err(error) => Answer::Error(error.to_string()),
                }
            }
            Call::Forget { record_id, session_id, undo } => {
                let named = Forget::named(record_id.as_deref(), session_id.as_deref());
                let Some(what) = named else {
                    return Answer::Error("name a record or a session".to_owned());
                };
                let action = if undo { "undo_forget" } else { "forget" };
                if let Err(error) = self.audit(action, what.target()).await {
                    return Answer::Error(error.to_string());
                }
                let now = Timestamp::now();
                let changed = match undo {
                    true => engine.undo_forget(principal, &what, now).await,
                    false => engine.forget(principal, &what, now).await,
                };
                match changed {
                    Ok(count) => Answer::Result(engine.forget_answer(count, undo, now)),
                    Err(error) => Answer::Error(error.to_string()),
                }
            }
        }
    }
}
