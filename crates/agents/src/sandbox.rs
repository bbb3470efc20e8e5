//! What every agent of an app starts from: its cleaned environment, its owner, and the confinement that
//! the kernel enforces.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hob_child::{ChildSpec, Confinement, Streams, cleaned_environment, opens};
use hob_domain::{AgentSpec, AppName, Sandbox};

/// The sandbox settings that all agents share.
#[derive(Debug, Clone)]
pub struct SandboxConfig {
    /// Hob's home, which no agent of an app may read.
    pub home: PathBuf,
    /// The folder of uploaded files, with a subfolder per app.
    pub files: PathBuf,
    /// The folder for temporary folders of agents, if the system's would expose the home.
    pub temporary: PathBuf,
    /// The environment from which the agents' variables are picked.
    pub environment: Vec<(OsString, OsString)>,
}

impl SandboxConfig {
    /// Returns the spec of a child that runs an agent's command with further arguments. `scope` names the
    /// session or run that owns the child and its temporary folder.
    pub fn child(
        &self,
        app: &AppName,
        agent: &AgentSpec,
        arguments: Vec<String>,
        cwd: &Path,
        streams: Streams,
        scope: &str,
    ) -> io::Result<ChildSpec> {
        let mut env = self.environment(agent);
        let confinement = match agent.sandbox {
            Sandbox::Off => None,
            Sandbox::Workspace => Some(self.confinement(app, agent, cwd, scope, &mut env)?),
        };
        let mut command = agent.command.iter();
        let program = command.next().cloned().unwrap_or_default();
        Ok(ChildSpec {
            program: program.into(),
            args: command.chain(&arguments).map(OsString::from).collect(),
            env,
            cwd: cwd.to_owned(),
            streams,
            owner: Some(app.as_str().to_owned()),
            confinement,
        })
    }

    /// Returns the environment of an agent.
    pub fn environment(&self, agent: &AgentSpec) -> Vec<(OsString, OsString)> {
        cleaned_environment(
            self.environment.iter().cloned(),
            &agent.env_pass,
            agent.env.iter().map(|(name, value)| (name.clone(), value.clone())),
        )
    }

    /// Returns the temporary folder of a session's or a run's agents.
    pub fn temporary_of(&self, scope: &str) -> PathBuf {
        self.temporary.join(scope)
    }

    /// Returns the folder of an app's uploaded files.
    pub fn files_of(&self, app: &AppName) -> PathBuf {
        self.files.join(app.as_str())
    }

    fn confinement(
        &self,
        app: &AppName,
        agent: &AgentSpec,
        cwd: &Path,
        scope: &str,
        env: &mut Vec<(OsString, OsString)>,
    ) -> io::Result<Confinement> {
        let value = |env: &[(OsString, OsString)], name: &str| {
            let found = env.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| PathBuf::from(value))
        };
        let user = value(env, "HOME");
        let expand = |path: &String| match (path.strip_prefix("~/"), &user) {
            (Some(rest), Some(user)) => user.join(rest),
            _ => PathBuf::from(path),
        };
        let shared = value(env, "TMPDIR").unwrap_or_else(|| "/tmp".into());
        let temporary = if opens(&shared, &self.home) {
            // The system's temporary folder would expose the home, so the agent gets its own.
            let own = self.temporary_of(scope);
            fs::create_dir_all(&own)?;
            env.retain(|(name, _)| name != "TMPDIR");
            env.push(("TMPDIR".into(), own.clone().into()));
            own
        } else {
            shared
        };
        let files = self.files_of(app);
        fs::create_dir_all(&files)?;
        let mut writable = vec![cwd.to_owned(), temporary, "/dev/shm".into()];
        for path in agent.writable.iter().map(expand) {
            // The kernel cannot allow a path that does not exist, and the agent could not create it. A name
            // with an extension is a file, whose content Hob cannot know.
            if !path.exists() && path.extension().is_none() {
                fs::create_dir_all(&path)?;
            }
            writable.push(path);
        }
        Ok(Confinement { hidden: self.home.clone(), writable, readable: vec![files] })
    }
}
