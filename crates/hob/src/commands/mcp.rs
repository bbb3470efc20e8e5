//! `hob mcp`: a stdio MCP server that only joins the daemon. It never starts one.

use std::process::ExitCode;

use clap::Args as ClapArgs;

use super::Exit;
use crate::mcp_bridge::Bridge;
use crate::settings;

/// Speak MCP on standard input and output, for an agent's configuration
#[derive(ClapArgs)]
#[command(after_help = "\
Claude Code:  claude mcp add --scope user hob -- hob mcp
Joins the running `hob serve`; without one the tools are listed and a call says what to do.")]
pub struct Args {}

pub fn run() -> ExitCode {
    let outcome = match settings::socket_path() {
        Ok(socket) => {
            let cwd = std::env::current_dir().ok().map(|cwd| cwd.to_string_lossy().into_owned());
            Bridge::new(socket, cwd).run(std::io::stdin().lock());
            Exit::Done
        }
        Err(error) => {
            eprintln!("hob: {error}");
            Exit::Failed
        }
    };
    outcome.into()
}
