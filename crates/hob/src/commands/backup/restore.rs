//! `hob restore`: replaces the home by what a backup holds.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args as ClapArgs;
use hob_domain::{DataKey, Timestamp};
use hob_files::owned;
use hob_store::Access;
use serde_json::json;

use super::archive::{
    DEFERRED, KEY, LEDGER, MANIFEST, MEMORY, Manifest, PLAIN, SEALED, copy_and_digest,
    read_archive, read_manifest, read_sealed,
};
use crate::commands::confirm::{OwnersAct, refuse_agents};
use crate::commands::{Context, Exit, audit};
use crate::home::Home;
use crate::inventory::Inventory;
use crate::keys;
use crate::printer::{self, errln, outln};
use crate::settings::Resolved;

/// Replace the databases, key, settings and uploads of the home folder with those of a backup; run `hob stop` first
#[derive(ClapArgs)]
#[command(after_help = "\
Hob verifies the whole backup first. Hob moves the files that it replaces to `$HOB_HOME/before-restore-…`.")]
pub struct RestoreArgs {
    /// A file that `hob backup` made
    file: PathBuf,
    /// Skip the confirmation prompt
    #[arg(long)]
    yes: bool,
    /// Print {"rows":{…},"before":…}
    #[arg(long)]
    json: bool,
}

pub fn restore(context: &Context, args: &RestoreArgs) -> anyhow::Result<Exit> {
    let settings = &context.settings;
    let home = &settings.home;
    if settings.values.store_url.is_some() {
        errln!(
            "hob: this command restores SQLite files, but `store.url` is set; remove that setting first"
        );
        return Ok(Exit::WrongState);
    }
    refuse_agents(context, "hob restore")?;
    let manifest = read_manifest(&args.file)?;
    let question = format!(
        "Replace the databases, the key and the settings in {} with those of {}?",
        home.root().display(),
        manifest.created_at
    );
    // Without its key, nobody can read earlier backups of this home that were made without it.
    let is_in_use = home.has_data() || home.key().exists();
    let act =
        OwnersAct { command: "hob restore", question: &question, yes: args.yes || !is_in_use };
    if !act.is_confirmed(context)? {
        return Ok(Exit::Failed);
    }
    home.prepare()?;
    let Some(_lock) = context.lock_home()? else { return Ok(Exit::WrongState) };
    let _store_lock = home.lock_store_exclusively(std::time::Duration::from_secs(10))?;
    let folder = tempfile::Builder::new().prefix("restore-").tempdir_in(home.root())?;
    extract(&args.file, &manifest, folder.path())?;
    open_restored(settings, &manifest, folder.path())?;
    let unfinished = home.unfinished_restore();
    hob_files::write_over(&unfinished, args.file.to_string_lossy().as_bytes(), 0o600)
        .with_context(|| format!("cannot write {}", unfinished.display()))?;
    let before = put_in_place(home, &manifest, folder.path()).with_context(|| {
        let file = args.file.display();
        format!(
            "the restore did not finish (run `hob restore {file}` again after fixing the cause)"
        )
    })?;
    Inventory::new(home).reset()?;
    owned::remove_file(&unfinished)?;
    audit::note(home, "restore", &args.file.display().to_string());
    if args.json {
        printer::out_json(&json!({"rows": manifest.rows, "before": before}));
    } else {
        outln!(
            "restored the home of {}; what was there before is in {}",
            manifest.created_at,
            before.display()
        );
        let waiting = owned::entries(before.join(DEFERRED)).count();
        if waiting > 0 {
            outln!(
                "that folder also has {waiting} files with turns that were not stored yet (`deferred-captures/`)"
            );
        }
    }
    Ok(Exit::Done)
}

/// Writes every entry below `folder` and compares it with the manifest.
fn extract(file: &Path, manifest: &Manifest, folder: &Path) -> anyhow::Result<()> {
    let found = read_archive(file, |name, content| {
        if !manifest.digests.contains_key(name) {
            bail!("{}: unexpected entry {name}", file.display());
        }
        Ok((name.to_owned(), unpack(name, content, folder)?))
    });
    let found: BTreeMap<_, _> = found
        .with_context(|| {
            format!(
                "cannot unpack {}; if the disk is full, free up space, else use another backup",
                file.display()
            )
        })?
        .into_iter()
        .collect();
    for (name, expected) in &manifest.digests {
        if found.get(name) != Some(expected) {
            bail!(
                "{} is damaged: {name} is missing or has changed; use another backup",
                file.display()
            );
        }
    }
    Ok(())
}

