//! Where the running program came from, and what that source says about newer versions.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use hob_files::owned;

use crate::program_runner::run_within;

/// How long Git may take to answer. It has to ask a server.
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);
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
        let debian = owned::read_to_string(DEBIAN_LIST).unwrap_or_default();
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
            Origin::Npm => "npm install -g FILE.tgz, with the newer package's file".to_owned(),
            Origin::Uv => {
                "uv tool install --force FILE.whl, with the newer package's file".to_owned()
            }
            Origin::Pipx => {
                "pipx install --force FILE.whl, with the newer package's file".to_owned()
            }
            Origin::Pip(python) => {
                let python = python.display();
                format!("{python} -m pip install --upgrade FILE.whl, with the newer package's file")
            }
            Origin::Homebrew => {
                "brew reinstall --formula ./hob.rb, with the newer formula".to_owned()
            }
            Origin::Debian => "sudo dpkg -i FILE.deb, with the newer package's file".to_owned(),
            Origin::Checkout(root) => format!("git -C '{0}' pull && '{0}/hob-up'", root.display()),
            Origin::CargoInstall => {
                "cargo install --locked --path crates/hob --profile dist, in your checkout"
                    .to_owned()
            }
            Origin::Archive => "unpack the newer archive over this one".to_owned(),
        }
    }

    /// Asks the source for its latest version. `None` if there is no source to ask: the packages are not published under
    /// names of Hob's own yet, and a registry would answer for a stranger's package.
    pub fn latest(&self) -> anyhow::Result<Option<Latest>> {
        let Origin::Checkout(root) = self else { return Ok(None) };
        let root = root.display().to_string();
        let remote = ask(&["-C", &root, "ls-remote", "--exit-code", "origin", "HEAD"])?;
        let commit = remote.split_whitespace().next().unwrap_or_default();
        // A checkout that has the commit, and perhaps others, needs no update.
        let is_newer = ask(&["-C", &root, "merge-base", "--is-ancestor", commit, "HEAD"]).is_err();
        let name = format!("commit {}", commit.get(..12).unwrap_or(commit));
        Ok(Some(Latest { name, is_newer }))
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
    let entries = |folder: &Path| owned::entries(folder);
    let is_hob = |name: &str| name.starts_with("hob-") && name.ends_with(".dist-info");
    let has_hob = |packages: &Path| {
        entries(packages).any(|entry| entry.file_name().to_str().is_some_and(is_hob))
    };
    let mut versions = entries(&prefix.join("lib"));
    versions.any(|version| has_hob(&version.path().join("site-packages")))
}

/// Runs Git and returns what it printed.
fn ask(arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("git");
    // What lies in the current folder must not have a say.
    command.args(arguments).current_dir("/").stdout(Stdio::piped()).stderr(Stdio::piped());
    let line = format!("git {}", arguments.join(" "));
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
    use std::fs;

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
}
