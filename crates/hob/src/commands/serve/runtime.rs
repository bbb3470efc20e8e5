//! What all parts that run agents share.

use anyhow::Context as _;
use hob_agents::{LiveLimit, Walls};
use hob_child::sweep::{self, Marker};
use hob_child::{Children, ChildrenOptions};
use hob_terminal::Terminals;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::commands::Context;
use crate::settings::Resolved;

/// The tasks, tokens and limits that are cloned into every part.
#[derive(Clone)]
pub struct Runtime {
    pub children: Children,
    pub terminals: Terminals,
    pub live: LiveLimit,
    pub walls: Walls,
    pub tasks: TaskTracker,
    /// Cancelled first: no new work is accepted.
    pub stopping: CancellationToken,
    /// Cancelled after the grace period: work that still runs must end.
    pub ending: CancellationToken,
}

impl Runtime {
    pub fn start(context: &Context) -> anyhow::Result<Runtime> {
        let tasks = TaskTracker::new();
        Ok(Runtime {
            children: start_children(context)?,
            terminals: Terminals::new(tasks.clone()),
            live: LiveLimit::new(context.settings.max_live),
            walls: walls(&context.settings),
            tasks,
            stopping: CancellationToken::new(),
            ending: CancellationToken::new(),
        })
    }
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
    Children::new(options).context("cannot start the owner of agent processes")
}

fn walls(settings: &Resolved) -> Walls {
    let home = &settings.home;
    Walls {
        home: home.root().to_owned(),
        files: home.files(),
        temporary: home.temporary(),
        environment: std::env::vars_os().collect(),
    }
}
