//! `hob mcp` that a plugin runs although the client's settings run one, too. It has no tools, so that the agent sees
//! each tool once.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;

use hob_files::owned;
use hob_mcp::message::{Refusal, RpcMessage, read_message};
use hob_mcp::offline::OfflineServer;
use hob_transcript::AgentClient;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::hooks::{ClientFolders, plugin};
use crate::mcp_lines::{AgentLine, next_line};

/// The parts of Claude Code's `.claude.json` that list MCP servers.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaudeState {
    mcp_servers: HashMap<String, Value>,
    projects: HashMap<PathBuf, ClaudeProject>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaudeProject {
    mcp_servers: HashMap<String, Value>,
    disabled_mcp_servers: Vec<String>,
}

/// Returns whether the client's own settings run `hob mcp` in this project.
///
/// Codex runs one server per name, and prefers its settings to a plugin, so there is nothing to find.
pub fn settings_run_server(client: AgentClient, folders: &ClientFolders) -> bool {
    if client != AgentClient::Claude {
        return false;
    }
    let Ok(file) = owned::open(&folders.claude_state) else { return false };
    let state: ClaudeState = serde_json::from_reader(BufReader::new(file)).unwrap_or_default();
    let project = std::env::var_os("CLAUDE_PROJECT_DIR").map(PathBuf::from);
    let project = project.or_else(|| std::env::current_dir().ok());
    runs_server(&state, project.and_then(|project| state.projects.get(&project)))
}

fn runs_server(state: &ClaudeState, project: Option<&ClaudeProject>) -> bool {
    let is_enabled =
        |name: &String| project.is_none_or(|project| !project.disabled_mcp_servers.contains(name));
    let local = project.into_iter().flat_map(|project| &project.mcp_servers);
    state.mcp_servers.iter().chain(local).any(|(name, server)| {
        let program = server["command"].as_str().unwrap_or_default();
        program.rsplit('/').next() == Some("hob")
            && server["args"] == json!(["mcp"])
            && is_enabled(name)
            && plugin::exists(program)
    })
}

/// Answers an agent as a server that has no tools, until the agent closes its side.
pub fn run(mut from_agent: impl BufRead) {
    while let Some(line) = next_line(&mut from_agent) {
        let answer = match line {
            AgentLine::Message(line) => match read_message(&line) {
                Ok(message) => answer(&message),
                Err(refusal) => Some(refusal.answer()),
            },
            AgentLine::TooLong(refusal) => refusal.as_ref().map(Refusal::answer),
        };
        if let Some(answer) = answer {
            let mut stdout = io::stdout().lock();
            let _ = writeln!(stdout, "{answer}").and_then(|()| stdout.flush());
        }
    }
}

/// Returns the answer to a message, if it is a request.
fn answer(message: &RpcMessage) -> Option<Value> {
    let (id, method) = (message.id.as_ref()?, message.method.as_deref()?);
    Some(match OfflineServer::standby().result(method, &message.params) {
        Some(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        None => {
            let error = json!({"code": -32601, "message": format!("unknown method: {method}")});
            json!({"jsonrpc": "2.0", "id": id, "error": error})
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(state: &Value) -> bool {
        let state: ClaudeState = serde_json::from_value(state.clone()).unwrap();
        runs_server(&state, state.projects.get(&PathBuf::from("/p")))
    }

    #[test]
    fn servers_of_the_user_and_of_the_project_count() {
        let hob = std::env::temp_dir().join(format!("hob-standby-{}", std::process::id()));
        std::fs::create_dir_all(&hob).unwrap();
        let program = hob.join("hob");
        std::fs::write(&program, "").unwrap();
        let server = json!({"hob": {"type": "stdio", "command": program, "args": ["mcp"]}});
        assert!(runs(&json!({"mcpServers": server})));
        assert!(runs(&json!({"projects": {"/p": {"mcpServers": server}}})));
        for other in [
            json!({}),
            json!({"projects": {"/q": {"mcpServers": server}}}),
            json!({"mcpServers": server, "projects": {"/p": {"disabledMcpServers": ["hob"]}}}),
            json!({"mcpServers": {"hob": {"command": "/no/hob", "args": ["mcp"]}}}),
            json!({"mcpServers": {"hob": {"command": program, "args": ["serve"]}}}),
            json!({"mcpServers": {"hob": {"type": "http", "url": "http://127.0.0.1/mcp"}}}),
        ] {
            assert!(!runs(&other), "{other}");
        }
        std::fs::remove_dir_all(hob).unwrap();
    }

    #[test]
    fn every_request_is_answered_and_there_are_no_tools() {
        let answer =
            |message: &Value| answer(&read_message(message.to_string().as_bytes()).unwrap());
        let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": {"protocolVersion": "2025-06-18"}});
        let said = answer(&initialize).unwrap();
        assert_eq!(said["result"]["protocolVersion"], "2025-06-18");
        let list = json!({"jsonrpc": "2.0", "id": "a", "method": "tools/list"});
        assert_eq!(answer(&list).unwrap()["result"], json!({"tools": []}));
        let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {}});
        assert_eq!(answer(&call).unwrap()["error"]["code"], -32601);
        assert_eq!(answer(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})), None);
    }
}
