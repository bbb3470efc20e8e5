//! A server whose `claude` is the scripted agent, and an app on it.

use hob_testkit::{HobServer, TestHome};

/// The server comes first: it ends before its home is removed.
pub struct Setup {
    pub server: HobServer,
    pub home: TestHome,
    pub token: String,
}

/// Starts a server; `extra` comes first in `config.toml`.
pub fn setup(extra: &str) -> Setup {
    let home = TestHome::new();
    home.configure(&format!("{extra}\n{}", TestHome::scripted_agent("claude", "claude-tui", &[])));
    let token = home.app("tests");
    let server = home.serve();
    Setup { home, server, token }
}
