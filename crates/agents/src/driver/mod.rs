//! One module per protocol that an agent speaks. Each module has its own wire types; all of them yield
//! the same [`AgentEvent`]s, whose messages are those of the Agent Client Protocol.

mod acp;
mod claude;
pub mod claude_print;
mod claude_settings;
mod claude_stream;
mod claude_tui;
mod dispatch;
pub mod form;
mod live_agent;
mod permission_detail;
mod settings;
mod start;
pub mod tool_input;

pub use dispatch::{has_settings, start};
pub use live_agent::{
    AgentCommand, AgentEvent, AgentExit, LiveAgent, PermissionOption, PermissionOptionKind,
    PermissionRequest, last_line,
};
pub use settings::{AgentSettings, SettingRefusal};
pub use start::{StartError, StartOptions};
