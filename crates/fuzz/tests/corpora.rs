//! Replays the corpora of the fuzz targets on the stable toolchain, with some mutations of every file.
#![allow(clippy::disallowed_methods, reason = "tests make files and processes of their own")]

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use hob_fuzz::{TARGETS, Target};
use hob_testkit::Random;

/// The most files, and bytes of all files, in the corpus of a target.
const MAX_FILES: usize = 60;
const MAX_BYTES: usize = 200 << 10;
/// How many mutations of each file are tried.
const MUTATIONS: usize = 200;
/// Pieces that mean something to some parser.
const PIECES: [&[u8]; 24] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\",
    b"\\u",
    b"\\ud83d",
    b"\n",
    b"\r\n",
    b"\n\n",
    b"\0",
    b"\x1b",
    b"\x1b[",
    b"\xff",
    b"\xe2\x82",
    b":",
    b",",
    b"=",
    b"null",
    b"-1",
    b"1e999",
    b"18446744073709551615",
    "\u{1f600}".as_bytes(),
];

fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// Returns the files of a target's corpus, in the order of their names.
fn corpus(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = fuzz_folder().join("corpus").join(target.name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Runs a target. The error says for which input it failed.
fn run(target: &Target, bytes: &[u8], origin: &str) -> Result<(), String> {
    let failed = |_| format!("{} failed for {origin}: b\"{}\"", target.name, bytes.escape_ascii());
    catch_unwind(|| (target.run)(bytes)).map_err(failed)
}

/// Runs a target on its corpus and on mutations of it, up to the first failure.
fn replay(target: &Target) -> Result<(), String> {
    let files = corpus(target);
    let mut random = Random::new(4711);
    for (path, bytes) in &files {
        let origin = path.file_name().unwrap().to_string_lossy();
        run(target, bytes, &origin)?;
        for number in 0..mutations(target) {
            let other = &files[below(&mut random, files.len())].1;
            let mut mutated = bytes.clone();
            mutate(&mut mutated, other, &mut random);
            run(target, &mutated, &format!("mutation {number} of {origin}"))?;
        }
    }
    Ok(())
}

fn below(random: &mut Random, bound: usize) -> usize {
    usize::try_from(random.below(bound as u64)).unwrap()
}

/// Changes some bytes. `other` is another file of the corpus.
fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=below(random, 3) {
        let at = below(random, bytes.len() + 1);
        let end = (at + below(random, 16)).min(bytes.len());
        match below(random, 6) {
            0 if at < bytes.len() => bytes[at] = u8::try_from(below(random, 256)).unwrap(),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            3 => bytes.truncate(at),
            4 => {
                let from = below(random, other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                let piece = PIECES[below(random, PIECES.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
        }
    }
}

/// Returns how many mutations of a file are tried. Some targets take milliseconds.
fn mutations(target: &Target) -> usize {
    match target.name {
        "redaction_time" => 1,
        "mcp_frames" | "event_stream" | "text_analysis" => MUTATIONS / 10,
        _ => MUTATIONS,
    }
}

#[test]
fn corpora_and_their_mutations_cause_no_failure() {
    let failures: Vec<String> = TARGETS.iter().filter_map(|target| replay(target).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn corpora_are_small_and_not_empty() {
    for target in &TARGETS {
        let files = corpus(target);
        let length: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(!files.is_empty(), "{} has no corpus", target.name);
        assert!(files.len() <= MAX_FILES, "{} has {} files", target.name, files.len());
        assert!(length <= MAX_BYTES, "{} has {length} bytes", target.name);
    }
}

/// Every target has its program, its entry in the manifest and its corpus, and there are no others.
#[test]
fn programs_and_corpora_are_those_of_the_targets() {
    let expect: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    let names = |folder: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(fuzz_folder().join(folder)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect()
    };
    assert_eq!(names("corpus"), expect);
    assert_eq!(names("fuzz_targets"), expect);
    let manifest = fs::read_to_string(fuzz_folder().join("Cargo.toml")).unwrap();
    for name in &expect {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
        let program = fuzz_folder().join(format!("fuzz_targets/{name}.rs"));
        let program = fs::read_to_string(program).unwrap();
        assert!(program.contains(&format!("hob_fuzz::{name}(")), "{name}");
    }
}
