//! Durable sessions: conversations that outlive processes, connections and restarts.
//!
//! [`Sessions`] is all of them. Every open session has an [`entry`] that callers meet and an [`actor`],
//! one task that owns its agent and runs its turns one by one. Whatever happens is stored before anyone
//! is told; callers [`follow`] it. A caller that goes away ends nothing.

mod actor;
mod change;
mod choice;
mod cluster;
mod counts;
mod create;
mod entry;
mod errand;
mod error;
mod follow;
mod hub;
mod limits;
mod options;
mod reading;
pub mod show;
mod sweep;
mod talk;
mod turn;

pub(crate) use choice::rejection;
pub use cluster::ClusterOptions;
pub use counts::{Figures, NodeFigures};
pub use error::SessionError;
pub use follow::Follow;
pub use hub::{CancelOutcome, Sessions, TurnAsk};
pub use options::{NewSession, SessionLimits, SessionsOptions};
pub(crate) use reading::TurnReading;
pub use reading::{text_of, update_of};
