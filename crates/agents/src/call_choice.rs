//! Which of the client's tools the model may call, or must call, for one answer.

use crate::client_tools::ClientTool;

/// What a request says about the calls of its answer. The next request of the conversation may say something else, so that
/// the prompt has the instruction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CallChoice {
    /// The model decides.
    #[default]
    Auto,
    /// No call.
    Forbidden,
    /// At least one call.
    Any,
    /// A call of the tool with this name, and of no other.
    Tool(String),
}

impl CallChoice {
    /// Returns whether the answer must have a call.
    pub fn is_required(&self) -> bool {
        matches!(self, CallChoice::Any | CallChoice::Tool(_))
    }

    /// Returns the names of the tools that may be called.
    pub(crate) fn offered(&self, tools: &[ClientTool]) -> Vec<String> {
        let is_offered = |tool: &&ClientTool| match self {
            CallChoice::Auto | CallChoice::Any => true,
            CallChoice::Forbidden => false,
            CallChoice::Tool(name) => tool.name == *name,
        };
        tools.iter().filter(is_offered).map(|tool| tool.name.clone()).collect()
    }

    /// Returns the instruction for the agent, if the choice is not its own.
    pub(crate) fn instruction(&self, tools: &[ClientTool]) -> Option<String> {
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        let names = names.join(", ");
        match self {
            CallChoice::Forbidden if !tools.is_empty() => {
                Some(format!("You must answer without calling any of these tools: {names}."))
            }
            CallChoice::Any => Some(format!(
                "You must answer by calling one of these tools, and with nothing else: {names}."
            )),
            CallChoice::Tool(name) => {
                Some(format!("You must answer by calling the tool {name}, and with nothing else."))
            }
            CallChoice::Auto | CallChoice::Forbidden => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    #[test]
    fn choice_says_what_may_be_called() {
        let tool = |name: &str| ClientTool {
            name: name.to_owned(),
            description: String::new(),
            input_schema: Map::new(),
        };
        let tools = [tool("add"), tool("divide")];
        let check = |choice: CallChoice, offered: &[&str], told: &str| {
            assert_eq!(choice.offered(&tools), offered, "{choice:?}");
            let instruction = choice.instruction(&tools).unwrap_or_default();
            assert_eq!(instruction.is_empty(), told.is_empty(), "{choice:?}: {instruction}");
            assert!(instruction.contains(told), "{choice:?}: {instruction}");
        };
        check(CallChoice::Auto, &["add", "divide"], "");
        check(CallChoice::Any, &["add", "divide"], "calling one of these tools");
        check(CallChoice::Tool("add".to_owned()), &["add"], "calling the tool add");
        check(CallChoice::Forbidden, &[], "without calling");
        assert_eq!(CallChoice::Forbidden.instruction(&[]), None);
    }
}
