//! The listening socket of the server.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hob_files::owned;

/// The maximum length of a socket's path on Linux, in bytes.
const MAX_PATH_BYTES: usize = 107;
/// How long the socket of a killed server may still accept connections.
const STALE_SOCKET_TIMEOUT: Duration = Duration::from_secs(1);

/// Binds the socket with mode 0600. Replaces a stale socket that a crash left; fails if another
/// process answers on it. Blocks. The caller must hold the serve lock.
pub fn bind(path: &Path) -> anyhow::Result<std::os::unix::net::UnixListener> {
    if path.as_os_str().len() > MAX_PATH_BYTES {
        bail!(
            "the path of the socket is longer than {MAX_PATH_BYTES} bytes: {}; set HOB_SOCKET to a shorter one",
            path.display()
        );
    }
    // A process that a killed server was just starting keeps its socket open for a moment.
    let until = Instant::now() + STALE_SOCKET_TIMEOUT;
    while std::os::unix::net::UnixStream::connect(path).is_ok() {
        if Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        bail!(
            "another program answers on the socket {}; set HOB_SOCKET to another path",
            path.display()
        );
    }
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_file() || found.is_dir()) {
        bail!("{} exists and is not a socket; set HOB_SOCKET to another path", path.display());
    }
    match owned::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error)
                .with_context(|| format!("cannot remove the old socket {}", path.display()));
        }
        _ => {}
    }
    if let Some(folder) = path.parent() {
        owned::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let listener = std::os::unix::net::UnixListener::bind(path)
        .with_context(|| format!("cannot listen on the socket {}", path.display()))?;
    owned::set_mode(path, 0o600)?;
    Ok(listener)
}
