//! The file of a backup: a tar archive with a manifest.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::{Context as _, bail};
use hob_domain::secret::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub(super) const VERSION: u32 = 1;
pub(super) const MANIFEST: &str = "manifest.json";
pub(super) const LEDGER: &str = "hob.db";
pub(super) const MEMORY: &str = "memory.db";
pub(super) const KEY: &str = "key";
/// The folder of captures that wait for the server.
pub(super) const DEFERRED: &str = "deferred-captures";
/// Files and folders that are copied as they are.
pub(super) const PLAIN: [&str; 5] =
    ["config.toml", "key.pub", "files", DEFERRED, "forget-requests"];
pub(super) const MAX_MANIFEST_BYTES: u64 = 64 << 20;

pub(super) type Rows = BTreeMap<String, BTreeMap<String, u64>>;

/// The first entry of a backup.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) version: u32,
    pub(super) hob: String,
    pub(super) created_at: String,
    /// The SHA-256 digest of every other entry.
    pub(super) digests: BTreeMap<String, String>,
    /// The number of rows in each table of each database.
    pub(super) rows: Rows,
}

pub(super) fn write_archive(
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
pub(super) fn verify_archive(path: &Path, expected: &Manifest) -> anyhow::Result<()> {
    let found = read_archive(path, |name, content| Ok((name.to_owned(), digest(content)?)))?;
    if found.into_iter().collect::<BTreeMap<_, _>>() != expected.digests {
        bail!(
            "Hob read the backup file back, and it differs from what Hob wrote; check the disk and try again"
        );
    }
    Ok(())
}

pub(super) fn digest(content: &mut dyn Read) -> io::Result<String> {
    copy_and_digest(content, &mut io::sink())
}

pub(super) fn copy_and_digest(content: &mut dyn Read, out: &mut dyn Write) -> io::Result<String> {
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
pub(super) fn read_archive<T>(
    path: &Path,
    mut take: impl FnMut(&str, &mut dyn Read) -> anyhow::Result<T>,
) -> anyhow::Result<Vec<T>> {
    let mut archive = tar::Archive::new(File::open(path)?);
    let mut results = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry
            .path()?
            .to_str()
            .context("the backup contains a file name that is not UTF-8")?
            .to_owned();
        if name != MANIFEST {
            results.push(take(&name, &mut entry)?);
        }
    }
    Ok(results)
}

pub(super) fn read_manifest(path: &Path) -> anyhow::Result<Manifest> {
    let not_a_backup =
        || format!("{} is not a backup of hob, or is damaged: use another backup", path.display());
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
