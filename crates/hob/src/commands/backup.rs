//! `hob backup` and `hob restore`: the home in one file.
//!
//! The file is a tar archive: a manifest, the two databases as they are encrypted in the home, the key, the settings,
//! uploaded files and captures that wait for the server. Workspaces of sessions are not in it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args as ClapArgs;
use hob_domain::{DataKey, Timestamp, secret::hex};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::confirm::{OwnersAct, refuse_agents};
use super::{Context, Exit};
use crate::home::Home;
use crate::inventory::Inventory;
use crate::keys;
use crate::printer::{self, errln, outln};
use crate::settings::Resolved;

const VERSION: u32 = 1;
const MANIFEST: &str = "manifest.json";
const LEDGER: &str = "hob.db";
const MEMORY: &str = "memory.db";
const KEY: &str = "key";
/// Files and folders that are copied as they are.
const PLAIN: [&str; 5] =
    ["config.toml", "key.pub", "files", "deferred-captures", "forget-requests"];
const MAX_MANIFEST_BYTES: u64 = 64 << 20;

/// Save the databases, the key, the settings and uploaded files into one file, also while `hob serve` runs
#[derive(ClapArgs)]
#[command(after_help = "\
The file contains the key unless --without-key is given: who has the file can read everything in it, unless HOB_PASSPHRASE \
protects the key. Hob reads the file back before it reports success. Workspaces of sessions are not saved.")]
pub struct BackupArgs {
    /// The file to create
    file: PathBuf,
    /// Leave the key out; `hob restore` then needs it in the home
    #[arg(long)]
    without_key: bool,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// Print {"file":…,"bytes":…,"rows":{…}}
    #[arg(long)]
    json: bool,
}

/// Replace the databases, the key and the settings of this home by those of a backup; stop `hob serve` first
#[derive(ClapArgs)]
#[command(after_help = "\
Hob verifies the whole backup first. What the home held before is moved into a folder `before-restore-…` in it.")]
pub struct RestoreArgs {
    /// A file that `hob backup` made
    file: PathBuf,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Print {"rows":{…},"before":…}
    #[arg(long)]
    json: bool,
}

/// The first entry of a backup.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    version: u32,
    hob: String,
    created_at: String,
    /// The SHA-256 digest of every other entry.
    digests: BTreeMap<String, String>,
    /// The number of rows in each table of each database.
    rows: BTreeMap<String, BTreeMap<String, u64>>,
}

pub fn backup(context: &Context, args: &BackupArgs) -> anyhow::Result<Exit> {
    refuse_agents(context, "hob backup")?;
    let settings = &context.settings;
    if let Some(url) = &settings.values.store_url {
        errln!(
            "hob: the data is in {url}: save it with pg_dump, and keep a copy of the file `key` of the home"
        );
        return Ok(Exit::WrongState);
    }
    let home = &settings.home;
    if !home.ledger().exists() && !home.memory().exists() {
        bail!("there is nothing to save: {} has no databases", home.root().display());
    }
    if home.next_key().exists() {
        bail!("a key rotation was interrupted: run `hob key rotate` first");
    }
    if args.file.exists() && !args.force {
        bail!("{} exists; choose another name, or add --force", args.file.display());
    }
    home.prepare()?;
    let _shared = home.share_store()?;
    let inventory = Inventory::new(home);
    inventory.check_ledger()?;
    inventory.check_memory()?;
    let key = keys::data_key(home, settings.passphrase.as_deref())?;
    let folder = tempfile::Builder::new().prefix("backup-").tempdir_in(home.root())?;
    let (names, manifest) = collect(home, &key, folder.path(), !args.without_key)?;
    let write = || -> anyhow::Result<()> {
        // A new file with a random name, which nobody else can have prepared.
        let parent = args.file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let partial = tempfile::Builder::new()
            .prefix(".hob-backup-")
            .tempfile_in(parent.unwrap_or(Path::new(".")))?;
        write_archive(partial.as_file(), folder.path(), &names, &manifest)?;
        verify_archive(partial.path(), &manifest)?;
        match args.force {
            true => partial.persist(&args.file).map(drop)?,
            false => partial.persist_noclobber(&args.file).map(drop)?,
        }
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", args.file.display()))?;
    let bytes = fs::metadata(&args.file)?.len();
    if args.json {
        printer::out_json(&json!({"file": args.file, "bytes": bytes, "rows": manifest.rows}));
    } else {
        let turns = manifest.rows.get(MEMORY).and_then(|rows| rows.get("turns")).unwrap_or(&0);
        outln!(
            "saved {turns} turns of the memory and all apps and sessions to {} ({bytes} bytes)",
            args.file.display()
        );
    }
    Ok(Exit::Done)
}

/// Copies the databases into `folder`, verifies the copies, and lists everything that goes into the backup.
fn collect(
    home: &Home,
    key: &DataKey,
    folder: &Path,
    with_key: bool,
) -> anyhow::Result<(Vec<String>, Manifest)> {
    let mut rows = BTreeMap::new();
    let mut names = Vec::new();
    // The databases come last: a capture that the server stores meanwhile is then in both, and is not stored twice.
    for name in PLAIN {
        link_files(home.root(), folder, Path::new(name), &mut names)?;
    }
    for (name, path) in [(LEDGER, home.ledger()), (MEMORY, home.memory())] {
        if path.exists() {
            let copy = folder.join(name);
            hob_store::copy_database(&path, key, &copy)?;
            rows.insert(
                name.to_owned(),
                hob_store::verify_database(&copy, key)?.into_iter().collect(),
            );
            names.push(name.to_owned());
        }
    }
    if with_key {
        fs::copy(home.key(), folder.join(KEY))?;
        names.push(KEY.to_owned());
    }
    let mut digests = BTreeMap::new();
    for name in &names {
        digests.insert(name.clone(), digest(&mut File::open(folder.join(name))?)?);
    }
    let manifest = Manifest {
        version: VERSION,
        hob: env!("CARGO_PKG_VERSION").to_owned(),
        created_at: Timestamp::now().to_string(),
        digests,
        rows,
    };
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
        for entry in fs::read_dir(&path)? {
            link_files(root, folder, &below.join(entry?.file_name()), names)?;
        }
    } else if metadata.is_file() {
        let Some(name) = below.to_str() else {
            bail!("the name of {} is not UTF-8", path.display());
        };
        let target = folder.join(below);
        fs::create_dir_all(target.parent().unwrap_or(folder))?;
        let real = path.canonicalize().unwrap_or(path);
        match fs::hard_link(&real, &target).or_else(|_| fs::copy(&real, &target).map(drop)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            linked => {
                linked?;
                names.push(name.to_owned());
            }
        }
    }
    Ok(())
}

