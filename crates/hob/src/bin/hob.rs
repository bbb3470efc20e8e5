//! The `hob` executable.

use std::process::ExitCode;

fn main() -> ExitCode {
    hob::run()
}
