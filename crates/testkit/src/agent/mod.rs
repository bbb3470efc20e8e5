//! The scripted agent: one program that speaks four protocols, chosen by its arguments.
//!
//! It behaves as the real agents do, without a model.

pub mod acp;
mod effects;
pub mod greedy_calls;
mod mcp;
pub mod print;
pub mod random_program;
pub mod random_targets;
pub mod stream;
pub mod terminal;

use std::process::ExitCode;

/// Runs the protocol that the arguments ask for.
pub fn run(arguments: &[String]) -> ExitCode {
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    mcp::start(arguments);
    if let [first, seed, targets] = arguments
        && first == "random"
    {
        random_program::run(seed.parse().expect("a seed"), targets.as_ref())
    } else if arguments.first().is_some_and(|first| first == "acp") {
        acp::run(arguments)
    } else if flag(arguments, "--input-format") == Some("stream-json") {
        stream::run(arguments)
    } else if has("-p") {
        print::run(arguments)
    } else {
        terminal::run(arguments)
    }
}

/// Returns the value after a flag.
pub(crate) fn flag<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    let at = arguments.iter().position(|argument| argument == name)?;
    arguments.get(at + 1).map(String::as_str)
}
