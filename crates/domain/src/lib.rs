//! The words Hob is written in: apps and their tokens, agents as data, runs and how they end.
//!
//! Pure: no input or output, no async runtime, no clock. Times and random bytes are arguments.
//! Storage ports stand beside the types they carry.

pub mod agent;
pub mod app;
pub mod audit;
pub mod cluster;
pub mod command;
pub mod document;
mod event;
pub mod file;
pub mod fingerprint;
mod identity;
pub mod ids;
pub mod json_size;
pub mod ledger;
pub mod memory;
pub mod message;
pub mod node;
mod outbox;
mod permissions;
mod recall;
pub mod run;
pub mod secret;
pub mod session;
mod setting;
mod store_error;
pub mod turn_rules;
mod turn_source;
mod turn_state;
mod usage;
mod vectors;

pub use agent::{AgentName, AgentSpec, Driver, Sandbox};
pub use app::{App, AppFilter, AppName, AppStore, Token, TokenHash};
pub use audit::{AuditEntry, AuditStore, MAX_AUDIT_ENTRIES};
pub use cluster::{
    ClusterEvent, ClusterStore, CommandFilter, FilePart, LeasedSession, RemoteCommand,
};
pub use command::{CommandOutcome, SessionCommand};
pub use document::{DocumentChange, DocumentKind, DocumentStore, StoredDocument};
pub use fingerprint::{Fingerprint, fingerprint};
pub use ids::NodeId;
pub use jiff::Timestamp;
pub use ledger::LedgerStore;
pub use message::{BadMessage, Block, Message, Role};
pub use node::{Lease, LeaseOutcome, Node, NodeEvent, NodeStore};
pub use run::{RunError, RunReply, RunRequest};
pub use secret::DataKey;
pub use setting::{AgentChoices, OptionValue, SettingChange, StoredConversation};
pub use store_error::StoreError;
