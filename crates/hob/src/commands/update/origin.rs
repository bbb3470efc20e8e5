//! Where the running program came from, and what that source says about newer versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::program_runner::run_within;

/// How long a package manager may take to answer. It may have to ask a server.
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);
const PIP_QUERY: &[&str] = &["-m", "pip", "index", "versions", "hob"];
/// The files of the Debian package.
const DEBIAN_LIST: &str = "/var/lib/dpkg/info/hob.list";

/// How the running program was installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Npm,
    Uv,
    Pipx,
    /// With pip, into the environment of this interpreter.
    Pip(PathBuf),
    Homebrew,
    Debian,
    /// Built in this checkout of the sources.
    Checkout(PathBuf),
    CargoInstall,
    /// Unpacked, or copied by hand.
    Archive,
}

impl Origin {
    pub fn of(program: &Path) -> Origin {
        let debian = fs::read_to_string(DEBIAN_LIST).unwrap_or_default();
        Origin::find(program, &debian)
    }

    fn find(program: &Path, debian_files: &str) -> Origin {
        let parts: Vec<&str> = program.iter().filter_map(|part| part.to_str()).collect();
        let has = |run: &[&str]| parts.windows(run.len()).any(|window| window == run);
        if has(&["node_modules"]) {
            return Origin::Npm;
        }
        if has(&["uv", "tools", "hob"]) {
            return Origin::Uv;
        }
        if has(&["pipx", "venvs", "hob"]) {
            return Origin::Pipx;
        }
        if has(&["Cellar", "hob"]) {
            return Origin::Homebrew;
        }
        if debian_files.lines().any(|file| Path::new(file) == program) {
            return Origin::Debian;
        }
        if has(&[".cargo", "bin"]) {
            return Origin::CargoInstall;
        }
        let above = |levels: usize| program.ancestors().nth(levels).map(Path::to_owned);
        if let Some(prefix) = above(2).filter(|prefix| has_wheel(prefix)) {
            return Origin::Pip(prefix.join("bin/python3"));
        }
        let is_checkout = |root: &PathBuf| root.join("hob-up").is_file();
        match above(3).filter(is_checkout) {
            Some(root) if has(&["target"]) => Origin::Checkout(root),
            _ => Origin::Archive,
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Origin::Npm => "npm",
            Origin::Uv => "uv",
            Origin::Pipx => "pipx",
            Origin::Pip(_) => "pip",
            Origin::Homebrew => "Homebrew",
            Origin::Debian => "a Debian package",
            Origin::Checkout(_) => "a checkout of the sources",
            Origin::CargoInstall => "cargo install",
            Origin::Archive => "an archive",
        }
    }

    /// Returns the command that upgrades.
    pub fn upgrade(&self) -> String {
        match self {
            Origin::Npm => "npm install -g hob@latest".to_owned(),
            Origin::Uv => "uv tool upgrade hob".to_owned(),
            Origin::Pipx => "pipx upgrade hob".to_owned(),
            Origin::Pip(python) => format!("{} -m pip install --upgrade hob", python.display()),
            Origin::Homebrew => "brew upgrade hob".to_owned(),
            Origin::Debian => "sudo apt-get install --only-upgrade hob".to_owned(),
            Origin::Checkout(root) => {
                format!("git -C {0} pull && {0}/hob-up", root.display())
            }
            Origin::CargoInstall => {
                "cargo install --locked --path crates/hob --profile dist, in your checkout"
                    .to_owned()
            }
            Origin::Archive => "unpack the newer archive over this one".to_owned(),
        }
    }

    /// Asks the source for its latest version. `None` if there is no source to ask.
    pub fn latest(&self) -> anyhow::Result<Option<Latest>> {
        let text = match self {
            Origin::Npm => ask("npm", &["view", "hob", "version"])?,
            // uv and pipx cannot look a version up. They install from where pip does.
            Origin::Uv | Origin::Pipx => ask("python3", PIP_QUERY)?,
            Origin::Pip(python) => ask(&python.display().to_string(), PIP_QUERY)?,
            Origin::Homebrew => ask("brew", &["info", "--json=v2", "hob"])?,
            Origin::Debian => ask("apt-cache", &["policy", "hob"])?,
            Origin::Checkout(root) => {
                let root = root.display().to_string();
                let own = ask("git", &["-C", &root, "rev-parse", "HEAD"])?;
                let remote =
                    ask("git", &["-C", &root, "ls-remote", "--exit-code", "origin", "HEAD"])?;
                let commit = remote.split_whitespace().next().unwrap_or_default().to_owned();
                let is_newer = commit != own.trim();
                let name = format!("commit {}", commit.get(..12).unwrap_or(&commit));
                return Ok(Some(Latest { name, is_newer }));
            }
            Origin::CargoInstall | Origin::Archive => return Ok(None),
        };
        let found = self.version_in(&text);
        let Some(found) = found else {
            anyhow::bail!("{} knows no package of this name", self.name());
        };
        let is_newer = order(&found) > order(env!("CARGO_PKG_VERSION"));
        Ok(Some(Latest { name: found, is_newer }))
    }

