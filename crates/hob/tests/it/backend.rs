//! Where a server keeps its data and how many nodes serve it. One test runs on several backends.

use std::process::Command;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use hob_testkit::{HobServer, Postgres, TestHome, cluster};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// One server with encrypted SQLite files in its home.
    File,
    /// One server on a PostgreSQL database.
    Postgres,
    /// Two servers on one PostgreSQL database, addressed as one: every request goes to a node chosen at
    /// random. A failing run prints its seed; `HOB_TEST_SEED` repeats it.
    Cluster,
}

/// Makes a test of every function for every backend: `backend_tests!([file, cluster]: [a, b])` makes
/// `file::a`, `file::b`, `cluster::a` and `cluster::b`. Filters such as `cluster::` select a backend.
macro_rules! backend_tests {
    ([$($backend:ident),+]: $tests:tt) => {
        $($crate::backend::backend_tests!(@ $backend $tests);)+
    };
    (@ file $tests:tt) => {
        mod file {
            $crate::backend::backend_tests!(# File $tests);
        }
    };
    (@ postgres $tests:tt) => {
        mod postgres {
            $crate::backend::backend_tests!(# Postgres $tests);
        }
    };
    (@ cluster $tests:tt) => {
        mod cluster {
            $crate::backend::backend_tests!(# Cluster $tests);
        }
    };
    (# $backend:ident [$($test:ident),+ $(,)?]) => {
        $(
            #[test]
            fn $test() {
                super::$test($crate::backend::Backend::$backend);
            }
        )+
    };
}
pub(crate) use backend_tests;

/// Returns the database server that all tests share. It ends with this process.
pub fn shared_postgres() -> &'static Arc<RwLock<Postgres>> {
    static SERVER: OnceLock<Arc<RwLock<Postgres>>> = OnceLock::new();
    SERVER.get_or_init(|| Arc::new(RwLock::new(Postgres::start_shared())))
}

pub fn postgres() -> RwLockReadGuard<'static, Postgres> {
    shared_postgres().read().unwrap_or_else(PoisonError::into_inner)
}

impl Backend {
    /// Returns the `[store]` table of `config.toml`. Every home has a database of its own.
    pub fn store_settings(self) -> String {
        match self {
            Backend::File => String::new(),
            Backend::Postgres | Backend::Cluster => {
                format!("[store]\nurl = {:?}\n", postgres().database())
            }
        }
    }

    pub fn serve(self, home: &TestHome) -> HobServer {
        self.serve_with(home, |_| {})
    }

    /// Starts the server or the nodes; `adjust` may change their commands.
    pub fn serve_with(self, home: &TestHome, adjust: impl Fn(&mut Command)) -> HobServer {
        if self != Backend::Cluster {
            return home.serve_with(adjust);
        }
        // A limit that a test sets for its one server holds for all nodes together.
        let config = std::fs::read_to_string(home.hob_home().join("config.toml"));
        let config = config.unwrap_or_default();
        let max_live = config.lines().find_map(|line| line.strip_prefix("max_live = "));
        let adjust = |command: &mut Command| {
            command.env("HOB_CLUSTER_LEASE_SECS", "4");
            command.env("HOB_CLUSTER_MAX_LIVE", max_live.unwrap_or("0"));
            adjust(command);
        };
        let first = home.serve_with(adjust);
        let second = home.sibling(1).serve_with(adjust);
        let seed = cluster::seed();
        println!("nodes are chosen by {}={seed}", cluster::SEED);
        first.with_peers(vec![second], seed)
    }
}
