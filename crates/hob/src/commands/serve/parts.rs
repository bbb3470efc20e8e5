//! Builds the parts of the server from the settings: sessions, `/v1`, runs and the gateway.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hob_agents::claude::{BackendOptions, ClaudeBackend, ClaudeTransport, SandboxedLauncher};
use hob_agents::{Runtime, mcp_servers};
use hob_domain::{AgentName, AgentSpec, DataKey, Driver, LedgerStore, Timestamp};
use hob_gateway::{
    AgentCatalog, AppRequests, Conversations, Gateway, GatewayLimits, MessageBatches, Readiness,
    Requests, ResponseLimits, Responses, SignIn, StoreProbe, connections,
};
use hob_mcp::Tools;
use hob_sessions::session::{Sessions, SessionsOptions};
use hob_sessions::{
    Completions, CompletionsOptions, Runner, RunnerOptions, SteadyClock, UploadStore,
};

use nix::sys::resource::{Resource, getrlimit};
use tokio::sync::mpsc;

use super::probe::HomeProbe;
use crate::commands::doctor::HomeDoctor;
use crate::settings::Resolved;
use crate::{demo, keys, ledger};

/// Builds the sessions and restores those that an earlier server left open.
pub async fn sessions(
    settings: &Resolved,
    runtime: &Runtime,
    mut opened: ledger::OpenLedger,
    clock: SteadyClock,
) -> anyhow::Result<Sessions> {
    let home = &settings.home;
    let shared_files = opened.cluster.clone().map(|cluster| cluster.store);
    let (max_file, max_app) = (settings.values.max_file_bytes, settings.values.app_upload_bytes);
    let uploads = UploadStore::new(home.files(), max_file, max_app, runtime.trash.clone());
    let options = SessionsOptions {
        node: opened.begin_node(settings)?,
        documents: opened.ledger.clone(),
        store: opened.ledger,
        cluster: opened.cluster,
        files: uploads.sharing(shared_files),
        runtime: runtime.clone(),
        agents: agents(settings)?,
        workspaces: home.workspaces().canonicalize()?,
        roots: settings.values.roots.clone(),
        memory: mcp_servers::McpTransport::Stdio {
            command: this_executable()?,
            args: vec!["mcp".to_owned()],
            env: vec![("HOB_SOCKET".to_owned(), settings.socket.display().to_string())],
        },
        claude: home.claude(),
        limits: settings.sessions.clone(),
        clock,
    };
    Ok(Sessions::restore(options).await?)
}

/// Builds `/v1`: Claude Code as a backend of completions.
pub fn completions(
    settings: &Resolved,
    runtime: &Runtime,
    ledger: &Arc<dyn LedgerStore>,
    sessions: &Sessions,
) -> anyhow::Result<Completions> {
    let (home, claude) = (&settings.home, &settings.claude);
    let agents = agents(settings)?;
    let agent = agents.get(&claude.agent).context("claude.agent: unknown agent")?;
    let launch_specs = SandboxedLauncher {
        sandbox: runtime.sandbox.clone(),
        agent: agent.clone(),
        claude: home.claude(),
    };
    let (late_costs, costs) = mpsc::unbounded_channel();
    let backend = ClaudeBackend::new(BackendOptions {
        runtime: runtime.clone(),
        launch_specs: Arc::new(launch_specs),
        history: settings.values.claude_history,
        runtime_folder: home.claude().join("v1"),
        idle_timeout: settings.values.claude_idle,
        ready_timeout: settings.sessions.start_timeout,
        turn_timeout: settings.values.turn_timeout,
        stall_after: Duration::MAX,
        tool_result_timeout: settings.values.claude_tool_result,
        late_costs: Some(late_costs),
    });
    let options = CompletionsOptions {
        backend,
        sessions: sessions.clone(),
        store: ledger.clone(),
        runtime: runtime.clone(),
        workspaces: home.workspaces().canonicalize()?,
        agent: claude.agent.to_string(),
        install: agent.install.clone(),
        transport: ClaudeTransport::of(agent.driver),
        setups: claude.apps.clone(),
    };
    Ok(Completions::new(options, costs))
}

