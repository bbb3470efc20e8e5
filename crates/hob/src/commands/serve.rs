//! `hob serve`: the one long-lived process. This is where everything is put together.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args as ClapArgs;
use hob_agents::claude::{BackendOptions, BehindWalls, ClaudeBackend, Way};
use hob_agents::{LiveLimit, Walls, mcp_servers};
use hob_child::sweep::{self, Marker};
use hob_child::{Children, ChildrenOptions};
use hob_domain::{AgentName, AgentSpec, DataKey, Driver, LedgerStore, Timestamp};
use hob_gateway::{Connections, Gateway, GatewayLimits, Requests, SignIn};
use hob_mcp::Tools;
use hob_memory::{Drain, backlog};
use hob_sessions::session::{Sessions, SessionsOptions};
use hob_sessions::{Completions, CompletionsOptions, FileRoom, Runner, RunnerOptions};
use hob_terminal::Terminals;
use listenfd::ListenFd;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::doctor_gateway::HomeDoctor;
use super::{Context, Outcome};
use crate::care;
use crate::demo;
use crate::keys;
use crate::ledger;
use crate::logging;
use crate::memory;
use crate::outbox;
use crate::settings::Resolved;
use crate::socket::{self, Hello, PROTOCOL};

/// How long those who wait are told how it ended.
const TELLING: Duration = Duration::from_millis(2500);
/// After the grace, agents get this long to be ended and reaped.
const END_DEADLINE: Duration = Duration::from_secs(5);
/// How long a write waits for another process on the memory.
const STORE_BUSY: Duration = Duration::from_secs(5);

