//! The MCP servers that a caller names, in the format of ACP (a list) or of Claude Code (a table).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::client_tools::{ClientTool, KEY_VARIABLE, SERVER_NAME, ToolServer};

/// An MCP server for an agent. The ledger stores this format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpServer {
    pub name: String,
    #[serde(flatten)]
    pub transport: McpTransport,
}

/// The transport by which an agent reaches an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "way", rename_all = "lowercase")]
pub enum McpTransport {
    Stdio {
        command: String,
        args: Vec<String>,
        env: Vec<(String, String)>,
    },
    Http {
        url: String,
        headers: Vec<(String, String)>,
    },
    Sse {
        url: String,
        headers: Vec<(String, String)>,
    },
    /// Hob's own memory, as the app sees it.
    Memory,
    /// The tools that the caller runs itself.
    Client {
        tools: Vec<ClientTool>,
    },
}

impl McpServer {
    /// Returns the server of the tools that the caller runs itself.
    pub fn of_client(tools: Vec<ClientTool>) -> McpServer {
        McpServer { name: SERVER_NAME.to_owned(), transport: McpTransport::Client { tools } }
    }

    /// Returns whether the agent reaches the caller's tools by this server.
    pub(crate) fn is_clients(&self) -> bool {
        match &self.transport {
            McpTransport::Client { .. } => true,
            McpTransport::Stdio { env, .. } => env.iter().any(|(name, _)| name == KEY_VARIABLE),
            _ => false,
        }
    }
}

/// The name of Hob's own memory.
const MEMORY: &str = "memory";
/// The fields that a server in a request may have. ACP reserves `_meta` for extensions.
const FIELDS: [&str; 8] = ["name", "type", "command", "args", "env", "url", "headers", "_meta"];

/// Parses the servers in a request. Errors name the field.
pub fn parse(value: &Value) -> Result<Vec<McpServer>, String> {
    let servers: Vec<McpServer> = match value {
        Value::Null => Vec::new(),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .map(|(index, entry)| {
                let name = match entry {
                    Value::String(word) => word.as_str(),
                    entry => entry["name"].as_str().unwrap_or_default(),
                };
                parse_server(name, entry)
                    .map_err(|problem| format!("mcp_servers[{index}]: {problem}"))
            })
            .collect::<Result<_, _>>()?,
        Value::Object(table) => table
            .iter()
            .map(|(name, entry)| {
                parse_server(name, entry)
                    .map_err(|problem| format!("mcp_servers.{name}: {problem}"))
            })
            .collect::<Result<_, _>>()?,
        _ => return Err("mcp_servers: must be a list or a table of servers".to_owned()),
    };
    for (index, server) in servers.iter().enumerate() {
        if servers[..index].iter().any(|other| other.name == server.name) {
            return Err(format!("mcp_servers: two servers are named {:?}", server.name));
        }
    }
    Ok(servers)
}

/// Returns the first field of an object in a request that is not a known one.
pub fn unknown_field<'a>(object: &'a Value, known: &[&str]) -> Option<&'a str> {
    let mut fields = object.as_object()?.keys().map(String::as_str);
    fields.find(|field| !known.contains(field))
}

fn parse_server(name: &str, entry: &Value) -> Result<McpServer, String> {
    if entry == MEMORY {
        return Ok(McpServer { name: name.to_owned(), transport: McpTransport::Memory });
    }
    if !entry.is_object() {
        return Err(format!(
            "must be an object that describes a server, or the string {MEMORY:?} for Hob's own memory"
        ));
    }
    if name.is_empty() {
        return Err("name: must not be empty".to_owned());
    }
    if let Some(field) = unknown_field(entry, &FIELDS) {
        return Err(format!("{field}: unknown field"));
    }
    let text = |key: &str| match &entry[key] {
        Value::String(text) if !text.is_empty() => Ok(text.clone()),
        Value::Null => Err(format!("{key}: must be given")),
        _ => Err(format!("{key}: must be a string")),
    };
    let transport = match entry["type"].as_str() {
        Some(MEMORY) => McpTransport::Memory,
        Some("http" | "streamable-http") => {
            McpTransport::Http { url: text("url")?, headers: pairs(entry, "headers")? }
        }
        Some("sse") => McpTransport::Sse { url: text("url")?, headers: pairs(entry, "headers")? },
        None if entry["url"].is_string() => {
            McpTransport::Http { url: text("url")?, headers: pairs(entry, "headers")? }
        }
        None | Some("stdio") => {
            let args = match &entry["args"] {
                Value::Null => Some(Vec::new()),
                Value::Array(list) => {
                    list.iter().map(|arg| arg.as_str().map(str::to_owned)).collect()
                }
                _ => None,
            };
            let args = args.ok_or("args: must be a list of strings")?;
            McpTransport::Stdio { command: text("command")?, args, env: pairs(entry, "env")? }
        }
        Some(other) => return Err(format!("type: unknown type {other:?}")),
    };
    Ok(McpServer { name: name.to_owned(), transport })
}

/// Reads names and values from a table or from a list of `{name, value}`.
fn pairs(entry: &Value, key: &str) -> Result<Vec<(String, String)>, String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let found: Option<Vec<(String, String)>> = match &entry[key] {
        Value::Null => Some(Vec::new()),
        Value::Object(table) => {
            table.iter().map(|(name, value)| Some((name.clone(), text(value)?))).collect()
        }
        Value::Array(list) => {
            list.iter().map(|pair| Some((text(&pair["name"])?, text(&pair["value"])?))).collect()
        }
        _ => None,
    };
    found.ok_or_else(|| format!("{key}: must be a table of strings"))
}

