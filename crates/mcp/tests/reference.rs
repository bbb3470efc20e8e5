//! `docs/mcp.md` lists every tool, argument and result, and nothing else.
#![allow(clippy::disallowed_methods, reason = "tests make files and processes of their own")]

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

fn rows(schema: &Value, arrow: &str, prefix: &str, lines: &mut Vec<String>) {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let kind = match &field["default"] {
            Value::Null if required.iter().any(|required| required == name) => kind(field),
            Value::Null => format!("{}, optional", kind(field)),
            default => format!("{}, default `{default}`", kind(field)),
        };
        let description = match field["description"].as_str() {
            Some(description) => format!(": {description}"),
            None => String::new(),
        };
        lines.push(format!("- {arrow}`{prefix}{name}` ({kind}){description}"));
        rows(field, arrow, &format!("{prefix}{name}."), lines);
        rows(&field["items"], arrow, &format!("{prefix}{name}[]."), lines);
    }
}

#[test]
fn reference_lists_all_tools_and_fields() {
    let mut expect = Vec::new();
    for tool in hob_mcp::tools() {
        let tool = serde_json::to_value(tool).unwrap();
        let text = |key: &str| tool[key].as_str().unwrap_or_default().to_owned();
        expect.push(format!("## `{}`: {}", text("name"), text("description")));
        rows(&tool["inputSchema"], "", "", &mut expect);
        rows(&tool["outputSchema"], "→ ", "", &mut expect);
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mcp.md");
    let text = std::fs::read_to_string(path).expect("docs/mcp.md");
    let is_listed =
        |line: &&str| ["## `", "- `", "- → `"].iter().any(|start| line.starts_with(start));
    let found: Vec<&str> = text.lines().filter(is_listed).collect();
    assert_eq!(found, expect, "docs/mcp.md must have these lines\n{}", expect.join("\n"));
}
