//! Tools that a caller runs itself, as requests describe them.

use std::collections::HashSet;

use hob_agents::client_tools::ClientTool;
use serde_json::{Map, Value, json};

use crate::error::ApiError;

/// The longest name of a tool. The agent adds a prefix to it.
const MAX_NAME_LENGTH: usize = 100;

/// Reads a tool. Its JSON schema is in `schema_field`.
pub(crate) fn client_tool(
    tool: &Value,
    schema_field: &str,
    place: &str,
) -> Result<ClientTool, ApiError> {
    let name = tool["name"].as_str().unwrap_or_default();
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || name.len() > MAX_NAME_LENGTH || !name.chars().all(is_allowed) {
        return Err(ApiError::bad_request(format!(
            "{place}.name: must have 1 to {MAX_NAME_LENGTH} letters, digits, _ or -"
        )));
    }
    let input_schema = match &tool[schema_field] {
        Value::Null => no_parameters(),
        Value::Object(schema) if schema.is_empty() => no_parameters(),
        Value::Object(schema) if schema.get("type").is_none_or(|kind| kind == "object") => {
            let mut schema = schema.clone();
            schema.insert("type".to_owned(), json!("object"));
            schema
        }
        _ => {
            return Err(ApiError::bad_request(format!(
                "{place}.{schema_field}: must be a JSON schema of type object"
            )));
        }
    };
    let description = tool["description"].as_str().unwrap_or_default().to_owned();
    Ok(ClientTool { name: name.to_owned(), description, input_schema })
}

fn no_parameters() -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), json!("object")), ("properties".to_owned(), json!({}))])
}

/// Checks that no two tools have one name.
pub(crate) fn check_names(tools: &[ClientTool]) -> Result<(), ApiError> {
    let mut names = HashSet::new();
    match tools.iter().find(|tool| !names.insert(tool.name.as_str())) {
        Some(tool) => {
            let text = format!("tools: two tools have the name {:?}", tool.name);
            Err(ApiError::bad_request(text))
        }
        None => Ok(()),
    }
}
