//! `hob mcp`: a stdio MCP server that forwards to the running server. It never starts one.

use std::process::ExitCode;

use clap::Args as ClapArgs;
use hob_agents::client_tools::KEY_VARIABLE;

use super::{Exit, FromPlugin};
use crate::mcp_bridge::Bridge;
use crate::mcp_standby;
use crate::printer::errln;
use crate::settings;
use crate::socket::Call;

/// Serve the memory over MCP on standard input and output, for use by an agent
#[derive(ClapArgs)]
#[command(after_help = "\
Add it to Claude Code with: claude mcp add --scope user hob -- hob mcp

`hob mcp` forwards requests to the running server. If none is running, the tools are still listed, but every call \
returns an error that says how to start one.")]
pub struct Args {
    #[command(flatten)]
    from_plugin: FromPlugin,
}

/// Runs the command if its arguments need no parser: none, or those of a plugin.
pub fn run_without_parser() -> Option<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    FromPlugin::read(&arguments).map(|from_plugin| run(&Args { from_plugin }))
}

pub fn run(args: &Args) -> ExitCode {
    if args.from_plugin.leaves_server_to_settings() {
        mcp_standby::run(std::io::stdin().lock());
        return Exit::Done.into();
    }
    let outcome = match settings::socket_path() {
        Ok(socket) => {
            let call = match std::env::var(KEY_VARIABLE) {
                Ok(key) => Call::ClientTools { key },
                Err(_) => {
                    let cwd = std::env::current_dir().ok();
                    Call::Mcp { cwd: cwd.map(|cwd| cwd.to_string_lossy().into_owned()) }
                }
            };
            Bridge::new(socket, call).run(std::io::stdin().lock());
            Exit::Done
        }
        Err(error) => {
            errln!("hob: {error}");
            Exit::Failed
        }
    };
    outcome.into()
}
