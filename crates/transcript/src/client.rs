use serde::{Deserialize, Serialize};

/// A coding agent into which Hob installs hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentClient {
    Claude,
    Codex,
    Gemini,
    Opencode,
}

impl AgentClient {
    pub const ALL: [AgentClient; 4] =
        [AgentClient::Claude, AgentClient::Codex, AgentClient::Gemini, AgentClient::Opencode];

    /// Returns the name on the command line and in stored turns.
    pub fn as_str(self) -> &'static str {
        RecordedClient::from(self).as_str()
    }

    /// Returns the name that people use.
    pub fn name(self) -> &'static str {
        RecordedClient::from(self).name()
    }
}

/// A program whose conversations Hob can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordedClient {
    Claude,
    Codex,
    Gemini,
    Opencode,
    Copilot,
    Cline,
    Aider,
    Specstory,
    Roo,
    Qwen,
    Goose,
    Cursor,
    Entire,
    Zed,
}

/// How and where a program records its conversations.
#[derive(Debug)]
pub struct RecordDescription {
    pub client: RecordedClient,
    /// The name in stored turns.
    pub id: &'static str,
    /// The name that people use.
    pub name: &'static str,
    /// Where its records are. A program that records into the user's repositories has no such place.
    pub places: &'static [RecordPlace],
}

/// A folder of records, or a file of them.
#[derive(Debug)]
pub struct RecordPlace {
    /// An environment variable of the program, and the path below the folder that it names.
    pub by_variable: Option<(&'static str, &'static str)>,
    /// The path below the user's home, unless the variable is set.
    pub below_home: &'static str,
}

const fn by(variable: &'static str, below: &'static str, below_home: &'static str) -> RecordPlace {
    RecordPlace { by_variable: Some((variable, below)), below_home }
}

const fn at(below_home: &'static str) -> RecordPlace {
    RecordPlace { by_variable: None, below_home }
}

/// Every program whose conversations Hob can read.
pub const RECORDS: [RecordDescription; 14] = [
    // JSONL of linked records; see `claude`.
    RecordDescription {
        client: RecordedClient::Claude,
        id: "claude",
        name: "Claude Code",
        places: &[
            by("CLAUDE_CONFIG_DIR", "projects", ".claude/projects"),
            by("CLAUDE_CONFIG_DIR", "agent-memory", ".claude/agent-memory"),
            at(".config/claude/projects"),
        ],
    },
    // JSONL of history items and events; see `codex`.
    RecordDescription {
        client: RecordedClient::Codex,
        id: "codex",
        name: "Codex",
        places: &[
            by("CODEX_HOME", "sessions", ".codex/sessions"),
            by("CODEX_HOME", "archived_sessions", ".codex/archived_sessions"),
            by("CODEX_HOME", "memories", ".codex/memories"),
        ],
    },
    // JSONL of messages, or one JSON object; see `gemini`.
    RecordDescription {
        client: RecordedClient::Gemini,
        id: "gemini",
        name: "Gemini CLI",
        places: &[by("GEMINI_CLI_HOME", ".gemini/tmp", ".gemini/tmp")],
    },
    // SQLite, or one JSON file per message; see `opencode`.
    RecordDescription {
        client: RecordedClient::Opencode,
        id: "opencode",
        name: "OpenCode",
        places: &[by("XDG_DATA_HOME", "opencode", ".local/share/opencode")],
    },
    // JSONL of events; see `copilot`.
    RecordDescription {
        client: RecordedClient::Copilot,
        id: "copilot",
        name: "Copilot CLI",
        places: &[by("COPILOT_HOME", "session-state", ".copilot/session-state")],
    },
    // One JSON document per task or session; see `cline` and `cline_session`.
    RecordDescription {
        client: RecordedClient::Cline,
        id: "cline",
        name: "Cline",
        places: &[
            by("CLINE_DATA_DIR", "tasks", ".cline/data/tasks"),
            by("CLINE_DATA_DIR", "sessions", ".cline/data/sessions"),
            at(".config/Code/User/globalStorage/saoudrizwan.claude-dev/tasks"),
            at(".config/Cursor/User/globalStorage/saoudrizwan.claude-dev/tasks"),
            at(".vscode-server/data/User/globalStorage/saoudrizwan.claude-dev/tasks"),
            at("Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/tasks"),
        ],
    },
    // Markdown in repositories; see `aider`.
    RecordDescription { client: RecordedClient::Aider, id: "aider", name: "aider", places: &[] },
    // Markdown in repositories; see `specstory`.
    RecordDescription {
        client: RecordedClient::Specstory,
        id: "specstory",
        name: "SpecStory",
        places: &[],
    },
    // One JSON document per task, like Cline's; see `cline`.
    RecordDescription {
        client: RecordedClient::Roo,
        id: "roo",
        name: "Roo Code",
        places: &[
            at(".config/Code/User/globalStorage/rooveterinaryinc.roo-cline/tasks"),
            at(".config/Cursor/User/globalStorage/rooveterinaryinc.roo-cline/tasks"),
            at(".vscode-server/data/User/globalStorage/rooveterinaryinc.roo-cline/tasks"),
            at(
                "Library/Application Support/Code/User/globalStorage/rooveterinaryinc.roo-cline/tasks",
            ),
        ],
    },
    // JSONL of linked records; see `qwen`.
    RecordDescription {
        client: RecordedClient::Qwen,
        id: "qwen",
        name: "Qwen Code",
        places: &[by("QWEN_RUNTIME_DIR", "projects", ".qwen/projects")],
    },
    // SQLite, or JSONL of messages; see `goose`.
    RecordDescription {
        client: RecordedClient::Goose,
        id: "goose",
        name: "goose",
        places: &[by("XDG_DATA_HOME", "goose/sessions", ".local/share/goose/sessions")],
    },
    // SQLite; see `cursor` for the editor, and `cursor_chat` for the command line.
    RecordDescription {
        client: RecordedClient::Cursor,
        id: "cursor",
        name: "Cursor",
        places: &[
            by(
                "XDG_CONFIG_HOME",
                "Cursor/User/globalStorage/state.vscdb",
                ".config/Cursor/User/globalStorage/state.vscdb",
            ),
            at("Library/Application Support/Cursor/User/globalStorage/state.vscdb"),
            at(".cursor/chats"),
        ],
    },
    // JSONL in repositories; see `entire`.
    RecordDescription { client: RecordedClient::Entire, id: "entire", name: "Entire", places: &[] },
    // SQLite; see `zed`.
    RecordDescription {
        client: RecordedClient::Zed,
        id: "zed",
        name: "Zed",
        places: &[
            by("XDG_DATA_HOME", "zed/threads", ".local/share/zed/threads"),
            at(".var/app/dev.zed.Zed/data/zed/threads"),
            at("Library/Application Support/Zed/threads"),
        ],
    },
];

impl RecordedClient {
    pub fn description(self) -> &'static RecordDescription {
        &RECORDS[self as usize]
    }

    /// Returns the name in stored turns.
    pub fn as_str(self) -> &'static str {
        self.description().id
    }

    /// Returns the name that people use.
    pub fn name(self) -> &'static str {
        self.description().name
    }
}

impl From<AgentClient> for RecordedClient {
    fn from(client: AgentClient) -> RecordedClient {
        match client {
            AgentClient::Claude => RecordedClient::Claude,
            AgentClient::Codex => RecordedClient::Codex,
            AgentClient::Gemini => RecordedClient::Gemini,
            AgentClient::Opencode => RecordedClient::Opencode,
        }
    }
}
