//! Finds the programs and data that tests use.

use std::path::PathBuf;

/// Returns the path of a program of this workspace. Tests run from `target/<profile>/deps`. `HOB_BIN` names another
/// build of `hob` to test.
pub fn program(name: &str) -> PathBuf {
    if name == "hob"
        && let Some(path) = std::env::var_os("HOB_BIN")
    {
        return path.into();
    }
    let mut folder = std::env::current_exe().expect("own path");
    folder.pop();
    if folder.ends_with("deps") {
        folder.pop();
    }
    let path = folder.join(name);
    assert!(path.exists(), "{} is not built: run `cargo build --workspace` first", path.display());
    path
}

/// Returns the folder of a sentence model that is small enough for tests. Its vectors mean nothing; see
/// `scripts/make-tiny-model`.
pub fn tiny_model() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/tiny-model")
}
