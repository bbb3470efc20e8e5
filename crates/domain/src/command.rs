//! Commands that only the lease holder of a session can execute, and their outcomes.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::setting::SettingChange;

/// A command to a session. Executing it twice does no harm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "want", rename_all = "snake_case")]
pub enum SessionCommand {
    /// Cancels the running turn, else the first one that waits.
    Cancel,
    Close,
    /// Answers an agent's permission request.
    Answer {
        request: String,
        option: String,
        /// The fields of the form that the request has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<Value>,
        /// What the caller tells the agent with a rejection.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// Returns the result of a call of one of the caller's own tools.
    ToolResult {
        call: String,
        /// A string or content blocks in Anthropic's format.
        content: Value,
        is_error: bool,
    },
    /// Reads the settings that the agent offers.
    Settings,
    /// Changes a setting of the agent.
    Configure {
        change: SettingChange,
    },
    /// A command of another version of Hob.
    #[serde(other)]
    Unknown,
}

impl SessionCommand {
    /// Reads a stored command.
    pub fn from_json(text: &str) -> SessionCommand {
        serde_json::from_str(text).unwrap_or(SessionCommand::Unknown)
    }

    /// Returns the command as it is stored.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "was", rename_all = "snake_case")]
pub enum CommandOutcome {
    /// `turn` is the turn that was ended; `None` when there was none.
    Cancelled {
        turn: Option<u32>,
    },
    /// `now` is false when the session was closed before.
    Closed {
        now: bool,
    },
    Answered,
    /// The agent's settings, after a change or without one.
    Settings {
        settings: Value,
    },
    /// The agent refused a change, with a code of JSON-RPC.
    Refused {
        code: i64,
        message: String,
    },
    NotFound,
    Invalid {
        message: String,
    },
    /// Another node holds the session by now.
    Elsewhere,
    Failed {
        message: String,
    },
}

impl CommandOutcome {
    /// Reads a stored outcome. One that cannot be read sends the caller to look for the lease
    /// holder again.
    pub fn from_json(text: &str) -> CommandOutcome {
        serde_json::from_str(text).unwrap_or(CommandOutcome::Elsewhere)
    }

    /// Returns the outcome as it is stored.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::OptionValue;

    #[test]
    fn stored_commands_keep_their_json() {
        let answer = |content| SessionCommand::Answer {
            request: "1".to_owned(),
            option: "yes".to_owned(),
            content,
            message: None,
        };
        let filled = r#"{"want":"answer","request":"1","option":"yes","content":{"a":1}}"#;
        for (command, json) in [
            (SessionCommand::Cancel, r#"{"want":"cancel"}"#),
            (SessionCommand::Close, r#"{"want":"close"}"#),
            (answer(None), r#"{"want":"answer","request":"1","option":"yes"}"#),
            (answer(Some(serde_json::json!({"a": 1}))), filled),
            (SessionCommand::Settings, r#"{"want":"settings"}"#),
            (
                SessionCommand::Configure {
                    change: SettingChange::Mode { mode: "plan".to_owned() },
                },
                r#"{"want":"configure","change":{"set":"mode","mode":"plan"}}"#,
            ),
            (
                SessionCommand::Configure {
                    change: SettingChange::Option {
                        option: "web".to_owned(),
                        value: OptionValue::Flag(true),
                    },
                },
                r#"{"want":"configure","change":{"set":"option","option":"web","value":true}}"#,
            ),
        ] {
            assert_eq!(command.to_json(), json);
            assert_eq!(SessionCommand::from_json(json), command);
        }
        for foreign in ["", "{}", r#"{"want":"dance"}"#, r#"{"want":"answer"}"#] {
            assert_eq!(SessionCommand::from_json(foreign), SessionCommand::Unknown, "{foreign}");
        }
        let closed = CommandOutcome::Closed { now: true };
        assert_eq!(closed.to_json(), r#"{"was":"closed","now":true}"#);
        assert_eq!(CommandOutcome::from_json(&closed.to_json()), closed);
        assert_eq!(CommandOutcome::from_json("{}"), CommandOutcome::Elsewhere);
    }
}
