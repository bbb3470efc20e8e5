//! The server's side of the socket.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use async_trait::async_trait;
use hob_child::{Children, Placed};
use hob_domain::AppName;
use hob_domain::memory::{Principal, ProjectLocation, RecordId, Stored};
use hob_gateway::{Connections, Router, serve_owner};
use hob_mcp::{Backend, Caller, Here, McpServer, ToolError, Tools};
use hob_memory::locate_project;
use hob_sessions::session::Sessions;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::protocol::{Answer, Call, FRAME_LIMIT, Hello, PROTOCOL};

/// How many calls are worked on at once; the others wait their turn.
const AT_ONCE: usize = 64;
/// How long the socket of a killed run may still be answered on.
const LEFT_OVER: Duration = Duration::from_secs(1);

/// What the socket answers with.
pub struct Service {
    pub hello: Hello,
    pub tools: Tools,
    children: Children,
    sessions: Sessions,
    /// The HTTP surface, for the owner.
    router: Router,
    /// Cancelled when connections must end, whatever they wait for.
    cutting: CancellationToken,
    working: tokio::sync::Semaphore,
}

impl Service {
    pub fn new(
        hello: Hello,
        tools: Tools,
        children: Children,
        sessions: Sessions,
        router: Router,
        cutting: CancellationToken,
    ) -> Service {
        let working = tokio::sync::Semaphore::new(AT_ONCE);
        Service { hello, tools, children, sessions, router, cutting, working }
    }

    /// Who a peer is, whatever it claims: what descends from an app's agent speaks for that app. `None`
    /// when that can't be told any more.
    fn peer(&self, pid: Option<i32>) -> Option<Peer> {
        match self.children.placed(pid?) {
            Placed::Elsewhere | Placed::Under(None) => Some(Peer::Owner),
            Placed::Under(Some(app)) => Some(Peer::AgentOf(app)),
            Placed::Gone => None,
        }
    }
}

/// Who is at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Peer {
    Owner,
    /// Something an agent of this app has started.
    AgentOf(String),
}

impl Peer {
    /// Whose memory it is. An agent of the owner's own sessions remembers for the owner.
    fn principal(&self) -> Principal {
        match self {
            Peer::AgentOf(app) if app != AppName::owner().as_str() => Principal::App(app.clone()),
            Peer::Owner | Peer::AgentOf(_) => Principal::Owner,
        }
    }
}

/// How a conversation goes on.
enum Then {
    Nothing,
    /// As HTTP, for the owner.
    Http(UnixStream),
}

/// Binds the socket, 0600. A stale one left by a crash is taken over; one that somebody answers on
/// is not ours to take. Blocking; call it with the home's lock held.
pub fn bind(path: &Path) -> anyhow::Result<std::os::unix::net::UnixListener> {
    if path.as_os_str().len() > 107 {
        bail!("the socket's path is longer than the system allows (107 bytes): {}", path.display());
    }
    // A process that a killed run was just starting has its socket for a moment longer.
    let until = Instant::now() + LEFT_OVER;
    while std::os::unix::net::UnixStream::connect(path).is_ok() {
        if Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        bail!("another program answers on the socket {}", path.display());
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("{} is in the way", path.display()));
        }
        _ => {}
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("{} cannot be made", folder.display()))?;
    }
    let listener = std::os::unix::net::UnixListener::bind(path)
        .with_context(|| format!("cannot listen on the socket {}", path.display()))?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Answers on the socket until `stopping`. Every connection is a task of `tasks` and ends at
/// `stopping` too.
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
                    tracing::warn!(%error, "a connection to the socket could not be accepted");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            },
            () = stopping.cancelled() => return,
        };
        // The file's mode keeps others out; root and passed descriptors are met here.
        let Ok(peer) = stream.peer_cred() else { continue };
        if peer.uid() != owner {
            continue;
        }
        let Some(peer) = service.peer(peer.pid()) else { continue };
        let open = connections.open();
        let (service, stopping) = (service.clone(), stopping.clone());
        tasks.spawn(async move {
            let then = tokio::select! {
                result = converse(stream, &service, &peer) => result.unwrap_or_else(|error| {
                    tracing::debug!(%error, "a connection to the socket ended early");
                    Then::Nothing
                }),
                () = stopping.cancelled() => Then::Nothing,
            };
            if let Then::Http(stream) = then {
                // As over TCP: what was asked is answered, for as long as it may take.
                tokio::select! {
                    () = serve_owner(stream, service.router.clone(), stopping) => {}
                    () = service.cutting.cancelled() => {}
                }
            }
            drop(open);
        });
    }
}

