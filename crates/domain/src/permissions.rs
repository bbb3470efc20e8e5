//! What agents may do.

use serde::{Deserialize, Serialize};

/// What happens when an agent asks whether it may do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Permissions {
    /// It is told no at once, and the turn goes on.
    #[default]
    Deny,
    /// The caller is asked.
    Ask,
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
