//! Hob over HTTP. The only crate that speaks it.
//!
//! The routes are on one screen in [`router`]; every error becomes an answer in one place,
//! [`error`]; every call is documented in [`openapi`].

mod apps;
mod auth;
mod body;
pub mod connections;
mod error;
mod files;
mod health;
mod mcp;
mod openapi;
mod router;
mod run;
mod serve;
mod sessions;
mod state;

pub use auth::Owner;
pub use connections::Connections;
pub use openapi::document as openapi_document;
pub use router::router;
pub use serve::serve;
pub use state::{Gateway, GatewayLimits};
