//! The `hob` executable: the composition root, and the commands.
//!
//! It is a library, so that the fuzz targets reach the parsers of what others write: frames of the socket, hook input,
//! `config.toml`, and settings of agents. Nothing else uses it as one.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make and look at files"))]

mod acp;
mod backup_record;
mod build_id;
mod cli;
mod clock_record;
mod commands;
mod config_edit;
mod database_files;
mod demo;
mod home;
mod hook_runner;
mod hooks;
mod inventory;
mod keys;
mod known_databases;
mod ledger;
mod logging;
mod maintenance;
mod mcp_bridge;
mod mcp_entry;
mod mcp_lines;
mod mcp_standby;
mod memory;
mod memory_reader;
mod migration_guard;
mod outbox;
mod owner_client;
mod pager;
mod printer;
mod program_runner;
mod raw_terminal;
mod service;
mod settings;
mod setup_record;
mod socket;
mod tail_view;
mod time_input;
mod turns_view;
mod view;

use std::process::ExitCode;

pub use commands::capture_turn::HookInput;
pub use hooks::hook_spec::hooks_for;
pub use hooks::json_edit;
pub use settings::{SettingsError, check_file};
pub use socket::{Answer, Call, FRAME_LIMIT, frame};

/// Runs the command that the process was started with.
pub fn run() -> ExitCode {
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
