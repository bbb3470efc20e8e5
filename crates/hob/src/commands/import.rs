//! `hob import`: past transcripts into the memory. Run again it adds nothing; broken off it goes on
//! where it was.

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

/// About how many turns go in one transaction: a live capture waits no longer than that takes.
const TRANSACTION: usize = 400;

/// Import past transcripts of Claude Code and Codex into the memory
#[derive(ClapArgs)]
#[command(after_help = "\
Without a path it looks where Claude Code and Codex keep their transcripts ($CLAUDE_CONFIG_DIR or ~/.claude, \
$CODEX_HOME or ~/.codex). Safe beside live capture: a turn that is remembered already is not stored again.")]
pub struct Args {
    /// Transcripts, or folders that hold them
    paths: Vec<PathBuf>,
    /// Print {"files":…,"skipped":…,"inserted":…,"duplicates":…,"errors":…}
    #[arg(long)]
    json: bool,
}

#[derive(Default)]
struct Totals {
    files: usize,
    skipped: usize,
    stored: Stored,
    errors: usize,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let settings = &context.settings;
    settings.home.prepare()?;
    let places = if args.paths.is_empty() { default_folders() } else { args.paths.clone() };
    let mut totals = Totals::default();
    let missing = places.iter().any(|path| !path.exists());
    for path in places.iter().filter(|path| !path.exists()) {
        eprintln!("hob: {} does not exist", path.display());
        totals.errors += 1;
    }
    let files: Vec<PathBuf> = places.iter().flat_map(|path| find_transcripts(path)).collect();
    let runtime = memory::runtime()?;
    let tools = runtime.block_on(memory::open(settings, Duration::from_secs(30)))?;
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
    let finished = outcome?;
    let Totals { files, skipped, stored, errors } = totals;
    if args.json {
        let known = stored.duplicates + stored.forgotten;
        println!(
            "{}",
            json!({"files": files, "skipped": skipped, "inserted": stored.inserted, "duplicates": known,
                "errors": errors, "finished": finished})
        );
    } else {
        println!(
            "{} turns imported from {files} transcripts; {} were known, {skipped} transcripts had nothing new",
            stored.inserted,
            stored.duplicates + stored.forgotten
        );
        if errors > 0 {
            println!("{errors} lines or files could not be read and were left out");
        }
    }
    if !finished {
        eprintln!("hob: broken off; run it again to go on");
        return Ok(Exit::Failed);
    }
    Ok(if missing { Exit::Failed } else { Exit::Done })
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
    let mut storing = Storing { engine: engine.clone(), under_way: JoinSet::new() };
    let mut waiting: Vec<CaptureBatch> = Vec::new();
    let mut marks: Vec<ImportMark> = Vec::new();
    let mut turns = 0;
    for chunk in files.chunks(200) {
        let known: Vec<ImportMark> = chunk.iter().filter_map(|path| import_mark(path)).collect();
        let done = engine.imported(known).await?;
        let done: HashSet<_> =
            done.iter().map(|mark| (mark.path, mark.size, mark.modified)).collect();
        for path in chunk {
            bar.inc(1);
            // The mark is taken before the reading: what comes meanwhile is read the next time.
            let Some(mark) = import_mark(path) else {
                totals.errors += 1;
                continue;
            };
            if done.contains(&(mark.path, mark.size, mark.modified)) {
                totals.skipped += 1;
                continue;
            }
            let Some(batch) = read(path, totals) else { continue };
            // What an app's agent did in a folder of its own is the app's, not the owner's.
            if Path::new(&batch.place.worktree).starts_with(workspaces) {
                totals.skipped += 1;
                continue;
            }
            let mut rest = batch.turns.as_slice();
            while !rest.is_empty() {
                let (part, more) = rest.split_at(memory::chunk(rest).min(TRANSACTION));
                rest = more;
                turns += part.len();
                waiting.push(batch.with_turns(part));
                if turns >= TRANSACTION && !rest.is_empty() {
                    let batches = std::mem::take(&mut waiting);
                    totals.stored += storing.add(batches, Vec::new()).await?;
                    turns = 0;
                }
            }
            // Only with the last of its turns is a transcript marked as done.
            marks.push(mark);
            if turns >= TRANSACTION {
                let batches = std::mem::take(&mut waiting);
                totals.stored += storing.add(batches, std::mem::take(&mut marks)).await?;
                turns = 0;
            }
            bar.set_message(format!("{} turns", totals.stored.inserted));
        }
    }
    totals.stored += storing.add(waiting, marks).await?;
    totals.stored += storing.finish().await?;
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

/// Stores turns while the next ones are read and made ready; one transaction at a time, in order.
struct Storing {
    engine: Engine,
    /// One at most.
    under_way: JoinSet<Result<Stored, StoreError>>,
}

impl Storing {
    /// Takes turns in, and says what became of those before.
    async fn add(
        &mut self,
        batches: Vec<CaptureBatch>,
        marks: Vec<ImportMark>,
    ) -> anyhow::Result<Stored> {
        let prepared = self.engine.prepare(batches).await?;
        let before = self.finish().await?;
        let engine = self.engine.clone();
        self.under_way.spawn(async move {
            let stored = engine.store(&Principal::Owner, prepared, marks).await;
            // A live capture that waits for the store gets it now.
            tokio::time::sleep(Duration::from_millis(2)).await;
            stored
        });
        Ok(before)
    }

    async fn finish(&mut self) -> anyhow::Result<Stored> {
        match self.under_way.join_next().await {
            Some(stored) => Ok(stored??),
            None => Ok(Stored::default()),
        }
    }
}
