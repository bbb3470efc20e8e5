//! Starts the runtime that all parts which run agents share.

use anyhow::Context as _;
use hob_agents::{LiveLimit, Runtime, SandboxConfig};
use hob_child::sweep::{self, Marker};
use hob_child::{Children, ChildrenOptions, ControlGroups, machine_memory};
use hob_files::Trash;

use super::backups;
use crate::commands::Context;
use crate::settings::Resolved;

/// Starts the runtime that all parts share.
pub fn start(context: &Context) -> anyhow::Result<Runtime> {
    let live = LiveLimit::new(context.settings.values.max_live);
    let path = context.settings.home.trash();
    let trash = Trash::open(&path).with_context(|| format!("cannot create {}", path.display()))?;
    let groups = ControlGroups::delegated();
    let sandbox = sandbox(&context.settings, groups.is_some());
    Ok(Runtime::new(start_children(context, groups)?, live, sandbox, trash))
}

/// Starts the owner of all agent processes, after ending those that an earlier server left running.
fn start_children(
    context: &Context,
    control_groups: Option<ControlGroups>,
) -> anyhow::Result<Children> {
    let home = &context.settings.home;
    let marker = Marker::new(home.identity()?, uuid::Uuid::new_v4().simple().to_string());
    let leftovers = sweep::end_leftovers(&marker, &home.run_records());
    if leftovers > 0 {
        tracing::warn!(leftovers, "ended processes that an earlier server left running");
    }
    let shim = std::env::current_exe();
    let options = ChildrenOptions {
        shim: shim.context("cannot determine the path of the running executable")?,
        records: home.run_records(),
        marker,
        umask: context.umask,
        control_groups,
    };
    Children::new(options).context("cannot start the thread that manages agent processes")
}

fn sandbox(settings: &Resolved, has_control_groups: bool) -> SandboxConfig {
    let (home, values) = (&settings.home, &settings.values);
    let share = |bytes: u64| bytes / 100 * values.agent_memory_percent.min(100);
    SandboxConfig {
        home: home.root().to_owned(),
        backups: backups::hidden_folder(settings),
        socket: settings.socket.clone(),
        files: home.files(),
        temporary: home.temporary(),
        private: home.agents(),
        has_view: std::env::current_exe()
            .is_ok_and(|path| hob_child::namespace_processes::is_available(&path)),
        has_control_groups,
        max_memory_bytes: machine_memory().map(share).filter(|bytes| *bytes > 0),
        max_disk_bytes: Some(values.agent_disk_bytes).filter(|bytes| *bytes > 0),
        environment: std::env::vars_os().collect(),
    }
}
