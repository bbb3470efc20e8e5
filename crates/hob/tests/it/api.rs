//! A server with the scripted agents, and an app's client of it.

use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

pub use hob_testkit::client::{ASYNC, STREAM, assert_error, assert_gapless};
use hob_testkit::leak::processes_with;
pub use hob_testkit::wire::StreamEvent;
use hob_testkit::{Client, HobServer, TestHome, program, wait_until};

use crate::backend::Backend;

/// A server and an app on it. The server comes first: it ends before its home is removed.
pub struct Api {
    pub server: HobServer,
    pub home: TestHome,
    client: Client,
    backend: Backend,
}

/// Requests of the app.
impl Deref for Api {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// Starts a server with SQLite files whose agents `acp` and `claude` are scripted. `settings` come first in
/// `config.toml`.
pub fn api(settings: &str) -> Api {
    Backend::File.api(settings)
}

/// Writes `config.toml` with the scripted agents `acp` and `claude`.
pub fn configure(home: &TestHome, settings: &str) {
    Backend::File.configure(home, settings);
}

impl Backend {
    /// Starts a server whose agents `acp` and `claude` are scripted. `settings` come first in `config.toml`.
    pub fn api(self, settings: &str) -> Api {
        let home = TestHome::new();
        self.configure(&home, settings);
        let token = home.app("tests");
        self.start(home, &token)
    }

    pub fn configure(self, home: &TestHome, settings: &str) {
        let acp = TestHome::scripted_agent("acp", "acp", &["acp"]);
        let claude = TestHome::scripted_agent("claude", "claude-tui", &[]);
        home.configure(&format!("{settings}\n{acp}{claude}{}", self.store_settings()));
    }

    /// Starts a server on a home that is configured already.
    pub fn start(self, home: TestHome, token: &str) -> Api {
        let server = self.serve(&home);
        Api::new(self, server, home, token)
    }
}

/// Returns a `[sessions]` table with these lines.
pub fn sessions(lines: &str) -> String {
    format!("[sessions]\n{lines}\n")
}

impl Api {
    pub fn new(backend: Backend, server: HobServer, home: TestHome, token: &str) -> Api {
        let client = server.client(token);
        Api { server, home, client, backend }
    }

    /// Ends the server with `end` and returns its home and the app's token.
    pub fn end_with(self, end: impl FnOnce(HobServer)) -> (TestHome, String) {
        let Api { server, home, client, .. } = self;
        end(server);
        (home, client.token)
    }

    /// Ends the server with `end` and starts it again on the same home.
    pub fn restart_after(self, end: impl FnOnce(HobServer)) -> Api {
        let backend = self.backend;
        let (home, token) = self.end_with(end);
        backend.start(home, &token)
    }

    /// Returns the processes of agents and of what they started, without the server and its shims.
    pub fn processes(&self) -> Vec<i32> {
        processes_of(&self.home)
    }

    pub fn wait_for_no_process(&self) {
        wait_until("no process of an agent is left", || self.processes().is_empty().then_some(()));
    }

    /// Returns the folder in which the scripted agent keeps its conversations.
    pub fn conversations(&self) -> PathBuf {
        self.home.user_home().join(".hob-scripted")
    }
}

/// Returns the processes of agents and of what they started on this home.
pub fn processes_of(home: &TestHome) -> Vec<i32> {
    let hob = program("hob").display().to_string();
    let mut found = processes_with(&format!("HOME={}", home.user_home().display()));
    found.retain(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).next() != Some(hob.as_bytes())
    });
    found
}

/// Returns the permission bits of a file or folder.
pub fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}
