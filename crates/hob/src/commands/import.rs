//! `hob import`: imports past transcripts into the memory. A second run adds nothing; after an
//! interruption, the next run continues.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args as ClapArgs;
use hob_domain::StoreError;
use hob_domain::memory::{ImportMark, Principal, Stored, TurnSource};
use hob_memory::{
    CaptureBatch, Engine, find_transcripts, import_mark, locate_project, read_all,
    transcript_folders,
};
use hob_transcript::AgentClient;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tokio::task::JoinSet;

use super::{Context, Exit};
use crate::memory;
use crate::printer::{self, errln, outln};

/// About how many turns one transaction stores. A live capture may have to wait for one
/// transaction.
const TRANSACTION_TURNS: usize = 400;
/// How many transcripts one query to the store asks about.
const MARKS_PER_QUERY: usize = 200;
/// How long to wait for another process that writes into the memory.
const STORE_BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// Import past transcripts of Claude Code and Codex into the memory
#[derive(ClapArgs)]
#[command(after_help = "\
Without a path, imports the transcripts of Claude Code ($CLAUDE_CONFIG_DIR or ~/.claude) and Codex ($CODEX_HOME or \
~/.codex). Hob never stores a turn twice, so you can run this at any time and as often as you like.")]
pub struct Args {
    /// Transcript files, or folders with transcripts
    paths: Vec<PathBuf>,
    /// Print {"files":…,"skipped":…,"inserted":…,"duplicates":…,"errors":…,"unknown":[…]}
    #[arg(long)]
    json: bool,
}

#[derive(Default)]
struct Totals {
    files: usize,
    skipped: usize,
    stored: Stored,
    errors: usize,
    /// Files that are not transcripts of a known client.
    unknown: Vec<PathBuf>,
    /// The paths that the user has named.
    named: HashSet<PathBuf>,
}

/// Imports the past sessions of every client on this machine. Returns what was imported.
pub fn import_past(context: &Context) -> anyhow::Result<String> {
    let args = Args { paths: Vec::new(), json: false };
    let outcome = import(context, &args)?;
    anyhow::ensure!(outcome.finished, "interrupted; run `hob import` to continue");
    Ok(outcome.summary())
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let outcome = import(context, args)?;
    for path in &outcome.totals.unknown {
        errln!(
            "hob: {} has an unknown format or no turns; Hob reads transcripts of Claude Code and Codex",
            path.display()
        );
    }
    let Totals { files, skipped, stored, errors, unknown, .. } = &outcome.totals;
    if args.json {
        let known = stored.duplicates + stored.forgotten;
        printer::out_json(
            &json!({"files": files, "skipped": skipped, "inserted": stored.inserted, "duplicates": known,
                "errors": errors, "unknown": unknown, "finished": outcome.finished}),
        );
    } else {
        outln!("{}", outcome.summary());
        if *errors > 0 {
            outln!("skipped {errors} lines or files that could not be read");
        }
    }
    if !outcome.finished {
        errln!("hob: interrupted; run the command again to continue");
        return Ok(Exit::Failed);
    }
    // The folders of known clients may contain other files.
    let is_unknown = !unknown.is_empty() && !args.paths.is_empty();
    Ok(if outcome.is_incomplete || is_unknown { Exit::Failed } else { Exit::Done })
}

/// How an import ended.
struct Outcome {
    totals: Totals,
    /// Whether it was not interrupted.
    finished: bool,
    /// Whether a path that the user named does not exist or contains no transcripts.
    is_incomplete: bool,
}

impl Outcome {
    fn summary(&self) -> String {
        let Totals { files, skipped, stored, .. } = &self.totals;
        let known = stored.duplicates + stored.forgotten;
        let (turns, files) = (count(stored.inserted, "turn"), count(*files, "transcript"));
        let (known, skipped) = (count(known, "turn"), count(*skipped, "transcript"));
        format!("imported {turns} from {files}; already stored: {known}; nothing new in {skipped}")
    }
}

fn import(context: &Context, args: &Args) -> anyhow::Result<Outcome> {
    let settings = &context.settings;
    settings.home.prepare()?;
    let places = if args.paths.is_empty() { default_folders() } else { args.paths.clone() };
    let mut totals = Totals { named: args.paths.iter().cloned().collect(), ..Totals::default() };
    let missing = places.iter().any(|path| !path.exists());
    for path in places.iter().filter(|path| !path.exists()) {
        errln!("hob: {} does not exist", path.display());
        totals.errors += 1;
    }
    let mut files: Vec<PathBuf> = Vec::new();
    let mut is_empty = false;
    for place in places.iter().filter(|path| path.exists()) {
        let found = find_transcripts(place);
        if found.is_empty() && !args.paths.is_empty() {
            errln!(
                "hob: {} contains no transcripts (files with the ending .jsonl)",
                place.display()
            );
            totals.errors += 1;
            is_empty = true;
        }
        files.extend(found);
    }
    let runtime = memory::runtime()?;
    let tools = runtime.block_on(memory::open(settings, STORE_BUSY_TIMEOUT))?;
    let bar = progress(files.len() as u64);
    let workspaces = settings.home.workspaces();
    let outcome = runtime.block_on(async {
        let import = import_all(&tools.engine, &workspaces, &files, &bar, &mut totals);
        tokio::select! {
            done = import => done.map(|()| true),
            _ = tokio::signal::ctrl_c() => Ok(false),
        }
    });
    bar.finish_and_clear();
    Ok(Outcome { totals, finished: outcome?, is_incomplete: missing || is_empty })
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Returns the folders in which this user's clients store transcripts.
fn default_folders() -> Vec<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let Some(home) = folder("HOME") else { return Vec::new() };
    transcript_folders(&home, |client| folder(client.description().config_variable))
}

