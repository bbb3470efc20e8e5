//! The service that starts `hob serve` with the user's session: units of systemd for one user.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use hob_files::owned;

use crate::hooks::quoted as shell_quoted;
use crate::keys;
use crate::program_runner::run_within;
use crate::settings::Resolved;
use crate::setup_record::SetupRecord;

const SERVICE: &str = "hob.service";
const SOCKET: &str = "hob.socket";
/// The units that packages ship. The paths in them are those of a usual installation.
const SERVICE_UNIT: &str = include_str!("../../../packaging/systemd/hob.service");
const SOCKET_UNIT: &str = include_str!("../../../packaging/systemd/hob.socket");
const USUAL_PROGRAM: &str = "%h/.cargo/bin/hob";
const USUAL_SOCKET: &str = "%h/.hob/hob.sock";

/// The start of the line with the user's `PATH`. It may differ from shell to shell, so it does not make a unit outdated.
const PATH_START: &str = "Environment=\"PATH=";

/// How long systemctl may take. A restart takes longest: the unit gives the server 20 seconds to end.
const SYSTEMCTL_TIMEOUT: Duration = Duration::from_secs(40);

/// The first line of the units that Hob writes, by which it recognises them.
const MARK: &str = "# Written by `hob service install`; `hob service uninstall` removes it.";
/// The start of their second line, which names the home that they serve.
const HOME_MARK: &str = "# HOB_HOME=";

/// The units of this home.
#[derive(Debug, Clone)]
pub struct Service {
    home: String,
    folder: PathBuf,
    units: [(&'static str, String); 2],
}

/// What is in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceState {
    /// There is no service manager for users on this machine.
    NoManager,
    Absent,
    /// A unit exists that Hob did not write.
    Other,
    /// A unit exists that Hob wrote for this other home.
    OtherHome(String),
    /// The units exist, but are not those that this `hob` would write, or the service runs a program that was replaced.
    Outdated,
    /// The units are in place, and the service is not running.
    Stopped,
    Running,
}

/// When the server of new units runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    Now,
    /// The service was running, and was started again with the new units.
    Again,
    /// Another server runs on this home, so the service starts with the user's next session.
    NextSession,
}

/// Who wrote a unit.
#[derive(Debug, PartialEq, Eq)]
enum Author {
    ThisHome,
    OtherHome(String),
    User,
}

impl ServiceState {
    pub fn as_str(&self) -> &'static str {
        match self {
            ServiceState::NoManager => "no service manager",
            ServiceState::Absent => "absent",
            ServiceState::Other => "other",
            ServiceState::OtherHome(_) => "other home",
            ServiceState::Outdated => "outdated",
            ServiceState::Stopped => "stopped",
            ServiceState::Running => "running",
        }
    }

    /// Says why Hob leaves the units alone, if it does.
    pub fn refusal(&self) -> Option<String> {
        match self {
            ServiceState::Other => {
                Some("a unit that Hob did not write is there; Hob leaves it alone".to_owned())
            }
            ServiceState::OtherHome(home) => Some(format!(
                "the service belongs to another home folder, so Hob left it unchanged; `HOB_HOME={} hob service uninstall` removes it",
                shell_quoted(home)
            )),
            _ => None,
        }
    }
}

impl Service {
    /// Returns the service that runs this `hob` on this home.
    pub fn new(settings: &Resolved, hob: &str) -> anyhow::Result<Service> {
        let socket = settings.socket.to_str().context("the path of the socket must be UTF-8")?;
        let home =
            settings.home.root().to_str().context("the path of the home folder must be UTF-8")?;
        // Agents are often in folders that only the user's shell knows.
        let path = std::env::var("PATH").unwrap_or_default();
        let paths = [socket, home, hob, &path];
        let has_control = paths.iter().any(|path| path.contains(char::is_control));
        anyhow::ensure!(
            !has_control,
            "cannot install the service: PATH, or the path of the home folder, the socket or the program contains control characters"
        );
        let program = format!(
            "Environment={}\n{PATH_START}{}\nExecStart={}",
            quoted(&format!("HOB_HOME={home}")),
            &quoted(&path)[1..],
            quoted(hob)
        );
        let service = SERVICE_UNIT.replace(&format!("ExecStart={USUAL_PROGRAM}"), &program);
        let socket = SOCKET_UNIT.replace(USUAL_SOCKET, &socket.replace('%', "%%"));
        let unit = |text: &str| format!("{MARK}\n{HOME_MARK}{home}\n{}", without_lines(text, "#"));
        let units = [(SERVICE, unit(&service)), (SOCKET, unit(&socket))];
        Ok(Service { home: home.to_owned(), folder: unit_folder()?, units })
    }

