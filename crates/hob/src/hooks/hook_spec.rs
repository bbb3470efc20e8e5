//! The hooks that Hob installs.

use hob_transcript::AgentClient;

use super::command::Subcommand;

/// The events that Hob hooks into, by the names of Claude Code and Codex.
pub const EVENTS: [&str; 4] = ["SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"];
/// The events that Hob hooks into, by the names of Gemini CLI.
const GEMINI_EVENTS: [&str; 4] = ["SessionStart", "BeforeAgent", "AfterAgent", "SessionEnd"];

/// A hook that Hob installs: its event, command and timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookSpec {
    pub event: &'static str,
    pub subcommand: Subcommand,
    /// In the client's unit: seconds, or milliseconds for Gemini CLI.
    pub timeout: u32,
}

/// Returns the hooks that Hob installs into the settings of a client. OpenCode has a plugin instead.
pub fn hooks_for(client: AgentClient) -> Vec<HookSpec> {
    let (events, timeout, session_end_timeout) = match client {
        AgentClient::Claude => (EVENTS, 10, 10),
        AgentClient::Codex => (EVENTS, 10, 3),
        AgentClient::Gemini => (GEMINI_EVENTS, 10_000, 10_000),
        AgentClient::Opencode => return Vec::new(),
    };
    let spec = |event, subcommand, timeout| HookSpec { event, subcommand, timeout };
    let [session_start, prompt, answer, session_end] = events;
    vec![
        spec(session_start, Subcommand::SessionStart, timeout),
        spec(prompt, Subcommand::CaptureTurn, timeout),
        spec(answer, Subcommand::CaptureTurn, timeout),
        spec(session_end, Subcommand::CaptureTurn, session_end_timeout),
    ]
}

/// Returns whether a client calls Hob for this event.
pub fn is_event(name: &str) -> bool {
    EVENTS.contains(&name) || GEMINI_EVENTS.contains(&name)
}

/// Returns the text as a JSON string, with quotes.
pub fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
