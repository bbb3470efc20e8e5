//! Hob from outside: the real executable on temporary homes, with scripted agents.
#![allow(clippy::disallowed_methods, reason = "tests start hob to look at it from outside")]

mod admin;
mod cli;
mod console;
mod files;
mod http;
mod live;
mod live_attach;
mod memory_apps;
mod memory_capture;
mod memory_care;
mod memory_keys;
mod memory_mcp;
mod memory_model;
mod memory_secrets;
mod memory_setup;
mod memory_turns;
mod run;
mod serve;
mod sessions_cancel;
mod sessions_events;
mod sessions_inside;
mod sessions_limits;
mod sessions_memory;
mod sessions_permissions;
mod sessions_restart;
mod sessions_seed;
mod sessions_setup;
mod sessions_turn_failures;
mod sessions_turns;
mod sessions_walls;
mod setup;
mod v1;

use std::process::Command;

use hob_testkit::{HobServer, TestHome};

/// The settings of where the ledger is kept: a file of the home.
fn store() -> String {
    String::new()
}

/// A server on a home, with a last word on its command.
fn serve_with(home: &TestHome, adjust: impl Fn(&mut Command)) -> HobServer {
    home.serve_with(adjust)
}

fn serve(home: &TestHome) -> HobServer {
    home.serve()
}
