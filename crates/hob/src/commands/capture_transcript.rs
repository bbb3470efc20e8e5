//! `hob capture-transcript`: captures a whole transcript into the memory. As a hook it always exits
//! in time, with code 0.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args as ClapArgs;
use clap::builder::{OsStringValueParser, TypedValueParser};
use hob_domain::memory::{Stored, TurnSource};
use hob_memory::{
    CaptureBatch, PartialLine, ReadOptions, TranscriptMark, TranscriptUpdate, folder_of_record,
    locate_project, read_document, read_opencode_session, read_update,
};
use hob_transcript::{RecordFile, RecordedClient};
use serde_json::{Value, json};

use crate::memory::{Fallback, TRANSCRIPT_PART_BYTES, deliver, has_time_for_more};
use crate::settings::Resolved;

/// Store one transcript of a coding agent in the memory (for hooks and scripts)
#[derive(ClapArgs)]
#[command(after_help = "\
Prints one JSON object: {\"status\":\"captured\",\"inserted\":N,\"duplicates\":M,\"errors\":E}, or \
{\"status\":\"deferred\",\"path\":…,\"events\":N} if it wrote the turns to a file for the server to store later. \
Always exits with code 0, within 2 seconds (setting `memory.hook_timeout_secs`). Never starts a process.

To store past transcripts by hand, use `hob import`.")]
pub struct Args {
    /// If the server is not running, save the turns to a file, which the server stores later, instead of writing them to the
    /// database directly. The command never starts a process, with or without this option.
    #[arg(long)]
    no_spawn: bool,
    /// Session ID [default: the one in the transcript]
    #[arg(long, value_name = "ID")]
    session_id: Option<String>,
    /// Working folder of the agent [default: the one in the transcript, else the current
    /// folder]
    #[arg(long, value_name = "DIR", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    cwd: Option<PathBuf>,
    /// Transcript file
    path: PathBuf,
}

impl Args {
    /// Returns these arguments without empty ones: a script may pass a variable that is not set.
    pub fn without_empty(mut self) -> Args {
        self.session_id = self.session_id.filter(|id| !id.is_empty());
        self.cwd = self.cwd.filter(|cwd| !cwd.as_os_str().is_empty());
        self
    }
}

pub fn run(settings: &Arc<Resolved>, args: &Args, deadline: Instant) -> Value {
    let session = args.session_id.as_deref();
    let updates = match RecordFile::of_named(&args.path) {
        RecordFile::Lines => return capture_lines(settings, args, deadline),
        RecordFile::Document => read_document(&args.path, session),
        RecordFile::OpencodeSession => read_opencode_session(&args.path).map(|update| vec![update]),
        RecordFile::Database(_) => {
            Err(std::io::Error::other("the file is a database; run `hob import`"))
        }
        RecordFile::MemoryFile(_) => {
            Err(std::io::Error::other("a memory file is no transcript; run `hob import`"))
        }
    };
    let mut totals = Totals::default();
    let updates = updates.unwrap_or_else(|error| vec![totals.unread(args, &error)]);
    for update in updates {
        if let Err(error) = capture(settings, args, update, deadline, &mut totals) {
            totals.errors += 1;
            totals.problem = Some(format!("{error:#}"));
            return totals.answer("failed");
        }
    }
    totals.answer_delivered()
}

fn capture_lines(settings: &Arc<Resolved>, args: &Args, deadline: Instant) -> Value {
    let mut totals = Totals::default();
    let mut mark = TranscriptMark::default();
    loop {
        let began = Instant::now();
        let options = ReadOptions {
            session: args.session_id.as_deref(),
            partial_line: PartialLine::Include,
            max_bytes: TRANSCRIPT_PART_BYTES,
        };
        let update = match read_update(&args.path, &mut mark, options) {
            Ok(update) => update,
            Err(error) => totals.unread(args, &error),
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
        if !has_time_for_more(deadline, began.elapsed()) {
            totals.errors += 1;
            let path = args.path.display();
            totals.problem = Some(format!(
                "the transcript {path} is too large to read in a hook; run `hob import {path}`"
            ));
            break;
        }
    }
    totals.answer_delivered()
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
    /// Notes that the transcript cannot be read. Returns an update without turns.
    fn unread(&mut self, args: &Args, error: &std::io::Error) -> TranscriptUpdate {
        self.errors += 1;
        self.problem = Some(format!("cannot read {}: {error}", args.path.display()));
        let session = args.session_id.clone().unwrap_or_else(|| "unknown".to_owned());
        TranscriptUpdate { session, ..TranscriptUpdate::default() }
    }

    fn answer_delivered(&self) -> Value {
        self.answer(if self.deferred.is_some() { "deferred" } else { "captured" })
    }

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
    settings: &Arc<Resolved>,
    args: &Args,
    update: TranscriptUpdate,
    deadline: Instant,
    totals: &mut Totals,
) -> anyhow::Result<()> {
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let folder = args.cwd.clone().or_else(|| update.cwd.as_ref().map(PathBuf::from));
    let folder = folder.or_else(|| folder_of_record(&args.path, update.client?));
    let batch = CaptureBatch {
        session: update.session,
        place: locate_project(folder.as_deref().unwrap_or(&here)),
        client: update.client.map_or("unknown", RecordedClient::as_str).to_owned(),
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
