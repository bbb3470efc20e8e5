//! What may differ from one conversation to the next.

use std::io;
use std::path::{Path, PathBuf};

use hob_domain::Driver;
use serde_json::{Map, Value, json};

use super::argument_files::{ArgumentFiles, ProcessFile};
use crate::client_tools::{ClientTool, NAME_PREFIX, SERVER_NAME};

/// The launch arguments for stream-json in both directions, with partial messages.
pub(crate) const STREAM_ARGUMENTS: [&str; 7] = [
    "-p",
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--verbose",
    "--include-partial-messages",
];

/// Tools that open a dialog, or change the permission mode so that other tools do. Nobody answers it.
const DIALOG_TOOLS: &str = "AskUserQuestion,EnterPlanMode,ExitPlanMode";

/// The transport between Hob and a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaudeTransport {
    /// The interactive program in a terminal: an answer arrives block by block.
    Terminal,
    /// Stream-json without a terminal: an answer arrives as it is written.
    Stream,
}

impl ClaudeTransport {
    /// Returns the transport of a Claude Code driver, or `None` for other drivers.
    pub fn of(driver: Driver) -> Option<ClaudeTransport> {
        match driver {
            Driver::ClaudeTui => Some(ClaudeTransport::Terminal),
            Driver::ClaudeStream => Some(ClaudeTransport::Stream),
            Driver::Acp | Driver::Demo => None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            ClaudeTransport::Terminal => "terminal",
            ClaudeTransport::Stream => "stream",
        }
    }
}

/// The files that the arguments of a process name. It must live as long as the process.
#[derive(Debug, Default)]
pub(crate) struct ArgumentPaths {
    mcp_config: Option<PathBuf>,
    /// Replaces `mcp_config` if the client has tools.
    process_mcp_config: Option<ProcessFile>,
    system_prompt: Option<ProcessFile>,
    append_system_prompt: Option<ProcessFile>,
    /// The file into which a process in a terminal writes its cost.
    cost: Option<ProcessFile>,
}

impl ArgumentPaths {
    /// Returns the files that the process reads.
    pub fn all(&self) -> impl Iterator<Item = &PathBuf> {
        let files = [&self.process_mcp_config, &self.system_prompt, &self.append_system_prompt];
        self.mcp_config.iter().chain(files.into_iter().flatten().map(|file| &file.path))
    }

    /// Returns the file into which the process writes its cost, if it runs in a terminal.
    pub fn cost(&self) -> Option<&Path> {
        self.cost.as_ref().map(|file| file.path.as_path())
    }
}

/// The settings of a conversation. Two conversations share a live process only if all of them are equal.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The app that owns the conversation: the pool never crosses apps.
    pub app: String,
    /// When the app was created: a later app of the same name is another app.
    pub app_since: String,
    /// The working folder, which must exist.
    pub cwd: PathBuf,
    pub transport: ClaudeTransport,
    pub model: Option<String>,
    /// Replaces the system prompt.
    pub system_prompt: Option<String>,
    /// Added to the system prompt.
    pub append_system_prompt: Option<String>,
    /// Claude Code's permission mode; `dontAsk` denies tools that are not allowed.
    pub permission_mode: Option<String>,
    pub allowed_tools: Vec<String>,
    pub mcp_servers: Map<String, Value>,
    /// Tools that the client runs.
    pub client_tools: Vec<ClientTool>,
    pub extra_args: Vec<String>,
}

impl Profile {
    /// Creates the profile of a conversation in a folder. Tools that would ask are denied.
    pub fn new(cwd: impl Into<PathBuf>) -> Profile {
        Profile {
            app: String::new(),
            app_since: String::new(),
            cwd: cwd.into(),
            transport: ClaudeTransport::Terminal,
            model: None,
            system_prompt: None,
            append_system_prompt: None,
            permission_mode: Some("dontAsk".to_owned()),
            allowed_tools: Vec::new(),
            mcp_servers: Map::new(),
            client_tools: Vec::new(),
            extra_args: Vec::new(),
        }
    }

    /// Lets the agent use every tool without a permission.
    pub fn allow_all_tools(&mut self) {
        self.permission_mode = Some("bypassPermissions".to_owned());
    }

    /// Lets the agent read the files in a folder without a permission.
    pub fn allow_reading(&mut self, folder: &Path) {
        self.extra_args.push(format!("--add-dir={}", folder.display()));
    }

    /// Returns the part of the fingerprint other than the history.
    pub(crate) fn scope(&self) -> Value {
        let client_tools: Vec<Value> = self.client_tools.iter().map(ClientTool::to_value).collect();
        json!({
            "app": self.app, "since": self.app_since, "cwd": self.cwd.to_string_lossy(), "model": self.model,
            "way": self.transport.as_str(),
            "system": self.system_prompt, "append": self.append_system_prompt,
            "permissions": self.permission_mode, "tools": self.allowed_tools,
            "mcp": self.mcp_servers, "client_tools": client_tools, "args": self.extra_args,
        })
    }

