//! `hob backup`: saves the home into one file.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args as ClapArgs;
use hob_domain::{DataKey, Timestamp};
use hob_files::owned;
use hob_store::Access;
use serde_json::json;

use super::archive::{
    KEY, LEDGER, MEMORY, Manifest, PLAIN, Rows, SEALED, VERSION, digest, verify_archive,
    write_archive, write_sealed,
};
use super::home_mark::partial_prefix;
use crate::commands::confirm::refuse_agents;
use crate::commands::{Context, Exit, audit};
use crate::home::Home;
use crate::inventory::Inventory;
use crate::keys;
use crate::printer::{self, errln, outln};
use crate::settings::Resolved;

/// Save the databases, the key, the settings and uploaded files to one file; works while the server is running
#[derive(ClapArgs)]
#[command(after_help = "\
The file is encrypted with the home's key; only the time of the backup and the numbers of rows can be read without it. By default the file contains the key as well, so anyone who has the file can \
read all of it, unless a passphrase (HOB_PASSPHRASE) protects the key or --without-key leaves it out. Hob reads the file back \
before it reports success. Workspaces of sessions are not saved.")]
pub struct BackupArgs {
    /// The file to create
    file: PathBuf,
    /// Leave out the key; before you can restore such a backup, you must put your own copy of the file `key` into the home folder
    #[arg(long)]
    without_key: bool,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// Print {"file":…,"bytes":…,"rows":{…}}
    #[arg(long)]
    json: bool,
}

/// Whether a backup contains the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyInBackup {
    Included,
    LeftOut,
}

/// What happens to an existing file of the backup's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    Keep,
    Replace,
}

/// A backup that was written.
pub struct Saved {
    pub bytes: u64,
    /// The number of rows in each table of each database.
    rows: Rows,
}

pub fn backup(context: &Context, args: &BackupArgs) -> anyhow::Result<Exit> {
    refuse_agents(context, "hob backup")?;
    let settings = &context.settings;
    if let Some(url) = &settings.values.store_url {
        errln!(
            "hob: the data is in {url}: save it with pg_dump (docs/postgresql.md), and keep a copy of $HOB_HOME/key"
        );
        return Ok(Exit::WrongState);
    }
    if args.file.exists() && !args.force {
        bail!("{} exists; choose another name, or add --force", args.file.display());
    }
    let key = if args.without_key { KeyInBackup::LeftOut } else { KeyInBackup::Included };
    let existing = if args.force { Existing::Replace } else { Existing::Keep };
    let Saved { bytes, rows } = create(settings, &args.file, key, existing)?;
    audit::record(settings, "backup", &args.file.display().to_string());
    if args.json {
        printer::out_json(&json!({"file": args.file, "bytes": bytes, "rows": rows}));
    } else {
        let turns = rows.get(MEMORY).and_then(|rows| rows.get("turns")).unwrap_or(&0);
        outln!(
            "saved {turns} turns of the memory and all apps and sessions to {} ({bytes} bytes)",
            args.file.display()
        );
    }
    Ok(Exit::Done)
}

/// Saves the home into one file, and reads that file back. Blocks.
pub fn create(
    settings: &Resolved,
    file: &Path,
    key_in_backup: KeyInBackup,
    existing: Existing,
) -> anyhow::Result<Saved> {
    let home = &settings.home;
    if !home.has_data() {
        bail!("there is nothing to save: {} has no databases", home.root().display());
    }
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let real = parent.canonicalize().ok();
    if real.is_some() && real == home.root().canonicalize().ok() {
        let root = home.root().display();
        bail!("{root} contains Hob's own files; choose another folder for the backup");
    }
    if home.next_key().exists() {
        bail!("a key rotation was interrupted: run `hob key rotate` first");
    }
    home.prepare()?;
    let _shared = home.share_store()?;
    let key = keys::data_key(home, settings.passphrase.as_deref())?;
    let inventory = Inventory::new(home);
    inventory.check_ledger(&key)?;
    inventory.check_memory(&key)?;
    let folder = tempfile::Builder::new().prefix("backup-").tempdir_in(home.root())?;
    let (names, manifest) = collect(home, &key, folder.path(), key_in_backup)?;
    let write = || -> anyhow::Result<()> {
        // A new file with a random name, which nobody else can have prepared.
        let partial = tempfile::Builder::new().prefix(&partial_prefix(home)).tempfile_in(parent)?;
        write_archive(partial.as_file(), folder.path(), &names, &manifest)?;
        verify_archive(partial.path(), &manifest)?;
        match existing {
            Existing::Replace => partial.persist(file).map(drop)?,
            Existing::Keep => partial.persist_noclobber(file).map(drop)?,
        }
        Ok(())
    };
    write().with_context(|| {
        format!("cannot write {}; free up disk space, or choose another folder", file.display())
    })?;
    Ok(Saved { bytes: fs::metadata(file)?.len(), rows: manifest.rows })
}

