//! The hooks that Hob installs.

use hob_transcript::AgentClient;

use super::command::Subcommand;

/// The events that Hob hooks into, by the names that both clients use.
pub const EVENTS: [&str; 4] = ["SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"];

/// A hook that Hob installs: its event, command and timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookSpec {
    pub event: &'static str,
    pub subcommand: Subcommand,
    pub timeout_seconds: u32,
}

/// Returns the hooks that Hob installs into a client.
pub fn hooks_for(client: AgentClient) -> [HookSpec; 4] {
    let session_end_seconds = match client {
        AgentClient::Claude => 10,
        AgentClient::Codex => 3,
    };
    let spec = |event, subcommand, timeout_seconds| HookSpec { event, subcommand, timeout_seconds };
    let [session_start, user_prompt_submit, stop, session_end] = EVENTS;
    [
        spec(session_start, Subcommand::SessionStart, 10),
        spec(user_prompt_submit, Subcommand::CaptureTurn, 10),
        spec(stop, Subcommand::CaptureTurn, 10),
        spec(session_end, Subcommand::CaptureTurn, session_end_seconds),
    ]
}

/// Returns the text as a JSON string, with quotes.
pub fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
