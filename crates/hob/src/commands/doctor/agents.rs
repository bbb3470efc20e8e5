//! Checks of the agents: their sandbox and their programs.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use hob_domain::{AgentSpec, Driver, Sandbox};
use hob_gateway::Check;

use super::check;
use crate::settings::Resolved;

/// Checks that this kernel can sandbox the agents of apps.
pub fn sandbox(settings: &Resolved) -> Check {
    let off = settings.agents.iter().filter(|(_, agent)| agent.sandbox == Sandbox::Off);
    let trusted: Vec<&str> = off.map(|(name, _)| name.as_str()).collect();
    let has_view = std::env::current_exe()
        .is_ok_and(|path| hob_child::namespace_processes::is_available(&path));
    let mut without = match trusted.is_empty() {
        true => String::new(),
        false => format!("; without a sandbox: {}", trusted.join(", ")),
    };
    for (name, agent) in settings.agents.iter().filter(|(_, agent)| !agent.writable.is_empty()) {
        without.push_str(&format!(
            "; at your risk, {name} can also write to {}",
            agent.writable.join(", ")
        ));
    }
    match (hob_child::landlock_version(), has_view) {
        (Some(version), true) => check::passed(
            "sandbox",
            format!(
                "agents that Hob runs for apps are confined by namespaces and Landlock {version}{without}"
            ),
        ),
        (Some(version), false) => check::warning(
            "sandbox",
            format!(
                "agents that Hob runs for apps are confined by Landlock {version} only: they can use your sockets and terminals and see \
                 other processes{without}"
            ),
            "allow unprivileged user namespaces, or only create apps you trust",
        ),
        (None, true) => check::warning(
            "sandbox",
            format!(
                "agents that Hob runs for apps are confined by namespaces, but this kernel has no Landlock{without}"
            ),
            "use a kernel with CONFIG_SECURITY_LANDLOCK (Linux 5.13 or newer)",
        ),
        (None, false) => check::warning(
            "sandbox",
            "this kernel has neither Landlock nor user namespaces: agents that Hob runs for apps can read and write everything you can",
            "use a kernel with CONFIG_SECURITY_LANDLOCK (Linux 5.13 or newer), or only create apps you trust",
        ),
    }
}

/// Says what limits the memory and the disk of agents.
pub fn limits(settings: &Resolved) -> Check {
    let values = &settings.values;
    let memory = match values.agent_memory_percent {
        0 => "any amount of memory".to_owned(),
        percent => format!("{percent}% of the memory"),
    };
    let disk = match values.agent_disk_bytes {
        0 => "any amount of disk space".to_owned(),
        bytes => format!("{bytes} bytes of disk space"),
    };
    let has_groups = settings.home.serving_pid().is_some_and(hob_child::has_control_groups);
    let by = match has_groups {
        true => "control groups limit memory and processes",
        false => "Hob measures memory, because no control groups are delegated to it",
    };
    check::passed("agent limits", format!("each agent may use {memory} and {disk}; {by}"))
}

/// Checks that the program of each agent is installed.
pub fn installed(settings: &Resolved) -> Vec<Check> {
    let agents = settings.agents.iter().filter(|(_, agent)| agent.driver != Driver::Demo);
    let check = agents.map(|(name, agent)| match program_of(agent) {
        Some(path) => check::passed("agent", format!("{name}: {}", path.display())),
        None => {
            let program = agent.command.first().map(String::as_str).unwrap_or_default();
            let text = format!("{name}: `{program}` is not installed");
            check::warning("agent", text, agent.install.clone())
        }
    });
    check.collect()
}

/// Returns the path of an agent's program, or `None` if it is not installed.
pub fn program_of(agent: &AgentSpec) -> Option<PathBuf> {
    let search_path = std::env::var_os("PATH").unwrap_or_default();
    find_program(agent.command.first()?, &search_path)
}

/// Finds a program by the rules of `execvp`: a name with a slash is a path, any other is searched
/// for.
fn find_program(program: &str, search_path: &OsStr) -> Option<PathBuf> {
    let is_executable = |path: &Path| {
        fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| is_executable(path));
    }
    let folders = std::env::split_paths(search_path);
    folders.map(|folder| folder.join(program)).find(|path| is_executable(path))
}