/// Copies the databases into `folder`, verifies the copies, and lists everything that goes into the backup.
fn collect(
    home: &Home,
    key: &DataKey,
    folder: &Path,
    key_in_backup: KeyInBackup,
) -> anyhow::Result<(Vec<String>, Manifest)> {
    let mut rows = BTreeMap::new();
    // The databases come last: a capture that the server stores meanwhile is then in both, and is not stored twice.
    let mut plain = Vec::new();
    for name in PLAIN {
        link_files(home.root(), folder, Path::new(name), &mut plain)?;
    }
    let mut names = Vec::new();
    for (name, path) in [(LEDGER, home.ledger()), (MEMORY, home.memory())] {
        if path.exists() {
            let copy = folder.join(name);
            hob_store::copy_database(&path, key, &copy)?;
            rows.insert(
                name.to_owned(),
                hob_store::verify_database(&copy, key, Access::ReadWrite)?
                    .rows
                    .into_iter()
                    .collect(),
            );
            names.push(name.to_owned());
        }
    }
    if key_in_backup == KeyInBackup::Included {
        owned::copy(home.key(), folder.join(KEY))?;
        names.push(KEY.to_owned());
    }
    let mut digests = BTreeMap::new();
    for name in &names {
        digests.insert(name.clone(), digest(&mut owned::open(folder.join(name))?)?);
    }
    let mut manifest = Manifest {
        version: VERSION,
        hob: env!("CARGO_PKG_VERSION").to_owned(),
        created_at: Timestamp::now().to_string(),
        digests,
        rows,
    };
    let sealed = folder.join(SEALED);
    write_sealed(&sealed, key, &plain, &manifest)?;
    manifest.digests.insert(SEALED.to_owned(), digest(&mut owned::open(&sealed)?)?);
    names.push(SEALED.to_owned());
    Ok((names, manifest))
}

/// Links a file, or all regular files below a folder, into `folder`, and lists them. The content of these files does not
/// change, but they may be removed meanwhile.
fn link_files(
    root: &Path,
    folder: &Path,
    below: &Path,
    names: &mut Vec<String>,
) -> anyhow::Result<()> {
    let path = root.join(below);
    // The settings and the uploads themselves may be links of the owner's.
    let is_top = below.components().count() == 1;
    let metadata = if is_top { fs::metadata(&path) } else { fs::symlink_metadata(&path) };
    let Ok(metadata) = metadata else { return Ok(()) };
    if metadata.is_dir() {
        for entry in owned::read_dir(&path)? {
            link_files(root, folder, &below.join(entry?.file_name()), names)?;
        }
    } else if metadata.is_file() {
        let Some(name) = below.to_str() else {
            bail!("the name of {} is not UTF-8", path.display());
        };
        let target = folder.join(below);
        owned::create_dir_all(target.parent().unwrap_or(folder))?;
        let real = path.canonicalize().unwrap_or(path);
        match owned::hard_link(&real, &target).or_else(|_| owned::copy(&real, &target).map(drop)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            linked => {
                linked?;
                names.push(name.to_owned());
            }
        }
    }
    Ok(())
}
