//! The server side of the socket.

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::hash::Hash;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hob_agents::Runtime;
use hob_agents::client_tools::{ToolExchange, ToolServers};
use hob_child::{Children, Placed};
use hob_domain::json_size::has_too_many_values;
use hob_domain::memory::{Forget, Principal, ProjectLocation, RecordId, Stored};
use hob_domain::{AppName, LedgerStore, StoreError, Timestamp};
use hob_gateway::{Connections, Router, serve_owner};
use hob_mcp::{CallerContext, McpServer, ToolBackend, Tools};
use hob_memory::locate_project;
use hob_sessions::session::Sessions;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::protocol::{Answer, Call, FRAME_LIMIT, Hello, PROTOCOL};
use super::tool_backends::{ClientTools, PeerTools};

/// The largest frame of an agent's process. A hook inside an agent sends its turns in smaller parts.
const AGENT_FRAME_LIMIT: usize = 8 << 20;
/// How long the rest of a frame may take to arrive.
const FRAME_TIMEOUT: Duration = Duration::from_secs(30);
/// The most connections of one app's agents. Each bridge of an agent keeps one open.
const MAX_APP_CONNECTIONS: usize = 256;
/// A longer frame of an agent counts as a call while it arrives, so that an app cannot send many of them at once.
const LONG_FRAME_BYTES: usize = 64 << 10;
/// The maximum number of calls that the owner's processes run at once; further calls wait.
const MAX_OWNER_CALLS: usize = 64;
/// The maximum number of calls that the agents of one app run at once; further calls wait.
const MAX_APP_CALLS: usize = 8;
/// The maximum length of a socket's path on Linux, in bytes.
const MAX_PATH_BYTES: usize = 107;
/// How long the socket of a killed server may still accept connections.
const STALE_SOCKET_TIMEOUT: Duration = Duration::from_secs(1);

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
    call_permits: Permits<Principal>,
    connection_permits: Permits<Peer>,
}

/// Permits of which every key has its own, so that the agents of one app cannot keep the owner or another app waiting.
struct Permits<K> {
    max: fn(&K) -> usize,
    by_key: Mutex<HashMap<K, Arc<Semaphore>>>,
}

impl<K: Clone + Eq + Hash> Permits<K> {
    fn new(max: fn(&K) -> usize) -> Permits<K> {
        Permits { max, by_key: Mutex::default() }
    }

    /// Waits for a permit. Returns `None` when the server is stopping.
    async fn acquire(&self, key: &K) -> Option<OwnedSemaphorePermit> {
        self.of(key).acquire_owned().await.ok()
    }

    /// Returns a permit, or `None` if all are taken.
    fn try_acquire(&self, key: &K) -> Option<OwnedSemaphorePermit> {
        self.of(key).try_acquire_owned().ok()
    }

    fn of(&self, key: &K) -> Arc<Semaphore> {
        let mut all = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        // An entry whose permits nobody uses or waits for is not needed.
        all.retain(|known, permits| known == key || Arc::strong_count(permits) > 1);
        let permits = all.entry(key.clone());
        permits.or_insert_with(|| Arc::new(Semaphore::new((self.max)(key)))).clone()
    }
}

fn max_calls(principal: &Principal) -> usize {
    match principal {
        Principal::Owner => MAX_OWNER_CALLS,
        Principal::App(_) => MAX_APP_CALLS,
    }
}

fn max_connections(peer: &Peer) -> usize {
    match peer {
        Peer::Owner => Semaphore::MAX_PERMITS,
        Peer::AgentOf(_) => MAX_APP_CONNECTIONS,
    }
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
            call_permits: Permits::new(max_calls),
            connection_permits: Permits::new(max_connections),
        }
    }

    /// Identifies a peer by its process, not by what it claims: a descendant of an app's agent acts
    /// for that app. Returns `None` if the process is gone.
    fn peer(&self, stream: &UnixStream) -> Option<Peer> {
        match self.children.placed(stream.as_fd()) {
            Placed::Elsewhere | Placed::Under(None) => Some(Peer::Owner),
            Placed::Under(Some(app)) => Some(Peer::AgentOf(app)),
            Placed::Gone => None,
        }
    }
}

/// The process at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Peer {
    Owner,
    /// A process that an agent of this app has started.
    AgentOf(String),
}

