//! What was typed, and which command it means.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use nix::sys::stat::{Mode, umask};

use crate::commands::{self, Context, Outcome};
use crate::settings;

/// Runs coding agents as durable sessions and gives them one long memory.
#[derive(Parser)]
#[command(name = "hob", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "\
Settings come from flags, then the environment (HOB_...), then $HOB_HOME/config.toml, then defaults; \
`hob doctor` prints each with its source.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 already running or not running.")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(commands::serve::Args),
    Status(commands::status::Args),
    Doctor(commands::doctor::Args),
    App(commands::app::Args),
    Claude(commands::claude::Args),
    Completions(commands::completions::Args),
}

/// Parses the command line and runs the command.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    // Nothing Hob writes is anyone else's to read.
    let umask = umask(Mode::from_bits_truncate(0o077)).bits();
    let outcome =
        match cli.command {
            Command::Completions(args) => commands::completions::run(&args),
            Command::Claude(args) => commands::claude::run(&args),
            Command::Serve(args) => context(args.overrides(), umask)
                .and_then(|context| commands::serve::run(&context, &args)),
            Command::Status(args) => context(Vec::new(), umask)
                .and_then(|context| commands::status::run(&context, &args)),
            Command::Doctor(args) => context(Vec::new(), umask)
                .and_then(|context| commands::doctor::run(&context, &args)),
            Command::App(args) => {
                context(Vec::new(), umask).and_then(|context| commands::app::run(&context, &args))
            }
        };
    match outcome {
        Ok(outcome) => outcome.into(),
        Err(error) => {
            eprintln!("hob: {error:#}");
            Outcome::Failed.into()
        }
    }
}

fn context(flags: Vec<(&'static str, String)>, umask: u32) -> anyhow::Result<Context> {
    Ok(Context { settings: settings::load(flags)?, umask })
}

/// The whole command line, for completions and the reference.
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::command().debug_assert();
    }
}
