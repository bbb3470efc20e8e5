//! Signals that a process would rather not die of.

use nix::sys::signal::{SigHandler, Signal, signal};

/// A write beyond the limit on file sizes fails then, instead of ending the process. For commands that
/// start nothing: their children would ignore it, too.
pub fn ignore_file_size_limit() {
    // SAFETY: ignoring a signal installs no handler, so that no code runs in a signal's context.
    let _ = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
}
