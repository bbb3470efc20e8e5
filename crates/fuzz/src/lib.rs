//! The fuzz targets: one function for each parser of what others write. Only tests use this crate.
//!
//! A target takes any bytes. It must not panic, and it checks what holds for every input: that a text which is written
//! again is read alike, that output is bounded, that offsets are valid. `fuzz/` runs the targets under libFuzzer
//! (`scripts/fuzz`). A test replays the corpora.

mod agent_output;
mod connections;
mod http_bodies;
mod owner_files;
mod texts;
mod transcripts;

pub use agent_output::{acp_lines, claude_stream, terminal};
pub use connections::{acp_messages, event_stream, mcp_frames, socket_frames};
pub use http_bodies::{forms, http_chat, http_messages, http_responses, http_sessions};
pub use owner_files::{config, deferral, hook_input, hook_settings};
pub use texts::{redaction, redaction_time, text_analysis};
pub use transcripts::{claude_live, claude_transcript, codex_transcript, other_transcripts};

/// A fuzz target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The name of its folder in `fuzz/corpus`, and of its program.
    pub name: &'static str,
    pub run: fn(&[u8]),
}

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

/// All targets.
pub const TARGETS: [Target; 23] = [
    target("acp_lines", acp_lines),
    target("acp_messages", acp_messages),
    target("claude_live", claude_live),
    target("claude_stream", claude_stream),
    target("claude_transcript", claude_transcript),
    target("codex_transcript", codex_transcript),
    target("config", config),
    target("deferral", deferral),
    target("event_stream", event_stream),
    target("forms", forms),
    target("hook_input", hook_input),
    target("hook_settings", hook_settings),
    target("http_chat", http_chat),
    target("http_messages", http_messages),
    target("http_responses", http_responses),
    target("http_sessions", http_sessions),
    target("mcp_frames", mcp_frames),
    target("other_transcripts", other_transcripts),
    target("redaction", redaction),
    target("redaction_time", redaction_time),
    target("socket_frames", socket_frames),
    target("terminal", terminal),
    target("text_analysis", text_analysis),
];
