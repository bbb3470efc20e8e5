//! `docs/mcp.md` lists every tool, argument and result, and nothing else.

use serde_json::Value;

fn kind(schema: &Value) -> String {
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
        return values.join(" or ");
    }
    match &schema["type"] {
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => {
            let kinds: Vec<&str> =
                kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null").collect();
            kinds.join(" or ")
        }
        _ => "object".to_owned(),
    }
}

fn rows(schema: &Value, prefix: &str, lines: &mut Vec<String>) {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let default = match &field["default"] {
            Value::Null if required.iter().any(|required| required == name) => String::new(),
            Value::Null => "none".to_owned(),
            default => format!("`{default}`"),
        };
        let description = field["description"].as_str().unwrap_or_default();
        lines.push(format!("| `{prefix}{name}` | {} | {default} | {description} |", kind(field)));
        rows(field, &format!("{prefix}{name}."), lines);
        rows(&field["items"], &format!("{prefix}{name}[]."), lines);
    }
}

#[test]
fn reference_lists_all_tools_and_fields() {
    let mut expect = Vec::new();
    for tool in hob_mcp::tools() {
        let tool = serde_json::to_value(tool).unwrap();
        let text = |key: &str| tool[key].as_str().unwrap_or_default().to_owned();
        expect.push(format!("## `{}`: {}", text("name"), text("description")));
        rows(&tool["inputSchema"], "", &mut expect);
        rows(&tool["outputSchema"], "→ ", &mut expect);
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mcp.md");
    let text = std::fs::read_to_string(path).expect("docs/mcp.md");
    let found: Vec<&str> =
        text.lines().filter(|line| line.starts_with("## `") || line.starts_with("| `")).collect();
    assert_eq!(found, expect, "docs/mcp.md must have these lines\n{}", expect.join("\n"));
}
