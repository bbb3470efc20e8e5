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

/// Which files an app's agent may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    /// Its workspace, its own folder for temporary files, and folders that its entry names.
    Workspace,
    /// Every file that the user may write.
    Off,
}

impl Sandbox {
    pub fn as_str(self) -> &'static str {
        match self {
            Sandbox::Workspace => "workspace",
            Sandbox::Off => "off",
        }
    }

    pub fn parse(text: &str) -> Option<Sandbox> {
        [Sandbox::Workspace, Sandbox::Off].into_iter().find(|mode| mode.as_str() == text)
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
    /// Stores of credentials that the sandbox lets the agent read.
    pub readable: Vec<String>,
    /// Instructions for the user if the command is not installed.
    pub install: String,
}
