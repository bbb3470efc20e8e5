//! The scripted agent as a program. It is also a shim, so that the `child` crate can be tested
//! without the `hob` executable.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().map(String::as_str) == Some(hob_child::shim::ARGUMENT) {
        hob_child::shim::run()
    }
    hob_testkit::agent::run(&arguments)
}
