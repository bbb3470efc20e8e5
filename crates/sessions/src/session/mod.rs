//! Durable sessions: conversations that outlive processes, connections and restarts.
//!
//! [`Sessions`] is all of them. Every open session has a [`handle`] that callers meet and an [`actor`],
//! one task that owns its agent and runs its turns one by one. Whatever happens is stored before anyone
//! is told; callers [`follow`] it. A caller that goes away ends nothing.

mod actor;
mod counters;
mod create;
mod error;
mod follow;
mod handle;
mod limits;
mod local;
mod messages;
mod options;
mod permission;
mod placement;
pub mod render;
mod sessions;
mod sweep;
mod turn;
mod turn_progress;

pub use counters::{Figures, NodeFigures};
pub use error::SessionError;
pub use follow::Follow;
pub(crate) use messages::TurnReading;
pub use messages::{text_of, update_of};
pub use options::{NewSession, SessionLimits, SessionsOptions};
pub(crate) use permission::rejection;
pub use placement::cluster::ClusterOptions;
pub use sessions::{CancelOutcome, Sessions, TurnAsk};
