//! `hob acp`: Hob as an agent that editors start.

use clap::Args as ClapArgs;

use super::{Context, Exit};
use crate::acp::AcpServer;
use crate::memory;

/// Serve sessions over the Agent Client Protocol on standard input and output, for use by an editor
#[derive(ClapArgs)]
#[command(after_help = "\
Add it to an editor as an agent server with the command `hob acp`. It forwards to the running server (`hob serve`). The \
sessions belong to you, not to an app, and stay open when the editor closes: `hob sessions list` and the console show them, \
and the editor can load them again.")]
pub struct Args {
    /// Agent for new sessions [default: the setting sessions.default_agent]
    #[arg(long)]
    agent: Option<String>,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let settings = &context.settings;
    let agent = args.agent.clone().unwrap_or(settings.default_agent.as_str().to_owned());
    let server = AcpServer::new(settings.socket.clone(), agent);
    memory::runtime()?.block_on(server.run());
    Ok(Exit::Done)
}
