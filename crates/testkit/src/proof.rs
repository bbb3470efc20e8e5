//! What tests have proved about other programs. `docs/agents.md` shows it, and the project rules check that page.
//!
//! `e2e/proofs.tsv` lists the proofs: program, ability, evidence. A test states what it has proved after its last
//! assertion, and fails if the list does not have it; with `UPDATE_PROOFS=1` it adds it instead.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The words of the list for a test that ran the program itself, and for one that had records of the program.
pub const REAL: &str = "real";
pub const SAMPLE: &str = "sample";

/// Tests of one process may update the list at once.
static UPDATE: Mutex<()> = Mutex::new(());

/// Returns the path of the list.
pub fn list_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/proofs.tsv")
}

/// States that a test which ran this program has proved these abilities.
#[track_caller]
pub fn proved_with_program(program: &str, abilities: &[&str]) {
    state(program, abilities, REAL);
}

/// States that a test with records of this program has proved these abilities.
#[track_caller]
pub fn proved_with_samples(program: &str, abilities: &[&str]) {
    state(program, abilities, SAMPLE);
}

#[track_caller]
fn state(program: &str, abilities: &[&str], evidence: &str) {
    let _update = UPDATE.lock().unwrap_or_else(PoisonError::into_inner);
    let text = fs::read_to_string(list_path()).unwrap_or_default();
    let mut lines: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    let before = lines.len();
    lines.extend(abilities.iter().map(|ability| format!("{program}\t{ability}\t{evidence}")));
    if lines.len() == before {
        return;
    }
    let is_update = std::env::var_os("UPDATE_PROOFS").is_some();
    assert!(
        is_update,
        "{} does not have {abilities:?} of {program}: run this test with UPDATE_PROOFS=1",
        list_path().display()
    );
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(list_path(), text).expect("the list of proofs can be written");
}