    /// Returns the service with its units in the folder that the record names, if it names one.
    pub fn recorded(&self, record: &SetupRecord) -> Option<Service> {
        let folder = record.unit_folder.clone()?;
        Some(Service { folder, ..self.clone() })
    }

    /// Returns the files of the units.
    pub fn files(&self) -> Vec<PathBuf> {
        self.units.iter().map(|(name, _)| self.folder.join(name)).collect()
    }

    pub fn state(&self) -> ServiceState {
        if !has_manager() {
            return ServiceState::NoManager;
        }
        let written = self.units.each_ref().map(|(name, text)| {
            let found = owned::read_to_string(self.folder.join(name)).ok()?;
            Some(without_lines(&found, PATH_START) == without_lines(text, PATH_START))
        });
        let foreign = self.units.iter().find_map(|(name, _)| match self.author(name)? {
            Author::ThisHome => None,
            Author::OtherHome(home) => Some(ServiceState::OtherHome(home)),
            Author::User => Some(ServiceState::Other),
        });
        match (written, foreign) {
            ([None, None], None) => ServiceState::Absent,
            (_, Some(foreign)) => foreign,
            ([Some(true), Some(true)], _) if !is_active() => ServiceState::Stopped,
            ([Some(true), Some(true)], _) if !is_program_replaced() => ServiceState::Running,
            _ => ServiceState::Outdated,
        }
    }

    /// Returns the units of this home that exist.
    pub fn own_units(&self) -> Vec<&'static str> {
        let names = self.units.iter().map(|(name, _)| *name);
        names.filter(|name| self.author(name) == Some(Author::ThisHome)).collect()
    }

    /// Writes the units and asks systemd to start the service now and with every session. A running service is started
    /// again, so that it runs the new units. If another server runs on this home, the service starts with the next session.
    /// `save` stores the record before anything is written. If systemd refuses, the units are removed again.
    pub fn install(
        &self,
        record: &mut SetupRecord,
        is_running: bool,
        save: &dyn Fn(&SetupRecord) -> io::Result<()>,
    ) -> anyhow::Result<Started> {
        for (name, _) in &self.units {
            self.refuse_foreign(name)?;
        }
        let was_there = self.files().iter().any(|file| file.exists());
        let start = match is_running {
            _ if was_there && is_active() => Started::Again,
            true => Started::NextSession,
            false => Started::Now,
        };
        record.note_missing_folders(&self.folder);
        record.unit_folder = Some(self.folder.clone());
        save(record)?;
        owned::create_dir_all(&self.folder)?;
        for (name, text) in &self.units {
            let path = self.folder.join(name);
            hob_files::write_over(&path, text.as_bytes(), 0o644)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        let enable: &[&str] =
            if start == Started::Now { &["enable", "--now"] } else { &["enable"] };
        let enabled = ask_systemd(&["daemon-reload"])
            .and_then(|()| ask_systemd(&[enable, &[SOCKET, SERVICE]].concat()));
        if enabled.is_err() && !was_there {
            let _ = self.uninstall(record);
            save(record)?;
        }
        enabled?;
        if start == Started::Again {
            ask_systemd(&["try-restart", SERVICE]).context(
                "the systemd units were updated, but the service still runs the previous version; run `systemctl --user restart hob.service`",
            )?;
        }
        Ok(start)
    }

    /// Stops the service and removes the units of this home. Returns whether there were any.
    pub fn uninstall(&self, record: &mut SetupRecord) -> anyhow::Result<bool> {
        let ours = self.own_units();
        if !ours.is_empty() {
            if has_manager() {
                ask_systemd(&[&["disable", "--now"], &ours[..]].concat())?;
            }
            for name in &ours {
                remove(&self.folder.join(name))?;
            }
            if has_manager() {
                ask_systemd(&["daemon-reload"])?;
            }
        }
        if record.unit_folder.as_ref() == Some(&self.folder) {
            record.unit_folder = None;
            record.remove_folders();
        }
        Ok(!ours.is_empty())
    }

    /// Fails if a unit of this name exists that Hob did not write for this home.
    fn refuse_foreign(&self, name: &str) -> anyhow::Result<()> {
        let path = self.folder.join(name);
        match self.author(name) {
            None | Some(Author::ThisHome) => Ok(()),
            Some(Author::OtherHome(home)) => anyhow::bail!(
                "{} belongs to another home folder ({home}), so it was left unchanged; remove it with `HOB_HOME={} hob service uninstall`",
                path.display(),
                shell_quoted(&home)
            ),
            Some(Author::User) => anyhow::bail!(
                "{} was not written by Hob, so it was left unchanged; remove it and try again",
                path.display()
            ),
        }
    }

    /// Returns who wrote the unit of this name, or `None` if there is none.
    fn author(&self, name: &str) -> Option<Author> {
        let path = self.folder.join(name);
        let text = match owned::read_to_string(&path) {
            Ok(text) => text,
            // Something is there, and Hob writes only text.
            Err(_) => return path.symlink_metadata().is_ok().then_some(Author::User),
        };
        let mut lines = text.lines();
        if lines.next() != Some(MARK) {
            return Some(Author::User);
        }
        Some(match lines.next().and_then(|line| line.strip_prefix(HOME_MARK)) {
            Some(home) if home == self.home => Author::ThisHome,
            Some(home) => Author::OtherHome(home.to_owned()),
            None => Author::User,
        })
    }
}

