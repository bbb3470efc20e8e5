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

/// Returns the strictest sandbox that this kernel allows an agent: `strict`, or `workspace`.
pub fn strictest_sandbox() -> &'static str {
    // Landlock 6 restricts signals and abstract sockets.
    let has_landlock = hob_child::landlock_version().is_some_and(|version| version >= 6);
    let has_views = hob_child::namespace_processes::is_available(&program("hob"));
    if has_landlock && has_views { "strict" } else { "workspace" }
}
