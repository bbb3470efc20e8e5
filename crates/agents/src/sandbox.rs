//! What every agent of an app starts from: its cleaned environment, its owner, and the confinement that
//! the kernel enforces.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use hob_child::{
    ChildSpec, Confinement, DiskLimit, Owner, STRICT_LANDLOCK_VERSION, Streams, TreeLimits,
    cleaned_environment,
};
use hob_domain::{AgentSpec, AppName, Sandbox};
use hob_files::owned;

use crate::git_settings;
use crate::owner_copy::copy_from_owner;

/// The variable that tells a command inside of an agent which home the agent belongs to. The sandbox hides the home itself.
pub const AGENT_HOME_VARIABLE: &str = "HOB_AGENT_HOME";

/// Stores of credentials in the user's home, which agents cannot read unless their entry names them.
pub(crate) const CREDENTIALS: &[&str] = &[
    ".ssh",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".kube",
    ".docker/config.json",
    ".gnupg",
    ".netrc",
    ".git-credentials",
    ".config/git/credentials",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".s3cfg",
    ".vault-token",
    ".cargo/credentials.toml",
    ".terraform.d/credentials.tfrc.json",
    ".config/gh",
    ".config/github-copilot",
    ".config/hub",
    ".config/rclone",
    ".config/op",
    ".config/Bitwarden",
    ".password-store",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".mozilla",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".thunderbird",
    ".config/containers/auth.json",
    ".config/sops/age",
    ".oci",
    ".boto",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".cache/huggingface/token",
    ".huggingface/token",
    ".hob",
    ".claude.json",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".gemini/oauth_creds.json",
    ".copilot/config.json",
    ".config/cursor/auth.json",
    ".config/goose/secrets.yaml",
    ".qwen/oauth_creds.json",
    ".local/share/opencode/auth.json",
    ".cargo/credentials",
    ".gem/credentials",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".config/heroku",
    ".config/doctl",
    ".config/stripe",
    ".config/ngrok",
    ".config/netlify",
    ".config/glab-cli",
    ".config/solana",
    ".config/1Password",
    ".config/vivaldi",
    ".config/microsoft-edge",
    ".config/opera",
    ".config/Code",
    ".config/Cursor",
    ".config/Claude",
    ".config/configstore",
    ".local/share/com.vercel.cli",
    ".fly",
    ".pulumi/credentials.json",
    ".kaggle",
    ".railway",
    ".terraformrc",
    ".mylogin.cnf",
    ".pki",
    ".electrum",
    ".bitcoin",
    ".ethereum",
    "snap/firefox",
    "snap/chromium",
    ".var/app",
    ".gemini/.env",
    ".gemini/mcp-oauth-tokens.json",
    ".local/share/opencode/mcp-auth.json",
    ".cursor/mcp.json",
    ".copilot/mcp-config.json",
    ".bash_history",
    ".zsh_history",
    ".local/share/fish/fish_history",
    ".python_history",
    ".psql_history",
    ".mysql_history",
];

/// The sandbox settings that all agents share.
#[derive(Debug, Clone)]
pub struct SandboxConfig {
    /// Hob's home, which no agent of an app may read.
    pub home: PathBuf,
    /// The folder of scheduled backups, which no agent of an app may read: they contain the key.
    pub backups: Option<PathBuf>,
    /// The owner's socket, by which agents reach the memory of their app.
    pub socket: PathBuf,
    /// The folder of uploaded files, with a subfolder per app.
    pub files: PathBuf,
    /// The folder for temporary folders of agents.
    pub temporary: PathBuf,
    /// The folder of agents' configuration and data, with a subfolder per app.
    pub private: PathBuf,
    /// Whether the kernel allows agents a view of their own.
    pub has_view: bool,
    /// Whether the kernel limits the memory and the processes of each agent by a control group.
    pub has_control_groups: bool,
    /// The most memory that an agent, with everything it started, may use.
    pub max_memory_bytes: Option<u64>,
    /// The most disk that the files of an agent in Hob's folders may take.
    pub max_disk_bytes: Option<u64>,
    /// The environment from which the agents' variables are picked.
    pub environment: Vec<(OsString, OsString)>,
}

/// The parts of an agent's sandbox that are active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxLayers {
    /// `workspace`, `strict` or `off`.
    pub mode: &'static str,
    pub namespaces: bool,
    /// The version of Landlock.
    pub landlock: Option<u32>,
    /// Limits on open files, processes and sizes of files.
    pub limits: bool,
    /// Whether a control group limits memory and processes. Otherwise Hob measures the memory.
    pub control_groups: bool,
    /// The most memory that the agent may use, in bytes.
    pub memory_bytes: Option<u64>,
    /// The most disk that its files may take, in bytes.
    pub disk_bytes: Option<u64>,
}

