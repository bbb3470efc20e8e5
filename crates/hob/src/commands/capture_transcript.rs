//! `hob capture-transcript`: a whole transcript into the memory. A hook command: it ends well and in
//! time whatever happens.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args as ClapArgs;
use hob_domain::memory::{Stored, TurnSource};
use hob_memory::{
    CaptureBatch, PartialLine, ReadOptions, TranscriptMark, TranscriptUpdate, locate_project,
    read_update,
};
use hob_transcript::AgentClient;
use serde_json::{Value, json};

use crate::memory::{Fallback, PART, deliver, is_time_for_more};
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
    let mut totals = Totals::default();
    let mut mark = TranscriptMark::default();
    loop {
        let options = ReadOptions {
            session: args.session_id.as_deref(),
            partial_line: PartialLine::Include,
            max_bytes: PART,
        };
        let update = match read_update(&args.path, &mut mark, options) {
            Ok(update) => update,
            Err(error) => {
                totals.errors += 1;
                totals.problem = Some(format!("cannot read {}: {error}", args.path.display()));
                let session = args.session_id.clone().unwrap_or_else(|| "unknown".to_owned());
                TranscriptUpdate { session, ..TranscriptUpdate::default() }
            }
        };
        let more = update.more;
        if let Err(error) = capture(settings, args, update, deadline, &mut totals) {
            totals.errors += 1;
            totals.problem = Some(format!("{error:#}"));
            return totals.answer("failed");
        }
        if !more {
            break;
        }
        if !is_time_for_more(deadline) {
            totals.errors += 1;
            let path = args.path.display();
            totals.problem =
                Some(format!("{path} is too long for a hook; `hob import {path}` reads it"));
            break;
        }
    }
    match totals.deferred {
        Some(_) => totals.answer("deferred"),
        None => totals.answer("captured"),
    }
}

/// What became of the transcript so far.
#[derive(Default)]
struct Totals {
    stored: Stored,
    /// The first file that was written, and how many turns all of them hold.
    deferred: Option<(PathBuf, usize)>,
    errors: usize,
    problem: Option<String>,
}

impl Totals {
    fn answer(&self, status: &str) -> Value {
        let known = self.stored.duplicates + self.stored.forgotten;
        let mut answer = json!({"status": status});
        if let Some((path, events)) = &self.deferred {
            answer["path"] = json!(path);
            answer["events"] = json!(events);
        }
        if self.deferred.is_none() || self.stored != Stored::default() {
            answer["inserted"] = json!(self.stored.inserted);
            answer["duplicates"] = json!(known);
        }
        if self.deferred.is_none() || self.errors > 0 {
            answer["errors"] = json!(self.errors);
        }
        if let Some(problem) = &self.problem {
            answer["error"] = json!(problem);
        }
        answer
    }
}

fn capture(
    settings: &Resolved,
    args: &Args,
    update: TranscriptUpdate,
    deadline: Instant,
    totals: &mut Totals,
) -> anyhow::Result<()> {
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let folder = args.cwd.clone().or_else(|| update.cwd.as_ref().map(PathBuf::from));
    let batch = CaptureBatch {
        session: update.session,
        place: locate_project(folder.as_deref().unwrap_or(&here)),
        client: update.client.map_or("unknown", AgentClient::as_str).to_owned(),
        source: TurnSource::Transcript,
        turns: update.turns,
    };
    totals.errors += update.unreadable;
    let cwd = text(args.cwd.as_deref().unwrap_or(&here));
    let fallback = if args.no_spawn { Fallback::Defer } else { Fallback::Store };
    let delivered = deliver(settings, &batch, &cwd, fallback, deadline)?;
    totals.stored += delivered.stored;
    if let Some((path, events)) = delivered.deferred {
        let (_, all) = totals.deferred.get_or_insert((path, 0));
        *all += events;
    }
    Ok(())
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
