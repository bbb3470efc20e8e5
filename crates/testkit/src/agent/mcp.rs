//! The MCP servers of the scripted agent. Like Claude Code, it starts them when it starts itself, and calls their tools one
//! after another.

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

/// Calls a tool of a server: its name is `mcp__SERVER__TOOL`. Returns `None` if there is no such server, else the text of
/// the result and whether it is an error.
pub fn call(id: &str, name: &str, input: &Value) -> Option<(String, bool)> {
    let (server, tool) = name.strip_prefix("mcp__")?.split_once("__")?;
    let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    let result = servers.get_mut(server)?.request(
        "tools/call",
        json!({"name": tool, "arguments": input, "_meta": {"claudecode/toolUseId": id}}),
    )?;
    let texts = result["content"].as_array().into_iter().flatten();
    let texts: Vec<&str> = texts.filter_map(|block| block["text"].as_str()).collect();
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
        let mut server = Server { _child: child, input, output, requests: 0 };
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
