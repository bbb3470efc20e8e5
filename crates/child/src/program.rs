//! The path of the running program.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// What Linux adds to the path of a program whose file was replaced or removed.
const DELETED: &[u8] = b" (deleted)";

/// Returns the path of the running program. If an update has replaced its file, the path leads to the new one.
pub fn own_program() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    // A program may really have such a name.
    Ok(if path.exists() { path } else { without_mark(path) })
}

fn without_mark(path: PathBuf) -> PathBuf {
    match path.as_os_str().as_bytes().strip_suffix(DELETED) {
        Some(path) => PathBuf::from(OsStr::from_bytes(path)),
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_program_is_found_under_its_path() {
        assert!(own_program().unwrap().exists());
        assert_eq!(without_mark("/bin/hob (deleted)".into()), PathBuf::from("/bin/hob"));
        assert_eq!(without_mark("/bin/hob".into()), PathBuf::from("/bin/hob"));
    }
}
