//! The user's browser.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The program of desktops that opens an address with what the user has chosen for it.
const OPENER: &str = "xdg-open";

/// Asks the desktop to open an address in the user's browser, and does not wait. The browser is the user's own program:
/// it outlives this process, is not stopped by Ctrl-C, and writes nothing on the terminal. Fails if there is no
/// `xdg-open`.
pub fn open_in_browser(url: &str) -> io::Result<()> {
    let mut opener = Command::new(OPENER);
    opener.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    opener.process_group(0);
    #[allow(
        clippy::disallowed_methods,
        reason = "only commands that end at once call it, and the user's browser must outlive them"
    )]
    opener.spawn().map(drop)
}
