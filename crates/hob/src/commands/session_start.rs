//! `hob session-start`: the hook for SessionStart. It prints the memory of the project for the
//! agent, and nothing if that fails.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use hob_domain::memory::Principal;
use hob_memory::{BRIEFING_TOKENS, locate_project};
use serde_json::json;
use std::io::IsTerminal;

use super::FromPlugin;
use super::capture_turn::HookInput;
use crate::memory;
use crate::memory_reader::open_to_read;
use crate::settings::Resolved;
use crate::socket::client::{Connection, PROBE_TIMEOUT};
use crate::socket::{Answer, Call};

/// How long to wait for another process that writes into the home's memory.
const BUSY_TIMEOUT: Duration = Duration::from_millis(200);

/// Print what the memory holds about this project, as context for an agent (hook for SessionStart)
#[derive(ClapArgs)]
#[command(after_help = "\
Reads the hook's JSON from standard input. Prints nothing if the memory has nothing about the project, or if an error \
occurs. Always exits with code 0.")]
pub struct Args {
    /// Folder of the project [default: the one in the hook's JSON, else the current
    /// folder]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// ID of the session being started; its own turns are left out
    #[arg(long, value_name = "ID")]
    session_id: Option<String>,
    /// Approximate maximum size of the text, in tokens
    #[arg(long, value_name = "N", default_value_t = BRIEFING_TOKENS)]
    budget_tokens: usize,
    #[command(flatten)]
    from_plugin: FromPlugin,
}

pub fn run(settings: &Resolved, args: &Args, deadline: Instant) -> anyhow::Result<String> {
    if args.from_plugin.leaves_hook_to_settings("SessionStart") {
        return Ok(String::new());
    }
    let has_no_input = args.cwd.is_some() || std::io::stdin().is_terminal();
    let input = if has_no_input { None } else { HookInput::read() }.unwrap_or_default();
    let here = || std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let form = if input.is_of_gemini() { Form::Gemini } else { Form::Text };
    let cwd = args.cwd.clone().or(input.cwd).unwrap_or_else(here);
    let session_id = args.session_id.clone().or(input.session_id);
    let budget_tokens = args.budget_tokens;
    let left = || deadline.saturating_duration_since(Instant::now());
    if let Ok(mut connection) =
        Connection::open_home(&settings.socket, &settings.home, PROBE_TIMEOUT)
    {
        let call = Call::SessionStart {
            cwd: cwd.to_string_lossy().into_owned(),
            session_id: session_id.clone(),
            budget_tokens,
        };
        if let Ok(Answer::Text(text)) = connection.call(&call, left().min(Duration::from_secs(1))) {
            return Ok(form.of(text));
        }
    }
    if !memory::exists(settings) {
        return Ok(String::new());
    }
    let project = locate_project(&cwd).project;
    let busy = if settings.values.store_url.is_some() { left() } else { BUSY_TIMEOUT };
    memory::runtime()?.block_on(async {
        let tools = open_to_read(settings, busy).await?;
        let session = session_id.as_deref();
        let text = tools.engine.session_start(&Principal::Owner, &project, session, budget_tokens);
        Ok(form.of(text.await?))
    })
}

/// How a client wants the text for its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    /// One JSON object. Gemini CLI shows plain text to the user instead of giving it to the model.
    Gemini,
}

impl Form {
    fn of(self, text: String) -> String {
        if self == Form::Text || text.trim().is_empty() {
            return text;
        }
        let output = json!({"hookEventName": "SessionStart", "additionalContext": text});
        format!("{}\n", json!({"hookSpecificOutput": output}))
    }
}
