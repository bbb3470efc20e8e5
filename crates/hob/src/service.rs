//! The service that starts `hob serve` with the user's session: units of systemd for one user.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;

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

/// How long systemctl may take. Starting the service is quick, since systemd does not wait for the server.
const SYSTEMCTL_TIMEOUT: Duration = Duration::from_secs(20);

/// The first line of the units that Hob writes, by which it recognises them.
const MARK: &str = "# Written by `hob service install`; `hob service uninstall` removes it.";

/// The units of this home.
pub struct Service {
    folder: PathBuf,
    units: [(&'static str, String); 2],
}

/// What is in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceState {
    /// There is no service manager for users on this machine.
    NoManager,
    Absent,
    /// A unit exists that Hob did not write.
    Other,
    /// The units exist, but are not those that this `hob` would write.
    Outdated,
    /// The units are in place, and the service is not running.
    Stopped,
    Running,
}

impl ServiceState {
    pub fn as_str(self) -> &'static str {
        match self {
            ServiceState::NoManager => "no service manager",
            ServiceState::Absent => "absent",
            ServiceState::Other => "other",
            ServiceState::Outdated => "outdated",
            ServiceState::Stopped => "stopped",
            ServiceState::Running => "running",
        }
    }
}

impl Service {
    /// Returns the service that runs this `hob` on this home.
    pub fn new(settings: &Resolved, hob: &str) -> anyhow::Result<Service> {
        let socket = settings.socket.to_str().context("the path of the socket must be UTF-8")?;
        let home = settings.home.root().to_str().context("the path of the home must be UTF-8")?;
        // Agents are often in folders that only the user's shell knows.
        let path = std::env::var("PATH").unwrap_or_default();
        let paths = [socket, home, hob, &path];
        let has_control = paths.iter().any(|path| path.contains(char::is_control));
        anyhow::ensure!(!has_control, "a service needs paths without control characters");
        let program = format!(
            "Environment={}\n{PATH_START}{}\nExecStart={}",
            quoted(&format!("HOB_HOME={home}")),
            &quoted(&path)[1..],
            quoted(hob)
        );
        let service = SERVICE_UNIT.replace(&format!("ExecStart={USUAL_PROGRAM}"), &program);
        let socket = SOCKET_UNIT.replace(USUAL_SOCKET, &socket.replace('%', "%%"));
        let unit = |text: &str| format!("{MARK}\n{}", without_lines(text, "#"));
        let units = [(SERVICE, unit(&service)), (SOCKET, unit(&socket))];
        Ok(Service { folder: unit_folder()?, units })
    }

    /// Returns the files of the units.
    pub fn files(&self) -> Vec<PathBuf> {
        self.units.iter().map(|(name, _)| self.folder.join(name)).collect()
    }

    pub fn state(&self) -> ServiceState {
        let written = self.units.each_ref().map(|(name, text)| {
            let found = fs::read_to_string(self.folder.join(name)).ok()?;
            Some(without_lines(&found, PATH_START) == without_lines(text, PATH_START))
        });
        match written {
            _ if !has_manager() => ServiceState::NoManager,
            [None, None] => ServiceState::Absent,
            _ if self.files().iter().any(|file| file.exists() && !is_ours(file)) => {
                ServiceState::Other
            }
            [Some(true), Some(true)] => match systemctl(&["is-active", "--quiet", SERVICE]) {
                Ok(output) if output.status.success() => ServiceState::Running,
                _ => ServiceState::Stopped,
            },
            _ => ServiceState::Outdated,
        }
    }

    /// Writes the units and asks systemd to start the service now and with every session. If another server runs on this
    /// home, the service is started with the next session.
    /// `save` stores the record before anything is written. If systemd refuses, the units are removed again.
    pub fn install(
        &self,
        record: &mut SetupRecord,
        is_running: bool,
        save: &dyn Fn(&SetupRecord) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        for (name, _) in &self.units {
            self.refuse_other(name)?;
        }
        let was_there = self.files().iter().any(|file| file.exists());
        record.note_missing_folders(&self.folder);
        save(record)?;
        fs::create_dir_all(&self.folder)?;
        for (name, text) in &self.units {
            let path = self.folder.join(name);
            hob_files::write_over(&path, text.as_bytes(), 0o644)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        let start: &[&str] = if is_running { &["enable"] } else { &["enable", "--now"] };
        let started = ask_systemd(&["daemon-reload"])
            .and_then(|()| ask_systemd(&[start, &[SOCKET, SERVICE]].concat()));
        if started.is_err() && !was_there {
            let _ = self.uninstall(record);
            save(record)?;
        }
        started
    }

    /// Stops the service and removes the units. Returns whether there were any.
    pub fn uninstall(&self, record: &mut SetupRecord) -> anyhow::Result<bool> {
        let ours: Vec<&str> = self
            .units
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| is_ours(&self.folder.join(name)))
            .collect();
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
        record.remove_folders();
        Ok(!ours.is_empty())
    }

    /// Fails if a unit of this name exists that Hob did not write.
    fn refuse_other(&self, name: &str) -> anyhow::Result<()> {
        let path = self.folder.join(name);
        if path.exists() && !is_ours(&path) {
            anyhow::bail!(
                "{} was not written by Hob and stays as it is; remove it and try again",
                path.display()
            );
        }
        Ok(())
    }
}

/// Returns whether a service manager of this user answers.
pub fn has_manager() -> bool {
    systemctl(&["show-environment"]).is_ok_and(|output| output.status.success())
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

fn is_ours(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.starts_with(MARK))
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn systemctl(arguments: &[&str]) -> io::Result<Output> {
    let mut command = Command::new("systemctl");
    command.args(["--user", "--no-ask-password"]).args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    #[allow(clippy::disallowed_methods, reason = "it is waited for, and killed if it hangs")]
    let mut child = command.spawn()?;
    let deadline = Instant::now() + SYSTEMCTL_TIMEOUT;
    while child.try_wait()?.is_none() {
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::new(io::ErrorKind::TimedOut, "systemctl does not answer"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output()
}

fn ask_systemd(arguments: &[&str]) -> anyhow::Result<()> {
    let output = systemctl(arguments).context("cannot run systemctl")?;
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
