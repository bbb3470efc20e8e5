//! Starts the runtime that all parts which run agents share.

use anyhow::Context as _;
use hob_agents::{LiveLimit, Runtime, SandboxConfig};
use hob_child::sweep::{self, Marker};
use hob_child::{Children, ChildrenOptions};
use hob_files::Trash;

use super::backups;
use crate::commands::Context;
use crate::settings::Resolved;

/// Starts the runtime that all parts share.
pub fn start(context: &Context) -> anyhow::Result<Runtime> {
    let live = LiveLimit::new(context.settings.values.max_live);
    let path = context.settings.home.trash();
    let trash = Trash::open(&path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(Runtime::new(start_children(context)?, live, sandbox(&context.settings), trash))
}

/// Starts the owner of all agent processes, after ending those that an earlier server left running.
fn start_children(context: &Context) -> anyhow::Result<Children> {
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
    };
    Children::new(options).context("cannot start the thread that manages agent processes")
}

fn sandbox(settings: &Resolved) -> SandboxConfig {
    let home = &settings.home;
    SandboxConfig {
        home: home.root().to_owned(),
        backups: backups::hidden_folder(settings),
        socket: settings.socket.clone(),
        files: home.files(),
        temporary: home.temporary(),
        private: home.agents(),
        has_view: std::env::current_exe()
            .is_ok_and(|path| hob_child::namespace_processes::is_available(&path)),
        environment: std::env::vars_os().collect(),
    }
}
