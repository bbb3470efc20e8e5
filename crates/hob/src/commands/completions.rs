//! `hob completions SHELL`, and what the shell asks while the user types.

use anyhow::Context as _;
use clap::Args as ClapArgs;
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};

use super::Exit;
use crate::printer;

/// The variable by which a shell's script asks `hob` for completions.
const VARIABLE: &str = "HOB_COMPLETE";

/// Print a completion script for your shell
#[derive(ClapArgs)]
#[command(
    after_help = "The script asks `hob` while you type, so it also completes the IDs of sessions and the names of agents.\n\n\
Example: hob completions bash > ~/.local/share/bash-completion/completions/hob"
)]
pub struct Args {
    /// Shell to print the script for
    shell: Shell,
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let shells = Shells::builtins();
    let shell = shells.completer(&args.shell.to_string()).context("Hob has no script for it")?;
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "hob", "hob", "hob", &mut script)?;
    printer::out_drawing(&String::from_utf8_lossy(&script));
    Ok(Exit::Done)
}

/// Answers a shell's script and ends the process, if such a script has started it. Call it before any thread exists.
pub fn answer_shell(whole: fn() -> clap::Command) {
    CompleteEnv::with_factory(whole).var(VARIABLE).bin("hob").completer("hob").complete();
}
