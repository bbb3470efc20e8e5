//! The `hob` executable: the composition root, and the commands.

mod acp;
mod cli;
mod commands;
mod demo;
mod home;
mod hook_runner;
mod hooks;
mod inventory;
mod keys;
mod ledger;
mod logging;
mod maintenance;
mod mcp_bridge;
mod mcp_entry;
mod memory;
mod outbox;
mod owner_client;
mod printer;
mod raw_terminal;
mod service;
mod settings;
mod setup_record;
mod socket;

use std::process::ExitCode;

fn main() -> ExitCode {
    // The hidden subcommands come first: they must start fast and share nothing with the rest.
    match std::env::args().nth(1).as_deref() {
        Some(hob_child::shim::ARGUMENT) => hob_child::shim::run(),
        Some(hob_child::view::PROBE_ARGUMENT) => hob_child::view::run_probe(),
        Some(demo::ARGUMENT) => return demo::run(),
        // One bridge runs per agent, so it must be small. Without the command-line parser it needs
        // much less memory.
        Some("mcp") if std::env::args().len() == 2 => return commands::mcp::run(),
        _ => {}
    }
    cli::run()
}
