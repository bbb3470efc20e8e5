//! `hob import`: imports past transcripts into the memory. A second run adds nothing; after an
//! interruption, the next run continues.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args as ClapArgs;
use hob_domain::StoreError;
use hob_domain::memory::{ImportMark, Principal, Stored};
use hob_memory::{
    CaptureBatch, Engine, find_transcripts, import_mark, is_of_an_app, record_folders,
};
use hob_transcript::{AgentClient, RecordFile, RecordedClient};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::import_records::{ClientFolders, Unread, batch, read_records, shows_changes};
use super::{Context, Exit};
use crate::memory;
use crate::printer::{self, errln, outln};
use crate::settings::FollowedRecords;
use crate::view::counted;

/// About how many turns one transaction stores. A live capture may have to wait for one
/// transaction.
const TRANSACTION_TURNS: usize = 400;
/// How many transcripts one query to the store asks about.
const MARKS_PER_QUERY: usize = 200;
/// How long to wait for another process that writes into the memory.
const STORE_BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// The clients whose records Hob reads, for people.
const CLIENTS: &str = "Claude Code, Codex, Gemini CLI, OpenCode, Copilot CLI, Cursor, Cline, \
    Roo Code, Qwen Code, goose, Zed, aider, SpecStory and Entire";

/// Import past conversations of coding agents, and their memory files, into the memory
#[derive(ClapArgs)]
#[command(after_help = "\
Without a path, imports the records of Claude Code ($CLAUDE_CONFIG_DIR or ~/.claude), Codex ($CODEX_HOME or ~/.codex), \
Gemini CLI (~/.gemini/tmp), OpenCode (~/.local/share/opencode), Copilot CLI (~/.copilot), Cursor (the editor's database, and \
~/.cursor/chats), Cline, Roo Code, Qwen Code (~/.qwen), goose (~/.local/share/goose) and Zed (~/.local/share/zed). The tools aider, SpecStory and Entire \
keep their records inside your repositories, and some sub-agents of Claude Code keep their memory files there, too. To import these, pass the path of a repository, or of a folder that \
contains repositories. Hob never stores a turn twice, so you can run \
this at any time and as often as you like.")]
pub struct Args {
    /// Transcript files, or folders with transcripts
    paths: Vec<PathBuf>,
    /// Print {"files":…,"skipped":…,"inserted":…,"duplicates":…,"errors":…,"unknown":[…],"places":[…]}
    #[arg(long)]
    json: bool,
}

/// What came of the files of an import.
#[derive(Default)]
pub struct Totals {
    files: usize,
    skipped: usize,
    pub stored: Stored,
    errors: usize,
    /// Files that are not transcripts of a known client.
    pub unknown: Vec<PathBuf>,
    /// Other files that could not be read, and why.
    pub failed: Vec<(PathBuf, String)>,
}

/// A file or folder to import, and what came of it.
struct Place {
    path: PathBuf,
    /// The name of the client that records there. A path that the user names may be anyone's.
    client: Option<RecordedClient>,
    files: Vec<PathBuf>,
    totals: Totals,
}

impl Place {
    /// Returns whether the user has named this file.
    fn is_named(&self, path: &Path) -> bool {
        self.client.is_none() && self.path == path
    }

    /// Returns whether it has files and none of them could be read.
    fn is_unreadable(&self) -> bool {
        !self.files.is_empty() && self.totals.files + self.totals.skipped == 0
    }

    fn line(&self) -> String {
        let Totals { files, skipped, stored, unknown, failed, .. } = &self.totals;
        let known = stored.duplicates + stored.forgotten;
        let unread = unknown.len() + failed.len();
        let client = self.client.map(|client| format!("{}, ", client.name())).unwrap_or_default();
        format!(
            "{client}{}: {} found, {files} read, {skipped} with nothing new, {unread} not read; {} \
             imported, {known} already stored",
            self.path.display(),
            counted(self.files.len(), "file"),
            counted(stored.inserted, "turn"),
        )
    }

    fn json(&self) -> Value {
        let Totals { files, skipped, stored, unknown, failed, .. } = &self.totals;
        let unread = unknown.iter().map(|path| (path, Unread::Unknown.reason()));
        let unread = unread.chain(failed.iter().map(|(path, reason)| (path, reason.clone())));
        let unread: Vec<Value> =
            unread.map(|(path, reason)| json!({"path": path, "reason": reason})).collect();
        let client = self.client.map(RecordedClient::name);
        json!({"client": client, "path": self.path, "found": self.files.len(), "files": files,
            "skipped": skipped, "inserted": stored.inserted,
            "duplicates": stored.duplicates + stored.forgotten, "unread": unread})
    }
}

/// Returns how new conversations of programs without hooks are remembered, if the server does not follow their records yet.
fn hint_to_follow(places: &[Place], followed: &FollowedRecords) -> Option<String> {
    let has_hooks =
        |client| AgentClient::ALL.into_iter().any(|c| RecordedClient::from(c) == client);
    let mut clients: Vec<RecordedClient> = Vec::new();
    for place in places.iter().filter(|place| !place.files.is_empty()) {
        clients.extend(place.client.filter(|c| !has_hooks(*c) && !followed.clients.contains(c)));
    }
    clients.sort();
    clients.dedup();
    if clients.is_empty() {
        return None;
    }
    let names: Vec<&str> = clients.iter().map(|client| client.name()).collect();
    let all = followed.clients.iter().chain(&clients).map(|client| client.as_str().to_owned());
    let all = all.chain(followed.folders.iter().map(|folder| folder.display().to_string()));
    Some(format!(
        "Hob has no hooks in {}. To import their new conversations as well, run `hob config set memory.follow {}` and restart \
         the server",
        names.join(", "),
        all.collect::<Vec<_>>().join(",")
    ))
}

/// Imports the past sessions of every client on this machine. Returns what was imported.
pub fn import_past(context: &Context) -> anyhow::Result<String> {
    let args = Args { paths: Vec::new(), json: false };
    let outcome = import(context, &args)?;
    anyhow::ensure!(outcome.finished, "interrupted; run `hob import` to continue");
    let hint = hint_to_follow(&outcome.places, &context.settings.values.memory_follow);
    let hint = hint.map(|hint| format!(". {hint}")).unwrap_or_default();
    Ok(outcome.summary() + &hint)
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let outcome = import(context, args)?;
    for path in outcome.places.iter().flat_map(|place| &place.totals.unknown) {
        errln!(
            "hob: {} has an unknown format or no turns; Hob reads records of {CLIENTS}",
            path.display()
        );
    }
    for (path, reason) in outcome.places.iter().flat_map(|place| &place.totals.failed) {
        errln!("hob: cannot read {}: {reason}", path.display());
    }
    let totals = outcome.totals();
    let Totals { files, skipped, stored, errors, unknown, .. } = &totals;
    if args.json {
        let known = stored.duplicates + stored.forgotten;
        printer::out_json(
            &json!({"files": files, "skipped": skipped, "inserted": stored.inserted, "duplicates": known,
                "errors": errors, "unknown": unknown, "finished": outcome.finished,
                "places": outcome.places.iter().map(Place::json).collect::<Vec<_>>()}),
        );
    } else {
        for place in &outcome.places {
            outln!("{}", place.line());
        }
        outln!("{}", outcome.summary());
        if *errors > 0 {
            outln!("skipped {errors} lines or files that could not be read");
        }
        if let Some(hint) = hint_to_follow(&outcome.places, &context.settings.values.memory_follow)
        {
            outln!("{hint}");
        }
    }
    if !outcome.finished {
        errln!("hob: interrupted; run the command again to continue");
        return Ok(Exit::Failed);
    }
    // A client has files of its own in its place. If Hob can read none of them, it does not know the client's new format.
    let unreadable: Vec<&Place> =
        outcome.places.iter().filter(|place| place.is_unreadable()).collect();
    for (place, client) in unreadable.iter().filter_map(|place| Some((place, place.client?))) {
        let (client, path) = (client.name(), place.path.display());
        errln!("hob: nothing of {client} was imported: Hob could read none of its files in {path}");
    }
    // A folder may contain other files as well, but a named file, or all of a folder, must be known.
    let is_named = |place: &Place| {
        let failed = place.totals.failed.iter().map(|(path, _)| path);
        place.totals.unknown.iter().chain(failed).any(|path| place.is_named(path))
    };
    let is_unknown = outcome.places.iter().any(is_named)
        || unreadable.iter().any(|place| place.client.is_some())
        || (!args.paths.is_empty() && !unknown.is_empty() && *files + *skipped == 0);
    Ok(if outcome.missing > 0 || is_unknown { Exit::Failed } else { Exit::Done })
}

/// How an import ended.
struct Outcome {
    places: Vec<Place>,
    /// How many paths that the user named do not exist or contain no transcripts.
    missing: usize,
    /// Whether it was not interrupted.
    finished: bool,
}

impl Outcome {
    /// Returns the sum over all places.
    fn totals(&self) -> Totals {
        let mut sum = Totals { errors: self.missing, ..Totals::default() };
        for Place { totals, .. } in &self.places {
            sum.files += totals.files;
            sum.skipped += totals.skipped;
            sum.stored += totals.stored;
            sum.errors += totals.errors;
            sum.unknown.extend(totals.unknown.iter().cloned());
        }
        sum
    }

    fn summary(&self) -> String {
        let Totals { files, skipped, stored, .. } = &self.totals();
        let known = stored.duplicates + stored.forgotten;
        let (turns, files) = (counted(stored.inserted, "turn"), counted(*files, "transcript"));
        let (known, skipped) = (counted(known, "turn"), counted(*skipped, "transcript"));
        format!("imported {turns} from {files}; already stored: {known}; nothing new in {skipped}")
    }
}

fn import(context: &Context, args: &Args) -> anyhow::Result<Outcome> {
    let settings = &context.settings;
    settings.home.prepare()?;
    let named = args.paths.iter().map(|path| (None, path.clone()));
    let places = if args.paths.is_empty() { default_places() } else { named.collect() };
    let mut missing = 0;
    let mut found: Vec<Place> = Vec::new();
    for (client, path) in places {
        let files = if path.exists() { find_transcripts(&path) } else { Vec::new() };
        if files.is_empty() && client.is_none() {
            missing += 1;
            match path.exists() {
                true => errln!("hob: {} contains no transcripts of {CLIENTS}", path.display()),
                false => errln!("hob: {} does not exist", path.display()),
            }
            continue;
        }
        found.push(Place { path, client, files, totals: Totals::default() });
    }
    let runtime = memory::runtime()?;
    let tools = runtime.block_on(memory::open(settings, STORE_BUSY_TIMEOUT))?;
    let bar = progress(found.iter().map(|place| place.files.len() as u64).sum());
    let workspaces = settings.home.workspaces();
    let outcome = runtime.block_on(async {
        let import = async {
            for place in &mut found {
                import_place(&tools.engine, &workspaces, place, &bar).await?;
            }
            anyhow::Ok(())
        };
        tokio::select! {
            done = import => done.map(|()| true),
            _ = tokio::signal::ctrl_c() => Ok(false),
        }
    });
    bar.finish_and_clear();
    Ok(Outcome { places: found, missing, finished: outcome? })
}

/// Returns the existing folders in which this user's clients record, each with the client's name.
fn default_places() -> Vec<(Option<RecordedClient>, PathBuf)> {
    let folder = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let Some(home) = folder("HOME") else { return Vec::new() };
    let folders = record_folders(&home, folder).into_iter();
    folders.map(|(client, path)| (Some(client), path)).collect()
}

/// Returns the existing folders in which these clients record.
pub fn places_of(clients: &[RecordedClient]) -> Vec<PathBuf> {
    let places = default_places().into_iter();
    let of_clients = places.filter(|(client, _)| client.is_some_and(|c| clients.contains(&c)));
    of_clients.map(|(_, path)| path).collect()
}

/// Imports files that were found in folders of records. Reads files, so it blocks the thread.
pub async fn import_files(
    engine: &Engine,
    workspaces: &Path,
    files: Vec<PathBuf>,
) -> anyhow::Result<Totals> {
    let mut place = Place { path: PathBuf::new(), client: None, files, totals: Totals::default() };
    import_place(engine, workspaces, &mut place, &ProgressBar::hidden()).await?;
    Ok(place.totals)
}

fn progress(files: u64) -> ProgressBar {
    let style = "{bar:30} {pos}/{len} transcripts  {msg}  {elapsed}, {eta} left";
    let bar = ProgressBar::new(files);
    bar.set_style(ProgressStyle::with_template(style).unwrap_or(ProgressStyle::default_bar()));
    bar
}

async fn import_place(
    engine: &Engine,
    workspaces: &Path,
    place: &mut Place,
    bar: &ProgressBar,
) -> anyhow::Result<()> {
    let mut transactions = Transactions::new(engine);
    let files = place.files.clone();
    let folders = ClientFolders::new(default_places().into_iter().map(|(_, path)| path));
    let workspaces = paths_of(workspaces);
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
                let reason = "the file is gone".to_owned();
                place.totals.failed.push((path.clone(), reason));
                place.totals.errors += 1;
                continue;
            };
            let is_known = imported.contains(&(mark.path, mark.size, mark.modified));
            if is_known && shows_changes(path) {
                place.totals.skipped += 1;
                continue;
            }
            let Some(batches) = read(path, place, &folders) else { continue };
            let count = batches.len();
            let owned: Vec<CaptureBatch> =
                batches.into_iter().filter(|batch| !is_of_an_app(batch, &workspaces)).collect();
            if owned.is_empty() && count > 0 {
                place.totals.skipped += 1;
                continue;
            }
            place.totals.files += 1;
            if let RecordFile::MemoryFile(_) = RecordFile::of_named(path) {
                for note in owned {
                    let stored = engine.store_memory_file(&Principal::Owner, note, mark.clone());
                    place.totals.stored += stored.await?;
                }
                continue;
            }
            place.totals.stored += transactions.add(&owned, mark).await?;
            bar.set_message(format!("{} turns", place.totals.stored.inserted));
        }
    }
    place.totals.stored += transactions.finish().await?;
    Ok(())
}

