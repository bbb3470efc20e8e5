//! Durable sessions: conversations that outlive processes, connections and restarts.
//!
//! [`Sessions`] is the entry point. Every open session has a [`handle`] that callers use and an
//! [`actor`], one task that owns the agent and runs the turns one by one. Events are stored before
//! listeners receive them, and callers [`follow`] them. A caller that goes away ends nothing.
//!
//! The [`placement`] decides on which node a session runs. All parts stand on a shared [`context`].

mod actor;
mod agent_host;
mod context;
mod counters;
mod create;
mod error;
mod events;
mod follow;
mod handle;
mod intake;
mod limits;
mod link;
mod local;
mod messages;
mod options;
mod permission;
mod placement;
mod registry;
pub mod render;
mod session_folder;
mod session_workspace;
mod sessions;
mod sweep;
mod tool_calls;
mod turn;
mod turn_messages;
mod turn_progress;

pub use counters::{NodeFigures, SessionFigures};
pub use error::SessionError;
pub use follow::{Follow, SessionNews};
pub use intake::TurnSubmission;
pub(crate) use messages::TurnReader;
pub use messages::{text_of, update_of};
pub use options::{ClusterOptions, NewSession, SessionLimits, SessionsOptions};
pub(crate) use permission::rejection;
pub use session_workspace::{SessionWorkspace, WorkspaceFile};
pub use sessions::{CancelOutcome, Sessions};
pub use turn_messages::TurnMessages;
