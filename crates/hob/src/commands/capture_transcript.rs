//! `hob capture-transcript`: captures a whole transcript into the memory. As a hook it always exits
//! in time, with code 0.

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

use crate::memory::{Fallback, TRANSCRIPT_PART_BYTES, deliver, has_time_for_more};
use crate::settings::Resolved;

/// Store one Claude Code or Codex transcript in the memory (for hooks and scripts)
#[derive(ClapArgs)]
#[command(after_help = "\
Prints one JSON object: {\"status\":\"captured\",\"inserted\":N,\"duplicates\":M,\"errors\":E}, or \
{\"status\":\"deferred\",\"path\":…,\"events\":N} if it wrote the turns to a file for the server to store later. \
Always exits with code 0, within 2 seconds. Never starts a process.

To store past transcripts by hand, use `hob import`.")]
pub struct Args {
    /// If no server answers, do not write to the database: save the turns to a file for the server
    /// to store later (the name of the option is historical)
    #[arg(long)]
    no_spawn: bool,
    /// Session ID [default: the one in the transcript]
    #[arg(long, value_name = "ID")]
    session_id: Option<String>,
    /// Working folder of the agent [default: the one in the transcript, else the current
    /// folder]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Transcript file
    path: PathBuf,
}

pub fn run(settings: &Resolved, args: &Args, deadline: Instant) -> Value {
    let mut totals = Totals::default();
    let mut mark = TranscriptMark::default();
    loop {
        let options = ReadOptions {
            session: args.session_id.as_deref(),
            partial_line: PartialLine::Include,
            max_bytes: TRANSCRIPT_PART_BYTES,
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
        if !has_time_for_more(deadline) {
            totals.errors += 1;
            let path = args.path.display();
            totals.problem =
                Some(format!("{path} is too long for a hook; run `hob import {path}`"));
            break;
        }
    }
    match totals.deferred {
        Some(_) => totals.answer("deferred"),
        None => totals.answer("captured"),
    }
}

/// The results of the parts that were captured so far.
#[derive(Default)]
struct Totals {
    stored: Stored,
    /// The first deferral file, and the number of turns in all of them.
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
