use serde::{Deserialize, Serialize};

/// A coding agent whose transcripts Hob reads and into which it installs hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentClient {
    Claude,
    Codex,
}

/// What Hob knows about a client.
#[derive(Debug)]
pub struct ClientDescription {
    /// The name on the command line and in stored turns.
    pub id: &'static str,
    /// The name that people use.
    pub name: &'static str,
    /// The environment variable that names the configuration folder.
    pub config_variable: &'static str,
    /// The configuration folder below the user's home, unless that variable names another.
    pub config_folder: &'static str,
    /// The file in the configuration folder in which the client looks for hooks.
    pub hooks_file: &'static str,
    /// The folders of transcripts below the configuration folder.
    pub transcript_folders: &'static [&'static str],
    /// Further folders of transcripts, below the user's home.
    pub other_transcript_folders: &'static [&'static str],
}

/// Claude Code. It writes one JSONL file of linked records per session; see [`crate::claude`].
const CLAUDE: ClientDescription = ClientDescription {
    id: "claude",
    name: "Claude Code",
    config_variable: "CLAUDE_CONFIG_DIR",
    config_folder: ".claude",
    hooks_file: "settings.json",
    transcript_folders: &["projects"],
    other_transcript_folders: &[".config/claude/projects"],
};

/// Codex. It writes one rollout (JSONL of history items and events) per session.
const CODEX: ClientDescription = ClientDescription {
    id: "codex",
    name: "Codex",
    config_variable: "CODEX_HOME",
    config_folder: ".codex",
    hooks_file: "hooks.json",
    transcript_folders: &["sessions", "archived_sessions"],
    other_transcript_folders: &[],
};

impl AgentClient {
    pub const ALL: [AgentClient; 2] = [AgentClient::Claude, AgentClient::Codex];

    pub fn description(self) -> &'static ClientDescription {
        match self {
            AgentClient::Claude => &CLAUDE,
            AgentClient::Codex => &CODEX,
        }
    }

    /// Returns the name on the command line and in stored turns.
    pub fn as_str(self) -> &'static str {
        self.description().id
    }

    /// Returns the name that people use.
    pub fn name(self) -> &'static str {
        self.description().name
    }
}