/// Says that the service lacks the passphrase of the key, if the key has one.
pub fn passphrase_note(settings: &Resolved) -> Option<String> {
    let is_wrapped = settings.passphrase.is_some() || keys::is_wrapped(&settings.home);
    // Agents can read the units, but nothing in Hob's home.
    let file = settings.home.root().join("service.env");
    let file = file.display();
    is_wrapped.then(|| {
        format!(
            "A passphrase protects the key, and the service does not have it: write `HOB_PASSPHRASE=…` into {file}, run `chmod 600` on it, then run `systemctl --user edit hob.service` and add the lines `[Service]` and `EnvironmentFile={file}`."
        )
    })
}

/// Returns whether a service manager of this user answers.
pub fn has_manager() -> bool {
    systemctl(&["show-environment"], Stdio::null()).is_ok_and(|output| output.status.success())
}

fn unit_folder() -> anyhow::Result<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    // The specification says that a relative path is to be ignored.
    let config = folder("XDG_CONFIG_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| Some(folder("HOME")?.join(".config")));
    let config = config.context("cannot determine your home folder: set HOME")?;
    Ok(config.join("systemd/user"))
}

fn is_active() -> bool {
    systemctl(&["is-active", "--quiet", SERVICE], Stdio::null())
        .is_ok_and(|output| output.status.success())
}

/// Returns whether the file of the running service's program was replaced since it started.
fn is_program_replaced() -> bool {
    let Ok(output) = systemctl(&["show", "--property=MainPID", "--value", SERVICE], Stdio::piped())
    else {
        return false;
    };
    let pid: Option<u32> = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
    let Some(pid) = pid.filter(|pid| *pid != 0) else { return false };
    let program = fs::read_link(format!("/proc/{pid}/exe"));
    program.is_ok_and(|program| program.as_os_str().as_bytes().ends_with(b" (deleted)"))
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match owned::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn systemctl(arguments: &[&str], stdout: Stdio) -> io::Result<Output> {
    let mut command = Command::new("systemctl");
    command.args(["--user", "--no-ask-password"]).args(arguments);
    command.stdout(stdout).stderr(Stdio::piped());
    run_within(command, SYSTEMCTL_TIMEOUT)
}

fn ask_systemd(arguments: &[&str]) -> anyhow::Result<()> {
    let output = systemctl(arguments, Stdio::null()).context("cannot run systemctl")?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        anyhow::bail!("`systemctl --user {}` failed: {}", arguments.join(" "), text.trim());
    }
    Ok(())
}

/// Quotes a word for a unit.
fn quoted(word: &str) -> String {
    format!("\"{}\"", word.replace('\\', r"\\").replace('"', "\\\"").replace('%', "%%"))
}

fn without_lines(unit: &str, start: &str) -> String {
    unit.split_inclusive('\n').filter(|line| !line.starts_with(start)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_units() {
        assert_eq!(quoted("/opt/hob"), "\"/opt/hob\"");
        assert_eq!(quoted(r#"/a "b"\%h$x"#), r#""/a \"b\"\\%%h$x""#);
    }

    #[test]
    fn units_of_packages_name_what_is_replaced() {
        assert!(SERVICE_UNIT.contains(&format!("ExecStart={USUAL_PROGRAM} serve")));
        assert!(SOCKET_UNIT.contains(&format!("ListenStream={USUAL_SOCKET}\n")));
    }
}
