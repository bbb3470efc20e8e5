//! Which folders of the user a session may work in. What an agent writes into a folder of settings, the owner's own
//! programs would run; in a folder of credentials it would read them.

use std::path::{Component, Path, PathBuf};

use hob_domain::{AgentSpec, AppName, Sandbox};

use crate::sandbox::{CREDENTIALS, SandboxConfig};

/// Folders in the user's home from which the owner's programs take commands and settings. Not even the owner's sessions
/// work in them by default.
const SETTINGS: [&str; 14] = [
    ".claude",
    ".codex",
    ".gemini",
    ".qwen",
    ".copilot",
    ".cursor",
    ".config",
    ".local",
    ".cargo",
    ".vim",
    ".emacs.d",
    ".bashrc.d",
    ".oh-my-zsh",
    "bin",
];

impl SandboxConfig {
    /// Returns whether a session of an app may work in a folder, whose path has no links. An app's session works in no
    /// folder of the user's home that begins with a dot, and in none above it. What the agent's entry names as `writable`
    /// or `readable` is open. Without a sandbox there is nothing to keep.
    pub fn may_work_in(&self, app: &AppName, agent: &AgentSpec, folder: &Path) -> bool {
        if agent.sandbox == Sandbox::Off {
            return true;
        }
        let Some(user) = self.user_home().and_then(|home| Path::new(home).canonicalize().ok())
        else {
            return true;
        };
        let named = agent.writable.iter().chain(&agent.readable);
        let is_named = |path: &String| {
            let path = match path.strip_prefix("~/") {
                Some(rest) => user.join(rest),
                None => PathBuf::from(path),
            };
            folder.starts_with(path.canonicalize().unwrap_or(path))
        };
        if folder.starts_with(&self.home) || named.into_iter().any(is_named) {
            return true;
        }
        let Ok(below) = folder.strip_prefix(&user) else {
            return app.is_owner() || !user.starts_with(folder);
        };
        if CREDENTIALS.iter().chain(&SETTINGS).any(|store| below.starts_with(store)) {
            return false;
        }
        let first = below.components().next();
        let is_dot = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b".");
        app.is_owner() || matches!(first, Some(Component::Normal(name)) if !is_dot(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hob_domain::Driver;

    #[test]
    fn sessions_do_not_work_among_settings_and_credentials() {
        let user = tempfile::tempdir().unwrap();
        let user = user.path().canonicalize().unwrap();
        let sandbox = SandboxConfig {
            home: user.join(".hob"),
            backups: None,
            socket: user.join(".hob/hob.sock"),
            files: user.join(".hob/files"),
            temporary: user.join(".hob/tmp"),
            private: user.join(".hob/agents"),
            has_view: false,
            has_control_groups: false,
            max_memory_bytes: None,
            max_disk_bytes: None,
            environment: vec![("HOME".into(), user.clone().into())],
        };
        let mut agent = AgentSpec { writable: vec!["~/.config/nvim".to_owned()], ..spec() };
        let check = |agent: &AgentSpec, app: &AppName, path: &str| {
            sandbox.may_work_in(app, agent, &user.join(path))
        };
        let (owner, app) = (AppName::owner(), AppName::new("a").unwrap());
        for path in ["project", "a/.config", ".config/nvim", ".config/nvim/lua"] {
            assert!(check(&agent, &owner, path) && check(&agent, &app, path), "{path}");
        }
        for path in [".ssh", ".ssh/keys", ".claude", ".config/systemd/user", ".local/bin", "bin"] {
            assert!(!check(&agent, &owner, path) && !check(&agent, &app, path), "{path}");
        }
        // The owner may have a repository of settings, and may start an agent at home, where it can only read.
        for path in ["", ".dotfiles", ".."] {
            let path = if path == ".." { user.parent().unwrap() } else { &user.join(path) };
            assert!(sandbox.may_work_in(&owner, &agent, path), "{path:?}");
            assert!(!sandbox.may_work_in(&app, &agent, path), "{path:?}");
        }
        agent.sandbox = Sandbox::Off;
        assert!(check(&agent, &app, ".ssh"));
    }

    fn spec() -> AgentSpec {
        AgentSpec {
            driver: Driver::Acp,
            command: vec!["agent".to_owned()],
            env: Default::default(),
            env_pass: Vec::new(),
            sandbox: Sandbox::Workspace,
            writable: Vec::new(),
            private: Vec::new(),
            copy: Default::default(),
            readable: Vec::new(),
            sockets: Vec::new(),
            ports: None,
            git_hosts: Vec::new(),
            install: String::new(),
            model_env: None,
            modes: Default::default(),
            notices: Default::default(),
        }
    }
}
