//! The file of a backup: a tar archive with a manifest.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::{Context as _, bail};
use hob_domain::DataKey;
use hob_domain::secret::hex;
use hob_files::owned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::sealed_stream::{SealedReader, SealedWriter};

pub(super) const VERSION: u32 = 2;
pub(super) const MANIFEST: &str = "manifest.json";
pub(super) const LEDGER: &str = "hob.db";
pub(super) const MEMORY: &str = "memory.db";
pub(super) const KEY: &str = "key";
/// The folder of captures that wait for the server.
pub(super) const DEFERRED: &str = "deferred-captures";
/// The entry with all files that are not encrypted in the home: an archive in a sealed stream. It begins with the manifest
/// of the other entries, so that none of them can be exchanged.
pub(super) const SEALED: &str = "files.sealed";
/// Files and folders that are copied as they are.
pub(super) const PLAIN: [&str; 5] =
    ["config.toml", "key.pub", "files", DEFERRED, "forget-requests"];
pub(super) const MAX_MANIFEST_BYTES: u64 = 64 << 20;

pub(super) type Rows = BTreeMap<String, BTreeMap<String, u64>>;

/// The first entry of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    write_entries(file.try_clone()?, folder, names, manifest)?.sync_all()?;
    Ok(())
}

/// Writes an archive that begins with the manifest.
fn write_entries<W: Write>(
    out: W,
    folder: &Path,
    names: &[String],
    manifest: &Manifest,
) -> anyhow::Result<W> {
    let mut archive = tar::Builder::new(out);
    let manifest = serde_json::to_vec_pretty(manifest)?;
    append(&mut archive, MANIFEST, &manifest[..], manifest.len() as u64)?;
    for name in names {
        let file = owned::open(folder.join(name))?;
        let length = file.metadata()?.len();
        append(&mut archive, name, file.take(length), length)?;
    }
    Ok(archive.into_inner()?)
}

fn append(
    archive: &mut tar::Builder<impl Write>,
    name: &str,
    content: impl Read,
    length: u64,
) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o600);
    header.set_size(length);
    archive.append_data(&mut header, name, content)
}

/// Writes the archive of files that are not encrypted in the home into a sealed stream, and reads it back.
pub(super) fn write_sealed(
    path: &Path,
    key: &DataKey,
    names: &[String],
    manifest: &Manifest,
) -> anyhow::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let file = owned::create_new(path, 0o600)?;
    let stream = write_entries(SealedWriter::new(file, key)?, folder, names, manifest)?;
    stream.finish()?.sync_all()?;
    let found = read_sealed(path, key, |name, content| {
        io::copy(content, &mut io::sink())?;
        Ok(name.to_owned())
    })?;
    if found.first().is_none_or(|name| name != MANIFEST) || found[1..] != *names {
        bail!("a file changed while it was being backed up; try again");
    }
    Ok(())
}

/// Calls `take` for every entry in a sealed stream.
pub(super) fn read_sealed<T>(
    path: &Path,
    key: &DataKey,
    take: impl FnMut(&str, &mut dyn Read) -> anyhow::Result<T>,
) -> anyhow::Result<Vec<T>> {
    let mut stream = SealedReader::new(owned::open(path)?, key)?;
    let results = read_entries(&mut stream, take)?;
    // An archive ends before its stream, whose end is checked, too.
    io::copy(&mut stream, &mut io::sink())?;
    Ok(results)
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
    let all = read_entries(&mut owned::open(path)?, |name, content| match name {
        MANIFEST => Ok(None),
        name => take(name, content).map(Some),
    });
    Ok(all?.into_iter().flatten().collect())
}

fn read_entries<T>(
    stream: &mut dyn Read,
    mut take: impl FnMut(&str, &mut dyn Read) -> anyhow::Result<T>,
) -> anyhow::Result<Vec<T>> {
    let mut archive = tar::Archive::new(stream);
    let mut results = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry
            .path()?
            .to_str()
            .context("the backup contains a file name that is not UTF-8")?
            .to_owned();
        results.push(take(&name, &mut entry)?);
    }
    Ok(results)
}

pub(super) fn read_manifest(path: &Path) -> anyhow::Result<Manifest> {
    let not_a_backup =
        || format!("{} is not a backup of hob, or is damaged: use another backup", path.display());
    let mut archive =
        tar::Archive::new(owned::open(path).with_context(|| path.display().to_string())?);
    let mut entries = archive.entries().with_context(not_a_backup)?;
    let entry = entries.next().with_context(not_a_backup)?.with_context(not_a_backup)?;
    if entry.path()?.as_os_str() != MANIFEST {
        bail!(not_a_backup());
    }
    let mut text = Vec::new();
    entry.take(MAX_MANIFEST_BYTES).read_to_end(&mut text).with_context(not_a_backup)?;
    let manifest: Manifest = serde_json::from_slice(&text).with_context(not_a_backup)?;
    let (path, hob) = (path.display(), &manifest.hob);
    if manifest.version > VERSION {
        bail!("{path} was written by a newer hob ({hob}): update this hob");
    }
    if manifest.version < VERSION {
        bail!(
            "{path} was written by an earlier version of hob ({hob}); use that version to restore it"
        );
    }
    Ok(manifest)
}