/// Returns how many connections HTTP may have with the descriptors that this process may open.
pub fn max_connections() -> usize {
    let max_descriptors = getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| soft);
    connections::max_connections(max_descriptors)
}

/// Builds the HTTP gateway on top of the other parts.
pub fn gateway(
    settings: &Arc<Resolved>,
    runtime: &Runtime,
    key: &DataKey,
    ledger: Arc<dyn LedgerStore>,
    sessions: Sessions,
    completions: Completions,
    tools: &Tools,
) -> anyhow::Result<Gateway> {
    let admin = keys::admin_token(&settings.home, settings.admin_token.as_deref())?.hash();
    // Several processes may use a database, and one a file.
    let max_age_elsewhere = match settings.values.store_url {
        Some(_) => settings.values.turn_timeout,
        None => Duration::ZERO,
    };
    let (max_body_bytes, hard_ttl) = (settings.values.max_body_bytes, settings.sessions.hard_ttl);
    let responses = ResponseLimits::new(max_body_bytes, hard_ttl, max_age_elsewhere);
    Ok(Gateway {
        version: env!("CARGO_PKG_VERSION"),
        started_at: Timestamp::now(),
        engine: tools.engine.clone(),
        tools: tools.clone(),
        apps: ledger.clone(),
        conversations: Conversations::new(ledger.clone(), responses.max_conversation_bytes),
        responses: Arc::new(Responses::new(ledger.clone(), responses)),
        batches: Arc::new(MessageBatches::new(ledger.clone(), max_age_elsewhere)),
        catalog: AgentCatalog::new(ledger.clone()),
        runner: runner(settings, runtime, ledger.clone()),
        audit: ledger,
        files: sessions.files().clone(),
        sessions,
        runtime: runtime.clone(),
        completions,
        agents: agents(settings)?,
        default_agent: settings.default_agent.clone(),
        admin,
        doctor: Arc::new(HomeDoctor(settings.clone())),
        readiness: Readiness::new(probe(settings, key)),
        sign_in: SignIn::new(key, admin, settings.values.console_session),
        hosts: settings.values.hosts.0.clone(),
        limits: GatewayLimits { max_body_bytes, run_timeout: settings.values.turn_timeout },
        requests: Requests::default(),
        app_requests: AppRequests::new(settings.values.app_requests, max_connections()),
    })
}

/// Returns the probe of the home's databases. With PostgreSQL, heartbeats tell whether it can be written.
fn probe(settings: &Resolved, key: &DataKey) -> Option<Arc<dyn StoreProbe>> {
    let is_file = settings.values.store_url.is_none();
    is_file.then(|| -> Arc<dyn StoreProbe> {
        Arc::new(HomeProbe { home: settings.home.clone(), key: key.clone() })
    })
}

/// Builds `/run`: one prompt in a temporary workspace.
fn runner(settings: &Resolved, runtime: &Runtime, store: Arc<dyn LedgerStore>) -> Runner {
    let workspaces = settings.home.workspaces();
    Runner::new(RunnerOptions { runtime: runtime.clone(), workspaces, store })
}

/// Returns the agents of the settings. The demo agent gets its command: this executable.
fn agents(settings: &Resolved) -> anyhow::Result<BTreeMap<AgentName, AgentSpec>> {
    let mut agents = settings.agents.clone();
    let this = this_executable()?;
    for agent in agents.values_mut().filter(|agent| agent.driver == Driver::Demo) {
        agent.command = vec![this.clone(), demo::ARGUMENT.to_owned()];
    }
    Ok(agents)
}

fn this_executable() -> anyhow::Result<String> {
    let path = std::env::current_exe();
    let path = path.context("cannot determine the path of the running executable")?;
    Ok(path.display().to_string())
}
