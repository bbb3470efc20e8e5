//! `hob completions SHELL`.

use clap::Args as ClapArgs;
use clap_complete::Shell;

use super::Exit;

/// Print a completion script for your shell
#[derive(ClapArgs)]
#[command(
    after_help = "Example: hob completions bash > ~/.local/share/bash-completion/completions/hob"
)]
pub struct Args {
    /// Shell to print the script for
    shell: Shell,
}

pub fn run(args: &Args, mut command: clap::Command) -> anyhow::Result<Exit> {
    clap_complete::generate(args.shell, &mut command, "hob", &mut std::io::stdout());
    Ok(Exit::Done)
}