    /// Reads the version in the answer of a package manager.
    fn version_in(&self, text: &str) -> Option<String> {
        let found = match self {
            Origin::Homebrew => {
                let value: Value = serde_json::from_str(text).ok()?;
                value["formulae"][0]["versions"]["stable"].as_str()?.to_owned()
            }
            Origin::Debian => {
                text.lines().find_map(|line| line.trim().strip_prefix("Candidate: "))?.to_owned()
            }
            // hob (0.2.0)
            Origin::Uv | Origin::Pipx | Origin::Pip(_) => {
                let (_, rest) = text.split_once("hob (")?;
                rest.split_once(')')?.0.to_owned()
            }
            _ => text.trim().to_owned(),
        };
        found.starts_with(|first: char| first.is_ascii_digit()).then_some(found)
    }
}

/// What the source of a package offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latest {
    pub name: String,
    pub is_newer: bool,
}

/// Returns whether Python has installed Hob into an environment.
fn has_wheel(prefix: &Path) -> bool {
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    let is_hob = |name: &str| name.starts_with("hob-") && name.ends_with(".dist-info");
    let has_hob = |packages: &Path| {
        entries(packages).any(|entry| entry.file_name().to_str().is_some_and(is_hob))
    };
    let mut versions = entries(&prefix.join("lib"));
    versions.any(|version| has_hob(&version.path().join("site-packages")))
}

/// Returns a key by which versions compare: `1.0.0-rc.1`, `1.0.0~rc.1` and `1.0.0rc1` come before `1.0.0`.
fn order(version: &str) -> (Vec<u64>, bool, String) {
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
    let (release, rest) = version.split_at(end);
    let numbers = release.split('.').map(|part| part.parse().unwrap_or(0)).collect();
    let rest = rest.trim_start_matches(['-', '~', '.']).replace('.', "");
    (numbers, rest.is_empty(), rest)
}

/// Runs a package manager and returns what it printed.
fn ask(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let line = format!("{program} {}", arguments.join(" "));
    let output = run_within(command, QUERY_TIMEOUT)
        .map_err(|error| anyhow::anyhow!("cannot run `{line}`: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
        anyhow::bail!("`{line}` failed: {}", said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_is_known_by_the_programs_place() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("env/lib/python3.12/site-packages/hob-0.1.0.dist-info"))
            .unwrap();
        fs::create_dir_all(root.join("src/target/release")).unwrap();
        fs::write(root.join("src/hob-up"), "").unwrap();
        let checkout = Origin::Checkout(root.join("src"));
        let pip = Origin::Pip(root.join("env/bin/python3"));
        for (path, origin) in [
            ("/usr/lib/node_modules/hob/node_modules/hob-linux-x64/bin/hob", Origin::Npm),
            ("/home/ada/.local/share/uv/tools/hob/bin/hob", Origin::Uv),
            ("/home/ada/.local/share/pipx/venvs/hob/bin/hob", Origin::Pipx),
            ("/home/linuxbrew/.linuxbrew/Cellar/hob/0.1.0/bin/hob", Origin::Homebrew),
            ("/usr/bin/hob", Origin::Debian),
            ("/home/ada/.cargo/bin/hob", Origin::CargoInstall),
            ("/usr/local/bin/hob", Origin::Archive),
            (root.join("env/bin/hob").to_str().unwrap(), pip),
            (root.join("src/target/release/hob").to_str().unwrap(), checkout),
            (root.join("other/target/release/hob").to_str().unwrap(), Origin::Archive),
        ] {
            assert_eq!(Origin::find(Path::new(path), "/.\n/usr/bin/hob\n"), origin, "{path}");
        }
    }

    #[test]
    fn versions_are_read_from_the_answers_of_package_managers() {
        let pip = Origin::Pip(PathBuf::from("python3"));
        let policy = "hob:\n  Installed: 0.1.0\n  Candidate: 0.2.0~rc.1\n  Version table:\n";
        for (origin, text, version) in [
            (Origin::Npm, "0.2.0\n", Some("0.2.0")),
            (
                pip.clone(),
                "hob (0.2.0rc1)\nAvailable versions: 0.2.0rc1, 0.1.0\n",
                Some("0.2.0rc1"),
            ),
            (Origin::Debian, policy, Some("0.2.0~rc.1")),
            (Origin::Debian, "hob:\n  Candidate: (none)\n", None),
            (
                Origin::Homebrew,
                r#"{"formulae": [{"versions": {"stable": "0.2.0"}}]}"#,
                Some("0.2.0"),
            ),
            (Origin::Homebrew, r#"{"formulae": []}"#, None),
            (pip, "", None),
        ] {
            assert_eq!(origin.version_in(text).as_deref(), version, "{text}");
        }
    }

    #[test]
    fn candidates_come_before_their_release() {
        let sorted =
            ["0.1.0", "0.2.0-rc.1", "0.2.0rc2", "0.2.0", "0.10.0", "1.0.0~beta.1", "1.0.0"];
        for pair in sorted.windows(2) {
            assert!(order(pair[0]) < order(pair[1]), "{pair:?}");
        }
        assert_eq!(order("0.2.0-rc.1"), order("0.2.0~rc.1"));
    }
}
