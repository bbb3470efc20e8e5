//! Hob over HTTP. The only crate that speaks it.
//!
//! The routes are on one screen in [`router`]; every error becomes an answer in one place,
//! [`error`]; every call is documented in [`openapi`].

mod admin;
mod apps;
mod audit;
mod auth;
mod body;
pub mod client;
pub mod connections;
mod console;
mod error;
mod files;
mod health;
mod live;
mod mcp;
mod metrics;
mod openapi;
mod parts;
mod router;
mod run;
mod serve;
mod sessions;
mod sign_in;
mod state;
mod v1;
mod walls;
pub mod web_socket;

pub use admin::{Check, Doctor, SettingRow, Verdict};
pub use connections::Connections;
pub use metrics::Requests;
pub use openapi::document as openapi_document;
pub use router::{Router, router};
pub use serve::{serve, serve_owner};
pub use sign_in::SignIn;
pub use state::{Gateway, GatewayLimits};
