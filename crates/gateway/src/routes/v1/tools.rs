//! The client's own tools, in both dialects.

use hob_agents::client_tools::ClientTool;
use serde_json::Value;

use super::dialect::Problem;
use crate::client_tool::{check_names, client_tool};
use crate::error::ApiError;

/// What the request says about the client's tools.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ToolUse {
    pub tools: Vec<ClientTool>,
    /// Whether the answer must call one of the tools.
    pub is_required: bool,
    /// Whether an answer may have only one call.
    pub one_at_a_time: bool,
}

impl ToolUse {
    /// Returns what the system prompt says if the answer must call one of the tools.
    pub fn instruction(&self) -> Option<String> {
        self.is_required.then(|| {
            let names: Vec<&str> = self.tools.iter().map(|tool| tool.name.as_str()).collect();
            let names = names.join(", ");
            format!(
                "You must answer by calling one of these tools, and with nothing else: {names}."
            )
        })
    }
}

/// The choice that a request makes for the model.
enum Choice {
    Auto,
    None,
    Any,
    Tool(String),
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
        None | Some((Some("auto"), _)) => Choice::Auto,
        Some((Some("none"), _)) => Choice::None,
        Some((Some("any"), _)) => Choice::Any,
        Some((Some("tool"), Some(name))) => Choice::Tool(name.to_owned()),
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
fn openai_choice(choice: Option<&Value>, name: Option<&str>) -> Result<Choice, Problem> {
    Ok(match choice {
        None | Some(Value::Null) => Choice::Auto,
        Some(Value::String(text)) => match text.as_str() {
            "auto" => Choice::Auto,
            "none" => Choice::None,
            "required" => Choice::Any,
            _ => return Err(wrong("tool_choice: must be auto, none, required or a function")),
        },
        Some(choice) => match (choice["type"].as_str(), name) {
            (Some("function"), Some(name)) => Choice::Tool(name.to_owned()),
            _ => return Err(wrong("tool_choice: must be auto, none, required or a function")),
        },
    })
}
fn chosen(
    mut tools: Vec<ClientTool>,
    choice: Choice,
    one_at_a_time: bool,
) -> Result<ToolUse, Problem> {
    check_names(&tools)?;
    let is_required = match choice {
        Choice::Auto => false,
        Choice::None => {
            tools.clear();
            false
        }
        Choice::Any if tools.is_empty() => {
            return Err(wrong("tool_choice: a call is required, but there are no tools"));
        }
        Choice::Any => true,
        Choice::Tool(name) => {
            tools.retain(|tool| tool.name == name);
            if tools.is_empty() {
                return Err(wrong(&format!("tool_choice: no tool has the name {name:?}")));
            }
            true
        }
    };
    Ok(ToolUse { tools, is_required, one_at_a_time })
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

    fn names(found: Result<ToolUse, Problem>) -> (Vec<String>, bool, bool) {
        let found = found.unwrap();
        let names = found.tools.into_iter().map(|tool| tool.name).collect();
        (names, found.is_required, found.one_at_a_time)
    }

    #[test]
    fn tools_and_choices_of_both_dialects() {
        let theirs = [
            json!({"name": "a", "input_schema": {"type": "object", "properties": {"x": {}}}}),
            json!({"type": "custom", "name": "b", "description": "B", "input_schema": {}}),
        ];
        let all = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(names(anthropic(Some(&theirs), None)), (all.clone(), false, false));
        let one = json!({"type": "tool", "name": "b", "disable_parallel_tool_use": true});
        assert_eq!(names(anthropic(Some(&theirs), Some(&one))), (vec!["b".into()], true, true));
        assert_eq!(names(anthropic(Some(&theirs), Some(&json!({"type": "none"})))).0, [""; 0]);
        let theirs = [
            json!({"type": "function", "function": {"name": "a", "parameters": {"properties": {}}}}),
            json!({"type": "function", "function": {"name": "b", "strict": true}}),
        ];
        let required = json!("required");
        assert_eq!(names(openai(Some(&theirs), Some(&required), Some(false))), (all, true, true));
        let named = json!({"type": "function", "function": {"name": "a"}});
        let found = openai(Some(&theirs), Some(&named), None).unwrap();
        assert_eq!(found.tools[0].input_schema["type"], "object");
        assert_eq!(openai(None, None, Some(true)).unwrap(), ToolUse::default());
        let theirs = [json!({"type": "function", "name": "a", "parameters": {}, "strict": true})];
        let named = json!({"type": "function", "name": "a"});
        assert!(names(responses(Some(&theirs), Some(&named), None)).1);
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
