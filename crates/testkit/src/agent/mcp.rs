//! The MCP servers of the scripted agent. Like Claude Code, it starts them when it starts itself, and calls their tools one
//! after another. As an ACP agent it starts only `app`, the server of a client's tools, with its session.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

/// The servers of this process by name.
static SERVERS: Mutex<BTreeMap<String, Server>> = Mutex::new(BTreeMap::new());

struct Server {
    /// Ends with the agent, as its input closes.
    _child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    requests: u64,
    /// Whether calls name the agent's own call, as Claude Code's do.
    names_calls: bool,
}

/// Starts the servers of the `--mcp-config` argument.
pub fn start(arguments: &[String]) {
    let config = arguments.iter().find_map(|argument| argument.strip_prefix("--mcp-config="));
    let Some(text) = config.and_then(|path| std::fs::read_to_string(path).ok()) else { return };
    let config: Value = serde_json::from_str(&text).unwrap_or_default();
    let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    for (name, entry) in config["mcpServers"].as_object().into_iter().flatten() {
        if let Some(server) = Server::start(entry) {
            servers.insert(name.clone(), server);
        }
    }
}

/// Starts the server of a client's tools, if it is among those of a session of the Agent Client Protocol.
pub fn start_for_session(servers: &Value) {
    let app = servers.as_array().into_iter().flatten().find(|server| server["name"] == "app");
    let Some(mut entry) = app.cloned() else { return };
    let pairs = entry["env"].as_array().into_iter().flatten();
    let pair = |pair: &Value| Some((pair["name"].as_str()?.to_owned(), pair["value"].clone()));
    entry["env"] = Value::Object(pairs.filter_map(pair).collect());
    if let Some(mut server) = Server::start(&entry) {
        server.names_calls = false;
        let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
        servers.insert("app".to_owned(), server);
    }
}

/// Calls a tool of a server: its name is `mcp__SERVER__TOOL`. Returns `None` if there is no such server, else the text of
/// the result and whether it is an error.
pub fn call(id: &str, name: &str, input: &Value) -> Option<(String, bool)> {
    let (server, tool) = name.strip_prefix("mcp__")?.split_once("__")?;
    let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    let server = servers.get_mut(server)?;
    let mut params = json!({"name": tool, "arguments": input});
    if server.names_calls {
        params["_meta"] = json!({"claudecode/toolUseId": id});
    }
    let result = server.request("tools/call", params)?;
    // Of data, the type says that it has come.
    let text = |block: &Value| {
        let resource = &block["resource"];
        let texts = [&block["text"], &resource["text"], &block["mimeType"], &resource["mimeType"]];
        texts.iter().find_map(|text| text.as_str()).map(str::to_owned)
    };
    let blocks = result["content"].as_array().into_iter().flatten();
    let texts: Vec<String> = blocks.filter_map(text).collect();
    Some((texts.join("\n"), result["isError"] == true))
}

impl Server {
    fn start(entry: &Value) -> Option<Server> {
        let texts = |value: &Value| -> Vec<String> {
            let texts = value.as_array().into_iter().flatten().filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        };
        let mut command = Command::new(entry["command"].as_str()?);
        command.args(texts(&entry["args"])).stdin(Stdio::piped()).stdout(Stdio::piped());
        for (name, value) in entry["env"].as_object().into_iter().flatten() {
            command.env(name, value.as_str().unwrap_or_default());
        }
        let mut child = command.spawn().ok()?;
        let input = child.stdin.take()?;
        let output = BufReader::new(child.stdout.take()?);
        let mut server = Server { _child: child, input, output, requests: 0, names_calls: true };
        server.request(
            "initialize",
            json!({"protocolVersion": "2025-11-25", "capabilities": {},
                "clientInfo": {"name": "scripted", "version": "1"}}),
        )?;
        server.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        server.request("tools/list", json!({}))?;
        Some(server)
    }

    fn send(&mut self, message: &Value) -> Option<()> {
        writeln!(self.input, "{message}").and_then(|()| self.input.flush()).ok()
    }

    fn request(&mut self, method: &str, params: Value) -> Option<Value> {
        self.requests += 1;
        let id = self.requests;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let message: Value = serde_json::from_str(&line).ok()?;
            if message["id"] == id {
                return Some(message["result"].clone());
            }
        }
    }
}
