//! The `hob` executable: the composition root, and the commands.

mod acp;
mod backup_record;
mod cli;
mod commands;
mod config_edit;
mod database_files;
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
mod mcp_standby;
mod memory;
mod moment;
mod outbox;
mod owner_client;
mod printer;
mod raw_terminal;
mod service;
mod settings;
mod setup_record;
mod socket;
mod turns_view;
mod view;

use std::process::ExitCode;

fn main() -> ExitCode {
    // The hidden subcommands come first: they must start fast and share nothing with the rest.
    match std::env::args().nth(1).as_deref() {
        Some(hob_child::shim::ARGUMENT) => hob_child::shim::run(),
        Some(hob_child::namespace_processes::PROBE_ARGUMENT) => {
            hob_child::namespace_processes::run_probe()
        }
        Some(demo::ARGUMENT) => return demo::run(),
        // One bridge runs per agent, so it must be small. Without the command-line parser it needs
        // much less memory.
        Some("mcp") => {
            if let Some(code) = commands::mcp::run_without_parser() {
                return code;
            }
        }
        _ => {}
    }
    cli::run()
}
