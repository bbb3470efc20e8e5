//! `hob completions SHELL`.

use clap::Args as ClapArgs;
use clap_complete::Shell;

use super::Exit;
use crate::printer;

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
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "hob", &mut script);
    printer::out_drawing(&String::from_utf8_lossy(&script));
    Ok(Exit::Done)
}
