//! The life of the server: start, announce, wait, shut down.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_agents::{LiveLimit, Runtime};
use hob_domain::{DataKey, LedgerStore};
use hob_files::owned;
use hob_gateway::{Connections, Router};
use hob_mcp::Tools;
use hob_memory::{Drain, backlog};
use hob_sessions::session::Sessions;
use hob_sessions::{Completions, SteadyClock};
use serde_json::json;
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;

use super::listeners::Listeners;
use super::signals::StopSignals;
use super::{backups, parts, record_watch, runtime};
use crate::build_id::BUILD;
use crate::commands::Context;
use crate::commands::audit::{self, NotedAct};
use crate::home::Home;
use crate::inventory::Inventory;
use crate::migration_guard::Opener;
use crate::outbox::{Outbox, OutboxTimes};
use crate::settings::Resolved;
use crate::socket::{self, Hello, PROTOCOL};
use crate::{clock_record, keys, ledger, maintenance, memory};

/// After the grace period, how long clients may take to receive the end of their turn.
const FAREWELL_DEADLINE: Duration = Duration::from_millis(2500);
/// After the grace period, how long agents may take to end and be reaped.
const END_DEADLINE: Duration = Duration::from_secs(5);
/// How long a write waits for another process that is writing into the memory.
const STORE_BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the server notes how much the databases hold.
const INVENTORY_INTERVAL: Duration = Duration::from_secs(10);

/// Runs the server until a signal or the idle timeout stops it.
pub async fn serve(context: &Context, listeners: Listeners) -> anyhow::Result<()> {
    let mut signals = StopSignals::new()?;
    let socket_file = listeners.bound.clone();
    let server = Server::start(context, listeners).await?;
    server.announce();
    server.wait_for_stop(&mut signals).await;
    server.shut_down(&mut signals).await;
    if let Some(path) = socket_file {
        let _ = owned::remove_file(path);
    }
    Ok(())
}

/// A running server.
struct Server {
    settings: Arc<Resolved>,
    runtime: Runtime,
    /// Cancelled last. Connections outlive the turns they wait for, so that clients still get the
    /// answer.
    disconnect: CancellationToken,
    connections: Connections,
    /// The address of HTTP; `None` if HTTP is off.
    address: Option<SocketAddr>,
    ledger: Arc<dyn LedgerStore>,
    tools: Tools,
    completions: Completions,
    key: DataKey,
}

impl Server {
    async fn start(context: &Context, listeners: Listeners) -> anyhow::Result<Server> {
        let settings = context.settings.clone();
        let runtime = runtime::start(context)?;
        let tcp = listeners.tcp.map(TcpListener::from_std).transpose()?;
        let address = tcp.as_ref().map(TcpListener::local_addr).transpose()?;
        // The ledger comes first: with a wrong key nothing may be created.
        let key = keys::data_key(&settings.home, settings.passphrase.as_deref())?;
        let opened = ledger::open(&settings, &key, Opener::Server).await?;
        let ledger = opened.ledger.clone();
        write_noted_acts(&settings.home, ledger.as_ref()).await?;
        let tools = memory::open_with(&settings, &key, STORE_BUSY_TIMEOUT, Opener::Server).await?;
        if settings.values.store_url.is_none() {
            Inventory::new(&settings.home).begin_run(&key)?;
        }
        keys::publish(&settings.home, &key)?;
        // An earlier server may have been killed.
        runtime.discard(&runtime.sandbox.temporary);

        let clock = clock_record::resume(&settings.home);
        let sessions = parts::sessions(&settings, &runtime, opened, clock.clone()).await?;
        let completions = parts::completions(&settings, &runtime, &ledger, &sessions)?;
        let gateway = parts::gateway(
            &settings,
            &runtime,
            &key,
            ledger.clone(),
            sessions.clone(),
            completions.clone(),
            &tools,
        )?;
        let router = hob_gateway::router(Arc::new(gateway));

        let server = Server {
            settings,
            runtime,
            disconnect: CancellationToken::new(),
            connections: Connections::new(Instant::now()),
            address,
            ledger,
            tools,
            completions,
            key,
        };
        server.spawn_background_tasks(&sessions, clock);
        server.spawn_socket(UnixListener::from_std(listeners.unix)?, sessions, router.clone());
        if let Some(tcp) = tcp {
            server.spawn_http(tcp, router);
        }
        Ok(server)
    }

    /// Starts the sweepers, and the tasks that bring turns into the memory.
    fn spawn_background_tasks(&self, sessions: &Sessions, clock: SteadyClock) {
        let Runtime { tasks, stopping, .. } = &self.runtime;
        let engine = &self.tools.engine;
        tasks.spawn(sessions.clone().run_sweeper());
        let interval = self.settings.sessions.sweep_interval;
        tasks.spawn(self.completions.clone().run_sweeper(self.ledger.clone(), interval));
        let outbox = Outbox::new(self.ledger.clone(), engine.clone(), OutboxTimes::default());
        tasks.spawn(outbox.drain(stopping.clone()));
        let deferred = Drain::new(engine.clone(), self.tools.deferred.clone());
        tasks.spawn(deferred.run(stopping.clone()));
        if self.settings.values.store_url.is_none() {
            tasks.spawn(note_inventory(self.settings.clone(), self.key.clone(), stopping.clone()));
            tasks.spawn(backups::run(self.settings.clone(), stopping.clone()));
        }
        tasks.spawn(record_watch::run(self.settings.clone(), engine.clone(), stopping.clone()));
        let model = self.settings.values.memory_model.clone();
        let home = self.settings.home.clone();
        tasks.spawn(clock_record::keep(home, clock.clone(), stopping.clone()));
        tasks.spawn(maintenance::run(engine.clone(), model, clock, stopping.clone()));
    }

