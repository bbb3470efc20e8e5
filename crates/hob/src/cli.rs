//! The command line: parses it and runs the command.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use nix::sys::stat::{Mode, umask};

use crate::commands::{self, Context, Exit};
use crate::printer::errln;
use crate::{hook_runner, settings};

/// Run coding agents in durable sessions that share one long-term memory
#[derive(Parser)]
#[command(name = "hob", version, propagate_version = true)]
#[command(after_help = "\
Hob keeps all its files in its home folder, $HOB_HOME (default: ~/.hob).

Hob takes each setting from the first of these that has it: a flag, an environment variable (HOB_...), \
$HOB_HOME/config.toml, the default. `hob doctor` prints every setting with its source.

Exit codes: 0 success, 1 failure, 2 wrong usage, 3 server not running (for `hob serve`: already \
running).")]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    Setup(commands::setup::Args),
    Serve(commands::serve::Args),
    Stop(commands::stop::Args),
    Status(commands::status::Args),
    Open(commands::open::Args),
    Logs(commands::logs::Args),
    Run(commands::run::Args),
    Sessions(commands::sessions::Args),
    Attach(commands::attach::Args),
    /// Approve an agent's permission request
    Allow(commands::allow_deny::AllowArgs),
    /// Deny an agent's permission request
    Deny(commands::allow_deny::Args),
    Agents(commands::agents::Args),
    Config(commands::config::Args),
    Doctor(commands::doctor::Args),
    Update(commands::update::Args),
    Recall(commands::recall::Args),
    Remember(commands::notes::RememberArgs),
    Correct(commands::notes::CorrectArgs),
    Timeline(commands::timeline::Args),
    Stats(commands::stats::Args),
    Forget(commands::forget::Args),
    Import(commands::import::Args),
    Export(commands::export::Args),
    Backup(commands::backup::BackupArgs),
    Restore(commands::backup::RestoreArgs),
    Hooks(commands::hooks::Args),
    Service(commands::service::Args),
    Mcp(commands::mcp::Args),
    Acp(commands::acp::Args),
    CaptureTranscript(commands::capture_transcript::Args),
    CaptureTurn(commands::capture_turn::Args),
    SessionStart(commands::session_start::Args),
    #[command(hide = true)]
    GitCredential(commands::git_credential::Args),
    #[command(hide = true)]
    ClaudeCost(commands::claude_cost::Args),
    App(commands::app::Args),
    Claude(commands::claude::Args),
    Key(commands::key::Args),
    Store(commands::store::Args),
    Completions(commands::completions::Args),
    Man(commands::man::Args),
}

/// Parses the command line and runs the command.
pub fn run() -> ExitCode {
    commands::completions::answer_shell(whole);
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if is_hook() => return hook_runner::wrong_usage(&error),
        Err(error) => error.exit(),
    };
    // Only the user may read what Hob writes.
    let umask = umask(Mode::from_bits_truncate(0o077)).bits();
    let plain = |run: &dyn Fn(&Context) -> anyhow::Result<Exit>| {
        context(Vec::new(), umask).and_then(|context| run(&context))
    };
    let Some(command) = cli.command else {
        return ended(plain(&commands::overview::run));
    };
    let exit = match command {
        Command::CaptureTranscript(args) => hook_runner::capture_transcript(args),
        Command::CaptureTurn(args) => hook_runner::capture_turn(args),
        Command::SessionStart(args) => hook_runner::session_start(args),
        Command::Completions(args) => commands::completions::run(&args),
        Command::Man(args) => commands::man::run(&args, whole()),
        Command::Claude(args) => commands::claude::run(&args),
        Command::Hooks(args) => commands::hooks::run(&args),
        Command::GitCredential(args) => commands::git_credential::run(&args),
        Command::ClaudeCost(args) => commands::claude_cost::run(&args),
        Command::Mcp(args) => return commands::mcp::run(&args),
        Command::Serve(args) => context(args.overrides(), umask)
            .and_then(|context| commands::serve::run(&context, &args)),
        Command::Setup(args) => plain(&|context| commands::setup::run(context, &args)),
        Command::Acp(args) => plain(&|context| commands::acp::run(context, &args)),
        Command::Service(args) => plain(&|context| commands::service::run(context, &args)),
        Command::Stop(args) => plain(&|context| commands::stop::run(context, &args)),
        Command::Open(args) => plain(&|context| commands::open::run(context, &args)),
        Command::Logs(args) => plain(&|context| commands::logs::run(context, &args)),
        Command::Allow(args) => plain(&|context| commands::allow_deny::allow(context, &args)),
        Command::Deny(args) => plain(&|context| commands::allow_deny::deny(context, &args)),
        Command::Agents(args) => plain(&|context| commands::agents::run(context, &args)),
        Command::Config(args) => plain(&|context| commands::config::run(context, &args)),
        Command::Remember(args) => plain(&|context| commands::notes::remember(context, &args)),
        Command::Correct(args) => plain(&|context| commands::notes::correct(context, &args)),
        Command::Timeline(args) => plain(&|context| commands::timeline::run(context, &args)),
        Command::Stats(args) => plain(&|context| commands::stats::run(context, &args)),
        Command::Status(args) => plain(&|context| commands::status::run(context, &args)),
        Command::Run(args) => plain(&|context| commands::run::run(context, &args)),
        Command::Sessions(args) => plain(&|context| commands::sessions::run(context, &args)),
        Command::Attach(args) => plain(&|context| commands::attach::run(context, &args)),
        Command::Update(args) => plain(&|context| commands::update::run(context, &args)),
        Command::Doctor(args) => plain(&|context| commands::doctor::run(context, &args)),
        Command::App(args) => plain(&|context| commands::app::run(context, &args)),
        Command::Recall(args) => plain(&|context| commands::recall::run(context, &args)),
        Command::Forget(args) => plain(&|context| commands::forget::run(context, &args)),
        Command::Import(args) => plain(&|context| commands::import::run(context, &args)),
        Command::Export(args) => plain(&|context| commands::export::run(context, &args)),
        Command::Backup(args) => plain(&|context| commands::backup::backup(context, &args)),
        Command::Restore(args) => plain(&|context| commands::backup::restore(context, &args)),
        Command::Key(args) => plain(&|context| commands::key::run(context, &args)),
        Command::Store(args) => plain(&|context| commands::store::run(context, &args)),
    };
    ended(exit)
}

fn ended(exit: anyhow::Result<Exit>) -> ExitCode {
    match exit {
        Ok(exit) => exit.into(),
        Err(error) => {
            errln!("hob: {error:#}");
            Exit::Failed.into()
        }
    }
}

/// Returns whether this is one of the commands that agents call as hooks.
fn is_hook() -> bool {
    let name = std::env::args().nth(1).unwrap_or_default();
    ["capture-transcript", "capture-turn", "session-start"].contains(&name.as_str())
}

fn context(flags: Vec<(&'static str, String)>, umask: u32) -> anyhow::Result<Context> {
    Ok(Context { settings: Arc::new(settings::load(flags)?), umask })
}

/// Returns the whole command line, for completions and manual pages.
pub fn whole() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

#[cfg(test)]
mod tests {
    #[test]
    fn command_line_is_consistent() {
        super::whole().debug_assert();
    }
}
