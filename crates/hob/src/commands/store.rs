//! `hob store`: copies the ledger and the memory from the SQLite files of the home into
//! PostgreSQL, or back.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use hob_domain::{DataKey, NodeStore};
use hob_files::Trash;
use hob_memory::{IndexEntry, TextIndexer};
use hob_store::{
    Analyse, Analysed, Ledger, Memory, MigrateError, MigratedTable, Migration, MigrationProgress,
    PostgresLedger, PostgresMemory, ReportProgress, StoreUrl, ledger_to_postgres, ledger_to_sqlite,
    memory_to_postgres, memory_to_sqlite,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::confirm::OwnersAct;
use super::{Context, Exit, audit, salvage};
use crate::database_files::{put_in_place, remove, with_suffix};
use crate::inventory::Inventory;
use crate::printer::{self, outln};
use crate::settings::Resolved;
use crate::{keys, known_databases, memory};

/// How long to wait for other processes that use the stores, and for a database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Manage where apps, sessions and the memory are stored
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    action: StoreAction,
}

#[derive(Subcommand)]
enum StoreAction {
    /// Copy apps, sessions and the memory from SQLite into PostgreSQL, or back; stop `hob serve`
    /// first
    #[command(after_help = "\
A PostgreSQL target must be empty or hold an interrupted migration; run the command again to resume it. A SQLite \
target need not be empty: Hob renames existing files to `hob.db.before` and `memory.db.before`. At the end, Hob reads \
both stores again and compares their digests. Hob does not change the source. During the migration, hooks write their turns to \
`deferred-captures/`; the server stores them when it next starts.

After a migration to PostgreSQL, set `store.url` in config.toml (or HOB_STORE_URL) to the URL of the database. After a \
migration to SQLite, remove that setting.")]
    Migrate {
        /// Source store
        #[arg(long, value_enum)]
        from: StoreChoice,
        /// Target store
        #[arg(long, value_enum)]
        to: StoreChoice,
        /// URL of the database [default: the setting store.url]
        #[arg(long, value_name = "postgres://…")]
        url: Option<String>,
        /// Print {"moved":[{"table":…,"rows":…,"digest":…}]}
        #[arg(long)]
        json: bool,
    },
    /// Replace a damaged database with what can still be read from it, and keep the damaged file; run `hob stop` first
    #[command(after_help = "\
Prints how many records were recovered and lost. If you have a backup, use `hob restore` instead. Databases that are not \
damaged are left unchanged.")]
    Salvage {
        /// Skip the confirmation prompt
        #[arg(long)]
        yes: bool,
        /// Print {"salvaged":[{"file":…,"damaged":…,"tables":[…]}],"intact":[…]}
        #[arg(long)]
        json: bool,
    },
    /// Allow the server to start even though a database is missing or has lost recent changes; run `hob stop` first
    #[command(after_help = "\
If you have a backup, use `hob restore` instead. After `hob store accept-loss`, the next start creates an empty database in \
place of a missing one, and lost changes stay lost. Start the server afterwards, and run `hob import` to bring back the conversations \
whose transcripts still exist.")]
    AcceptLoss {
        /// Skip the confirmation prompt
        #[arg(long)]
        yes: bool,
        /// Print {"accepted":true}
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StoreChoice {
    /// The SQLite files in $HOB_HOME
    Sqlite,
    /// The database given by --url or store.url
    Postgres,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let settings = &context.settings;
    let (from, to, url, json) = match &args.action {
        StoreAction::Migrate { from, to, url, json } => (from, to, url, json),
        StoreAction::Salvage { yes, json } => {
            let question = "Replace damaged databases by what can be read of them?";
            let act = OwnersAct { command: "hob store salvage", question, yes: *yes };
            let output = if *json { salvage::Output::Json } else { salvage::Output::Text };
            return salvage::run(context, &act, output, &analyse());
        }
        StoreAction::AcceptLoss { yes, json } => {
            let question =
                "Go on without what is missing, although `hob restore FILE` could bring it back?";
            let act = OwnersAct { command: "hob store accept-loss", question, yes: *yes };
            let exit = accept_loss(context, &act)?;
            match (exit, json) {
                (Exit::Done, true) => printer::out_json(&json!({"accepted": true})),
                (Exit::Done, false) => outln!("the next start goes on with what is there"),
                _ => {}
            }
            return Ok(exit);
        }
    };
    if from == to {
        bail!("--from and --to must be different stores");
    }
    let url = match url {
        Some(url) => url.parse::<StoreUrl>().context("--url")?,
        None => settings
            .values
            .store_url
            .clone()
            .context("no database given: use --url, or set store.url")?,
    };
    if url.may_be_clear() && settings.values.store_require_tls {
        bail!(
            "--url: the database server is on another machine, and sslmode allows connections without TLS: use \
             sslmode=require, verify-ca or verify-full, or set store.require_tls to false"
        );
    }
    settings.home.prepare()?;
    let Some(_lock) = context.lock_home()? else { return Ok(Exit::WrongState) };
    if settings.home.next_key().exists() {
        bail!("a key rotation was interrupted: run `hob key rotate` first");
    }
    let _store_lock = settings.home.lock_store_exclusively(BUSY_TIMEOUT)?;
    let moved = memory::runtime()?.block_on(migrate(settings, &url, *to))?;
    // The URL may contain a password.
    let target = match to {
        StoreChoice::Postgres => "postgres",
        StoreChoice::Sqlite => "sqlite",
    };
    audit::note(&settings.home, "migrate", target);
    if *json {
        let row = |table: &MigratedTable| json!({"table": table.table, "rows": table.rows, "digest": table.digest});
        printer::out_json(&json!({"moved": moved.iter().map(row).collect::<Vec<_>>()}));
        return Ok(Exit::Done);
    }
    for table in &moved {
        outln!("{:>12}  {}  {}", table.rows, &table.digest[..16], table.table);
    }
    match to {
        StoreChoice::Postgres => outln!("copied everything to {url}; set `store.url` to use it"),
        StoreChoice::Sqlite => {
            outln!("copied everything to Hob's home folder; remove `store.url` to use it")
        }
    }
    Ok(Exit::Done)
}

/// Forgets what the home has had, so that the next start creates what is missing.
fn accept_loss(context: &Context, act: &OwnersAct<'_>) -> anyhow::Result<Exit> {
    if !act.is_confirmed(context)? {
        return Ok(Exit::Failed);
    }
    let Some(_lock) = context.lock_home()? else { return Ok(Exit::WrongState) };
    let home = &context.settings.home;
    let _store_lock = home.lock_store_exclusively(BUSY_TIMEOUT)?;
    Inventory::new(home).reset()?;
    known_databases::forget(home)?;
    // Transcripts that are still there are captured again from their start.
    Trash::open(&home.trash())?.remove(&home.capture_state())?;
    audit::note(home, "accept_loss", "");
    Ok(Exit::Done)
}

async fn migrate(
    settings: &Resolved,
    url: &StoreUrl,
    to: StoreChoice,
) -> anyhow::Result<Vec<MigratedTable>> {
    let key = keys::data_key(&settings.home, settings.passphrase.as_deref())?;
    let bar = MigrationBar::new();
    let tell = |progress| bar.show(progress);
    let moved = match to {
        StoreChoice::Postgres => migrate_to_postgres(settings, url, &key, &tell).await?,
        StoreChoice::Sqlite => migrate_to_sqlite(settings, url, &key, &tell).await?,
    };
    bar.bar.finish_and_clear();
    Ok(moved)
}

async fn migrate_to_postgres(
    settings: &Resolved,
    url: &StoreUrl,
    key: &DataKey,
    tell: ReportProgress<'_>,
) -> anyhow::Result<Vec<MigratedTable>> {
    let home = &settings.home;
    // The files come first: with a wrong key nothing may be created.
    let ledger = Ledger::open(&home.ledger(), key)?;
    let memory = match home.memory().exists() {
        true => Some(Memory::open(&home.memory(), key, BUSY_TIMEOUT)?),
        false => None,
    };
    let server = server(settings, key, url).await?;
    let mut moves = vec![ledger_to_postgres(&ledger, &server)];
    let _alone;
    if let Some(memory) = memory {
        let encrypts = settings.values.store_encrypt.into();
        let target =
            PostgresMemory::connect_partially_migrated(url, key, encrypts, BUSY_TIMEOUT).await?;
        moves.push(memory_to_postgres(&memory, &target, analyse()));
        _alone = target.lock_exclusively(BUSY_TIMEOUT).await?;
    }
    // All migrations are checked before the first one starts.
    for one in &moves {
        one.check().await?;
    }
    // From now on no server opens the partially migrated target.
    for one in &moves {
        one.begin().await?;
    }
    let mut moved = Vec::new();
    for one in &moves {
        moved.extend(one.run(tell).await?);
    }
    Ok(moved)
}

async fn migrate_to_sqlite(
    settings: &Resolved,
    url: &StoreUrl,
    key: &DataKey,
    tell: ReportProgress<'_>,
) -> anyhow::Result<Vec<MigratedTable>> {
    let server = server(settings, key, url).await?;
    let memory =
        PostgresMemory::connect(url, key, settings.values.store_encrypt.into(), BUSY_TIMEOUT)
            .await?;
    let _alone = memory.lock_exclusively(BUSY_TIMEOUT).await?;
    // New files next to the existing ones, which they replace only once everything is copied.
    let (to, remembered) = (settings.home.ledger(), settings.home.memory());
    let (moving, moving_memory) =
        (with_suffix(&to, ".moving"), with_suffix(&remembered, ".moving"));
    let analyse = analyse();
    let of_memory = |path: &Path| -> anyhow::Result<Migration<'static>> {
        let file = Memory::open(path, key, BUSY_TIMEOUT)?;
        Ok(memory_to_sqlite(&memory, &file, analyse.clone()))
    };
    // The memory is checked before the ledger is copied.
    let was_there = moving_memory.exists();
    let checked = of_memory(&moving_memory)?.check().await;
    if let Err(error @ MigrateError::Store(_)) = checked {
        if !was_there {
            remove(&moving_memory)?;
        }
        return Err(error.into());
    }
    let of_ledger = |path: &Path| Ok(ledger_to_sqlite(&server, &Ledger::open(path, key)?));
    let mut moved = into_file(&moving, of_ledger, tell).await?;
    moved.extend(into_file(&moving_memory, of_memory, tell).await?);
    // Opening an existing file merges a write-ahead log that a killed process left.
    drop(to.exists().then(|| Ledger::open(&to, key)));
    drop(remembered.exists().then(|| Memory::open(&remembered, key, BUSY_TIMEOUT)));
    for (new, path) in [(moving, to), (moving_memory, remembered)] {
        put_in_place(&new, &path, ".before")?;
    }
    // How many turns the replaced memory had stored says nothing about the copied one.
    Inventory::new(&settings.home).reset()?;
    Ok(moved)
}

async fn server(
    settings: &Resolved,
    key: &DataKey,
    url: &StoreUrl,
) -> anyhow::Result<PostgresLedger> {
    let encryption = settings.values.store_encrypt.into();
    let server = PostgresLedger::connect(url, key, encryption).await?;
    if let Some(node) =
        server.nodes().await?.into_iter().find(|node| node.age < settings.values.cluster_lease)
    {
        bail!("a server (node {}) is using the database: stop it first", node.id);
    }
    Ok(server)
}

/// Returns the analysis that a capture makes: the terms and the vector of a turn.
fn analyse() -> Analyse {
    let indexer = TextIndexer::default();
    Arc::new(move |text, cue| {
        let IndexEntry { terms, vector } = indexer.entry(text, cue);
        Analysed { terms, vector }
    })
}

/// Migrates into a new or partially migrated file. If the source has changed since, starts over.
async fn into_file(
    path: &Path,
    open: impl Fn(&Path) -> anyhow::Result<Migration<'static>>,
    tell: ReportProgress<'_>,
) -> anyhow::Result<Vec<MigratedTable>> {
    let was_there = path.exists();
    let moved = open(path)?.run(tell).await;
    match moved {
        Err(MigrateError::Occupied { .. } | MigrateError::Differs { .. }) if was_there => {
            remove(path)?;
            Ok(open(path)?.run(tell).await?)
        }
        moved => Ok(moved?),
    }
}

/// A progress bar that names the current table.
struct MigrationBar {
    bar: ProgressBar,
    /// The table and phase that the bar shows.
    shown: Mutex<Option<(&'static str, bool)>>,
}

impl MigrationBar {
    fn new() -> MigrationBar {
        let bar = ProgressBar::new(0);
        let style = "{msg:36} {bar:30} {human_pos}/{human_len} {per_sec} {eta}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        MigrationBar { bar, shown: Mutex::default() }
    }

    fn show(&self, progress: MigrationProgress) {
        let current = Some((progress.table, progress.comparing));
        let mut shown = self.shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *shown != current {
            *shown = current;
            let phase = if progress.comparing { "comparing" } else { "copying" };
            self.bar.set_message(format!("{phase} {}", progress.table));
            self.bar.reset_eta();
        }
        self.bar.set_length(progress.all);
        self.bar.set_position(progress.done);
    }
}
