//! `hob store migrate`: ledger and memory from the home's files into PostgreSQL, or back.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use hob_domain::{DataKey, NodeStore};
use hob_memory::{Analyser, TableEmbedder, index_turn};
use hob_store::{
    Analyse, Analysed, Ledger, Memory, Move, MoveError, MoveProgress, MovedTable, PostgresLedger,
    PostgresMemory, StoreUrl, Tell, ledger_to_postgres, ledger_to_sqlite, memory_to_postgres,
    memory_to_sqlite,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::{Context, Exit};
use crate::settings::Resolved;
use crate::{keys, memory};

/// How long hooks and other commands may keep what is moved; and how long a database is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where apps, sessions and the memory are kept
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Copy apps, sessions and the memory from the home into PostgreSQL, or back; hob must not be running
    #[command(after_help = "\
The target must be empty, or hold what an earlier run of this command left there: broken off, it goes on where it was. In \
the end both sides are read again and their digests compared. The source is not changed. On the way back files that lie \
where it ends are kept as `hob.db.before` and `memory.db.before`. Hooks leave their turns in `deferred-captures/` \
meanwhile. Set `store.url` in config.toml (or HOB_STORE_URL) afterwards, or remove it when you moved back.")]
    Migrate {
        /// Where they are now
        #[arg(long, value_enum)]
        from: Place,
        /// Where they are to be
        #[arg(long, value_enum)]
        to: Place,
        /// The database, where `store.url` does not name it yet [default: store.url]
        #[arg(long, value_name = "postgres://…")]
        url: Option<String>,
        /// Print {"moved":[{"table":…,"rows":…,"digest":…}]}
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Place {
    Sqlite,
    Postgres,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let Action::Migrate { from, to, url, json } = &args.action;
    let settings = &context.settings;
    if from == to {
        bail!("--from and --to name the same place");
    }
    let url = match url {
        Some(url) => url.parse::<StoreUrl>().context("--url")?,
        None => settings.store.clone().context("name the database with --url, or set store.url")?,
    };
    settings.home.prepare()?;
    let Some(_lock) = context.lock_home()? else { return Ok(Exit::WrongState) };
    if settings.home.next_key().exists() {
        bail!("a change of the key was broken off: run `hob key rotate` first");
    }
    let _alone = settings.home.own_store(PATIENCE)?;
    let moved = memory::runtime()?.block_on(move_house(settings, &url, *to))?;
    if *json {
        let row = |table: &MovedTable| json!({"table": table.table, "rows": table.rows, "digest": table.digest});
        println!("{}", json!({"moved": moved.iter().map(row).collect::<Vec<_>>()}));
        return Ok(Exit::Done);
    }
    for table in &moved {
        println!("{:>12}  {}  {}", table.rows, &table.digest[..16], table.table);
    }
    let what = "apps, sessions and the memory are in";
    match to {
        Place::Postgres => println!("{what} {url}; set `store.url` to use them"),
        Place::Sqlite => println!("{what} the home; remove `store.url` to use them"),
    }
    Ok(Exit::Done)
}

async fn move_house(
    settings: &Resolved,
    url: &StoreUrl,
    to: Place,
) -> anyhow::Result<Vec<MovedTable>> {
    let key = keys::data_key(&settings.home, settings.passphrase.as_deref())?;
    let bar = Bar::new();
    let tell = |progress| bar.tell(progress);
    let moved = match to {
        Place::Postgres => move_there(settings, url, &key, &tell).await?,
        Place::Sqlite => move_back(settings, url, &key, &tell).await?,
    };
    bar.0.finish_and_clear();
    Ok(moved)
}

async fn move_there(
    settings: &Resolved,
    url: &StoreUrl,
    key: &DataKey,
    tell: Tell<'_>,
) -> anyhow::Result<Vec<MovedTable>> {
    let home = &settings.home;
    // The files first: with a wrong key nothing may be made.
    let ledger = Ledger::open(&home.ledger(), key)?;
    let memory = match home.memory().exists() {
        true => Some(Memory::open(&home.memory(), key, PATIENCE)?),
        false => None,
    };
    let server = server(settings, url).await?;
    let mut moves = vec![ledger_to_postgres(&ledger, &server)];
    let _alone;
    if let Some(memory) = memory {
        let encrypts = settings.store_encrypt.into();
        let target =
            PostgresMemory::connect_partially_migrated(url, key, encrypts, PATIENCE).await?;
        moves.push(memory_to_postgres(&memory, &target, analyse()));
        _alone = target.lock_exclusively(PATIENCE).await?;
    }
    // Nothing is moved unless all of it can be.
    for one in &moves {
        one.check().await?;
    }
    // From now on nobody opens the half of it, of the ledger either.
    for one in &moves {
        one.begin().await?;
    }
    let mut moved = Vec::new();
    for one in &moves {
        moved.extend(one.run(tell).await?);
    }
    Ok(moved)
}

async fn move_back(
    settings: &Resolved,
    url: &StoreUrl,
    key: &DataKey,
    tell: Tell<'_>,
) -> anyhow::Result<Vec<MovedTable>> {
    let server = server(settings, url).await?;
    let memory = PostgresMemory::connect(url, key, settings.store_encrypt.into(), PATIENCE).await?;
    let _alone = memory.lock_exclusively(PATIENCE).await?;
    // Beside those that are there, which give their places only when all has arrived.
    let (to, remembered) = (settings.home.ledger(), settings.home.memory());
    let (moving, moving_memory) =
        (with_ending(&to, ".moving"), with_ending(&remembered, ".moving"));
    let analyse = analyse();
    let of_memory = |path: &Path| -> anyhow::Result<Move<'static>> {
        let file = Memory::open(path, key, PATIENCE)?;
        Ok(memory_to_sqlite(&memory, &file, analyse.clone()))
    };
    // Whether the memory can be moved is known before the ledger is.
    let was_there = moving_memory.exists();
    let checked = of_memory(&moving_memory)?.check().await;
    if let Err(error @ (MoveError::Unnamed { .. } | MoveError::Store(_))) = checked {
        if !was_there {
            remove(&moving_memory)?;
        }
        return Err(error.into());
    }
    let of_ledger = |path: &Path| Ok(ledger_to_sqlite(&server, &Ledger::open(path, key)?));
    let mut moved = into_file(&moving, of_ledger, tell).await?;
    moved.extend(into_file(&moving_memory, of_memory, tell).await?);
    // A log that somebody left behind goes into the file that it belongs to.
    drop(to.exists().then(|| Ledger::open(&to, key)));
    drop(remembered.exists().then(|| Memory::open(&remembered, key, PATIENCE)));
    for (new, path) in [(moving, to), (moving_memory, remembered)] {
        put_in_place(&new, &path)?;
    }
    Ok(moved)
}

async fn server(settings: &Resolved, url: &StoreUrl) -> anyhow::Result<PostgresLedger> {
    let server = PostgresLedger::connect(url).await?;
    if let Some(node) = server.nodes().await?.into_iter().find(|node| node.age < settings.lease) {
        bail!("a hob is running on the database (node {}): stop it first", node.id);
    }
    Ok(server)
}

/// What turns are found by, as it is made when they are captured.
fn analyse() -> Analyse {
    let (analyser, embedder) = (Analyser::default(), TableEmbedder::new());
    Arc::new(move |text, cue| {
        let (terms, vector) = index_turn(&analyser, &embedder, text, cue);
        Analysed { terms, vector }
    })
}

/// Moves into a file in which there is nothing but what an earlier run has left; where that came from what the source
/// is no more, it is begun anew.
async fn into_file(
    path: &Path,
    open: impl Fn(&Path) -> anyhow::Result<Move<'static>>,
    tell: Tell<'_>,
) -> anyhow::Result<Vec<MovedTable>> {
    let was_there = path.exists();
    let moved = open(path)?.run(tell).await;
    match moved {
        Err(MoveError::Occupied { .. } | MoveError::Differs { .. }) if was_there => {
            remove(path)?;
            Ok(open(path)?.run(tell).await?)
        }
        moved => Ok(moved?),
    }
}

/// What a database consists of.
const ENDINGS: [&str; 3] = ["", "-wal", "-shm"];

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn remove(path: &Path) -> anyhow::Result<()> {
    for part in ENDINGS.map(|ending| with_ending(path, ending)) {
        if part.exists() {
            std::fs::remove_file(&part)
                .with_context(|| format!("{} cannot be removed", part.display()))?;
        }
    }
    Ok(())
}

/// Puts a database in the place of another, which is kept as `.before`, or under a number behind it where there is one.
/// Nobody has either of them open.
fn put_in_place(new: &Path, path: &Path) -> anyhow::Result<()> {
    let is_there = |path: &Path| ENDINGS.iter().any(|ending| with_ending(path, ending).exists());
    if is_there(path) {
        let names = std::iter::once(".before".to_owned())
            .chain((2..).map(|number: u32| format!(".before-{number}")));
        let mut places = names.map(|name| with_ending(path, &name));
        let place = places.find(|place| !is_there(place)).context("there is no name left")?;
        rename(path, &place)?;
    }
    rename(new, path)
}

fn rename(from: &Path, to: &Path) -> anyhow::Result<()> {
    // The log goes first: without it a database is an older one, and with another's it is none.
    for ending in ["-wal", "-shm", ""] {
        let part = with_ending(from, ending);
        if part.exists() {
            std::fs::rename(&part, with_ending(to, ending))
                .with_context(|| format!("{} cannot be renamed", part.display()))?;
        }
    }
    if let Some(folder) = to.parent() {
        std::fs::File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// One line that says which table it is at.
struct Bar(ProgressBar, Mutex<Option<(&'static str, bool)>>);

impl Bar {
    fn new() -> Bar {
        let bar = ProgressBar::new(0);
        let style = "{msg:36} {bar:30} {human_pos}/{human_len} {per_sec} {eta}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        Bar(bar, Mutex::default())
    }

    fn tell(&self, progress: MoveProgress) {
        let at = Some((progress.table, progress.comparing));
        let mut told = self.1.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *told != at {
            *told = at;
            let what = if progress.comparing { "comparing" } else { "moving" };
            self.0.set_message(format!("{what} {}", progress.table));
            self.0.reset_eta();
        }
        self.0.set_length(progress.all);
        self.0.set_position(progress.done);
    }
}
