//! Several nodes on one PostgreSQL, each a `hob serve` on a home of its own.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;

use crate::client::Client;
use crate::leak::processes_with;
use crate::postgres::Postgres;
use crate::proxy::Proxy;
use crate::random::Random;
use crate::server::{HobServer, TestHome};
use crate::wait::wait_until;

/// The environment variable with the seed by which nodes are chosen.
pub const SEED: &str = "HOB_TEST_SEED";

/// The admin token of all nodes.
pub const ADMIN: &str = "the-admin-of-a-cluster";

/// The settings of a cluster.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    pub nodes: usize,
    /// A node without a heartbeat for this long counts as dead.
    pub lease_secs: u32,
    /// `config.toml` of all nodes, without the store.
    pub config: String,
    /// Whether nodes share nothing but the database: each has workspaces and a `$HOME` of its own.
    pub separate_disks: bool,
    /// Whether each node reaches the database through a [`Proxy`] of its own.
    pub proxied: bool,
}

/// Running nodes. Clients may use them while a test kills, pauses or disconnects them. Dropping the cluster ends all
/// nodes, and then no process may be left.
pub struct Cluster {
    nodes: Vec<Node>,
    lease_secs: u32,
    database: String,
    random: Mutex<Random>,
    postgres: Arc<RwLock<Postgres>>,
}

struct Node {
    server: Mutex<Option<HobServer>>,
    /// Kept after a kill: a client does not know yet.
    address: Mutex<String>,
    home: TestHome,
    store_url: String,
    proxy: Option<Proxy>,
}

impl Cluster {
    /// Starts a cluster with a database server of its own.
    pub fn start(options: &ClusterOptions) -> Cluster {
        Cluster::on(&Arc::new(RwLock::new(Postgres::start())), options)
    }

    /// Starts a cluster on a new database of a shared server.
    pub fn on(server: &Arc<RwLock<Postgres>>, options: &ClusterOptions) -> Cluster {
        let postgres = server.read().unwrap_or_else(PoisonError::into_inner);
        let database = postgres.database();
        let name = database.rsplit('/').next().expect("a name");
        let mut nodes: Vec<Node> = Vec::new();
        for number in 0..options.nodes {
            let home = match nodes.first() {
                Some(first) if !options.separate_disks => {
                    first.home.sibling(number).with_own_user_name(number)
                }
                _ => TestHome::new(),
            };
            home.configure(&options.config);
            if let Some(first) = nodes.first().filter(|_| options.separate_disks) {
                let key = first.home.hob_home().join("key");
                std::fs::copy(key, home.hob_home().join("key")).expect("the key of the first node");
            }
            let proxy = options.proxied.then(|| Proxy::to(&postgres.socket()));
            let store_url =
                proxy.as_ref().map_or_else(|| database.clone(), |proxy| proxy.url(name));
            let node = Node {
                server: Mutex::default(),
                address: Mutex::default(),
                home,
                store_url,
                proxy,
            };
            node.start(options.lease_secs);
            nodes.push(node);
        }
        let seed = seed();
        eprintln!("nodes are chosen by {SEED}={seed}");
        Cluster {
            nodes,
            lease_secs: options.lease_secs,
            database,
            random: Mutex::new(Random::new(seed)),
            postgres: server.clone(),
        }
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns how long a dead node may count as alive: its lease and one heartbeat.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(u64::from(self.lease_secs) * 1250)
    }

    /// Returns the number of a node, chosen at random. It may be dead.
    pub fn random_node(&self) -> usize {
        let nodes = self.nodes.len() as u64;
        self.random.lock().unwrap_or_else(PoisonError::into_inner).below(nodes) as usize
    }

    /// Returns `127.0.0.1:PORT` of a node as it is now, or as it was when the node died.
    pub fn address(&self, node: usize) -> String {
        lock(&self.nodes[node].address).clone()
    }

    /// Returns a client of one node with this token.
    pub fn client(&self, node: usize, token: &str) -> Client {
        Client::new(vec![self.address(node)], token, 1)
    }

    pub fn home(&self, node: usize) -> &TestHome {
        &self.nodes[node].home
    }

    /// Calls `work` with the server of a running node.
    pub fn with<T>(&self, node: usize, work: impl FnOnce(&HobServer) -> T) -> T {
        work(lock(&self.nodes[node].server).as_ref().expect("a node that runs"))
    }