/// Returns a folder as it was named, and its real path.
fn paths_of(folder: &Path) -> Vec<PathBuf> {
    [folder.to_owned()].into_iter().chain(folder.canonicalize()).collect()
}

fn read(path: &Path, place: &mut Place, folders: &ClientFolders) -> Option<Vec<CaptureBatch>> {
    let is_named = place.is_named(path);
    let totals = &mut place.totals;
    let updates = match read_records(path) {
        Ok(updates) => updates,
        Err(Unread::Unknown) => {
            totals.unknown.push(path.to_owned());
            totals.errors += 1;
            return None;
        }
        Err(Unread::Failed(reason)) => {
            totals.failed.push((path.to_owned(), reason));
            totals.errors += 1;
            return None;
        }
    };
    // A transcript among others may have no turns yet. A file that the user names must have some.
    let is_known = !is_named && updates.iter().all(|update| update.client.is_some());
    let is_empty = updates.iter().all(|update| update.turns.is_empty());
    if !is_known && is_empty && std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0) {
        totals.unknown.push(path.to_owned());
        totals.errors += 1;
        return None;
    }
    totals.errors += updates.iter().map(|update| update.unreadable).sum::<usize>();
    let source = folders.source_of(path);
    Some(updates.into_iter().map(|update| batch(path, update, source.clone())).collect())
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
    async fn add(&mut self, batches: &[CaptureBatch], mark: ImportMark) -> anyhow::Result<Stored> {
        let mut stored = Stored::default();
        for batch in batches {
            let mut rest = batch.turns.as_slice();
            while !rest.is_empty() {
                if self.turns >= TRANSACTION_TURNS {
                    stored += self.start(Vec::new()).await?;
                }
                let (part, more) = rest.split_at(memory::chunk(rest).min(TRANSACTION_TURNS));
                rest = more;
                self.turns += part.len();
                self.batches.push(batch.with_turns(part));
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