impl SandboxConfig {
    /// Returns the spec of a child that runs an agent's command with further arguments. `scope` names the
    /// session or run that owns the child and its temporary folder. Fails with [`io::ErrorKind::Unsupported`] if the machine
    /// lacks a part of the sandbox that the agent's settings demand.
    pub fn child(
        &self,
        app: &AppName,
        agent: &AgentSpec,
        arguments: Vec<String>,
        cwd: &Path,
        streams: Streams,
        scope: &str,
    ) -> io::Result<ChildSpec> {
        if let Some(missing) = self.missing_for(agent) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, missing));
        }
        let mut env = self.environment(agent);
        let confinement = match agent.sandbox {
            Sandbox::Off => None,
            Sandbox::Workspace | Sandbox::Strict => {
                Some(self.confinement(app, agent, cwd, scope, &mut env)?)
            }
        };
        let mut command = agent.command.iter();
        let program = command.next().cloned().unwrap_or_default();
        Ok(ChildSpec {
            program: program.into(),
            args: command.chain(&arguments).map(OsString::from).collect(),
            env,
            cwd: cwd.to_owned(),
            streams,
            owner: Some(Owner { app: app.as_str().to_owned(), git_hosts: agent.git_hosts.clone() }),
            confinement,
        })
    }

    /// Returns which parts of the sandbox an agent's settings demand although this machine lacks them.
    fn missing_for(&self, agent: &AgentSpec) -> Option<String> {
        if agent.sandbox != Sandbox::Strict {
            return None;
        }
        let landlock = match hob_child::landlock_version() {
            Some(version) if version >= STRICT_LANDLOCK_VERSION => None,
            Some(version) => Some(format!(
                "Landlock {STRICT_LANDLOCK_VERSION} or newer (this kernel has Landlock {version})"
            )),
            None => Some(format!("Landlock {STRICT_LANDLOCK_VERSION} or newer")),
        };
        let namespaces = (!self.has_view).then(|| "unprivileged user namespaces".to_owned());
        let missing: Vec<String> = namespaces.into_iter().chain(landlock).collect();
        (!missing.is_empty()).then(|| {
            format!(
                "the agent's settings have sandbox = \"strict\", but this machine lacks {}; `sandbox = \"workspace\"` uses \
                 what there is, and `hob doctor` says what that is",
                missing.join(" and ")
            )
        })
    }

    /// Returns what an agent may use. Of the folders that it may write, those of the owner's do not count.
    fn limits(&self, writable: &[PathBuf], temporary: &PathBuf) -> TreeLimits {
        let own = writable.iter().filter(|path| path.starts_with(&self.home));
        let folders: Vec<PathBuf> = own.chain([temporary]).cloned().collect();
        TreeLimits {
            memory_bytes: self.max_memory_bytes,
            disk: self.max_disk_bytes.map(|bytes| DiskLimit { bytes, folders }),
        }
    }

    /// Returns the parts of the sandbox that this kernel enforces for an agent.
    pub fn layers(&self, agent: &AgentSpec) -> SandboxLayers {
        let is_on = agent.sandbox != Sandbox::Off;
        SandboxLayers {
            mode: agent.sandbox.as_str(),
            namespaces: is_on && self.has_view,
            landlock: hob_child::landlock_version().filter(|_| is_on),
            limits: is_on,
            control_groups: is_on && self.has_control_groups,
            memory_bytes: self.max_memory_bytes.filter(|_| is_on),
            disk_bytes: self.max_disk_bytes.filter(|_| is_on),
        }
    }

    /// Returns the environment of an agent.
    pub fn environment(&self, agent: &AgentSpec) -> Vec<(OsString, OsString)> {
        let mut env = cleaned_environment(
            self.environment.iter().cloned(),
            &agent.env_pass,
            agent.env.iter().map(|(name, value)| (name.clone(), value.clone())),
        );
        env.retain(|(name, _)| name != AGENT_HOME_VARIABLE);
        env.push((AGENT_HOME_VARIABLE.into(), self.home.clone().into()));
        env
    }

    /// Returns the user's home.
    pub fn user_home(&self) -> Option<&str> {
        let home = self.environment.iter().find(|(name, _)| name == "HOME");
        home.and_then(|(_, value)| value.to_str())
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
        let temporary = self.temporary_of(scope);
        owned::create_dir_all(&temporary)?;
        env.retain(|(name, _)| name != "TMPDIR");
        env.push(("TMPDIR".into(), temporary.clone().into()));
        let files = self.files_of(app);
        owned::create_dir_all(&files)?;
        let mut writable = vec![cwd.to_owned()];
        writable.extend(self.private_folders(app, agent, &expand, env)?);
        let named: Vec<PathBuf> = agent.writable.iter().map(expand).collect();
        for path in &named {
            // A path inside another writable one is writable anyway. Looked up by itself, it could be a link that an agent
            // has put there, to a folder that agents must not write.
            let mut others = writable.iter().chain(&named).filter(|other| *other != path);
            if others.any(|other| leads_through(path, other)) {
                continue;
            }
            // The kernel cannot allow a path that does not exist, and the agent could not create it. A name
            // with an extension is a file, whose content Hob cannot know.
            if !path.exists() && path.extension().is_none() {
                owned::create_dir_all(path)?;
            }
            // A link of the owner's is followed here, where no agent has a say in it.
            writable.push(real(path));
        }
        git_settings::add(env, &self.socket, &agent.git_hosts)?;
        let readable: Vec<PathBuf> = agent.readable.iter().map(expand).collect();
        // A variable of the user's that is not set names no socket.
        let named_socket = |path: &String| match path.strip_prefix('$') {
            Some(variable) => value(&self.environment, variable),
            None => Some(expand(path)),
        };
        let mut sockets = vec![self.socket.clone()];
        for path in agent.sockets.iter().filter_map(named_socket) {
            // What lies in a writable folder can be used anyway, and could be a link that an agent has put there.
            if !writable.iter().any(|folder| leads_through(&path, folder)) {
                sockets.push(real(&path));
            }
        }
        let stores = CREDENTIALS.iter().filter_map(|path| Some(user.as_ref()?.join(path)));
        // The first one is the working folder, which a caller chooses and which opens no store.
        let own = writable.iter().skip(1);
        let opened: Vec<PathBuf> = readable.iter().chain(own).map(|path| real(path)).collect();
        let is_open = |path: &PathBuf| {
            // Claude Code needs this file with its folder.
            let folder = path.file_name().filter(|name| *name == ".claude.json");
            let folder = folder.map(|_| path.with_file_name(".claude"));
            let paths = [Some(real(path)), folder.map(|folder| real(&folder))];
            paths.iter().flatten().any(|path| opened.iter().any(|open| path.starts_with(open)))
        };
        let mut hidden = vec![self.home.clone()];
        hidden.extend(self.backups.clone());
        hidden.extend(stores.filter(|path| *path != self.home && !is_open(path)));
        let mut visible: Vec<PathBuf> = user.iter().cloned().collect();
        visible.extend(hob_child::own_program().ok());
        visible.extend(agent.command.iter().map(PathBuf::from).filter(|path| path.is_absolute()));
        Ok(Confinement {
            limits: self.limits(&writable, &temporary),
            hidden,
            writable,
            readable: vec![files],
            sockets,
            visible,
            temporary,
            view_required: self.has_view,
            strict: agent.sandbox == Sandbox::Strict,
            ports: agent.ports.clone(),
        })
    }

    /// Returns the folder of the configuration and data of an app's agents.
    pub fn private_of(&self, app: &AppName) -> PathBuf {
        self.private.join(app.as_str())
    }

    /// Creates the private folders of an agent, sets the variables that name them, and copies the user's files into
    /// them. Returns the folders.
    fn private_folders(
        &self,
        app: &AppName,
        agent: &AgentSpec,
        expand: &dyn Fn(&String) -> PathBuf,
        env: &mut Vec<(OsString, OsString)>,
    ) -> io::Result<Vec<PathBuf>> {
        let mut folders = Vec::new();
        // Where the user keeps these files, if not where the entry says.
        let users: Vec<_> = env.clone();
        for variable in &agent.private {
            let folder = self.private_of(app).join(variable);
            owned::create_dir_all(&folder)?;
            env.retain(|(name, _)| name != variable.as_str());
            env.push((variable.into(), folder.clone().into()));
            folders.push(folder);
        }
        for (from, to) in &agent.copy {
            if let Some((variable, below)) = to.split_once('/') {
                let folder = self.private_of(app).join(variable);
                let own = users.iter().find(|(name, _)| name == variable);
                let from = match own {
                    Some((_, users)) => Path::new(users).join(below),
                    None => expand(from),
                };
                copy_from_owner(&from, &folder, Path::new(below))?;
            }
        }
        Ok(folders)
    }
}

/// Returns a path without links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Returns whether a folder on the way to a path is `folder` or lies in it, under any name.
fn leads_through(path: &Path, folder: &Path) -> bool {
    let folder = real(folder);
    path.ancestors().skip(1).any(|above| real(above).starts_with(&folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn settings_reference_lists_every_hidden_credential_store() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
        let reference = fs::read_to_string(path).unwrap();
        for name in CREDENTIALS {
            assert!(reference.contains(&format!("`~/{name}`")), "~/{name} is not in settings.md");
        }
    }

    #[test]
    fn path_that_leads_through_a_folder_is_recognised_under_any_name() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        for name in ["open/sub", "private"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        symlink(path("open"), path("link")).unwrap();
        symlink(path("private"), path("open/planted")).unwrap();
        for inside in
            ["open/sub", "open/planted", "open/planted/x", "link/planted", "link/missing/x"]
        {
            assert!(leads_through(&path(inside), &path("open")), "{inside}");
            assert!(leads_through(&path(inside), &path("link")), "{inside}");
        }
        for outside in ["open", "link", "private", "private/x", "openly"] {
            assert!(!leads_through(&path(outside), &path("open")), "{outside}");
        }
    }
}
