//! The handlers, in folders that follow the URLs.

pub(crate) mod acp;
pub(crate) mod admin;
pub(crate) mod console;
pub(crate) mod files;
pub(crate) mod health;
pub(crate) mod mcp;
pub(crate) mod metrics;
pub(crate) mod run;
pub(crate) mod sessions;
pub(crate) mod v1;
