//! `hob store salvage`: replaces a damaged database by what can be read of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hob_domain::DataKey;
use hob_files::Trash;
use hob_store::{Access, Analyse, SalvagedTable};
use serde_json::{Value, json};

use super::confirm::OwnersAct;
use super::{Context, Exit, audit};
use crate::database_files;
use crate::home::Home;
use crate::inventory::Inventory;
use crate::keys;
use crate::printer::{self, errln, outln};

/// How long to wait for other processes that use the databases.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// How the command prints its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Text,
    Json,
}

/// A database that was replaced.
struct Salvaged {
    file: PathBuf,
    kept: Option<PathBuf>,
    tables: Vec<SalvagedTable>,
}

/// Runs the command. `analyse` computes the index entries of a turn.
pub fn run(
    context: &Context,
    act: &OwnersAct<'_>,
    output: Output,
    analyse: &Analyse,
) -> anyhow::Result<Exit> {
    let settings = &context.settings;
    let home = &settings.home;
    if let Some(url) = &settings.values.store_url {
        errln!("hob: `hob store salvage` works on SQLite files only; your data is in {url}");
        return Ok(Exit::WrongState);
    }
    if !act.is_confirmed(context)? {
        return Ok(Exit::Failed);
    }
    let Some(_lock) = context.lock_home()? else { return Ok(Exit::WrongState) };
    let _store_lock = home.lock_store_exclusively(BUSY_TIMEOUT)?;
    let key = keys::data_key(home, settings.passphrase.as_deref())?;
    let (mut salvaged, mut intact, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for path in [home.ledger(), home.memory()] {
        if fs::metadata(&path).map_or(0, |file| file.len()) == 0 {
            continue;
        }
        // Damage to one of them does not concern the other.
        match hob_store::verify_database(&path, &key, Access::ReadOnly) {
            Ok(_) => intact.push(path),
            Err(_) => match replace(home, &path, &key, analyse) {
                Ok(done) => salvaged.push(done),
                Err(error) => failed.push(error),
            },
        }
    }
    for Salvaged { file, .. } in &salvaged {
        audit::note(home, "salvage", &file.display().to_string());
    }
    match output {
        Output::Json => print_json(&salvaged, &intact),
        Output::Text => print_text(&salvaged, &intact),
    }
    for error in &failed {
        errln!("hob: nothing was salvaged: {error:#}");
    }
    Ok(if failed.is_empty() { Exit::Done } else { Exit::Failed })
}

/// Copies what can be read into a new file and puts it in place of the damaged one.
fn replace(home: &Home, path: &Path, key: &DataKey, analyse: &Analyse) -> anyhow::Result<Salvaged> {
    let new = database_files::with_suffix(path, ".salvaging");
    // An earlier attempt may have been interrupted.
    database_files::remove(&new)?;
    let is_memory = path == home.memory();
    let copied = match is_memory {
        true => hob_store::salvage_memory(path, &new, key, analyse),
        false => hob_store::salvage_ledger(path, &new, key),
    };
    let tables = match copied {
        Ok(tables) => tables,
        Err(error) => {
            database_files::remove(&new)?;
            return Err(error.into());
        }
    };
    let inventory = Inventory::new(home);
    match is_memory {
        true => inventory.reset_memory()?,
        false => inventory.reset_ledger()?,
    }
    let kept = database_files::put_in_place(&new, path, ".damaged")?;
    if is_memory {
        // Transcripts that are still there are captured again from their start.
        Trash::open(&home.trash())?.remove(&home.capture_state())?;
    }
    Ok(Salvaged { file: path.to_owned(), kept, tables })
}

fn print_text(salvaged: &[Salvaged], intact: &[PathBuf]) {
    for path in intact {
        outln!("{} is not damaged", path.display());
    }
    for one in salvaged {
        for SalvagedTable { table, taken, lost } in &one.tables {
            match lost {
                Some(0) if *taken == 0 => {}
                Some(lost) => outln!("{table}: took {taken} records, lost {lost}"),
                None => outln!("{table}: took {taken} records, lost an unknown number"),
            }
        }
        let kept = one.kept.as_deref().unwrap_or(&one.file);
        outln!(
            "{} now holds everything that could be read. The damaged file is kept as {}. Run `hob import` to read \
             transcripts again",
            one.file.display(),
            kept.display()
        );
    }
}

fn print_json(salvaged: &[Salvaged], intact: &[PathBuf]) {
    let table = |table: &SalvagedTable| json!({"table": table.table, "taken": table.taken, "lost": table.lost});
    let one = |one: &Salvaged| {
        let tables: Vec<Value> = one.tables.iter().map(table).collect();
        json!({"file": one.file, "damaged": one.kept, "tables": tables})
    };
    let salvaged: Vec<Value> = salvaged.iter().map(one).collect();
    printer::out_json(&json!({"salvaged": salvaged, "intact": intact}));
}
