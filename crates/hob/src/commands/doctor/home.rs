//! Checks of the home folder and of the server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use hob_files::owned;
use hob_gateway::Check;

use super::check;
use crate::build_id::{RESTART, other_build};
use crate::settings::Resolved;
use crate::socket::client;

/// Checks that the home and everything directly in it is closed to other users.
pub fn folder(settings: &Resolved) -> Check {
    let root = settings.home.root();
    let shown = root.display();
    let Ok(metadata) = fs::metadata(root) else {
        let text = format!("{shown} does not exist yet; hob creates it when it is first needed");
        return check::passed("home", text);
    };
    if !metadata.is_dir() {
        let fix = "set HOB_HOME to a folder";
        return check::failed("home", format!("{shown} is not a folder"), fix);
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode != 0o700 {
        let text = format!("other users can access {shown} (mode {mode:o})");
        return check::failed("home", text, format!("run `chmod 700 {shown}`"));
    }
    match first_open_entry(root) {
        None => check::passed("home", format!("only you can access {shown}")),
        Some(path) => {
            let path = path.display();
            let fix = format!("run `chmod go-rwx {path}`");
            let text = format!(
                "the mode of {path} lets other users read it; only the mode of its folder keeps them out"
            );
            check::warning("home", text, fix)
        }
    }
}

/// Reports a home that cannot be written.
pub fn read_only(settings: &Resolved) -> Option<Check> {
    let root = settings.home.root().display();
    settings.home.is_read_only().then(|| {
        check::warning(
            "home",
            format!("{root} is not writable; `hob recall` and `hob export` still work, but nothing can be stored"),
            format!(
                "make {root} writable, or copy it to another disk and set HOB_HOME to the copy"
            ),
        )
    })
}

/// Returns an entry of the folder that other users can access.
fn first_open_entry(folder: &Path) -> Option<PathBuf> {
    let entries = owned::entries(folder);
    entries
        .filter(|entry| {
            let metadata = entry.metadata();
            metadata.is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
        })
        .map(|entry| entry.path())
        .next()
}

/// Checks that a server of this build answers.
pub fn server(settings: &Resolved) -> Check {
    match client::hello(&settings.socket) {
        Ok(hello) => match other_build(&hello) {
            Some(text) => check::warning("server", text, RESTART),
            None => {
                let http = hello.http.as_deref().unwrap_or("off");
                check::passed("server", format!("running (pid {}), HTTP: {http}", hello.pid))
            }
        },
        Err(error) => {
            let socket = settings.socket.display();
            if let Some(pid) = settings.home.unresponsive_pid(&error) {
                let text = format!("the running server (pid {pid}) does not answer on {socket}");
                let fix = format!("if it stays so, run `kill -KILL {pid}` and then `hob serve`");
                return check::warning("server", text, fix);
            }
            let text = format!("not running: no server answers on {socket}");
            check::warning("server", text, "start it with `hob serve`")
        }
    }
}
