//! The client's own tools, in both dialects.

use hob_agents::call_choice::CallChoice;
use hob_agents::client_tools::ClientTool;
use serde_json::Value;

use super::dialect::Problem;
use crate::client_tool::{check_names, client_tool};
use crate::error::ApiError;

/// What the request says about the client's tools.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ToolUse {
    pub tools: Vec<ClientTool>,
    /// Which of the tools the answer may call, or must call.
    pub choice: CallChoice,
    /// Whether an answer may have only one call.
    pub one_at_a_time: bool,
}

/// Reads Anthropic's `tools` and `tool_choice`.
pub(super) fn anthropic(
    tools: Option<&[Value]>,
    choice: Option<&Value>,
) -> Result<ToolUse, Problem> {
    let read = |(index, tool): (usize, &Value)| {
        let place = format!("tools[{index}]");
        match tool["type"].as_str() {
            None | Some("custom") => Ok(client_tool(tool, "input_schema", &place)?),
            Some(kind) => Err(unsupported(&place, kind, "custom")),
        }
    };
    let tools = tools.unwrap_or_default().iter().enumerate().map(read).collect::<Result<_, _>>()?;
    let kind = choice.filter(|choice| !choice.is_null());
    let choice = match kind.map(|choice| (choice["type"].as_str(), choice["name"].as_str())) {
        None | Some((Some("auto"), _)) => CallChoice::Auto,
        Some((Some("none"), _)) => CallChoice::Forbidden,
        Some((Some("any"), _)) => CallChoice::Any,
        Some((Some("tool"), Some(name))) => CallChoice::Tool(name.to_owned()),
        Some(_) => {
            return Err(wrong(
                "tool_choice: its type must be auto, any, tool (with a name) or none",
            ));
        }
    };
    let one_at_a_time = kind.is_some_and(|choice| choice["disable_parallel_tool_use"] == true);
    chosen(tools, choice, one_at_a_time)
}

/// Reads `tools`, `tool_choice` and `parallel_tool_calls` of OpenAI's chat completions.
pub(super) fn openai(
    tools: Option<&[Value]>,
    choice: Option<&Value>,
    parallel: Option<bool>,
) -> Result<ToolUse, Problem> {
    let function = |tool: &Value, place: &str| {
        Ok(client_tool(&tool["function"], "parameters", &format!("{place}.function"))?)
    };
    let tools = functions(tools, function)?;
    let name = choice.and_then(|choice| choice["function"]["name"].as_str());
    chosen(tools, openai_choice(choice, name)?, parallel == Some(false))
}

/// Reads `tools`, `tool_choice` and `parallel_tool_calls` of OpenAI's Responses, whose functions are not nested.
pub(super) fn responses(
    tools: Option<&[Value]>,
    choice: Option<&Value>,
    parallel: Option<bool>,
) -> Result<ToolUse, Problem> {
    let tools = functions(tools, |tool, place| Ok(client_tool(tool, "parameters", place)?))?;
    let name = choice.and_then(|choice| choice["name"].as_str());
    chosen(tools, openai_choice(choice, name)?, parallel == Some(false))
}

/// Refuses the older form of OpenAI's tools.
pub(super) fn no_functions(functions: Option<&[Value]>) -> Result<(), Problem> {
    match functions {
        None | Some([]) => Ok(()),
        Some(_) => Err(wrong("functions: this older form is not supported; use tools instead")),
    }
}

/// Reads OpenAI's tools, which must be functions.
fn functions(
    tools: Option<&[Value]>,
    function: impl Fn(&Value, &str) -> Result<ClientTool, Problem>,
) -> Result<Vec<ClientTool>, Problem> {
    let read = |(index, tool): (usize, &Value)| {
        let place = format!("tools[{index}]");
        match tool["type"].as_str() {
            Some("function") => function(tool, &place),
            kind => Err(unsupported(&place, kind.unwrap_or("none"), "function")),
        }
    };
    tools.unwrap_or_default().iter().enumerate().map(read).collect()
}

/// Reads OpenAI's `tool_choice`. `name` is that of the function which it names.
fn openai_choice(choice: Option<&Value>, name: Option<&str>) -> Result<CallChoice, Problem> {
    Ok(match choice {
        None | Some(Value::Null) => CallChoice::Auto,
        Some(Value::String(text)) => match text.as_str() {
            "auto" => CallChoice::Auto,
            "none" => CallChoice::Forbidden,
            "required" => CallChoice::Any,
            _ => return Err(wrong("tool_choice: must be auto, none, required or a function")),
        },
        Some(choice) => match (choice["type"].as_str(), name) {
            (Some("function"), Some(name)) => CallChoice::Tool(name.to_owned()),
            _ => return Err(wrong("tool_choice: must be auto, none, required or a function")),
        },
    })
}

