//! What a process starts from: the program, its environment, its configuration and its walls.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use hob_child::{Confinement, Streams};
use hob_domain::session::Permissions;
use hob_domain::{AgentSpec, AppName};
use serde_json::json;

use super::config::ConfigFolder;
use super::options::Profile;
use crate::Walls;

const SUGGESTIONS: &str = "CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION";

/// What one process starts from.
#[derive(Debug, Clone)]
pub struct Outfit {
    /// The program and its first arguments.
    pub command: Vec<String>,
    /// The agent's whole environment.
    pub environment: Vec<(OsString, OsString)>,
    pub config: ConfigFolder,
    pub confinement: Option<Confinement>,
}

/// Says what a conversation's process starts from.
pub trait Outfitter: Send + Sync {
    fn outfit(&self, profile: &Profile) -> io::Result<Outfit>;
}

impl Outfit {
    /// A program that is trusted, with nothing in its environment yet.
    pub fn new(command: Vec<String>, config: ConfigFolder) -> Outfit {
        Outfit { command, environment: Vec::new(), config, confinement: None }
    }

    /// Sets a variable.
    pub fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.environment.retain(|(known, _)| known != name);
        self.environment.push((name.into(), value.into()));
    }

    /// Sets a variable that is not set.
    pub fn set_default(&mut self, name: &str, value: &str) {
        if !self.environment.iter().any(|(known, _)| known == name) {
            self.set(name, value);
        }
    }

    /// Lets it write, and so read, a place that its walls would keep from it.
    pub fn open(&mut self, path: &Path) {
        if let Some(confinement) = &mut self.confinement {
            confinement.writable.push(path.to_owned());
        }
    }

    /// What a program without a person before it needs: it knows its configuration folder and can write
    /// there, since transcripts lie in it, and it does not ask the model for suggestions after turns, with the whole history, for nobody.
    pub fn unattended(&mut self) {
        match self.config.clone() {
            ConfigFolder::Own(path) => {
                self.set("CLAUDE_CONFIG_DIR", &path);
                self.open(&path);
            }
            // The rest of the user's folder is for the agent's entry to name: settings in it run commands.
            ConfigFolder::Users(path) => self.open(&path.join("projects")),
        }
        self.set_default(SUGGESTIONS, "false");
    }

    /// The mode and more arguments for what happens to tools that would ask.
    pub fn permit(&mut self, permissions: Permissions) -> (&'static str, Vec<String>) {
        match permissions {
            Permissions::Deny => ("dontAsk", Vec::new()),
            Permissions::Ask => ("default", Vec::new()),
            Permissions::Allow => {
                // It refuses to allow everything as root unless it is told that somebody keeps it in.
                if self.confinement.is_some() {
                    self.set("IS_SANDBOX", "1");
                }
                let settings = json!({"skipDangerousModePermissionPrompt": true});
                ("bypassPermissions", vec![format!("--settings={settings}")])
            }
        }
    }
}

/// Everybody starts from the same.
impl Outfitter for Outfit {
    fn outfit(&self, _: &Profile) -> io::Result<Outfit> {
        Ok(self.clone())
    }
}

/// Agents of apps: each app has a configuration folder of its own, and walls around it.
pub struct BehindWalls {
    pub walls: Walls,
    pub agent: AgentSpec,
    /// Where configuration folders of our own lie.
    pub claude: PathBuf,
}

impl Outfitter for BehindWalls {
    fn outfit(&self, profile: &Profile) -> io::Result<Outfit> {
        let app = AppName::stored(profile.app.as_str()).map_err(io::Error::other)?;
        let streams = Streams::Pipes { stdin: hob_child::Stdin::Null };
        let scope = temporary_scope(&app);
        let child =
            self.walls.child(&app, &self.agent, Vec::new(), &profile.cwd, streams, &scope)?;
        // A folder of ours is one app's alone: it holds transcripts, and settings that run commands.
        let parent = self.claude.join("apps").join(app.as_str());
        let config = ConfigFolder::for_environment(&child.env, &parent)?;
        Ok(Outfit {
            command: self.agent.command.clone(),
            environment: child.env,
            config,
            confinement: child.confinement,
        })
    }
}

/// The name of the temporary folder of an app's conversations.
pub fn temporary_scope(app: &AppName) -> String {
    format!("v1-{app}")
}
