//! The policy for agents' permission requests.

use serde::{Deserialize, Serialize};

/// What happens to an agent's permission request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Permissions {
    /// Hob rejects it at once, and the turn goes on.
    #[default]
    Deny,
    /// The caller decides.
    Ask,
    /// Hob grants it.
    Allow,
}

impl Permissions {
    pub fn as_str(self) -> &'static str {
        match self {
            Permissions::Deny => "deny",
            Permissions::Ask => "ask",
            Permissions::Allow => "allow",
        }
    }

    pub fn parse(text: &str) -> Option<Permissions> {
        match text {
            "deny" => Some(Permissions::Deny),
            "ask" => Some(Permissions::Ask),
            "allow" => Some(Permissions::Allow),
            _ => None,
        }
    }
}
