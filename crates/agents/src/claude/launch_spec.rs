//! The launch spec of a process: its program, environment, configuration folder and sandbox.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use hob_child::{Confinement, Streams};
use hob_domain::session::Permissions;
use hob_domain::{AgentSpec, AppName};
use serde_json::{Map, Value, json};

use super::config::ConfigFolder;
use super::cost;
use super::profile::Profile;
use crate::sandbox::SandboxConfig;

const SUGGESTIONS: &str = "CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION";

/// The program, environment, configuration folder and confinement of one process.
#[derive(Debug, Clone)]
pub struct LaunchSpec {
    /// The program and its first arguments.
    pub command: Vec<String>,
    /// The whole environment of the agent.
    pub environment: Vec<(OsString, OsString)>,
    pub config: ConfigFolder,
    pub confinement: Option<Confinement>,
    /// The hosts for which Git gets the user's credential.
    pub git_hosts: Vec<String>,
    /// Settings of the program that win over those in its files.
    pub settings: Map<String, Value>,
}

/// Provides the launch spec for a conversation's process.
pub trait LaunchSpecProvider: Send + Sync {
    fn launch_spec(&self, profile: &Profile) -> io::Result<LaunchSpec>;
}

impl LaunchSpec {
    /// Creates the spec of a trusted program with an empty environment.
    pub fn new(command: Vec<String>, config: ConfigFolder) -> LaunchSpec {
        LaunchSpec {
            command,
            environment: Vec::new(),
            config,
            confinement: None,
            git_hosts: Vec::new(),
            settings: Map::new(),
        }
    }

    /// Sets a variable.
    pub fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.environment.retain(|(known, _)| known != name);
        self.environment.push((name.into(), value.into()));
    }

    /// Sets a variable unless it is set.
    pub fn set_default(&mut self, name: &str, value: &str) {
        if !self.environment.iter().any(|(known, _)| known == name) {
            self.set(name, value);
        }
    }

    /// Allows reading and writing a path that the sandbox would deny.
    pub fn allow_path(&mut self, path: &Path) {
        if let Some(confinement) = &mut self.confinement {
            confinement.writable.push(path.to_owned());
        }
    }

    /// Allows reading a path that the sandbox hides.
    pub fn show_path(&mut self, path: &Path) {
        if let Some(confinement) = &mut self.confinement {
            confinement.readable.push(path.to_owned());
        }
    }

    /// Prepares for running without a person. The program gets its configuration folder, which it must be
    /// able to write because transcripts lie in it. It does not ask the model for prompt suggestions, each
    /// of which would send the whole history.
    pub fn unattended(&mut self) {
        match self.config.clone() {
            ConfigFolder::Own(path) => {
                self.set("CLAUDE_CONFIG_DIR", &path);
                self.allow_path(&path);
            }
            // Only an agent without a sandbox uses the user's folder: files in it run commands.
            ConfigFolder::Users(_) => {}
        }
        self.set_default(SUGGESTIONS, "false");
    }

    /// Prepares for tools that would ask, and returns the permission mode.
    pub fn permit(&mut self, permissions: Permissions) -> &'static str {
        match permissions {
            Permissions::Deny => "dontAsk",
            Permissions::Ask => "default",
            Permissions::Allow => {
                // As root it refuses to bypass permissions unless it is declared to be in a sandbox.
                if self.confinement.is_some() {
                    self.set("IS_SANDBOX", "1");
                }
                self.settings.insert("skipDangerousModePermissionPrompt".to_owned(), json!(true));
                "bypassPermissions"
            }
        }
    }

    /// Lets the program in a terminal write its cost into a file, after which a status line of the user still runs.
    /// Settings in the user's own command are not replaced; the cost is unknown then.
    pub fn report_cost(&mut self, file: &Path, cwd: &Path) -> io::Result<()> {
        if self.command.iter().any(|word| word.starts_with("--settings")) {
            return Ok(());
        }
        let program = hob_child::own_program()?;
        let theirs = cost::users_status_line(&self.config, cwd);
        let line = cost::status_line(&program, file, theirs);
        self.settings.insert("statusLine".to_owned(), line);
        self.allow_path(file);
        let disk = self.confinement.as_mut().and_then(|c| c.limits.disk.as_mut());
        if let Some(disk) = disk {
            disk.folders.push(file.to_owned());
        }
        Ok(())
    }

    /// Returns the argument with the settings, if there are any.
    pub fn settings_argument(&self) -> Option<String> {
        let settings = &self.settings;
        (!settings.is_empty()).then(|| format!("--settings={}", Value::Object(settings.clone())))
    }
}

/// A spec provides itself for every conversation.
impl LaunchSpecProvider for LaunchSpec {
    fn launch_spec(&self, _: &Profile) -> io::Result<LaunchSpec> {
        Ok(self.clone())
    }
}

/// Launch specs for the agents of apps. Each app has its own configuration folder and sandbox.
pub struct SandboxedLauncher {
    pub sandbox: SandboxConfig,
    pub agent: AgentSpec,
    /// The folder for Hob's own configuration folders.
    pub claude: PathBuf,
}

impl LaunchSpecProvider for SandboxedLauncher {
    fn launch_spec(&self, profile: &Profile) -> io::Result<LaunchSpec> {
        let app = AppName::stored(profile.app.as_str()).map_err(io::Error::other)?;
        let streams = Streams::Pipes { stdin: hob_child::Stdin::Null };
        let scope = temporary_scope(&app);
        let child =
            self.sandbox.child(&app, &self.agent, Vec::new(), &profile.cwd, streams, &scope)?;
        // A configuration folder is never shared by apps: it holds transcripts, and settings that run
        // commands.
        let parent = self.claude.join("apps").join(app.as_str());
        let sandboxed = child.confinement.is_some();
        let config = ConfigFolder::for_environment(&child.env, &parent, sandboxed)?;
        Ok(LaunchSpec {
            command: self.agent.command.clone(),
            environment: child.env,
            config,
            confinement: child.confinement,
            git_hosts: self.agent.git_hosts.clone(),
            settings: Map::new(),
        })
    }
}

/// Returns the name of the temporary folder of an app's conversations.
pub fn temporary_scope(app: &AppName) -> String {
    format!("v1-{app}")
}
