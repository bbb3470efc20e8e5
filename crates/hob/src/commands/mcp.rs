//! `hob mcp`: a stdio MCP server that only joins the daemon. It never starts one.

use std::process::ExitCode;

use clap::Args as ClapArgs;

use super::Outcome;
use crate::bridge::Bridge;
use crate::settings;

/// Speak MCP on standard input and output, for an agent's configuration
#[derive(ClapArgs)]
#[command(after_help = "\
Claude Code:  claude mcp add --scope user hob -- hob mcp
Joins the running `hob serve`; without one the tools are listed and a call says what to do.")]
pub struct Args {}

pub fn run() -> ExitCode {
    let outcome = match settings::socket_alone() {
        Ok(socket) => {
            let cwd = std::env::current_dir().ok().map(|cwd| cwd.to_string_lossy().into_owned());
            Bridge::new(socket, cwd).run(std::io::stdin().lock());
            Outcome::Done
        }
        Err(error) => {
            eprintln!("hob: {error}");
            Outcome::Failed
        }
    };
    outcome.into()
}
