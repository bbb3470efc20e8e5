//! What every agent of an app starts from: its cleaned environment, whom it works for, and the walls
//! the kernel keeps around it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hob_child::{ChildSpec, Confinement, Streams, cleaned_environment, opens};
use hob_domain::{AgentSpec, AppName, Sandbox};

/// The same for all agents. Cloning is cheap enough for once per start.
#[derive(Debug, Clone)]
pub struct Walls {
    /// Hob's home, which no agent of an app reads.
    pub home: PathBuf,
    /// Where uploaded files lie, a folder per app.
    pub files: PathBuf,
    /// Folders for agents whose system's temporary folder would open the home.
    pub temporary: PathBuf,
    /// The environment agents' variables are picked from.
    pub environment: Vec<(OsString, OsString)>,
}

impl Walls {
    /// A child that runs an agent's command with more arguments. `scope` names what it is for: a session
    /// or a run, which cleans up after it.
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

    /// The environment of an agent.
    pub fn environment(&self, agent: &AgentSpec) -> Vec<(OsString, OsString)> {
        cleaned_environment(
            self.environment.iter().cloned(),
            &agent.env_pass,
            agent.env.iter().map(|(name, value)| (name.clone(), value.clone())),
        )
    }

    /// Removes what the agents of a session or a run left in a temporary folder of their own.
    pub fn clean(&self, scope: &str) {
        match fs::remove_dir_all(self.temporary.join(scope)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, scope, "a temporary folder could not be removed");
            }
            _ => {}
        }
    }

    /// The same for all that an earlier run of Hob left.
    pub fn clean_all(&self) {
        for entry in fs::read_dir(&self.temporary).into_iter().flatten().flatten() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }

    /// Where an app's uploaded files lie.
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
            // The system's would let it into the home, so it gets one of its own.
            let own = self.temporary.join(scope);
            fs::create_dir_all(&own)?;
            env.retain(|(name, _)| name != "TMPDIR");
            env.push(("TMPDIR".into(), own.clone().into()));
            own
        } else {
            shared
        };
        let files = self.files_of(app);
        fs::create_dir_all(&files)?;
        let mut all = vec![cwd.to_owned(), files, temporary, "/dev/shm".into()];
        for path in agent.writable.iter().map(expand) {
            // What is not there can't be allowed, and an agent could not make it itself. A name with an
            // ending is a file's, and what would be in it is not ours to say.
            if !path.exists() && path.extension().is_none() {
                fs::create_dir_all(&path)?;
            }
            all.push(path);
        }
        Ok(Confinement { hidden: self.home.clone(), writable: all })
    }
}
