//! The answers that a bridge gives by itself while no server runs.

use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::definitions::{INSTRUCTIONS, SERVER_NAME};

/// The list of tools as JSON: the same as [`crate::tools`], without building the schemas.
pub(crate) const TOOLS: &str = include_str!("tools.json");

/// The versions of the protocol that begin with `initialize`, the latest last.
const PROTOCOL_VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const LATEST_VERSION: &str = PROTOCOL_VERSIONS[PROTOCOL_VERSIONS.len() - 1];
/// The version without a handshake: every request names it.
const STATELESS_VERSION: &str = "2026-07-28";
const VERSION_FIELD: &str = "io.modelcontextprotocol/protocolVersion";

/// What a bridge says of itself while no server runs.
pub struct OfflineServer {
    /// The list of tools as JSON.
    tools: &'static str,
    instructions: &'static str,
}

impl OfflineServer {
    /// The memory, as it is when a server runs.
    pub fn memory() -> OfflineServer {
        OfflineServer { tools: TOOLS, instructions: INSTRUCTIONS }
    }

    /// The tools of a client that has gone.
    pub fn client_gone() -> OfflineServer {
        OfflineServer::without_tools("The client has gone.")
    }

    /// A second server of an agent whose settings run one already.
    pub fn standby() -> OfflineServer {
        OfflineServer::without_tools(
            "The MCP server `hob` in the settings has the tools; this one has none.",
        )
    }

    fn without_tools(instructions: &'static str) -> OfflineServer {
        OfflineServer { tools: "[]", instructions }
    }

    /// Returns the result of a request, or `None` for an unknown method and for calls of tools.
    pub fn result(&self, method: &str, params: &Value) -> Option<Value> {
        let result = match method {
            "initialize" => {
                let asked = params["protocolVersion"].as_str();
                let known = asked.filter(|version| PROTOCOL_VERSIONS.contains(version));
                json!({"protocolVersion": known.unwrap_or(LATEST_VERSION),
                    "capabilities": {"tools": {}}, "serverInfo": server_info(),
                    "instructions": self.instructions})
            }
            "server/discover" => {
                let mut versions = PROTOCOL_VERSIONS.to_vec();
                versions.push(STATELESS_VERSION);
                json!({"supportedVersions": versions, "capabilities": {"tools": {}},
                    "instructions": self.instructions,
                    "_meta": {"io.modelcontextprotocol/serverInfo": server_info()}})
            }
            "ping" => json!({}),
            "tools/list" => {
                let tools: Value = serde_json::from_str(self.tools).unwrap_or_default();
                json!({"tools": tools})
            }
            _ => return None,
        };
        Some(complete(method, params, result))
    }

    /// Returns the result of a tool's call: no server answers on this socket.
    pub fn failed_call(params: &Value, socket: &Path, error: &io::Error) -> Value {
        let text = format!(
            "hob is not running: no server answers on {} ({error}). Start it with `hob serve`.",
            socket.display()
        );
        let result = json!({"content": [{"type": "text", "text": text}], "isError": true});
        complete("tools/call", params, result)
    }
}

/// Returns a result as the version of the protocol that the request names wants it.
pub fn complete(method: &str, params: &Value, mut result: Value) -> Value {
    if method == "server/discover" || params["_meta"][VERSION_FIELD] == STATELESS_VERSION {
        result["resultType"] = json!("complete");
        if method != "tools/call" {
            // Nothing of it holds once a server runs.
            result["ttlMs"] = json!(0);
            result["cacheScope"] = json!("private");
        }
    }
    result
}

fn server_info() -> Value {
    json!({"name": SERVER_NAME, "version": env!("CARGO_PKG_VERSION")})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_eras_of_the_protocol_are_answered() {
        let memory = OfflineServer::memory();
        let result = |method: &str, params: Value| memory.result(method, &params);
        let begun = |version: &str| {
            let begun = result("initialize", json!({"protocolVersion": version}));
            begun.unwrap()["protocolVersion"].as_str().unwrap().to_owned()
        };
        assert_eq!(begun("2025-03-26"), "2025-03-26");
        assert_eq!(begun("2031-01-01"), LATEST_VERSION);
        let stateless = json!({"_meta": {VERSION_FIELD: STATELESS_VERSION}});
        let found = result("server/discover", stateless.clone()).unwrap();
        assert_eq!(found["supportedVersions"][4], STATELESS_VERSION);
        assert_eq!(found["resultType"], "complete");
        let listed = result("tools/list", stateless.clone()).unwrap();
        assert_eq!((&listed["cacheScope"], &listed["ttlMs"]), (&json!("private"), &json!(0)));
        assert_eq!(listed["tools"].as_array().unwrap().len(), 6);
        let earlier = result("tools/list", json!({})).unwrap();
        assert!(earlier.get("resultType").is_none(), "{earlier}");
        let called = complete("tools/call", &stateless, json!({"isError": true}));
        assert_eq!(called, json!({"isError": true, "resultType": "complete"}));
        assert_eq!(result("tools/call", stateless), None);
        let none = OfflineServer::client_gone().result("tools/list", &json!({})).unwrap();
        assert_eq!(none, json!({"tools": []}));
    }
}
