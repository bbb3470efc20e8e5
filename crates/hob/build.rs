//! Computes the build ID: a digest of the sources that make the program. It depends on their names below the workspace and on
//! their content, and on nothing of the machine, so that the same sources have the same ID with and without Git.
#![allow(clippy::disallowed_methods, reason = "a build reads its own sources")]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// What makes the program besides the crates, as paths below the workspace.
const SOURCES: [&str; 8] = [
    "Cargo.lock",
    "Cargo.toml",
    "console/index.html",
    "console/package-lock.json",
    "console/public",
    "console/src",
    "packaging/systemd",
    "plugins",
];
/// Crates that are not in the program.
const OTHER_CRATES: [&str; 2] = ["fuzz", "testkit"];
/// Folders of crates that are not in the program.
const OTHER_FOLDERS: [&str; 4] = ["benches", "examples", "proptest-regressions", "tests"];

/// The start and the factor of FNV-1a with 64 bits. Nobody is kept from making two builds with one ID.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../..");
    let mut sources = SOURCES.map(PathBuf::from).to_vec();
    for name in names(&root.join("crates"), &OTHER_CRATES)? {
        let folder = Path::new("crates").join(name);
        let parts = names(&root.join(&folder), &OTHER_FOLDERS)?;
        sources.extend(parts.into_iter().map(|part| folder.join(part)));
    }
    // An archive of the sources may lack what the program can be built without.
    sources.retain(|source| root.join(source).exists());
    let mut files = Vec::new();
    for source in &sources {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
        collect(&root, source, &mut files)?;
    }
    files.sort();
    let mut digest = FNV_OFFSET;
    for file in &files {
        let content = fs::read(root.join(file))?;
        let name = file.to_str().ok_or("the name of a source must be UTF-8")?;
        let size = u64::try_from(content.len())?.to_be_bytes();
        for byte in name.bytes().chain([0]).chain(size).chain(content) {
            digest = (digest ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
    }
    println!("cargo::rustc-env=HOB_BUILD={digest:016x}");
    Ok(())
}

/// Returns the names in a folder, without these and without hidden ones.
fn names(folder: &Path, without: &[&str]) -> Result<Vec<String>, Box<dyn Error>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let name = name.to_str().ok_or("the name of a source must be UTF-8")?;
        if !name.starts_with('.') && !without.contains(&name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Adds a file, or all files below a folder, as paths below `root`.
fn collect(root: &Path, path: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    if !root.join(path).is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    for name in names(&root.join(path), &[])? {
        collect(root, &path.join(name), files)?;
    }
    Ok(())
}
