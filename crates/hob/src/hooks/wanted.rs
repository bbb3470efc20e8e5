//! The hooks that Hob installs.

use super::command::Subcommand;

/// The events that Hob hooks into, by the names that both clients use.
pub const EVENTS: [&str; 4] = ["SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"];

/// One hook to be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    pub event: &'static str,
    pub subcommand: Subcommand,
    pub timeout_seconds: u32,
}

/// Returns the text as a JSON string, with quotes.
pub fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
