//! `hob capture-transcript`: a whole transcript into the memory. A hook command: it ends well and in
//! time whatever happens.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args as ClapArgs;
use hob_memory::project::place_of;
use hob_memory::transcript::Client;
use hob_memory::{Batch, follow};
use serde_json::{Value, json};

use crate::memory::{Fallback, deliver};
use crate::settings::Resolved;

/// Capture an agent's transcript (Claude Code or Codex JSONL) into the memory
#[derive(ClapArgs)]
#[command(after_help = "\
Prints one JSON object: {\"status\":\"captured\",\"inserted\":N,\"duplicates\":M,\"errors\":E}, or \
{\"status\":\"deferred\",\"path\":…,\"events\":N} when the turns were left in a file for the server. Starts \
no process, and exits 0 within 2 seconds whatever happens.")]
pub struct Args {
    /// Where no server answers, leave the turns in a deferral file instead of opening the store
    #[arg(long)]
    no_spawn: bool,
    /// The session's id [default: the transcript's own]
    #[arg(long, value_name = "ID")]
    session_id: Option<String>,
    /// The folder the agent worked in [default: the transcript's own, else this one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// The transcript
    path: PathBuf,
}

pub fn run(settings: &Resolved, args: &Args, deadline: Instant) -> Value {
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let (news, missing) = match follow::whole(&args.path, args.session_id.as_deref()) {
        Ok(news) => (news, None),
        Err(error) => {
            let session = args.session_id.clone().unwrap_or_else(|| "unknown".to_owned());
            let news = follow::News { session, ..follow::News::default() };
            (news, Some(format!("{} cannot be read: {error}", args.path.display())))
        }
    };
    let folder = args.cwd.clone().or_else(|| news.cwd.as_ref().map(PathBuf::from));
    let batch = Batch {
        session: news.session,
        place: place_of(folder.as_deref().unwrap_or(&here)),
        client: news.client.map_or("unknown", Client::as_str).to_owned(),
        source: "transcript".to_owned(),
        turns: news.turns,
    };
    let cwd = args.cwd.as_deref().unwrap_or(&here);
    let fallback = if args.no_spawn { Fallback::Defer } else { Fallback::Store };
    let errors = news.unreadable + usize::from(missing.is_some());
    let mut answer = match deliver(settings, &batch, &text(cwd), fallback, deadline) {
        Ok(delivered) => match delivered.deferred {
            Some((path, events)) => {
                let mut answer = json!({"status": "deferred", "path": path, "events": events});
                if delivered.stored.inserted + delivered.stored.duplicates > 0 {
                    answer["inserted"] = json!(delivered.stored.inserted);
                    answer["duplicates"] = json!(delivered.stored.duplicates);
                }
                answer
            }
            None => {
                let known = delivered.stored.duplicates + delivered.stored.forgotten;
                let inserted = delivered.stored.inserted;
                json!({"status": "captured", "inserted": inserted, "duplicates": known, "errors": errors})
            }
        },
        Err(error) => json!({
            "status": "failed", "inserted": 0, "duplicates": 0, "errors": errors.max(1),
            "error": format!("{error:#}"),
        }),
    };
    if let Some(missing) = missing {
        answer["error"] = json!(missing);
    }
    answer
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
