//! The program that shows long texts page by page on the user's terminal.

use std::io::{self, Write};
use std::process::{Command, Stdio};

use nix::sys::signal::{SigHandler, Signal, signal};

/// The exit code of a shell that does not find its program.
const NOT_FOUND: i32 = 127;

/// Gives a text to a pager, which the shell starts, and waits until the user leaves it. The pager owns the terminal
/// meanwhile, so that its keys, also Ctrl-C, do not end this process. Fails if there is no such program.
pub fn show_in_pager(command: &str, text: &str) -> io::Result<()> {
    let mut pager = Command::new("/bin/sh");
    pager.arg("-c").arg(command).stdin(Stdio::piped());
    // As `git` does: leave at once if all fits, keep colours, and keep the text on the screen.
    if std::env::var_os("LESS").is_none() {
        pager.env("LESS", "FRX");
    }
    #[allow(clippy::disallowed_methods, reason = "it is waited for, and ends when its input does")]
    let mut child = pager.spawn()?;
    // SAFETY: ignoring a signal installs no handler, so that no code runs in a signal's context.
    let interrupt = unsafe { signal(Signal::SIGINT, SigHandler::SigIgn) };
    if let Some(mut stdin) = child.stdin.take() {
        // A user who leaves early has read enough.
        let _ = stdin.write_all(text.as_bytes());
    }
    let status = child.wait();
    if let Ok(before) = interrupt {
        // SAFETY: this restores what was there before.
        let _ = unsafe { signal(Signal::SIGINT, before) };
    }
    match status?.code() {
        Some(NOT_FOUND) => Err(io::Error::new(io::ErrorKind::NotFound, "no such program")),
        _ => Ok(()),
    }
}
