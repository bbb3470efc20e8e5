//! Several nodes on one PostgreSQL, from outside: what is said of sessions elsewhere holds whichever node is asked, and
//! nodes may be killed, paused, drained or cut off.
//!
//! Small counts here; `HOB_CAMPAIGN=1` runs the full ones and prints figures. Nodes are chosen by chance; a run says by
//! which seed, and `HOB_TEST_SEED` takes it again.
#![allow(clippy::disallowed_methods, reason = "tests start hob to look at it from outside")]

mod anywhere;
mod fail_over;
mod faults;
mod isolation;
mod limits;
mod setup;
mod talker;

#[allow(dead_code, reason = "the tests of the memory use more of it")]
#[path = "../it/memory_setup.rs"]
mod memory_setup;
#[path = "../it/sessions_cancel.rs"]
mod sessions_cancel;
#[path = "../it/sessions_events.rs"]
mod sessions_events;
#[path = "../it/sessions_limits.rs"]
mod sessions_limits;
#[path = "../it/sessions_memory.rs"]
mod sessions_memory;
#[path = "../it/sessions_permissions.rs"]
mod sessions_permissions;
#[path = "../it/sessions_restart.rs"]
mod sessions_restart;
#[path = "../it/sessions_seed.rs"]
mod sessions_seed;
#[allow(dead_code, reason = "the other tests of sessions use more of it")]
#[path = "../it/sessions_setup.rs"]
mod sessions_setup;
#[path = "../it/sessions_turn_failures.rs"]
mod sessions_turn_failures;
#[path = "../it/sessions_turns.rs"]
mod sessions_turns;

use std::process::Command;
use std::sync::PoisonError;

use hob_testkit::{HobServer, TestHome, cluster};

/// The settings of where the ledger is kept: a database of its own for every cluster.
fn store() -> String {
    let server = setup::postgres().read().unwrap_or_else(PoisonError::into_inner);
    format!("[store]\nurl = {:?}\n", server.database())
}

/// Two nodes as if they were one server: every request goes to one of them by chance.
fn serve_with(home: &TestHome, adjust: impl Fn(&mut Command)) -> HobServer {
    // What a test allows its one server is allowed to all nodes together.
    let config = std::fs::read_to_string(home.hob_home().join("config.toml")).unwrap_or_default();
    let most = config.lines().find_map(|line| line.strip_prefix("max_live = "));
    let adjust = |command: &mut Command| {
        command.env("HOB_CLUSTER_LEASE_SECS", "2").env("HOB_CLUSTER_MAX_LIVE", most.unwrap_or("0"));
        adjust(command);
    };
    let first = home.serve_with(adjust);
    let second = home.beside(1).serve_with(adjust);
    let seed = cluster::seed();
    println!("nodes are chosen by {}={seed}", cluster::SEED);
    first.together_with(vec![second], seed)
}

fn serve(home: &TestHome) -> HobServer {
    serve_with(home, |_| {})
}