/// Writes an entry below `folder`. Returns its digest.
fn unpack(name: &str, content: &mut dyn Read, folder: &Path) -> anyhow::Result<String> {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    if !Path::new(name).components().all(is_plain) {
        bail!("unexpected entry {name}");
    }
    let target = folder.join(name);
    owned::create_dir_all(target.parent().unwrap_or(folder))?;
    let mut out = owned::create_new(&target, 0o600)?;
    let digest = copy_and_digest(content, &mut out)?;
    out.sync_all()?;
    Ok(digest)
}

/// Unpacks the files that were not encrypted in the home. What is outside of the sealed stream must be what its manifest says.
fn open_sealed(manifest: &Manifest, key: &DataKey, folder: &Path) -> anyhow::Result<()> {
    let sealed = folder.join(SEALED);
    let mut expected = manifest.clone();
    if expected.digests.remove(SEALED).is_none() {
        bail!("the backup is damaged: {SEALED} is missing; use another backup");
    }
    let mut is_first = true;
    read_sealed(&sealed, key, |name, content| {
        if std::mem::take(&mut is_first) {
            let found: Option<Manifest> = serde_json::from_reader(content).ok();
            if name != MANIFEST || found.as_ref() != Some(&expected) {
                bail!("the backup's encrypted and unencrypted parts come from different backups; use another backup");
            }
            return Ok(());
        }
        unpack(name, content, folder).map(drop)
    })
    .context("cannot open the files in the backup: it is damaged, or this is not its key")?;
    Ok(owned::remove_file(sealed)?)
}

/// Opens the restored files and databases with their key, and counts the rows.
fn open_restored(settings: &Resolved, manifest: &Manifest, folder: &Path) -> anyhow::Result<()> {
    let restored = Home::new(folder.to_owned());
    if !manifest.digests.contains_key(KEY) {
        if !settings.home.key().exists() {
            bail!(
                "the backup was made without its key, and {} does not exist: copy the key there first",
                settings.home.key().display()
            );
        }
        owned::copy(settings.home.key(), restored.key())?;
    }
    let key = keys::data_key(&restored, settings.passphrase.as_deref())?;
    open_sealed(manifest, &key, folder)?;
    for (name, expected) in &manifest.rows {
        if ![LEDGER, MEMORY].contains(&name.as_str()) {
            bail!("{name} is not a Hob database");
        }
        let found = hob_store::verify_database(&folder.join(name), &key, Access::ReadWrite)?;
        if found.rows.into_iter().collect::<BTreeMap<_, _>>() != *expected {
            bail!(
                "the backup is damaged: the rows of {name} do not match its manifest; use another backup"
            );
        }
    }
    Ok(())
}

/// Creates the folder of what is replaced. An earlier restore in this second may have been interrupted, and its folder has
/// the only copy of what was there.
fn create_aside(home: &Home) -> anyhow::Result<PathBuf> {
    let second = Timestamp::now().as_second();
    let names = (1..).map(|number: u32| match number {
        1 => format!("before-restore-{second}"),
        number => format!("before-restore-{second}-{number}"),
    });
    for name in names {
        let folder = home.root().join(name);
        match owned::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot create {}", folder.display()));
            }
            Ok(()) => return Ok(folder),
        }
    }
    bail!("cannot create a folder for the files that the restore replaces")
}

/// Moves what the home has aside, and the restored files into it. Returns the folder of what was there.
fn put_in_place(home: &Home, manifest: &Manifest, folder: &Path) -> anyhow::Result<PathBuf> {
    let before = create_aside(home)?;
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
            owned::rename(&old, before.join(&name))
                .with_context(|| format!("cannot move {}", old.display()))?;
        }
        if fs::symlink_metadata(&new).is_ok() {
            owned::rename(&new, &old)
                .with_context(|| format!("cannot replace {}", old.display()))?;
        }
    }
    Ok(before)
}