    /// Returns the proxy between a node and the database.
    pub fn proxy(&self, node: usize) -> &Proxy {
        self.nodes[node].proxy.as_ref().expect("a cluster with proxies")
    }

    /// Creates an app and returns its token.
    pub fn app(&self, name: &str) -> String {
        let node = &self.nodes[0];
        let mut command = node.home.command(&["app", "create", name, "--json"]);
        let output = command.env("HOB_STORE_URL", &self.database).output().expect("hob runs");
        assert!(output.status.success(), "{output:?}");
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        said["token"].as_str().expect("a token").to_owned()
    }

    /// Kills a node with `kill -9`.
    pub fn kill(&self, node: usize) {
        let server = lock(&self.nodes[node].server).take();
        server.expect("a node that runs").kill();
    }

    /// Stops a node with SIGTERM and waits for its end.
    pub fn stop(&self, node: usize) -> ExitStatus {
        let server = lock(&self.nodes[node].server).take();
        server.expect("a node that runs").stop()
    }

    /// Starts a node again on its home.
    pub fn restart(&self, node: usize) {
        self.nodes[node].start(self.lease_secs);
    }

    /// Suspends a node, as if its machine slept.
    pub fn pause(&self, node: usize) {
        self.with(node, |server| server.signal(Signal::SIGSTOP));
    }

    /// Resumes a suspended node.
    pub fn resume(&self, node: usize) {
        self.with(node, |server| server.signal(Signal::SIGCONT));
    }

    /// Crashes the database server and starts it again after a pause.
    pub fn restart_database(&self, after: Duration) {
        let mut postgres = self.postgres.write().unwrap_or_else(PoisonError::into_inner);
        postgres.crash();
        std::thread::sleep(after);
        postgres.start_again();
    }

    /// Runs statements on the cluster's database.
    pub fn sql(&self, statements: &str) -> String {
        let postgres = self.postgres.read().unwrap_or_else(PoisonError::into_inner);
        postgres.sql(&self.database, statements)
    }

    /// Runs statements as another role.
    pub fn sql_as(&self, role: &str, statements: &str) -> String {
        let postgres = self.postgres.read().unwrap_or_else(PoisonError::into_inner);
        let name = self.database.rsplit('/').next().expect("a name");
        postgres.sql(&postgres.url_of(role, name), statements)
    }

    /// Returns the address of the database without a proxy.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Returns the log of the database server.
    pub fn database_log(&self) -> String {
        let postgres = self.postgres.read().unwrap_or_else(PoisonError::into_inner);
        let path = postgres.socket().with_file_name("log");
        std::fs::read_to_string(path).unwrap_or_default()
    }

    /// Returns the folders of the workspaces that Hob makes for sessions.
    pub fn workspaces(&self) -> Vec<PathBuf> {
        let folders = self.nodes.iter().map(|node| node.home.hob_home().join("workspaces"));
        let mut folders: Vec<PathBuf> =
            folders.filter_map(|path| path.canonicalize().ok()).collect();
        folders.sort();
        folders.dedup();
        folders
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let folders: Vec<PathBuf> =
            self.nodes.iter().map(|node| node.home.folder().to_owned()).collect();
        for node in &self.nodes {
            if let Some(server) = lock(&node.server).take() {
                server.kill();
            }
        }
        if std::thread::panicking() {
            return;
        }
        wait_until("no process of a cluster is left", || {
            let left = |folder: &PathBuf| processes_with(&format!("HOME={}/", folder.display()));
            folders.iter().all(|folder| left(folder).is_empty()).then_some(())
        });
    }
}

impl Node {
    fn start(&self, lease_secs: u32) {
        let server = self.home.serve_with(|command| {
            command.env("HOB_STORE_URL", &self.store_url).env("HOB_ADMIN_TOKEN", ADMIN);
            command.env("HOB_CLUSTER_LEASE_SECS", lease_secs.to_string());
        });
        *lock(&self.address) = server.address().to_owned();
        *lock(&self.server) = Some(server);
    }
}

/// Returns the seed by which nodes are chosen: that of [`SEED`], or a new one.
pub fn seed() -> u64 {
    let given = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    given.unwrap_or_else(|| u64::from(now.subsec_nanos()) + 1)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