impl Peer {
    /// Returns whose memory the peer uses. Agents in the owner's own sessions use that of the
    /// owner.
    fn principal(&self) -> Principal {
        match self {
            Peer::AgentOf(app) if app != AppName::owner().as_str() => Principal::App(app.clone()),
            Peer::Owner | Peer::AgentOf(_) => Principal::Owner,
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

/// Binds the socket with mode 0600. Replaces a stale socket that a crash left; fails if another
/// process answers on it. Blocks. The caller must hold the serve lock.
pub fn bind(path: &Path) -> anyhow::Result<std::os::unix::net::UnixListener> {
    if path.as_os_str().len() > MAX_PATH_BYTES {
        bail!(
            "the path of the socket is longer than {MAX_PATH_BYTES} bytes: {}; set HOB_SOCKET to a shorter one",
            path.display()
        );
    }
    // A process that a killed server was just starting keeps its socket open for a moment.
    let until = Instant::now() + STALE_SOCKET_TIMEOUT;
    while std::os::unix::net::UnixStream::connect(path).is_ok() {
        if Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        bail!(
            "another program answers on the socket {}; set HOB_SOCKET to another path",
            path.display()
        );
    }
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_file() || found.is_dir()) {
        bail!("{} exists and is not a socket; set HOB_SOCKET to another path", path.display());
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error)
                .with_context(|| format!("cannot remove the old socket {}", path.display()));
        }
        _ => {}
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let listener = std::os::unix::net::UnixListener::bind(path)
        .with_context(|| format!("cannot listen on the socket {}", path.display()))?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
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
        let Some(permit) = service.connection_permits.try_acquire(&peer) else {
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
        let mut length = [0; 4];
        match stream.read_exact(&mut length).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(NextProtocol::None);
            }
            Err(error) => return Err(error),
        }
        let length = u32::from_be_bytes(length) as usize;
        let limit = match peer {
            Peer::Owner => FRAME_LIMIT,
            Peer::AgentOf(_) => AGENT_FRAME_LIMIT,
        };
        if length > limit {
            let error = format!("a frame of {length} bytes is too large (maximum: {limit})");
            send(&mut stream, &Answer::Error(error)).await?;
            return Ok(NextProtocol::None);
        }
        let permit = match peer {
            Peer::AgentOf(_) if length > LONG_FRAME_BYTES => {
                service.call_permits.acquire(&principal).await
            }
            _ => None,
        };
        // The buffer grows with the data: a peer cannot reserve memory by a length alone.
        let mut body = Vec::new();
        let mut frame = (&mut stream).take(length as u64);
        tokio::time::timeout(FRAME_TIMEOUT, frame.read_to_end(&mut body)).await??;
        if body.len() < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        drop(permit);
        if *peer != Peer::Owner && has_too_many_values(&body) {
            send(&mut stream, &Answer::Error("the call has too many values".to_owned())).await?;
            return Ok(NextProtocol::None);
        }
        let answer = match serde_json::from_slice(&body) {
            // A hello needs no permit: a probe must not wait for running calls.
            Ok(Call::Hello { protocol, home }) => service.greet(peer, protocol, home.as_deref()),
            Ok(Call::Mcp { cwd }) => {
                send(&mut stream, &Answer::Mcp).await?;
                let caller = CallerContext { principal, location: locate(cwd).await };
                let tools = PeerTools { tools: service.tools.clone(), caller };
                hob_mcp::serve_stream(McpServer::new(Arc::new(tools)), stream).await;
                return Ok(NextProtocol::None);
            }
            Ok(Call::ClientTools { key }) => match service.client_tools(peer, &key) {
                Some(tools) => {
                    send(&mut stream, &Answer::Mcp).await?;
                    hob_mcp::serve_client_tools(Arc::new(ClientTools(tools)), stream).await;
                    return Ok(NextProtocol::None);
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
            Ok(Call::Unseal { .. } | Call::Forget { .. }) if *peer != Peer::Owner => {
                Answer::Refused(
                    "an agent cannot do this; run the command yourself in a terminal".to_owned(),
                )
            }
            Ok(call) => service.answer(&principal, call).await,
            Err(error) => Answer::Error(format!("unknown call: {error}")),
        };
        send(&mut stream, &answer).await?;
    }
}

async fn send(stream: &mut UnixStream, answer: &Answer) -> io::Result<()> {
    let body = serde_json::to_vec(answer)?;
    stream.write_all(&(body.len() as u32).to_be_bytes()).await?;
    stream.write_all(&body).await
}

/// Returns the project of a folder. Runs on a blocking thread, because the folder may lie on a disk
/// that hangs.
async fn locate(folder: Option<String>) -> Option<ProjectLocation> {
    let folder = folder?;
    tokio::task::spawn_blocking(move || locate_project(Path::new(&folder))).await.ok()
}

impl Service {
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
        self.ledger.append_audit(Timestamp::now(), action, target, &json!({})).await.map(drop)
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

    async fn answer(&self, principal: &Principal, call: Call) -> Answer {
        let Some(_permit) = self.call_permits.acquire(principal).await else {
            return Answer::Error("the server is stopping".to_owned());
        };
        let engine = &self.tools.engine;
        match call {
            // The session itself stores the turns of its agent; the hooks of that agent only repeat
            // them.
            Call::Capture { batch } if self.is_session(principal, &batch.session) => {
                let duplicates = batch.turns.len();
                Answer::Captured(Stored { duplicates, ..Stored::default() })
            }
            Call::Capture { batch } => match engine.capture(principal, batch, Vec::new()).await {
                Ok(stored) => Answer::Captured(stored),
                Err(error) => Answer::Error(error.to_string()),
            },
            Call::Tool { name, arguments, cwd } => {
                let location = locate(cwd).await;
                let caller = CallerContext { principal: principal.clone(), location };
                let tools = PeerTools { tools: self.tools.clone(), caller };
                match tools.call(None, &name, arguments).await {
                    Ok(value) => Answer::Result(value),
                    Err(reason) => Answer::Refused(reason),
                }
            }
            Call::Hello { .. } | Call::Mcp { .. } | Call::ClientTools { .. } | Call::Http => {
                Answer::Error("unexpected call".to_owned())
            }
            Call::SessionStart { cwd, session_id, budget_tokens } => {
                let project =
                    locate(Some(cwd)).await.map(|place| place.project).unwrap_or_default();
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
