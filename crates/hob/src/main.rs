//! The `hob` executable: the composition root, and one file per command.

mod cli;
mod commands;
mod demo;
mod home;
mod hook;
mod hooks;
mod keys;
mod logging;
mod memory;
mod settings;
mod socket;

use std::process::ExitCode;

fn main() -> ExitCode {
    // The hidden faces come first: they must cost nothing and share nothing with the rest.
    match std::env::args().nth(1).as_deref() {
        Some(hob_child::shim::ARGUMENT) => hob_child::shim::run(),
        Some(demo::ARGUMENT) => return demo::run(),
        _ => {}
    }
    cli::run()
}