async fn converse(mut stream: UnixStream, service: &Service, peer: &Peer) -> io::Result<Then> {
    let principal = peer.principal();
    loop {
        let mut length = [0; 4];
        match stream.read_exact(&mut length).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Then::Nothing),
            Err(error) => return Err(error),
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > FRAME_LIMIT {
            let error = format!("a frame of {length} bytes is too long ({FRAME_LIMIT} at most)");
            send(&mut stream, &Answer::Error(error)).await?;
            return Ok(Then::Nothing);
        }
        // Read as it comes: a length alone reserves nothing.
        let mut body = Vec::new();
        (&mut stream).take(length as u64).read_to_end(&mut body).await?;
        if body.len() < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let answer = match serde_json::from_slice(&body) {
            // Whoever only asks whether somebody is there does not wait for those who work.
            Ok(Call::Hello { protocol }) => service.greet(protocol),
            Ok(Call::Mcp { cwd }) => {
                send(&mut stream, &Answer::Mcp).await?;
                let here = Here { principal, place: placed(cwd).await };
                let tools = PlacedTools { tools: service.tools.clone(), here };
                hob_mcp::serve_stream(McpServer::new(Arc::new(tools)), stream).await;
                return Ok(Then::Nothing);
            }
            Ok(Call::Http) if *peer == Peer::Owner => {
                send(&mut stream, &Answer::Http).await?;
                return Ok(Then::Http(stream));
            }
            Ok(Call::Http) => {
                let text = "inside an agent hob is reached with the app's own token".to_owned();
                Answer::Refused(text)
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

/// Where a folder belongs. It may lie on a disk that does not answer, so nobody else waits for it.
async fn placed(folder: Option<String>) -> Option<ProjectLocation> {
    let folder = folder?;
    tokio::task::spawn_blocking(move || locate_project(Path::new(&folder))).await.ok()
}

/// The tools for whoever is at the other end.
struct PlacedTools {
    tools: Tools,
    here: Here,
}

#[async_trait]
impl Backend for PlacedTools {
    async fn call(
        &self,
        _: Option<&Caller>,
        name: &str,
        arguments: Value,
    ) -> Result<Value, String> {
        self.tools.call(&self.here, name, arguments).await.map_err(|error| {
            if let ToolError::Store(error) = &error {
                tracing::error!(%error, name, "a tool failed");
            }
            error.to_string()
        })
    }
}

impl Service {
    fn is_session(&self, principal: &Principal, name: &str) -> bool {
        let owner = AppName::owner();
        let app = match principal {
            Principal::Owner => owner.as_str(),
            Principal::App(app) => app,
        };
        self.sessions.is_conversation(app, name)
    }

    fn greet(&self, protocol: u32) -> Answer {
        match protocol {
            0..=PROTOCOL => Answer::Hello(self.hello.clone()),
            _ => Answer::Error(format!(
                "this hob ({}) speaks protocol {PROTOCOL}, not {protocol}: restart `hob serve`",
                self.hello.version
            )),
        }
    }

    async fn answer(&self, principal: &Principal, call: Call) -> Answer {
        let Ok(_permit) = self.working.acquire().await else {
            return Answer::Error("stopping".to_owned());
        };
        let engine = &self.tools.engine;
        match call {
            // What a session's agent says is remembered by the session; its hooks say it again.
            Call::Capture { batch } if self.is_session(principal, &batch.session) => {
                let duplicates = batch.turns.len();
                Answer::Captured(Stored { duplicates, ..Stored::default() })
            }
            Call::Capture { batch } => match engine.capture(principal, batch, Vec::new()).await {
                Ok(stored) => Answer::Captured(stored),
                Err(error) => Answer::Error(error.to_string()),
            },
            Call::Tool { name, arguments, cwd } => {
                let here = Here { principal: principal.clone(), place: placed(cwd).await };
                let tools = PlacedTools { tools: self.tools.clone(), here };
                match tools.call(None, &name, arguments).await {
                    Ok(value) => Answer::Result(value),
                    Err(why) => Answer::Refused(why),
                }
            }
            Call::Hello { .. } | Call::Mcp { .. } | Call::Http => {
                Answer::Error("this is answered before any work".to_owned())
            }
            Call::SessionStart { cwd, session_id, budget_tokens } => {
                let project =
                    placed(Some(cwd)).await.map(|place| place.project).unwrap_or_default();
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
                        Some(text) => Answer::Text(text),
                        None => Answer::Refused(format!("the seal of {record_id} does not open")),
                    },
                    Ok(None) => Answer::Refused(format!("there is no record {record_id}")),
                    Err(error) => Answer::Error(error.to_string()),
                }
            }
        }
    }
}