fn write_archive(
    file: &File,
    folder: &Path,
    names: &[String],
    manifest: &Manifest,
) -> anyhow::Result<()> {
    let mut archive = tar::Builder::new(file.try_clone()?);
    let manifest = serde_json::to_vec_pretty(manifest)?;
    append(&mut archive, MANIFEST, &manifest[..], manifest.len() as u64)?;
    for name in names {
        let file = File::open(folder.join(name))?;
        let length = file.metadata()?.len();
        append(&mut archive, name, file.take(length), length)?;
    }
    archive.into_inner()?.sync_all()?;
    Ok(())
}

fn append(
    archive: &mut tar::Builder<File>,
    name: &str,
    content: impl Read,
    length: u64,
) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o600);
    header.set_size(length);
    archive.append_data(&mut header, name, content)
}

/// Reads a backup and compares every entry with the manifest.
fn verify_archive(path: &Path, expected: &Manifest) -> anyhow::Result<()> {
    let found = read_archive(path, |name, content| Ok((name.to_owned(), digest(content)?)))?;
    if found.into_iter().collect::<BTreeMap<_, _>>() != expected.digests {
        bail!("what was written differs from what was read; try again");
    }
    Ok(())
}

fn digest(content: &mut dyn Read) -> io::Result<String> {
    copy_and_digest(content, &mut io::sink())
}

fn copy_and_digest(content: &mut dyn Read, out: &mut dyn Write) -> io::Result<String> {
    let (mut hash, mut part) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match content.read(&mut part)? {
            0 => return Ok(hex(&hash.finalize())),
            read => {
                hash.update(&part[..read]);
                out.write_all(&part[..read])?;
            }
        }
    }
}

/// Calls `take` for every entry after the manifest.
fn read_archive<T>(
    path: &Path,
    mut take: impl FnMut(&str, &mut dyn Read) -> anyhow::Result<T>,
) -> anyhow::Result<Vec<T>> {
    let mut archive = tar::Archive::new(File::open(path)?);
    let mut results = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry.path()?.to_str().context("a name that is not UTF-8")?.to_owned();
        if name != MANIFEST {
            results.push(take(&name, &mut entry)?);
        }
    }
    Ok(results)
}

fn read_manifest(path: &Path) -> anyhow::Result<Manifest> {
    let not_a_backup = || format!("{} is not a backup of hob", path.display());
    let mut archive =
        tar::Archive::new(File::open(path).with_context(|| path.display().to_string())?);
    let mut entries = archive.entries().with_context(not_a_backup)?;
    let entry = entries.next().with_context(not_a_backup)?.with_context(not_a_backup)?;
    if entry.path()?.as_os_str() != MANIFEST {
        bail!(not_a_backup());
    }
    let mut text = Vec::new();
    entry.take(MAX_MANIFEST_BYTES).read_to_end(&mut text).with_context(not_a_backup)?;
    let manifest: Manifest = serde_json::from_slice(&text).with_context(not_a_backup)?;
    if manifest.version > VERSION {
        bail!("{} was written by a newer hob ({}): update this hob", path.display(), manifest.hob);
    }
    Ok(manifest)
}

