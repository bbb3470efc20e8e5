//! `hob completions SHELL`.

use clap::Args as ClapArgs;
use clap_complete::Shell;

use super::Outcome;
use crate::cli;

/// Print a completion script for a shell
#[derive(ClapArgs)]
#[command(
    after_help = "Example: hob completions bash > ~/.local/share/bash-completion/completions/hob"
)]
pub struct Args {
    shell: Shell,
}

pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    clap_complete::generate(args.shell, &mut cli::command(), "hob", &mut std::io::stdout());
    Ok(Outcome::Done)
}
