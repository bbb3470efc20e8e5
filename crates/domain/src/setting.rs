//! Settings that an agent offers for its conversation, and what a caller has chosen of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How many options of an agent a session keeps. An agent that offers more forgets the others when it is resumed.
const MAX_KEPT_OPTIONS: usize = 64;
/// The id of the option that agents offer in place of modes, or in addition to them.
const MODE_OPTION: &str = "mode";

/// A change of one setting of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "set", rename_all = "snake_case")]
pub enum SettingChange {
    Mode { mode: String },
    Option { option: String, value: OptionValue },
}

impl SettingChange {
    /// Returns the setting and its value in words.
    pub fn describe(&self) -> String {
        match self {
            SettingChange::Mode { mode } => format!("the mode {mode:?}"),
            SettingChange::Option { option, value: OptionValue::Choice(value) } => {
                format!("{value:?} for the option {option:?}")
            }
            SettingChange::Option { option, value: OptionValue::Flag(value) } => {
                format!("{value} for the option {option:?}")
            }
        }
    }
}

/// The value of an agent's option: the id of a choice, or whether it is switched on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OptionValue {
    Flag(bool),
    Choice(String),
}

/// The settings that a caller has chosen. They are chosen again when the agent is started again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentChoices {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, OptionValue>,
}

impl AgentChoices {
    pub fn is_empty(&self) -> bool {
        self.mode.is_none() && self.options.is_empty()
    }

    /// Returns the choices as changes, in the order in which they are made again.
    pub fn changes(&self) -> Vec<SettingChange> {
        let options = self.options.iter().map(|(option, value)| SettingChange::Option {
            option: option.clone(),
            value: value.clone(),
        });
        let mode = self.mode.iter().map(|mode| SettingChange::Mode { mode: mode.clone() });
        options.chain(mode).collect()
    }

    /// Notes a change. A mode that is also offered as an option has one value, the later one.
    pub fn apply(&mut self, change: &SettingChange) {
        match change {
            SettingChange::Mode { mode } => {
                self.options.remove(MODE_OPTION);
                self.mode = Some(mode.clone());
            }
            SettingChange::Option { option, value } => {
                if option == MODE_OPTION {
                    self.mode = None;
                }
                if self.options.len() < MAX_KEPT_OPTIONS || self.options.contains_key(option) {
                    self.options.insert(option.clone(), value.clone());
                }
            }
        }
    }
}

/// An agent's conversation as the ledger keeps it: the agent's name for it, and the choices of the caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredConversation {
    /// The agent's own name; `None` before its first prompt.
    pub name: Option<String>,
    pub choices: AgentChoices,
}

impl StoredConversation {
    /// Reads a stored conversation: its name, and choices as JSON in a second line if there are any.
    pub fn from_text(text: &str) -> StoredConversation {
        let choices = text.rsplit_once('\n').and_then(|(name, choices)| {
            let choices = serde_json::from_str::<AgentChoices>(choices).ok()?;
            Some((name, choices))
        });
        let (name, choices) = choices.unwrap_or_else(|| (text, AgentChoices::default()));
        StoredConversation { name: (!name.is_empty()).then(|| name.to_owned()), choices }
    }

    /// Returns the conversation as it is stored.
    pub fn to_text(&self) -> String {
        let name = self.name.as_deref().unwrap_or_default();
        // The last line of a name must not be read as choices.
        if self.choices.is_empty() && !name.contains('\n') {
            return name.to_owned();
        }
        format!("{name}\n{}", serde_json::to_string(&self.choices).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_keep_their_text() {
        let mut conversation = StoredConversation::from_text("0d5c");
        assert_eq!(
            (conversation.name.as_deref(), conversation.to_text()),
            (Some("0d5c"), "0d5c".to_owned())
        );
        conversation.choices.apply(&SettingChange::Mode { mode: "plan".to_owned() });
        assert_eq!(conversation.to_text(), "0d5c\n{\"mode\":\"plan\"}");
        assert_eq!(StoredConversation::from_text(&conversation.to_text()), conversation);
        // A mode is chosen before the first prompt.
        conversation.name = None;
        assert_eq!(StoredConversation::from_text(&conversation.to_text()), conversation);
        assert_eq!(StoredConversation::from_text(""), StoredConversation::default());
        // A name of two lines is a name.
        let odd = StoredConversation::from_text("one\ntwo");
        assert_eq!((odd.name.as_deref(), odd.choices.is_empty()), (Some("one\ntwo"), true));
        // Also one whose second line looks like choices.
        let odd = StoredConversation { name: Some("one\n{}".to_owned()), ..Default::default() };
        assert_eq!(StoredConversation::from_text(&odd.to_text()), odd);
    }

    #[test]
    fn later_choice_of_a_mode_wins() {
        let option = |option: &str, value: OptionValue| SettingChange::Option {
            option: option.to_owned(),
            value,
        };
        let mut choices = AgentChoices::default();
        choices.apply(&SettingChange::Mode { mode: "plan".to_owned() });
        choices.apply(&option("mode", OptionValue::Choice("code".to_owned())));
        choices.apply(&option("web", OptionValue::Flag(true)));
        let json = r#"{"options":{"mode":"code","web":true}}"#;
        assert_eq!(serde_json::to_string(&choices).unwrap(), json);
        assert_eq!(serde_json::from_str::<AgentChoices>(json).unwrap(), choices);
        choices.apply(&SettingChange::Mode { mode: "ask".to_owned() });
        assert_eq!(
            serde_json::to_string(&choices).unwrap(),
            r#"{"mode":"ask","options":{"web":true}}"#
        );
        (0..100).for_each(|number| {
            choices.apply(&option(&format!("o{number}"), OptionValue::Flag(true)))
        });
        assert_eq!(choices.options.len(), MAX_KEPT_OPTIONS);
    }
}
