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
pub mod event_text;
mod events;
mod follow;
mod handle;
mod inbox;
mod intake;
mod limits;
mod local_sessions;
mod node_link;
mod offered_models;
mod options;
mod permission;
mod placement;
mod registry;
mod session_folder;
mod sessions;
mod settings;
mod sweep;
mod tool_calls;
mod turn;
mod turn_answer;
mod turn_progress;
mod turn_reader;
mod workspace_files;

pub use counters::{NodeFigures, SessionFigures};
pub use error::SessionError;
pub use follow::{Follow, SessionNews};
pub use intake::TurnSubmission;
pub use options::{ClusterOptions, NewSession, SessionLimits, SessionsOptions};
pub(crate) use permission::rejection;
pub use sessions::{CancelOutcome, MAX_LISTED_AT_ONCE, Sessions};
pub use settings::ChangedSettings;
pub use turn_answer::TurnMessages;
pub(crate) use turn_reader::TurnReader;
pub use turn_reader::{text_of, update_of};
pub use workspace_files::{SessionWorkspace, WorkspaceFile};