/// Run hob: the HTTP gateway and the socket, until it is told to stop
#[derive(ClapArgs)]
#[command(after_help = "\
Prints `hob listening on http://ADDRESS` once it answers (or the socket's path with --no-http). One \
per home: a second one exits 3 and names the first one's pid. SIGTERM and SIGINT stop it: running \
work gets shutdown_grace_secs, then every agent is ended. Takes sockets by LISTEN_FDS.")]
pub struct Args {
    /// Where to serve HTTP; port 0 takes a free one [default: 127.0.0.1:7717]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Serve the socket only
    #[arg(long)]
    no_http: bool,
}

impl Args {
    /// The flags as settings.
    pub fn overrides(&self) -> Vec<(&'static str, String)> {
        let listen = self.listen.clone().map(|listen| ("listen", listen));
        listen.into_iter().chain(self.no_http.then(|| ("http", "false".to_owned()))).collect()
    }
}

pub fn run(context: &Context, _args: &Args) -> anyhow::Result<Outcome> {
    let settings = &context.settings;
    settings.home.prepare()?;
    // The lock comes before anything heavy, so that a second one leaves at once.
    let _lock = match settings.home.take_lock()? {
        Ok(lock) => lock,
        Err(holder) => {
            let pid = holder.pid.map_or("unknown".to_owned(), |pid| pid.to_string());
            eprintln!("hob: already running on {} (pid {pid})", settings.home.root().display());
            return Ok(Outcome::WrongState);
        }
    };
    let _logging = logging::start(&settings.home, &settings.log)?;
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    settings.home.remove_halves();
    settings.home.remove_old_states();
    super::key::settle(settings)?;
    let listeners = Listeners::bind(settings)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(serve(context, listeners));
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// The two ways in, bound before anything else is done.
struct Listeners {
    unix: std::os::unix::net::UnixListener,
    /// The path to remove at the end; `None` for a socket that was handed over.
    bound: Option<PathBuf>,
    tcp: Option<std::net::TcpListener>,
}

impl Listeners {
    fn bind(settings: &Resolved) -> anyhow::Result<Listeners> {
        let (mut unix, mut tcp) = (None, None);
        let mut handed = ListenFd::from_env();
        for index in 0..handed.len() {
            // Asking for the wrong kind gives the descriptor back as an error, not away.
            if let Ok(Some(listener)) = handed.take_unix_listener(index) {
                unix = Some(listener);
            } else if let Ok(Some(listener)) = handed.take_tcp_listener(index) {
                tcp = Some(listener);
            }
        }
        if settings.http && tcp.is_none() {
            let listener = std::net::TcpListener::bind(&settings.listen).with_context(|| {
                format!(
                    "cannot listen on {} (another program may have the port; choose one with \
                     --listen 127.0.0.1:PORT)",
                    settings.listen
                )
            })?;
            tcp = Some(listener);
        }
        let (unix, bound) = match unix {
            Some(listener) => (listener, None),
            None => (socket::server::bind(&settings.socket)?, Some(settings.socket.clone())),
        };
        unix.set_nonblocking(true)?;
        let tcp = tcp.filter(|_| settings.http);
        if let Some(tcp) = &tcp {
            tcp.set_nonblocking(true)?;
        }
        Ok(Listeners { unix, bound, tcp })
    }
}

async fn serve(context: &Context, listeners: Listeners) -> anyhow::Result<Outcome> {
    let settings = &context.settings;
    let mut signals = Signals::new()?;
    let connections = Connections::new(Instant::now());
    let tasks = TaskTracker::new();
    let (stopping, ending) = (CancellationToken::new(), CancellationToken::new());
    // Connections outlive the work they wait for, so that its end is still told.
    let cutting = CancellationToken::new();

    let live = LiveLimit::new(settings.max_live);
    let children = start_children(context)?;
    let workshop = Workshop {
        children: children.clone(),
        terminals: Terminals::new(tasks.clone()),
        live: live.clone(),
        tasks: tasks.clone(),
        stopping: stopping.clone(),
        ending: ending.clone(),
    };
    let tcp = listeners.tcp.map(TcpListener::from_std).transpose()?;
    let address: Option<SocketAddr> = tcp.as_ref().map(TcpListener::local_addr).transpose()?;
    // The ledger first: with a wrong key nothing may be made.
    let key = keys::data_key(&settings.home, settings.passphrase.as_deref())?;
    let opened = ledger::open(settings, &key).await?;
    let ledger = opened.ledger.clone();
    let tools = memory::open_with(settings, &key, STORE_BUSY).await?;
    keys::publish(&settings.home, &key)?;
    Workshop::walls(settings).clean_all();
    let files = FileRoom::new(settings.home.files(), settings.max_file_bytes)
        .sharing(opened.cluster.clone().map(|cluster| cluster.store));
    let sessions = workshop.sessions(settings, opened, files).await?;
    tasks.spawn(sessions.clone().keep_swept());
    tasks.spawn(outbox::drain(ledger.clone(), tools.engine.clone(), stopping.clone()));
    let (apps, interval) = (ledger.clone(), settings.sessions.sweep_interval);
    let (last_ledger, last_engine) = (ledger.clone(), tools.engine.clone());
    let completions = workshop.completions(settings, &ledger, &sessions)?;
    tasks.spawn(completions.clone().keep_swept(apps, interval));
    let gateway =
        workshop.gateway(settings, &key, ledger, sessions.clone(), completions.clone(), &tools)?;
    let router = hob_gateway::router(Arc::new(gateway));

    let hello = Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        http: address.map(|address| format!("http://{address}")),
    };
    tasks.spawn(Drain::new(tools.engine.clone(), tools.deferred.clone()).run(stopping.clone()));
    let model = settings.memory_model.clone();
    tasks.spawn(care::run(tools.engine.clone(), model, stopping.clone()));
    let deferred = tools.deferred.clone();
    tasks.spawn(socket::server::serve(
        UnixListener::from_std(listeners.unix)?,
        Arc::new(socket::server::Service::new(
            hello,
            tools,
            children.clone(),
            sessions,
            router.clone(),
            cutting.clone(),
        )),
        connections.clone(),
        tasks.clone(),
        stopping.clone(),
    ));
    if let Some(tcp) = tcp {
        tasks.spawn(hob_gateway::serve(
            tcp,
            router,
            connections.clone(),
            tasks.clone(),
            stopping.clone(),
            cutting.clone(),
        ));
    }
    match address {
        Some(address) => announce(&format!("http://{address}")),
        None => announce(&settings.socket.display().to_string()),
    }

    tokio::select! {
        () = signals.next() => tracing::info!("told to stop"),
        () = idle(settings.idle_shutdown, &connections, &live, &deferred) => tracing::info!("idle; stopping"),
    }
    // In order: no new work, a grace for what runs, then the end of everything.
    stopping.cancel();
    tasks.close();
    tokio::select! {
        () = tasks.wait() => {}
        () = tokio::time::sleep(settings.shutdown_grace) => {}
        () = signals.next() => tracing::info!("told again; not waiting any longer"),
    }
    ending.cancel();
    let ended = async {
        completions.close().await;
        if tokio::time::timeout(TELLING, tasks.wait()).await.is_err() {
            cutting.cancel();
            tasks.wait().await;
        }
        children.close().await;
    };
    if tokio::time::timeout(END_DEADLINE, ended).await.is_err() {
        tracing::error!("something did not end in time");
    }
    outbox::drain_last(&*last_ledger, &last_engine).await;
    if let Some(path) = listeners.bound {
        let _ = std::fs::remove_file(path);
    }
    Ok(Outcome::Done)
}

/// Starts the owner of all agents, after ending what an earlier run may have left.
fn start_children(context: &Context) -> anyhow::Result<Children> {
    let home = &context.settings.home;
    let marker = Marker::new(home.identity()?, uuid::Uuid::new_v4().simple().to_string());
    let leftovers = sweep::end_leftovers(&marker, &home.run_records());
    if leftovers > 0 {
        tracing::warn!(leftovers, "ended processes that an earlier run left behind");
    }
    let options = ChildrenOptions {
        shim: std::env::current_exe().context("where is this executable?")?,
        records: home.run_records(),
        marker,
        umask: context.umask,
    };
    Children::new(options).context("children cannot be started")
}

/// What everything that runs agents shares.
struct Workshop {
    children: Children,
    terminals: Terminals,
    live: LiveLimit,
    tasks: TaskTracker,
    stopping: CancellationToken,
    ending: CancellationToken,
}

impl Workshop {
    /// The agents as they are started: the demo agent is this executable.
    fn agents(settings: &Resolved) -> anyhow::Result<BTreeMap<AgentName, AgentSpec>> {
        let mut agents = settings.agents.clone();
        let this = this_executable()?;
        for agent in agents.values_mut().filter(|agent| agent.driver == Driver::Demo) {
            agent.command = vec![this.clone(), demo::ARGUMENT.to_owned()];
        }
        Ok(agents)
    }

    fn walls(settings: &Resolved) -> Walls {
        let home = &settings.home;
        Walls {
            home: home.root().to_owned(),
            files: home.files(),
            temporary: home.temporary(),
            environment: std::env::vars_os().collect(),
        }
    }

    async fn sessions(
        &self,
        settings: &Resolved,
        mut opened: ledger::Opened,
        files: FileRoom,
    ) -> anyhow::Result<Sessions> {
        let home = &settings.home;
        let socket = settings.socket.display().to_string();
        let options = SessionsOptions {
            node: opened.begin_node(settings)?,
            store: opened.ledger,
            cluster: opened.cluster,
            files,
            children: self.children.clone(),
            walls: Workshop::walls(settings),
            agents: Workshop::agents(settings)?,
            workspaces: home.workspaces().canonicalize()?,
            roots: settings.roots.clone(),
            memory: mcp_servers::Way::Stdio {
                command: this_executable()?,
                args: vec!["mcp".to_owned()],
                env: vec![("HOB_SOCKET".to_owned(), socket)],
            },
            claude: home.claude(),
            live: self.live.clone(),
            terminals: self.terminals.clone(),
            limits: settings.sessions.clone(),
            tasks: self.tasks.clone(),
            stopping: self.stopping.clone(),
            ending: self.ending.clone(),
        };
        Ok(Sessions::restore(options).await?)
    }

    /// Claude Code behind `/v1`.
    fn completions(
        &self,
        settings: &Resolved,
        ledger: &Arc<dyn LedgerStore>,
        sessions: &Sessions,
    ) -> anyhow::Result<Completions> {
        let (home, claude) = (&settings.home, &settings.claude);
        let agents = Workshop::agents(settings)?;
        let agent = agents.get(&claude.agent).context("the agent of claude.agent")?;
        let outfitter = BehindWalls {
            walls: Workshop::walls(settings),
            agent: agent.clone(),
            claude: home.claude(),
        };
        let backend = ClaudeBackend::new(
            BackendOptions {
                outfitter: Arc::new(outfitter),
                history: claude.history,
                runtime_folder: home.claude().join("v1"),
                live: self.live.clone(),
                idle_timeout: claude.idle,
                ready_timeout: settings.sessions.start_timeout,
                turn_timeout: settings.turn_timeout,
                stopping: self.stopping.clone(),
                stall_after: Duration::MAX,
                terminals: self.terminals.clone(),
            },
            self.children.clone(),
        );
        Ok(Completions::new(CompletionsOptions {
            backend,
            sessions: sessions.clone(),
            store: ledger.clone(),
            walls: Workshop::walls(settings),
            workspaces: home.workspaces().canonicalize()?,
            agent: claude.agent.to_string(),
            install: agent.install.clone(),
            way: Way::of(agent.driver),
            setups: claude.apps.clone(),
            tasks: self.tasks.clone(),
            stopping: self.stopping.clone(),
        }))
    }

    fn gateway(
        &self,
        settings: &Arc<Resolved>,
        key: &DataKey,
        ledger: Arc<dyn LedgerStore>,
        sessions: Sessions,
        completions: Completions,
        tools: &Tools,
    ) -> anyhow::Result<Gateway> {
        let home = &settings.home;
        let admin = keys::admin_token(home, settings.admin_token.as_deref())?.hash();
        let runner = Runner::new(RunnerOptions {
            children: self.children.clone(),
            workspaces: home.workspaces(),
            walls: Workshop::walls(settings),
            live: self.live.clone(),
            tasks: self.tasks.clone(),
            stopping: self.stopping.clone(),
            ending: self.ending.clone(),
        });
        Ok(Gateway {
            version: env!("CARGO_PKG_VERSION"),
            started_at: Timestamp::now(),
            tools: tools.clone(),
            apps: ledger.clone(),
            audit: ledger,
            runner,
            files: sessions.files().clone(),
            sessions,
            terminals: self.terminals.clone(),
            completions,
            agents: Workshop::agents(settings)?,
            default_agent: settings.default_agent.clone(),
            admin,
            doctor: Arc::new(HomeDoctor(settings.clone())),
            sign_in: SignIn::new(key, admin, settings.console_session),
            hosts: settings.hosts.clone(),
            limits: GatewayLimits {
                max_body_bytes: settings.max_body_bytes,
                run_timeout: settings.turn_timeout,
            },
            requests: Requests::default(),
            stopping: self.stopping.clone(),
            ending: self.ending.clone(),
        })
    }
}

fn this_executable() -> anyhow::Result<String> {
    let path = std::env::current_exe().context("where is this executable?")?;
    Ok(path.display().to_string())
}

/// The one line on standard output. A closed one is no reason to stop.
fn announce(place: &str) {
    use std::io::Write;
    let mut stdout = std::io::stdout();
    let _ = writeln!(stdout, "hob listening on {place}").and_then(|()| stdout.flush());
}

/// Returns once there has been no connection and no live agent for so long; never where that is 0.
async fn idle(
    limit: Duration,
    connections: &Connections,
    live: &LiveLimit,
    deferred: &std::path::Path,
) {
    if limit.is_zero() {
        return std::future::pending().await;
    }
    loop {
        let busy = live.live() > 0 || backlog(deferred).files > 0;
        let idle = if busy { Duration::ZERO } else { connections.idle_for(Instant::now()) };
        if idle >= limit {
            return;
        }
        tokio::time::sleep(limit - idle).await;
    }
}

/// The signals that mean "stop".
struct Signals {
    term: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Signals> {
        Ok(Signals {
            term: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
