//! `hob store migrate`: the ledger from the home's file into PostgreSQL, or back.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use hob_domain::NodeStore;
use hob_store::{
    Ledger, MoveProgress, MovedTable, PostgresLedger, StoreUrl, move_to_postgres, move_to_sqlite,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::{Context, Outcome};
use crate::settings::Resolved;
use crate::{keys, memory};

/// Where apps and sessions are kept
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Copy apps, sessions and their events from the home into PostgreSQL, or back; hob must not be running
    #[command(after_help = "\
The target must be empty, or hold what an earlier run of this command left there: broken off, it goes on where it was. In \
the end both sides are read again and their digests compared. The source is not changed; a ledger that lies where the way back ends is kept as `hob.db.before`. The memory stays where it is. Set `store.url` in \
config.toml (or HOB_STORE_URL) afterwards, or remove it when you moved back.")]
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

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Outcome> {
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
    let Some(_lock) = context.alone()? else { return Ok(Outcome::WrongState) };
    let moved = memory::runtime()?.block_on(move_house(settings, &url, *to))?;
    if *json {
        let row = |table: &MovedTable| json!({"table": table.table, "rows": table.rows, "digest": table.digest});
        println!("{}", json!({"moved": moved.iter().map(row).collect::<Vec<_>>()}));
        return Ok(Outcome::Done);
    }
    for table in &moved {
        println!("{:>12}  {}  {}", table.rows, &table.digest[..16], table.table);
    }
    match to {
        Place::Postgres => println!("apps and sessions are in {url}; set `store.url` to use them"),
        Place::Sqlite => {
            println!("apps and sessions are in the home; remove `store.url` to use them")
        }
    }
    Ok(Outcome::Done)
}

async fn move_house(
    settings: &Resolved,
    url: &StoreUrl,
    to: Place,
) -> anyhow::Result<Vec<MovedTable>> {
    let key = keys::data_key(&settings.home, settings.passphrase.as_deref())?;
    let server = PostgresLedger::connect(url).await?;
    if let Some(node) = server.nodes().await?.into_iter().find(|node| node.age < settings.lease) {
        bail!("a hob is running on the database (node {}): stop it first", node.id);
    }
    let bar = Bar::new();
    let tell = |progress| bar.tell(progress);
    let path = settings.home.ledger();
    let moved = match to {
        Place::Postgres => {
            let file = Ledger::open(&path, &key)?;
            move_to_postgres(&file, &server, &tell).await?
        }
        Place::Sqlite => {
            // Beside the one that is there, which takes its place only when all has arrived.
            let moving = path.with_extension("db.moving");
            let file = Ledger::open(&moving, &key)?;
            let moved = move_to_sqlite(&server, &file, &tell).await?;
            drop(file);
            put_in_place(&moving, &path)?;
            moved
        }
    };
    bar.0.finish_and_clear();
    Ok(moved)
}

/// Puts a database in the place of another, which is kept as `.before`. Nobody has either of them open.
fn put_in_place(new: &Path, path: &Path) -> anyhow::Result<()> {
    let beside = |path: &Path, ending: &str| -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        name.into()
    };
    for ending in ["", "-wal", "-shm"] {
        let old = beside(path, ending);
        if old.exists() {
            std::fs::rename(&old, beside(&beside(path, ".before"), ending))?;
        }
    }
    for ending in ["", "-wal", "-shm"] {
        let moved = beside(new, ending);
        if moved.exists() {
            std::fs::rename(&moved, beside(path, ending))?;
        }
    }
    Ok(())
}

/// One line that says which table it is at.
struct Bar(ProgressBar, Mutex<Option<(&'static str, bool)>>);

impl Bar {
    fn new() -> Bar {
        let bar = ProgressBar::new(0);
        let style = "{msg:22} {bar:30} {human_pos}/{human_len} {per_sec} {eta}";
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
