//! The answers that a bridge gives by itself while no server runs.

use serde_json::{Value, json};

use crate::definitions::INSTRUCTIONS;

/// The list of tools as JSON: the same as [`crate::tools`], without building the schemas.
pub const TOOLS: &str = include_str!("tools.json");

/// The versions of the protocol, the latest last.
const PROTOCOL_VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const LATEST_VERSION: &str = PROTOCOL_VERSIONS[PROTOCOL_VERSIONS.len() - 1];

/// Returns the answer to `initialize`, in the requested version of the protocol if it is a known
/// one.
pub fn initialize(requested_version: Option<&str>) -> Value {
    let known = requested_version.filter(|version| PROTOCOL_VERSIONS.contains(version));
    json!({
        "protocolVersion": known.unwrap_or(LATEST_VERSION),
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "hob", "version": env!("CARGO_PKG_VERSION")},
        "instructions": INSTRUCTIONS,
    })
}