pub fn restore(context: &Context, args: &RestoreArgs) -> anyhow::Result<Exit> {
    let settings = &context.settings;
    let home = &settings.home;
    if settings.values.store_url.is_some() {
        errln!(
            "hob: `store.url` is set, so this home has no databases of its own; remove it first"
        );
        return Ok(Exit::WrongState);
    }
    refuse_agents(context, "hob restore")?;
    let manifest = read_manifest(&args.file)?;
    let question = format!(
        "Replace the databases, the key and the settings in {} by those of {}?",
        home.root().display(),
        manifest.created_at
    );
    let has_data = home.ledger().exists() || home.memory().exists();
    let act = OwnersAct { command: "hob restore", question: &question, yes: args.yes || !has_data };
    if !act.is_confirmed(context)? {
        return Ok(Exit::Failed);
    }
    home.prepare()?;
    let Some(_lock) = context.lock_home()? else { return Ok(Exit::WrongState) };
    let _store_lock = home.lock_store_exclusively(std::time::Duration::from_secs(10))?;
    let folder = tempfile::Builder::new().prefix("restore-").tempdir_in(home.root())?;
    extract(&args.file, &manifest, folder.path())?;
    verify_databases(settings, &manifest, folder.path())?;
    let before = put_in_place(home, &manifest, folder.path())?;
    Inventory::new(home).reset()?;
    if args.json {
        printer::out_json(&json!({"rows": manifest.rows, "before": before}));
    } else {
        outln!(
            "restored the home of {}; what was there before is in {}",
            manifest.created_at,
            before.display()
        );
    }
    Ok(Exit::Done)
}

/// Writes every entry below `folder` and compares it with the manifest.
fn extract(file: &Path, manifest: &Manifest, folder: &Path) -> anyhow::Result<()> {
    let found = read_archive(file, |name, content| {
        let path = Path::new(name);
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        if !manifest.digests.contains_key(name) || !path.components().all(is_plain) {
            bail!("{}: unexpected entry {name}", file.display());
        }
        let target = folder.join(path);
        fs::create_dir_all(target.parent().unwrap_or(folder))?;
        let mut options = File::options();
        options.write(true).create_new(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut out = options.open(&target)?;
        let digest = copy_and_digest(content, &mut out)?;
        out.sync_all()?;
        Ok((name.to_owned(), digest))
    });
    let found: BTreeMap<_, _> =
        found.with_context(|| format!("{} is damaged", file.display()))?.into_iter().collect();
    for (name, expected) in &manifest.digests {
        if found.get(name) != Some(expected) {
            bail!("{} is damaged: {name} is missing or has changed", file.display());
        }
    }
    Ok(())
}

/// Opens the restored databases with their key, and counts their rows.
fn verify_databases(settings: &Resolved, manifest: &Manifest, folder: &Path) -> anyhow::Result<()> {
    let restored = Home::new(folder.to_owned());
    if !manifest.digests.contains_key(KEY) {
        if !settings.home.key().exists() {
            bail!(
                "the backup was made without its key, and {} does not exist: copy the key there first",
                settings.home.key().display()
            );
        }
        fs::copy(settings.home.key(), restored.key())?;
    }
    let key = keys::data_key(&restored, settings.passphrase.as_deref())?;
    for (name, expected) in &manifest.rows {
        if ![LEDGER, MEMORY].contains(&name.as_str()) {
            bail!("{name} is not a database of hob");
        }
        let found = hob_store::verify_database(&folder.join(name), &key)?;
        if found.into_iter().collect::<BTreeMap<_, _>>() != *expected {
            bail!("{name} of the backup has other rows than its manifest says");
        }
    }
    Ok(())
}

/// Moves what the home has aside, and the restored files into it. Returns the folder of what was there.
fn put_in_place(home: &Home, manifest: &Manifest, folder: &Path) -> anyhow::Result<PathBuf> {
    let name = format!("before-restore-{}", Timestamp::now().as_second());
    let before = home.root().join(name);
    fs::create_dir(&before)?;
    let mut names: Vec<String> = PLAIN.map(str::to_owned).to_vec();
    for database in [LEDGER, MEMORY] {
        names.extend(["", "-wal", "-shm", "-journal"].map(|end| format!("{database}{end}")));
    }
    // A rotation that was interrupted concerned the old key. Transcripts are captured again from their start, since the
    // backup may be older than what was captured; nothing is stored twice.
    names.extend(["key.next", "capture-state"].map(str::to_owned));
    if manifest.digests.contains_key(KEY) {
        names.push(KEY.to_owned());
    }
    for name in names {
        let (old, new) = (home.root().join(&name), folder.join(&name));
        if fs::symlink_metadata(&old).is_ok() {
            fs::rename(&old, before.join(&name))?;
        }
        if fs::symlink_metadata(&new).is_ok() {
            fs::rename(&new, &old)?;
        }
    }
    Ok(before)
}
