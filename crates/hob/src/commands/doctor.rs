//! `hob doctor`: every check in words with its fix, and every setting with its source.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use hob_domain::{Driver, Sandbox};
use serde::Serialize;
use serde_json::json;

use super::{Context, Outcome, doctor_ledger, doctor_memory};
use crate::settings::Resolved;
use crate::settings::registry::SETTINGS;
use crate::socket::client;

/// Check this home and this machine, and print every setting with its source
#[derive(ClapArgs)]
#[command(after_help = "Exit code 0 when nothing has failed (warnings don't count), else 1.")]
pub struct Args {
    /// Print {"checks":[…],"settings":[…]}
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Ok,
    Warning,
    Failed,
}

#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) verdict: Verdict,
    pub(super) says: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fix: Option<String>,
}

impl Check {
    pub(super) fn ok(name: &'static str, says: impl Into<String>) -> Check {
        Check { name, verdict: Verdict::Ok, says: says.into(), fix: None }
    }

    pub(super) fn warning(
        name: &'static str,
        says: impl Into<String>,
        fix: impl Into<String>,
    ) -> Check {
        Check { name, verdict: Verdict::Warning, says: says.into(), fix: Some(fix.into()) }
    }

    pub(super) fn failed(
        name: &'static str,
        says: impl Into<String>,
        fix: impl Into<String>,
    ) -> Check {
        Check { name, verdict: Verdict::Failed, says: says.into(), fix: Some(fix.into()) }
    }
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Outcome> {
    let settings = &context.settings;
    let checks = checks(settings);
    if args.json {
        let rows: Vec<_> = settings
            .rows
            .iter()
            .map(|row| {
                let help = SETTINGS.iter().find(|s| s.key == row.key).map(|s| s.help);
                let source = row.source.to_string();
                json!({"key": row.key, "value": row.value, "source": source, "help": help})
            })
            .collect();
        println!("{}", json!({"checks": checks, "settings": rows}));
    } else {
        print(settings, &checks);
    }
    let failed = checks.iter().any(|check| check.verdict == Verdict::Failed);
    Ok(if failed { Outcome::Failed } else { Outcome::Done })
}

/// Everything that is looked at.
pub(super) fn checks(settings: &Resolved) -> Vec<Check> {
    let mut checks = vec![home(settings), server(settings)];
    checks.extend(settings.warnings.iter().map(|warning| {
        Check::warning("settings", warning.clone(), "correct or remove it in config.toml")
    }));
    checks.extend(doctor_ledger::check(settings));
    checks.extend(doctor_memory::checks(settings));
    checks.push(walls(settings));
    checks.extend(agents(settings));
    checks
}

fn print(settings: &Resolved, checks: &[Check]) {
    for check in checks {
        let mark = match check.verdict {
            Verdict::Ok => "ok     ",
            Verdict::Warning => "warning",
            Verdict::Failed => "FAILED ",
        };
        println!("{mark}  {:<9} {}", check.name, check.says);
        if let Some(fix) = &check.fix {
            println!("         {:<9} -> {fix}", "");
        }
    }
    println!("\nsettings");
    let width = settings.rows.iter().map(|row| row.key.len()).max().unwrap_or_default();
    for row in &settings.rows {
        println!("  {:<width$}  {}  ({})", row.key, row.value, row.source);
    }
}

fn home(settings: &Resolved) -> Check {
    let root = settings.home.root();
    let shown = root.display();
    let Ok(metadata) = fs::metadata(root) else {
        return Check::ok("home", format!("{shown} does not exist yet; it is made at first need"));
    };
    if !metadata.is_dir() {
        return Check::failed("home", format!("{shown} is not a folder"), "set HOB_HOME");
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode != 0o700 {
        return Check::failed(
            "home",
            format!("{shown} has mode {mode:o}: others may look into it"),
            format!("chmod 700 {shown}"),
        );
    }
    let mut open: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.permissions().mode() & 0o077 != 0 {
            open.push(entry.path());
        }
    }
    match open.first() {
        None => Check::ok("home", format!("{shown} is yours alone")),
        Some(path) => Check::failed(
            "home",
            format!("{} is open to others", path.display()),
            format!("chmod go-rwx {}", path.display()),
        ),
    }
}

fn server(settings: &Resolved) -> Check {
    let socket = settings.socket.display();
    match client::hello(&settings.socket) {
        Ok(hello) if hello.version == env!("CARGO_PKG_VERSION") => {
            let http = hello.http.as_deref().unwrap_or("off");
            Check::ok("server", format!("runs with pid {}, HTTP {http}", hello.pid))
        }
        Ok(hello) => Check::warning(
            "server",
            format!("the running one (pid {}) is version {}", hello.pid, hello.version),
            "stop it and start `hob serve` again",
        ),
        Err(_) => Check::warning(
            "server",
            format!("not running: nobody answers on {socket}"),
            "start it with `hob serve`",
        ),
    }
}

/// Whether agents of apps can be kept in.
fn walls(settings: &Resolved) -> Check {
    let free: Vec<&str> = settings
        .agents
        .iter()
        .filter(|(_, agent)| agent.sandbox == Sandbox::Off)
        .map(|(name, _)| name.as_str())
        .collect();
    match hob_child::landlock_version() {
        None => Check::warning(
            "sandbox",
            "the kernel has no Landlock: agents of apps can read and write what you can",
            "use a kernel with CONFIG_SECURITY_LANDLOCK (Linux 5.13 or newer), or trust every app",
        ),
        // Its capabilities are a way around some of it.
        Some(_) if nix::unistd::getuid().is_root() => Check::warning(
            "sandbox",
            "hob runs as root, which Landlock does not hold back everywhere",
            "run it as a user of its own",
        ),
        Some(version) if free.is_empty() => {
            Check::ok("sandbox", format!("agents of apps are kept in (Landlock {version})"))
        }
        Some(version) => Check::ok(
            "sandbox",
            format!("Landlock {version}; trusted and not kept in: {}", free.join(", ")),
        ),
    }
}

fn agents(settings: &Resolved) -> Vec<Check> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut checks = Vec::new();
    for (name, agent) in &settings.agents {
        if agent.driver == Driver::Demo {
            continue;
        }
        let program = agent.command.first().map(String::as_str).unwrap_or_default();
        match find_program(program, &path) {
            Some(found) => checks.push(Check::ok("agent", format!("{name}: {}", found.display()))),
            None => checks.push(Check::warning(
                "agent",
                format!("{name}: `{program}` is not installed"),
                agent.install.clone(),
            )),
        }
    }
    checks
}

/// Where a program would be found, as the operating system looks for it.
pub(super) fn find_program(program: &str, path: &std::ffi::OsStr) -> Option<PathBuf> {
    let runnable = |path: &Path| {
        fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| runnable(path));
    }
    std::env::split_paths(path).map(|folder| folder.join(program)).find(|path| runnable(path))
}
