//! The tools of an agent in the shapes of both APIs, whichever API they were sent to.

use serde_json::{Value, json};

use super::agents::{AgentTools, McpServer, ToolPermissions};

/// Anthropic's name for the agent's own tools.
pub(super) const AGENT_TOOLSET: &str = "agent_toolset_20260401";

/// Returns tools as Anthropic's API shows them.
pub(super) fn anthropic(tools: &AgentTools) -> Vec<Value> {
    let policy = match tools.permissions {
        ToolPermissions::Allow => "always_allow",
        ToolPermissions::Ask | ToolPermissions::Deny => "always_ask",
    };
    let set = |kind: &str| {
        json!({"type": kind, "configs": [],
            "default_config": {"enabled": true, "permission_policy": {"type": policy}}})
    };
    let is_set = |tool: &Value| tool["type"] == AGENT_TOOLSET || tool["type"] == "mcp_toolset";
    let mut shown = Vec::with_capacity(tools.listed.len() + 1);
    // OpenAI's API does not list the agent's own tools. The agent is allowed to use them.
    if tools.permissions != ToolPermissions::Deny && !tools.listed.iter().any(is_set) {
        shown.push(set(AGENT_TOOLSET));
    }
    for tool in &tools.listed {
        match tool["type"].as_str() {
            Some("function") => shown.push(json!({"type": "custom", "name": tool["name"],
                "description": tool["description"], "input_schema": tool["parameters"]})),
            Some("mcp") => {
                let mut toolset = set("mcp_toolset");
                toolset["mcp_server_name"] = tool["server_label"].clone();
                shown.push(toolset);
            }
            // It is one of the agent's own tools.
            Some("web_search") => {}
            _ => shown.push(tool.clone()),
        }
    }
    shown
}

/// Returns the MCP servers as Anthropic's API shows them.
pub(super) fn anthropic_servers(tools: &AgentTools) -> Vec<Value> {
    let server =
        |server: &McpServer| json!({"type": "url", "name": server.name, "url": server.url});
    tools.mcp_servers.iter().map(server).collect()
}

/// Returns tools as OpenAI's API shows them.
pub(super) fn openai(tools: &AgentTools) -> Vec<Value> {
    let mut shown = Vec::with_capacity(tools.listed.len());
    for tool in &tools.listed {
        match tool["type"].as_str() {
            Some("custom") => shown.push(openai_function(
                &tool["name"],
                &tool["description"],
                &tool["input_schema"],
            )),
            // The list of servers has these. The agent's own tools are not listed.
            Some("mcp_toolset" | "mcp" | AGENT_TOOLSET) => {}
            _ => shown.push(tool.clone()),
        }
    }
    shown.extend(tools.mcp_servers.iter().map(|server| openai_server(&server.name, &server.url)));
    shown
}

/// Returns a tool that the caller runs as OpenAI's API shows it.
pub(super) fn openai_function(name: &Value, description: &Value, parameters: &Value) -> Value {
    json!({"type": "function", "name": name, "description": description,
        "parameters": parameters, "defer_loading": false})
}

/// Returns an MCP server as OpenAI's API shows it.
pub(super) fn openai_server(label: &str, url: &str) -> Value {
    json!({"type": "mcp", "server_label": label, "transport": {"type": "http", "server_url": url},
        "allowed_tools": null, "connection_origin": "environment", "credential_id": null,
        "request_metadata": {}, "required": false})
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    fn tools(listed: Value, permissions: ToolPermissions) -> AgentTools {
        let server = McpServer { name: "m".into(), url: "http://m".into(), headers: Map::new() };
        AgentTools {
            listed: listed.as_array().unwrap().clone(),
            client: Vec::new(),
            mcp_servers: vec![server],
            permissions,
        }
    }

    fn types(shown: &[Value]) -> Vec<&str> {
        shown.iter().map(|tool| tool["type"].as_str().unwrap()).collect()
    }

    #[test]
    fn anthropics_tools_are_shown_in_openais_shape() {
        let custom = json!({"type": "custom", "name": "add", "description": "Adds.",
            "input_schema": {"type": "object"}});
        let listed = json!([{"type": AGENT_TOOLSET}, custom,
            {"type": "mcp_toolset", "mcp_server_name": "m"}]);
        let own = tools(listed.clone(), ToolPermissions::Ask);
        assert_eq!(json!(anthropic(&own)), listed, "its own shape stays");
        let shown = openai(&own);
        assert_eq!(types(&shown), ["function", "mcp"]);
        assert_eq!(shown[0]["parameters"], json!({"type": "object"}));
        assert_eq!(shown[1]["transport"]["server_url"], "http://m");
    }

    #[test]
    fn openais_tools_are_shown_in_anthropics_shape() {
        let listed = json!([openai_function(&json!("add"), &json!("Adds."), &json!({})),
            {"type": "web_search"}, openai_server("m", "http://m")]);
        let own = tools(listed, ToolPermissions::Allow);
        assert_eq!(types(&openai(&own)), ["function", "web_search", "mcp"]);
        let shown = anthropic(&own);
        assert_eq!(types(&shown), [AGENT_TOOLSET, "custom", "mcp_toolset"]);
        assert_eq!(shown[1]["input_schema"], json!({}));
        assert_eq!(shown[2]["mcp_server_name"], "m");
        assert!(anthropic(&tools(json!([]), ToolPermissions::Deny)).is_empty());
    }
}