/// Returns the servers with Hob's own memory replaced by its transport.
pub fn with_memory(servers: Vec<McpServer>, memory: &McpTransport) -> Vec<McpServer> {
    let resolved = |server: McpServer| match server.transport {
        McpTransport::Memory => McpServer { name: server.name, transport: memory.clone() },
        transport => McpServer { name: server.name, transport },
    };
    servers.into_iter().map(resolved).collect()
}

/// Returns the tools that the caller runs itself.
pub fn client_tools(servers: &[McpServer]) -> Vec<ClientTool> {
    let tools = servers.iter().filter_map(|server| match &server.transport {
        McpTransport::Client { tools } => Some(tools.clone()),
        _ => None,
    });
    tools.flatten().collect()
}

/// Returns the servers with the caller's tools replaced by the server of one process, which is reached as the memory is.
pub fn with_client_tools(
    servers: Vec<McpServer>,
    memory: &McpTransport,
    tools: &ToolServer,
) -> Vec<McpServer> {
    let resolved = |server: McpServer| match (&server.transport, memory) {
        (McpTransport::Client { .. }, McpTransport::Stdio { command, args, env }) => {
            let mut env = env.clone();
            env.push(tools.variable());
            let (command, args) = (command.clone(), args.clone());
            McpServer { name: server.name, transport: McpTransport::Stdio { command, args, env } }
        }
        _ => server,
    };
    servers.into_iter().map(resolved).collect()
}

/// Returns the servers in the format of ACP.
pub(crate) fn for_acp(servers: &[McpServer]) -> Vec<Value> {
    let list = |pairs: &[(String, String)]| -> Vec<Value> {
        pairs.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
    };
    servers
        .iter()
        .map(|McpServer { name, transport }| match transport {
            McpTransport::Stdio { command, args, env } => {
                json!({"name": name, "command": command, "args": args, "env": list(env)})
            }
            McpTransport::Http { url, headers } => {
                json!({"type": "http", "name": name, "url": url, "headers": list(headers)})
            }
            McpTransport::Sse { url, headers } => {
                json!({"type": "sse", "name": name, "url": url, "headers": list(headers)})
            }
            McpTransport::Memory | McpTransport::Client { .. } => {
                json!({"name": name, "command": "hob", "args": ["mcp"], "env": []})
            }
        })
        .collect()
}

/// Returns the servers in the format of Claude Code's `mcpServers`.
pub(crate) fn for_claude(servers: &[McpServer]) -> Map<String, Value> {
    let table = |pairs: &[(String, String)]| -> Map<String, Value> {
        pairs.iter().map(|(name, value)| (name.clone(), json!(value))).collect()
    };
    let entry = |transport: &McpTransport| match transport {
        McpTransport::Stdio { command, args, env } => {
            json!({"type": "stdio", "command": command, "args": args, "env": table(env)})
        }
        McpTransport::Http { url, headers } => {
            json!({"type": "http", "url": url, "headers": table(headers)})
        }
        McpTransport::Sse { url, headers } => {
            json!({"type": "sse", "url": url, "headers": table(headers)})
        }
        McpTransport::Memory | McpTransport::Client { .. } => {
            json!({"type": "stdio", "command": "hob", "args": ["mcp"]})
        }
    };
    servers.iter().map(|server| (server.name.clone(), entry(&server.transport))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_equal() {
        let table = json!({"files": {"command": "mcp-files", "args": ["/w"], "env": {"A": "b"}},
            "far": {"type": "http", "url": "http://x", "headers": {"h": "v"}}, "own": "memory"});
        let list = json!([
            {"name": "files", "command": "mcp-files", "args": ["/w"],
             "env": [{"name": "A", "value": "b"}]},
            {"name": "far", "url": "http://x", "headers": [{"name": "h", "value": "v"}]},
        ]);
        let (table, list) = (parse(&table).unwrap(), parse(&list).unwrap());
        assert_eq!(table[..2], list);
        assert_eq!(table[2], McpServer { name: "own".into(), transport: McpTransport::Memory });
        assert_eq!(parse(&json!(["memory"])).unwrap()[0].transport, McpTransport::Memory);
        let kept: Vec<McpServer> =
            serde_json::from_value(serde_json::to_value(&table).unwrap()).unwrap();
        assert_eq!(kept, table);
        let memory = McpTransport::Stdio {
            command: "/bin/hob".into(),
            args: vec!["mcp".into()],
            env: Vec::new(),
        };
        let table = with_memory(table, &memory);
        let acp = for_acp(&table);
        assert_eq!(acp[0]["env"], json!([{"name": "A", "value": "b"}]));
        assert_eq!(
            acp[2],
            json!({"name": "own", "command": "/bin/hob", "args": ["mcp"], "env": []})
        );
        let claude = for_claude(&table);
        assert_eq!(claude["files"]["env"], json!({"A": "b"}));
        assert_eq!(claude["own"]["args"], json!(["mcp"]));
    }

    #[test]
    fn errors_name_the_field() {
        for (value, word) in [
            (json!(3), "mcp_servers:"),
            (json!([{"command": "x"}]), "mcp_servers[0]: name: must not be empty"),
            (json!({"a": {}}), "mcp_servers.a: command: must be given"),
            (json!({"a": {"command": 1}}), "command: must be a string"),
            (json!({"a": {"command": "x", "args": [1]}}), "args"),
            (json!({"a": {"type": "telepathy"}}), "telepathy"),
            (json!({"a": true}), "memory"),
            (
                json!([{"name": "a", "command": "x"}, {"name": "a", "command": "y"}]),
                "two servers are named",
            ),
        ] {
            let error = parse(&value).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        assert!(parse(&Value::Null).unwrap().is_empty());
    }
}
