//! `hob session-start`: the hook of SessionStart. Prints what is remembered of this project, for the
//! agent; nothing on trouble.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use hob_domain::memory::Principal;
use hob_memory::locate_project;
use std::io::IsTerminal;

use super::capture_turn::HookInput;
use crate::memory;
use crate::settings::Resolved;
use crate::socket::client::{Connection, PROBE};
use crate::socket::{Answer, Call};

/// How long another process may keep the home's memory busy.
const BUSY: Duration = Duration::from_millis(200);

/// Print what is remembered of this project: the command of the hook SessionStart
#[derive(ClapArgs)]
#[command(after_help = "\
Reads the hook's JSON on standard input where there is one. Prints nothing when nothing is known, and on any \
trouble. Exits 0 whatever happens.")]
pub struct Args {
    /// The project's folder [default: the hook's, else this one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// The session that starts; it is left out
    #[arg(long, value_name = "ID")]
    session_id: Option<String>,
    /// About how many tokens the text may have
    #[arg(long, value_name = "N", default_value_t = 1500)]
    budget_tokens: usize,
}

pub fn run(settings: &Resolved, args: &Args, deadline: Instant) -> anyhow::Result<String> {
    let told = args.cwd.is_some() || std::io::stdin().is_terminal();
    let input = if told { None } else { HookInput::read() }.unwrap_or_default();
    let here = || std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let cwd = args.cwd.clone().or(input.cwd).unwrap_or_else(here);
    let session_id = args.session_id.clone().or(input.session_id);
    let budget_tokens = args.budget_tokens;
    let left = || deadline.saturating_duration_since(Instant::now());
    if let Ok(mut connection) = Connection::open(&settings.socket, PROBE) {
        let call = Call::SessionStart {
            cwd: cwd.to_string_lossy().into_owned(),
            session_id: session_id.clone(),
            budget_tokens,
        };
        if let Ok(Answer::Text(text)) = connection.call(&call, left().min(Duration::from_secs(1))) {
            return Ok(text);
        }
    }
    if !memory::exists(settings) {
        return Ok(String::new());
    }
    let project = locate_project(&cwd).project;
    let busy = if settings.store.is_some() { left() } else { BUSY };
    memory::runtime()?.block_on(async {
        let tools = memory::open(settings, busy).await?;
        let session = session_id.as_deref();
        let text = tools.engine.session_start(&Principal::Owner, &project, session, budget_tokens);
        Ok(text.await?)
    })
}