fn progress(files: u64) -> ProgressBar {
    let style = "{bar:30} {pos}/{len} transcripts  {msg}  {elapsed}, {eta} left";
    let bar = ProgressBar::new(files);
    bar.set_style(ProgressStyle::with_template(style).unwrap_or(ProgressStyle::default_bar()));
    bar
}

async fn import_all(
    engine: &Engine,
    workspaces: &Path,
    files: &[PathBuf],
    bar: &ProgressBar,
    totals: &mut Totals,
) -> anyhow::Result<()> {
    let mut transactions = Transactions::new(engine);
    for chunk in files.chunks(MARKS_PER_QUERY) {
        let marks = chunk.iter().filter_map(|path| import_mark(path)).collect();
        let imported = engine.imported(marks).await?;
        let imported: HashSet<_> =
            imported.iter().map(|mark| (mark.path, mark.size, mark.modified)).collect();
        for path in chunk {
            bar.inc(1);
            // The mark is taken before reading. If the file grows meanwhile, the next run reads it
            // again.
            let Some(mark) = import_mark(path) else {
                totals.errors += 1;
                continue;
            };
            if imported.contains(&(mark.path, mark.size, mark.modified)) {
                totals.skipped += 1;
                continue;
            }
            let Some(batch) = read(path, totals) else { continue };
            // A session in an app's workspace belongs to the app's memory, not to the owner's.
            if Path::new(&batch.place.worktree).starts_with(workspaces) {
                totals.skipped += 1;
                continue;
            }
            totals.stored += transactions.add(&batch, mark).await?;
            bar.set_message(format!("{} turns", totals.stored.inserted));
        }
    }
    totals.stored += transactions.finish().await?;
    Ok(())
}

fn read(path: &Path, totals: &mut Totals) -> Option<CaptureBatch> {
    let update = match read_all(path, None) {
        Ok(update) => update,
        Err(_) => {
            totals.errors += 1;
            return None;
        }
    };
    // A transcript among others may have no turns yet. A file that the user names must have some.
    let is_known = update.client.is_some() && !totals.named.contains(path);
    if !is_known
        && update.turns.is_empty()
        && std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0)
    {
        totals.unknown.push(path.to_owned());
        totals.errors += 1;
        return None;
    }
    totals.files += 1;
    totals.errors += update.unreadable;
    let folder = update.cwd.map(PathBuf::from).or_else(|| path.parent().map(PathBuf::from));
    Some(CaptureBatch {
        session: update.session,
        place: locate_project(&folder.unwrap_or_else(|| PathBuf::from("/"))),
        client: update.client.map_or("unknown", AgentClient::as_str).to_owned(),
        source: TurnSource::Import,
        turns: update.turns,
    })
}

/// Groups turns into transactions. Stores each in the background while the next turns are read; one
/// transaction at a time, in order.
struct Transactions {
    engine: Engine,
    batches: Vec<CaptureBatch>,
    /// The number of turns in `batches`.
    turns: usize,
    /// The transcripts whose last turn is in `batches` or stored.
    marks: Vec<ImportMark>,
    /// The transaction that is being stored; at most one.
    running: JoinSet<Result<Stored, StoreError>>,
}

impl Transactions {
    fn new(engine: &Engine) -> Transactions {
        Transactions {
            engine: engine.clone(),
            batches: Vec::new(),
            turns: 0,
            marks: Vec::new(),
            running: JoinSet::new(),
        }
    }

    /// Adds the turns of one transcript, and returns the results of transactions that ended
    /// meanwhile.
    async fn add(&mut self, batch: &CaptureBatch, mark: ImportMark) -> anyhow::Result<Stored> {
        let mut stored = Stored::default();
        let mut rest = batch.turns.as_slice();
        while !rest.is_empty() {
            let (part, more) = rest.split_at(memory::chunk(rest).min(TRANSACTION_TURNS));
            rest = more;
            self.turns += part.len();
            self.batches.push(batch.with_turns(part));
            if self.turns >= TRANSACTION_TURNS && !rest.is_empty() {
                stored += self.start(Vec::new()).await?;
            }
        }
        // A transcript counts as imported only once its last turn is stored.
        self.marks.push(mark);
        if self.turns >= TRANSACTION_TURNS {
            let marks = std::mem::take(&mut self.marks);
            stored += self.start(marks).await?;
        }
        Ok(stored)
    }

    /// Starts storing what was added, and returns the result of the previous transaction.
    async fn start(&mut self, marks: Vec<ImportMark>) -> anyhow::Result<Stored> {
        self.turns = 0;
        let prepared = self.engine.prepare(std::mem::take(&mut self.batches)).await?;
        let previous = self.wait().await?;
        let engine = self.engine.clone();
        self.running.spawn(async move {
            let stored = engine.store(&Principal::Owner, prepared, marks).await;
            // Gives a live capture that waits for the store its chance.
            tokio::time::sleep(Duration::from_millis(2)).await;
            stored
        });
        Ok(previous)
    }

    /// Stores what is left, and waits for it.
    async fn finish(mut self) -> anyhow::Result<Stored> {
        let marks = std::mem::take(&mut self.marks);
        let mut stored = self.start(marks).await?;
        stored += self.wait().await?;
        Ok(stored)
    }

    async fn wait(&mut self) -> anyhow::Result<Stored> {
        match self.running.join_next().await {
            Some(stored) => Ok(stored??),
            None => Ok(Stored::default()),
        }
    }
}