/// Checks that the choice can be made among the tools.
fn chosen(
    tools: Vec<ClientTool>,
    choice: CallChoice,
    one_at_a_time: bool,
) -> Result<ToolUse, Problem> {
    check_names(&tools)?;
    match &choice {
        CallChoice::Any if tools.is_empty() => {
            Err(wrong("tool_choice: a call is required, but there are no tools"))
        }
        CallChoice::Tool(name) if tools.iter().all(|tool| tool.name != *name) => {
            Err(wrong(&format!("tool_choice: no tool has the name {name:?}")))
        }
        _ => Ok(ToolUse { tools, choice, one_at_a_time }),
    }
}

/// Refuses a tool of another type than `supported`, which is the dialect's term for a tool of the client.
fn unsupported(place: &str, kind: &str, supported: &str) -> Problem {
    wrong(&format!(
        "{place}.type: {kind:?} is not supported; only tools of type {supported} are. For web search, files and the like, Claude Code has built-in tools"
    ))
}

fn wrong(message: &str) -> Problem {
    ApiError::bad_request(message).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(found: Result<ToolUse, Problem>) -> (Vec<String>, CallChoice, bool) {
        let found = found.unwrap();
        let names = found.tools.into_iter().map(|tool| tool.name).collect();
        (names, found.choice, found.one_at_a_time)
    }

    #[test]
    fn tools_and_choices_of_both_dialects() {
        let theirs = [
            json!({"name": "a", "input_schema": {"type": "object", "properties": {"x": {}}}}),
            json!({"type": "custom", "name": "b", "description": "B", "input_schema": {}}),
        ];
        let all = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(names(anthropic(Some(&theirs), None)), (all.clone(), CallChoice::Auto, false));
        let one = json!({"type": "tool", "name": "b", "disable_parallel_tool_use": true});
        // The tools stay those of the conversation.
        let named = CallChoice::Tool("b".to_owned());
        assert_eq!(names(anthropic(Some(&theirs), Some(&one))), (all.clone(), named, true));
        let none = names(anthropic(Some(&theirs), Some(&json!({"type": "none"}))));
        assert_eq!(none, (all.clone(), CallChoice::Forbidden, false));
        let theirs = [
            json!({"type": "function", "function": {"name": "a", "parameters": {"properties": {}}}}),
            json!({"type": "function", "function": {"name": "b", "strict": true}}),
        ];
        let required = json!("required");
        let found = names(openai(Some(&theirs), Some(&required), Some(false)));
        assert_eq!(found, (all, CallChoice::Any, true));
        let named = json!({"type": "function", "function": {"name": "a"}});
        let found = openai(Some(&theirs), Some(&named), None).unwrap();
        assert_eq!(found.tools[0].input_schema["type"], "object");
        assert_eq!(openai(None, None, Some(true)).unwrap(), ToolUse::default());
        let theirs = [json!({"type": "function", "name": "a", "parameters": {}, "strict": true})];
        let named = json!({"type": "function", "name": "a"});
        let found = names(responses(Some(&theirs), Some(&named), None));
        assert_eq!(found.1, CallChoice::Tool("a".to_owned()));
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_by_name() {
        let check = |found: Result<ToolUse, Problem>, word: &str| {
            let text = format!("{:?}", found.unwrap_err());
            assert!(text.contains(word), "{text}");
        };
        let tool = |tool: Value| anthropic(Some(&[tool]), None);
        check(
            tool(json!({"type": "web_search_20250305", "name": "web_search"})),
            "web_search_2025",
        );
        check(tool(json!({"type": "bash_20250124", "name": "bash"})), "only tools of type custom");
        let search = [json!({"type": "web_search"})];
        check(openai(Some(&search), None, None), "only tools of type function");
        check(responses(Some(&search), None, None), "only tools of type function");
        check(tool(json!({"name": "a b", "input_schema": {}})), "tools[0].name");
        check(tool(json!({"name": "a", "input_schema": {"type": "string"}})), "input_schema");
        let two = [json!({"name": "a"}), json!({"name": "a"})];
        check(anthropic(Some(&two), None), "two tools");
        check(anthropic(None, Some(&json!({"type": "any"}))), "tool_choice");
        check(anthropic(None, Some(&json!("auto"))), "tool_choice");
        check(openai(Some(&[json!({"type": "custom"})]), None, None), "tools[0].type");
        check(openai(None, Some(&json!({"type": "allowed_tools"})), None), "tool_choice");
    }
}
