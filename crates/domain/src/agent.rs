//! Agents as data: a name, a driver, a command line and a sandbox.

use std::collections::BTreeMap;
use std::fmt;

use crate::app::is_name;

/// An agent's name, as callers write it in `agent`. It follows the rules of app names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentName(String);

impl AgentName {
    pub fn new(name: impl Into<String>) -> Option<AgentName> {
        let name = name.into();
        is_name(&name).then_some(AgentName(name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The protocol between Hob and an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// The interactive Claude Code in a pseudo-terminal.
    ClaudeTui,
    /// Claude Code without a terminal, with JSON lines in both directions.
    ClaudeStream,
    /// Any agent that speaks the Agent Client Protocol on its standard streams.
    Acp,
    /// The built-in agent that needs nothing installed.
    Demo,
}

impl Driver {
    pub const ALL: [Driver; 4] =
        [Driver::ClaudeTui, Driver::ClaudeStream, Driver::Acp, Driver::Demo];

    pub fn as_str(self) -> &'static str {
        match self {
            Driver::ClaudeTui => "claude-tui",
            Driver::ClaudeStream => "claude-stream",
            Driver::Acp => "acp",
            Driver::Demo => "demo",
        }
    }

    pub fn parse(text: &str) -> Option<Driver> {
        Driver::ALL.into_iter().find(|driver| driver.as_str() == text)
    }
}

/// The sandbox of an app's agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    /// The agent writes only its workspace, private folders of its app, and folders that its entry names. The kernel
    /// enforces what it can.
    Workspace,
    /// The agent starts only if the kernel can enforce everything.
    Strict,
    /// The agent may do what the user may.
    Off,
}

impl Sandbox {
    pub fn as_str(self) -> &'static str {
        match self {
            Sandbox::Workspace => "workspace",
            Sandbox::Strict => "strict",
            Sandbox::Off => "off",
        }
    }

    pub fn parse(text: &str) -> Option<Sandbox> {
        let all = [Sandbox::Workspace, Sandbox::Strict, Sandbox::Off];
        all.into_iter().find(|mode| mode.as_str() == text)
    }
}

/// An agent of the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSpec {
    pub driver: Driver,
    /// The program and its first arguments. Empty for the demo agent only.
    pub command: Vec<String>,
    /// Variables set for the agent.
    pub env: BTreeMap<String, String>,
    /// Variables passed on from Hob's environment: names, or prefixes followed by `*`.
    pub env_pass: Vec<String>,
    pub sandbox: Sandbox,
    /// Folders and files the sandbox lets the agent write besides its workspace.
    pub writable: Vec<String>,
    /// Variables that name folders of configuration and data. In a sandbox, each names a folder of the app's own.
    pub private: Vec<String>,
    /// Files of the user that are copied into those folders when the agent starts: their paths, and where they go, as
    /// `VARIABLE/path`.
    pub copy: BTreeMap<String, String>,
    /// Stores of credentials that the sandbox lets the agent read.
    pub readable: Vec<String>,
    /// Sockets of the user that the sandbox lets the agent connect to: paths, or `$NAME` for the path in a variable.
    pub sockets: Vec<String>,
    /// The TCP ports that the sandbox lets the agent connect to; all of them if `None`.
    pub ports: Option<Vec<u16>>,
    /// The hosts for which Git in the sandbox gets the user's credential.
    pub git_hosts: Vec<String>,
    /// The variable by which the agent takes the model of a session, if it has one.
    pub model_env: Option<String>,
    /// The agent's mode for each policy of a session's permissions, by the policy's name.
    pub modes: BTreeMap<String, String>,
    /// What callers should know of a session with this agent, by the name of the session's policy.
    pub notices: BTreeMap<String, String>,
    /// Instructions for the user if the command is not installed.
    pub install: String,
}
