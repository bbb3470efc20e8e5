//! The checks of `hob doctor --deep`: everything is read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hob_domain::DataKey;
use hob_files::owned;
use hob_gateway::Check;
use hob_memory::{OpeningKey, OpeningKeys, deferral};
use hob_store::{Access, PostgresLedger, StoreUrl};

use super::check;
use crate::settings::Resolved;
use crate::{keys, memory};

/// The maximum size of a deferral file that is decoded; larger ones are only read.
const MAX_DECODED_BYTES: u64 = 256 << 20;

pub fn checks(settings: &Resolved) -> Vec<Check> {
    let mut checks = match &settings.values.store_url {
        Some(url) => vec![tables(url)],
        None => databases(settings),
    };
    checks.push(deferrals(settings));
    checks.push(uploads(settings));
    checks
}

/// Verifies every page of the databases in the home.
fn databases(settings: &Resolved) -> Vec<Check> {
    let home = &settings.home;
    let access = if home.is_read_only() { Access::ReadOnly } else { Access::ReadWrite };
    let files = [home.ledger(), home.memory()];
    // The checks of the databases themselves report those that are missing.
    let files: Vec<&PathBuf> =
        files.iter().filter(|path| fs::metadata(path).is_ok_and(|file| file.len() > 0)).collect();
    if files.is_empty() {
        return Vec::new();
    }
    let key = match keys::data_key(home, settings.passphrase.as_deref()) {
        Ok(key) => key,
        Err(error) => {
            let fix = "copy the key back, or restore a backup with `hob restore FILE`";
            return vec![check::failed("deep", format!("{error:#}"), fix)];
        }
    };
    files.into_iter().map(|path| database(path, &key, access)).collect()
}

fn database(path: &Path, key: &DataKey, access: Access) -> Check {
    match hob_store::verify_database(path, key, access) {
        Ok(state) => {
            let rows: u64 = state.rows.iter().map(|(_, count)| count).sum();
            let (tables, schema) = (state.rows.len(), state.schema);
            let text = format!("all {rows} rows in {tables} tables can be read (schema {schema})");
            check::passed("deep", format!("{}: {text}", path.display()))
        }
        Err(error) => {
            let fix = "stop `hob serve`, then run `hob store salvage` or `hob restore FILE`";
            check::failed("deep", error.to_string(), fix)
        }
    }
}

/// Reads every table of a PostgreSQL database.
fn tables(url: &StoreUrl) -> Check {
    let read = || anyhow::Ok(memory::runtime()?.block_on(PostgresLedger::read_all(url))?);
    match read() {
        Ok(tables) => {
            let rows: u64 = tables.iter().map(|(_, count)| count).sum();
            check::passed(
                "deep",
                format!("{url}: all {rows} rows in {} tables can be read", tables.len()),
            )
        }
        Err(error) => {
            let fix = "look at the log of the database server, and restore its backup if a table is damaged";
            check::failed("deep", format!("{error:#}"), fix)
        }
    }
}

/// Reads every capture that waits for the server.
fn deferrals(settings: &Resolved) -> Check {
    let folder = settings.home.deferred();
    // Secrets that are sealed in these files are not opened.
    let keys = keys::new_data_key().map(|key| OpeningKeys::from(OpeningKey::of(&key)));
    let mut count = 0;
    for path in files_below(&folder) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.ends_with(".jsonl") || name.ends_with(".failed.jsonl") {
            continue;
        }
        let (Ok(keys), Ok(length)) = (&keys, fs::metadata(&path).map(|file| file.len())) else {
            continue;
        };
        let fault = match owned::read(&path) {
            // The server has stored it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => Some(error.to_string()),
            Ok(content) if length <= MAX_DECODED_BYTES => {
                deferral::decode(&content, &name, keys).err().map(|error| error.to_string())
            }
            Ok(_) => None,
        };
        if let Some(fault) = fault {
            let fix = "copy the file from a backup, or delete it; `hob import` reads the transcripts again";
            return check::failed("deep", format!("{}: {fault}", path.display()), fix);
        }
        count += 1;
    }
    check::passed("deep", format!("{}: {count} captures can be read", folder.display()))
}

/// Reads every uploaded file.
fn uploads(settings: &Resolved) -> Check {
    let folder = settings.home.files();
    let (mut count, mut bytes) = (0, 0);
    for path in files_below(&folder) {
        match owned::open(&path).and_then(|mut file| io::copy(&mut file, &mut io::sink())) {
            Ok(read) => (count, bytes) = (count + 1, bytes + read),
            // The server has deleted it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let fix = "copy the file from a backup, or delete it and upload it again";
                return check::failed("deep", format!("{}: {error}", path.display()), fix);
            }
        }
    }
    let text = format!("{}: {count} uploaded files can be read ({bytes} bytes)", folder.display());
    check::passed("deep", text)
}

/// Lists the regular files below a folder. Agents can read it but not change it.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in owned::entries(&folder) {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files.sort();
    files
}