    fn spawn_socket(&self, listener: UnixListener, sessions: Sessions, router: Router) {
        let runtime = &self.runtime;
        let hello = Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            http: self.address.map(|address| format!("http://{address}")),
            home: self.settings.home.identity().unwrap_or_default(),
            build: BUILD.to_owned(),
        };
        let service = socket::server::Service::new(
            hello,
            self.tools.clone(),
            runtime,
            sessions,
            router,
            self.disconnect.clone(),
            self.ledger.clone(),
        );
        runtime.tasks.spawn(socket::server::serve(
            listener,
            Arc::new(service),
            self.connections.clone(),
            runtime.tasks.clone(),
            runtime.stopping.clone(),
        ));
    }

    fn spawn_http(&self, listener: TcpListener, router: Router) {
        let runtime = &self.runtime;
        runtime.tasks.spawn(hob_gateway::serve(
            listener,
            router,
            self.connections.clone(),
            parts::max_connections(),
            runtime.tasks.clone(),
            runtime.stopping.clone(),
            self.disconnect.clone(),
        ));
    }

    /// Prints the one line on standard output. A closed standard output is no reason to stop.
    fn announce(&self) {
        use std::io::Write;
        let place = match self.address {
            Some(address) => format!("http://{address}"),
            None => self.settings.socket.display().to_string(),
        };
        let mut stdout = std::io::stdout();
        let _ = writeln!(stdout, "hob listening on {place}").and_then(|()| stdout.flush());
    }

    async fn wait_for_stop(&self, signals: &mut StopSignals) {
        let idle = idle_for(
            self.settings.values.idle_shutdown,
            &self.connections,
            &self.runtime.live,
            &self.tools.deferred,
        );
        tokio::select! {
            () = signals.next() => tracing::info!("stopping on a signal"),
            () = idle => tracing::info!("stopping after the idle timeout"),
        }
    }

    /// Refuses new work, lets running work finish for the grace period, then ends everything.
    async fn shut_down(&self, signals: &mut StopSignals) {
        let Runtime { tasks, stopping, ending, children, .. } = &self.runtime;
        stopping.cancel();
        tasks.close();
        tokio::select! {
            () = tasks.wait() => {}
            () = tokio::time::sleep(self.settings.values.shutdown_grace) => {}
            () = signals.next() => tracing::info!("second signal: ending the grace period"),
        }
        ending.cancel();
        let ended = async {
            self.completions.close().await;
            if tokio::time::timeout(FAREWELL_DEADLINE, tasks.wait()).await.is_err() {
                self.disconnect.cancel();
                tasks.wait().await;
            }
            children.close().await;
        };
        if tokio::time::timeout(END_DEADLINE, ended).await.is_err() {
            tracing::error!("shutdown deadline exceeded; some tasks are still running");
        }
        let (ledger, engine) = (self.ledger.clone(), self.tools.engine.clone());
        Outbox::new(ledger, engine, OutboxTimes::default()).drain_last().await;
    }
}

/// Writes into the audit log what the owner did to the databases and the settings since the last start.
async fn write_noted_acts(home: &Home, ledger: &dyn LedgerStore) -> anyhow::Result<()> {
    for NotedAct { at, action, target } in audit::notes(home) {
        ledger.append_audit(at, &action, &target, &json!({})).await?;
    }
    audit::forget_notes(home)
}

/// Waits until there has been no connection, no live agent and no deferred capture for `limit`.
/// Waits forever if `limit` is zero.
async fn idle_for(limit: Duration, connections: &Connections, live: &LiveLimit, deferred: &Path) {
    if limit.is_zero() {
        return std::future::pending().await;
    }
    loop {
        let busy = live.in_use() > 0 || backlog(deferred).files > 0;
        let idle = if busy { Duration::ZERO } else { connections.idle_for(Instant::now()) };
        if idle >= limit {
            return;
        }
        tokio::time::sleep(limit - idle).await;
    }
}

/// Begins a new generation of the databases from time to time, and at the end, if they have changed.
async fn note_inventory(settings: Arc<Resolved>, key: DataKey, stopping: CancellationToken) {
    let logs = [settings.home.ledger(), settings.home.memory()].map(|path| {
        let mut log = path.into_os_string();
        log.push("-wal");
        log
    });
    // Every commit changes a write-ahead log.
    let changed_at = || {
        logs.clone().map(|log| std::fs::metadata(log).and_then(|metadata| metadata.modified()).ok())
    };
    let mut noted_at = [None; 2];
    loop {
        let stopped = stopping.run_until_cancelled(tokio::time::sleep(INVENTORY_INTERVAL)).await;
        if changed_at() != noted_at {
            let (settings, key) = (settings.clone(), key.clone());
            let noted =
                tokio::task::spawn_blocking(move || Inventory::new(&settings.home).advance(&key));
            if let Ok(Err(error)) = noted.await {
                tracing::error!(%error, "cannot note how much the databases hold");
            }
            noted_at = changed_at();
        }
        if stopped.is_none() {
            return;
        }
    }
}
