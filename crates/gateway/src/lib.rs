//! Hob over HTTP. This is the only crate that speaks it.
//!
//! [`router`] lists all routes on one screen. [`routes`] holds the handlers, in folders that follow the
//! URLs. [`extract`] turns requests into typed values. [`error`] is the one place where errors become
//! responses. [`openapi`] documents every call.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make and look at files"))]

pub mod acp_protocol;
pub mod acp_questions;
mod agent_catalog;
mod app_requests;
mod audit_log;
pub mod client;
mod client_tool;
mod connection_places;
pub mod connections;
mod conversation_store;
mod counters;
mod doctor;
mod error;
mod event_log;
mod extract;
mod held_body;
mod idempotency;
mod message_batches;
mod openapi;
mod origin_guard;
mod owner;
mod readiness;
mod request_bodies;
mod response_items;
mod response_store;
mod router;
mod routes;
mod serve;
mod sign_in;
mod sign_in_expiry;
mod state;
mod unread_body;
pub mod web_socket;
mod write_deadline;

pub use agent_catalog::AgentCatalog;
pub use app_requests::AppRequests;
pub use connections::Connections;
pub use conversation_store::Conversations;
pub use counters::Requests;
pub use doctor::{Check, Doctor, SettingRow, Verdict};
pub use message_batches::MessageBatches;
pub use openapi::document as openapi_document;
pub use readiness::{Readiness, StoreProbe};
pub use request_bodies::{RequestKind, read_body};
pub use response_store::{ResponseLimits, Responses};
pub use router::{Router, router};
pub use serve::{serve, serve_owner};
pub use sign_in::SignIn;
pub use state::{Gateway, GatewayLimits};
