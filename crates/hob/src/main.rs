//! The `hob` executable: the composition root, and one file per command.

mod cli;
mod commands;
mod demo;
mod home;
mod hook_runner;
mod hooks;
mod keys;
mod ledger;
mod logging;
mod maintenance;
mod mcp_bridge;
mod memory;
mod outbox;
mod owner_client;
mod raw_terminal;
mod settings;
mod socket;

use std::process::ExitCode;

fn main() -> ExitCode {
    // The hidden faces come first: they must cost nothing and share nothing with the rest.
    match std::env::args().nth(1).as_deref() {
        Some(hob_child::shim::ARGUMENT) => hob_child::shim::run(),
        Some(demo::ARGUMENT) => return demo::run(),
        // One runs beside every agent, so it is as small as can be and does without the command line's
        // parser, which is a good part of what would otherwise stay in memory.
        Some("mcp") if std::env::args().len() == 2 => return commands::mcp::run(),
        _ => {}
    }
    cli::run()
}
