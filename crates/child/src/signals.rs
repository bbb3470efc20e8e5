//! Signals that must not end the process.

use nix::sys::signal::{SigHandler, Signal, signal};

/// Ignores SIGXFSZ, so that a write beyond the limit on file sizes fails instead of ending the process. Only
/// for commands that start no processes: their children would ignore the signal too.
pub fn ignore_file_size_limit() {
    // SAFETY: ignoring a signal installs no handler, so that no code runs in a signal's context.
    let _ = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
}
