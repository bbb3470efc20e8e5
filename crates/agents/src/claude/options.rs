//! How the backend runs, and what may differ from one conversation to the next.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hob_domain::Driver;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::outfit::{Outfit, Outfitter};
use crate::LiveLimit;
use hob_terminal::Terminals;

/// What all conversations of a backend share.
#[derive(Clone)]
pub struct BackendOptions {
    /// What a process starts from.
    pub outfitter: Arc<dyn Outfitter>,
    pub history: HistoryMode,
    /// Where temporary files of this backend go; removed at close.
    pub runtime_folder: PathBuf,
    /// How many processes may be live, with whatever else shares the limit; idle ones make way.
    pub live: LiveLimit,
    /// An idle process is ended after so long.
    pub idle_timeout: Duration,
    /// How long the prompt may take to appear.
    pub ready_timeout: Duration,
    pub turn_timeout: Duration,
    /// Cancelled when no new work may begin: then nothing is kept warm any more.
    pub stopping: CancellationToken,
    /// After so long without a sign the turn says what the screen shows.
    pub stall_after: Duration,
    /// Where people find the terminals.
    pub terminals: Terminals,
}

impl BackendOptions {
    /// Every conversation starts from the same.
    pub fn new(outfit: Outfit, runtime_folder: PathBuf) -> BackendOptions {
        BackendOptions {
            outfitter: Arc::new(outfit),
            history: HistoryMode::NativeJsonl,
            runtime_folder,
            live: LiveLimit::new(16),
            idle_timeout: Duration::from_secs(900),
            ready_timeout: Duration::from_secs(60),
            turn_timeout: Duration::from_secs(1800),
            stopping: CancellationToken::new(),
            stall_after: Duration::from_secs(20),
            terminals: Terminals::default(),
        }
    }
}

/// How a history reaches a process that has not lived it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryMode {
    /// As a transcript that the process resumes.
    NativeJsonl,
    /// As words before the first prompt.
    ConcatMessage,
}

impl HistoryMode {
    pub fn parse(text: &str) -> Option<HistoryMode> {
        match text {
            "native_jsonl" => Some(HistoryMode::NativeJsonl),
            "concat_message" => Some(HistoryMode::ConcatMessage),
            _ => None,
        }
    }
}

/// How a process is talked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The interactive program in a terminal: an answer comes block by block.
    Terminal,
    /// Without a terminal, JSON lines both ways: an answer comes as it is written.
    Stream,
}

impl Way {
    /// The way of a driver of Claude Code; `None` for other drivers.
    pub fn of(driver: Driver) -> Option<Way> {
        match driver {
            Driver::ClaudeTui => Some(Way::Terminal),
            Driver::ClaudeStream => Some(Way::Stream),
            Driver::Acp | Driver::Demo => None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Way::Terminal => "terminal",
            Way::Stream => "stream",
        }
    }
}

/// What a conversation runs with. Two conversations share a live process only if all of it is equal.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Whose conversation it is: the pool never crosses apps.
    pub app: String,
    /// Since when there is such an app: a later one of the same name is another.
    pub app_since: String,
    /// The working folder; it must exist.
    pub cwd: PathBuf,
    pub way: Way,
    pub model: Option<String>,
    /// Replaces the system prompt.
    pub system_prompt: Option<String>,
    /// Added to the system prompt.
    pub append_system_prompt: Option<String>,
    /// What happens to a tool that is not allowed; `dontAsk` denies it and goes on.
    pub permission_mode: Option<String>,
    pub allowed_tools: Vec<String>,
    pub mcp_servers: Map<String, Value>,
    pub extra_args: Vec<String>,
}

impl Profile {
    /// A conversation in a folder, with nothing special. Tools that would ask are denied.
    pub fn new(cwd: impl Into<PathBuf>) -> Profile {
        Profile {
            app: String::new(),
            app_since: String::new(),
            cwd: cwd.into(),
            way: Way::Terminal,
            model: None,
            system_prompt: None,
            append_system_prompt: None,
            permission_mode: Some("dontAsk".to_owned()),
            allowed_tools: Vec::new(),
            mcp_servers: Map::new(),
            extra_args: Vec::new(),
        }
    }

    /// The part of the fingerprint that is not the history.
    pub(crate) fn scope(&self) -> Value {
        json!({
            "app": self.app, "since": self.app_since, "cwd": self.cwd.to_string_lossy(), "model": self.model,
            "way": self.way.as_str(),
            "system": self.system_prompt, "append": self.append_system_prompt,
            "permissions": self.permission_mode, "tools": self.allowed_tools,
            "mcp": self.mcp_servers, "args": self.extra_args,
        })
    }

    /// The arguments of a process, after those that name its session.
    pub(crate) fn arguments(&self, mcp_config: Option<&str>) -> Vec<String> {
        let mut args = Vec::new();
        let tools = (!self.allowed_tools.is_empty()).then(|| self.allowed_tools.join(","));
        let pairs = [
            ("--model", self.model.as_deref()),
            ("--system-prompt", self.system_prompt.as_deref()),
            ("--append-system-prompt", self.append_system_prompt.as_deref()),
            ("--permission-mode", self.permission_mode.as_deref()),
            ("--allowedTools", tools.as_deref()),
            ("--mcp-config", mcp_config),
        ];
        for (flag, value) in pairs {
            if let Some(value) = value {
                args.push(format!("{flag}={value}"));
            }
        }
        args.extend(self.extra_args.iter().cloned());
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_say_only_what_is_set() {
        let mut profile = Profile::new("/w");
        assert_eq!(profile.arguments(None), ["--permission-mode=dontAsk"]);
        profile.permission_mode = None;
        profile.model = Some("sonnet".into());
        profile.allowed_tools = vec!["Bash".into(), "Read".into()];
        profile.extra_args = vec!["--verbose".into()];
        let expect = ["--model=sonnet", "--allowedTools=Bash,Read", "--mcp-config=/f", "--verbose"];
        assert_eq!(profile.arguments(Some("/f")), expect);
    }
}