    /// Returns the part of the fingerprint of a turn that waits for the client's tools. The ids of its calls identify it,
    /// so the settings may change.
    pub(crate) fn paused_scope(&self) -> Value {
        json!({"app": self.app, "since": self.app_since})
    }

    /// Returns the name that the agent has for a tool of the client.
    pub(crate) fn agent_tool_name(&self, name: &str) -> Option<String> {
        let is_known = self.client_tools.iter().any(|tool| tool.name == name);
        is_known.then(|| format!("{NAME_PREFIX}{name}"))
    }

    /// Writes the files that the arguments name. `tool_server` is the entry of the server of the client's tools.
    pub(crate) fn argument_files(
        &self,
        files: &ArgumentFiles,
        tool_server: Option<Value>,
    ) -> io::Result<ArgumentPaths> {
        let (mcp_config, process_mcp_config) = match tool_server {
            None => (files.mcp_config(&self.mcp_servers)?, None),
            Some(tool_server) => {
                let mut servers = self.mcp_servers.clone();
                servers.insert(SERVER_NAME.to_owned(), tool_server);
                (None, Some(files.process_mcp_config(&servers)?))
            }
        };
        Ok(ArgumentPaths {
            mcp_config,
            process_mcp_config,
            system_prompt: files.prompt(self.system_prompt.as_deref())?,
            append_system_prompt: files.prompt(self.append_system_prompt.as_deref())?,
            cost: match self.transport {
                ClaudeTransport::Terminal => Some(files.cost()?),
                ClaudeTransport::Stream => None,
            },
        })
    }

    /// Returns the arguments of a process, after those that name its session. A prompt is never an argument: every
    /// process of the machine can read those.
    pub(crate) fn arguments(&self, paths: &ArgumentPaths) -> Vec<String> {
        let mut args = Vec::new();
        let path =
            |file: &Option<ProcessFile>| file.as_ref().map(|file| file.path.display().to_string());
        let mcp_config = paths.mcp_config.as_ref().map(|path| path.display().to_string());
        let mut tools = self.allowed_tools.clone();
        if paths.process_mcp_config.is_some() {
            tools.push(format!("mcp__{SERVER_NAME}"));
        }
        let tools = (!tools.is_empty()).then(|| tools.join(","));
        let pairs = [
            ("--model", self.model.clone()),
            ("--system-prompt-file", path(&paths.system_prompt)),
            ("--append-system-prompt-file", path(&paths.append_system_prompt)),
            ("--permission-mode", self.permission_mode.clone()),
            ("--allowedTools", tools),
            ("--disallowedTools", Some(DIALOG_TOOLS.to_owned())),
            ("--mcp-config", path(&paths.process_mcp_config).or(mcp_config)),
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
    fn only_set_fields_become_arguments() {
        let mut profile = Profile::new("/w");
        let disallowed = "--disallowedTools=AskUserQuestion,EnterPlanMode,ExitPlanMode";
        let expect = ["--permission-mode=dontAsk", disallowed];
        assert_eq!(profile.arguments(&ArgumentPaths::default()), expect);
        profile.permission_mode = None;
        profile.model = Some("sonnet".into());
        profile.allowed_tools = vec!["Bash".into(), "Read".into()];
        profile.extra_args = vec!["--verbose".into()];
        let expect = [
            "--model=sonnet",
            "--allowedTools=Bash,Read",
            disallowed,
            "--mcp-config=/f",
            "--verbose",
        ];
        let mcp_config = Some(PathBuf::from("/f"));
        let paths = ArgumentPaths { mcp_config, ..ArgumentPaths::default() };
        assert_eq!(profile.arguments(&paths), expect);
    }

    #[test]
    fn prompts_are_in_files_not_in_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let files = ArgumentFiles::new(folder.path().to_owned());
        let mut profile = Profile::new("/w");
        profile.system_prompt = Some("a secret role".into());
        profile.append_system_prompt = Some("a secret rule".into());
        let paths = profile.argument_files(&files, None).unwrap();
        assert!(paths.cost().is_some_and(Path::exists));
        let arguments = profile.arguments(&paths);
        assert!(!arguments.iter().any(|argument| argument.contains("secret")), "{arguments:?}");
        let read = |flag: &str| {
            let path = arguments.iter().find_map(|argument| argument.strip_prefix(flag)).unwrap();
            std::fs::read_to_string(path).unwrap()
        };
        assert_eq!(read("--system-prompt-file="), "a secret role");
        assert_eq!(read("--append-system-prompt-file="), "a secret rule");
        drop(paths);
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            0,
            "they end with the process"
        );
    }
}
