//! Tools that a client runs itself. The agent calls them over a private MCP server, one per process. A call waits until
//! the client returns its result.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

/// The name of the private MCP server in the agent's configuration.
pub const SERVER_NAME: &str = "app";
/// The prefix that the agent gives to the names of the server's tools.
pub const NAME_PREFIX: &str = "mcp__app__";
/// The variable that tells `hob mcp` to serve these tools instead of the memory's.
pub const KEY_VARIABLE: &str = "HOB_CLIENT_TOOLS";

/// What other agents put before the names of the server's tools.
const OTHER_PREFIXES: [&str; 5] = ["app__", "app_", "app.", "app/", "app:"];
/// What other agents put behind them.
const OTHER_SUFFIX: &str = " (app MCP Server)";

/// Returns whether a title by which an agent announces a call, or asks for its permission, names this tool.
pub fn names_tool(title: &str, tool: &str) -> bool {
    let title = title.strip_prefix("Tool: ").unwrap_or(title);
    let is_part = |next: char| next.is_alphanumeric() || "_-.".contains(next);
    let is_whole =
        |rest: &str| rest.strip_prefix(tool).is_some_and(|rest| !rest.starts_with(is_part));
    let mut prefixes = OTHER_PREFIXES.iter().chain([&NAME_PREFIX]);
    prefixes.any(|prefix| title.strip_prefix(prefix).is_some_and(is_whole))
        || title.strip_prefix(tool).is_some_and(|rest| rest.starts_with(OTHER_SUFFIX))
}

/// The most calls of one process that may wait for their results.
const MAX_WAITING_CALLS: usize = 64;
/// The most bytes of arguments in such calls.
const MAX_WAITING_BYTES: usize = 16 << 20;

/// A tool of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientTool {
    pub name: String,
    pub description: String,
    /// The JSON schema of the arguments, which is an object.
    pub input_schema: Map<String, Value>,
}

impl ClientTool {
    /// Returns the tool as a part of a fingerprint.
    pub(crate) fn to_value(&self) -> Value {
        json!([self.name, self.description, self.input_schema])
    }
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutput {
    /// A string or content blocks in Anthropic's format.
    pub content: Value,
    pub is_error: bool,
}

/// A call of the agent that waits for its result.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The id of Claude Code's `tool_use` block; for other agents, an id of the call.
    pub id: String,
    /// The name without the prefix.
    pub name: String,
    pub input: Value,
}

/// The tool servers of all live processes, by their keys. Clones share them.
#[derive(Clone, Default)]
pub struct ToolServers {
    servers: Arc<Mutex<HashMap<String, Arc<ToolExchange>>>>,
}

impl ToolServers {
    /// Opens the server of one process of an app. It is closed when the result is dropped.
    pub fn open(&self, app: &str, tools: Vec<ClientTool>) -> ToolServer {
        let key = Uuid::new_v4().simple().to_string();
        let exchange = Arc::new(ToolExchange {
            app: app.to_owned(),
            tools,
            calls: Mutex::default(),
            changed: watch::channel(0).0,
        });
        self.lock().insert(key.clone(), exchange.clone());
        ToolServer { servers: self.clone(), key, exchange }
    }

    /// Returns the server with this key, if it belongs to the app.
    pub fn find(&self, key: &str, app: &str) -> Option<Arc<ToolExchange>> {
        self.lock().get(key).filter(|exchange| exchange.app == app).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<ToolExchange>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tool server of one process. Dropping it closes the server.
pub struct ToolServer {
    servers: ToolServers,
    key: String,
    exchange: Arc<ToolExchange>,
}

impl ToolServer {
    pub fn exchange(&self) -> Arc<ToolExchange> {
        self.exchange.clone()
    }

    /// Returns the server's entry in the agent's MCP configuration.
    pub fn config(&self, program: &str, socket: &str) -> Value {
        json!({"type": "stdio", "command": program, "args": ["mcp"],
            "env": {KEY_VARIABLE: self.key, "HOB_SOCKET": socket}})
    }

    /// Returns the variable by which `hob mcp` finds the server.
    pub fn variable(&self) -> (String, String) {
        (KEY_VARIABLE.to_owned(), self.key.clone())
    }
}

impl Drop for ToolServer {
    fn drop(&mut self) {
        self.servers.lock().remove(&self.key);
        self.exchange.lock().waiting.clear();
    }
}

/// A call that waits for its result, in the hands of one caller.
pub struct ClaimedCall(oneshot::Sender<ToolOutput>);

impl ClaimedCall {
    /// Returns the result to the agent.
    pub fn answer(self, output: ToolOutput) {
        let _ = self.0.send(output);
    }
}

/// What an agent and a client exchange: calls one way, results the other.
pub struct ToolExchange {
    app: String,
    tools: Vec<ClientTool>,
    calls: Mutex<Calls>,
    /// Changes with every call and when the agent has listed the tools.
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Calls {
    is_listed: bool,
    waiting: Vec<(ToolCall, oneshot::Sender<ToolOutput>)>,
    /// Results of calls that the agent has not made yet: it may make parallel calls one after another.
    early_results: HashMap<String, ToolOutput>,
    /// The names of the tools that may be called now; `None` for all.
    offered: Option<Vec<String>>,
}

impl Calls {
    fn offers(&self, name: &str) -> bool {
        self.offered.as_ref().is_none_or(|offered| offered.iter().any(|one| one == name))
    }
}

fn not_offered(name: &str) -> ToolOutput {
    let text = format!("the tool {name:?} must not be called for this answer");
    ToolOutput { content: json!(text), is_error: true }
}

impl ToolExchange {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Returns the tools, for the agent.
    pub fn list(&self) -> Vec<ClientTool> {
        self.lock().is_listed = true;
        self.notify();
        self.tools.clone()
    }

    /// Calls a tool for the agent. Returns `None` if the server is closed before the result arrives.
    pub async fn call(&self, call: ToolCall) -> Option<ToolOutput> {
        if !self.has(&call.name) {
            let text = format!("there is no tool {:?}", call.name);
            return Some(ToolOutput { content: json!(text), is_error: true });
        }
        let result = {
            let mut calls = self.lock();
            if let Some(output) = calls.early_results.remove(&call.id) {
                return Some(output);
            }
            if !calls.offers(&call.name) {
                return Some(not_offered(&call.name));
            }
            if calls.waiting.len() >= MAX_WAITING_CALLS {
                let text = format!(
                    "{MAX_WAITING_CALLS} calls are already waiting for their results, which is the limit"
                );
                return Some(ToolOutput { content: json!(text), is_error: true });
            }
            let (sender, result) = oneshot::channel();
            // A bridge that has lost its connection repeats its calls.
            calls.waiting.retain(|(known, _)| known.id != call.id);
            let bytes = |call: &ToolCall| call.input.to_string().len();
            let waiting: usize = calls.waiting.iter().map(|(call, _)| bytes(call)).sum();
            if !calls.waiting.is_empty() && waiting + bytes(&call) > MAX_WAITING_BYTES {
                let text = "the arguments of the calls that wait for their results are too large";
                return Some(ToolOutput { content: json!(text), is_error: true });
            }
            calls.waiting.push((call, sender));
            result
        };
        self.notify();
        result.await.ok()
    }

    /// Returns whether a permission request is for one of the client's tools. Some agents put a command into the title, so
    /// the whole title must be a name.
    pub fn is_asked_for(&self, title: &str) -> bool {
        let is_name = |tool: &ClientTool| {
            let name = &tool.name;
            [NAME_PREFIX, "app__", "app_"]
                .iter()
                .any(|prefix| title.strip_prefix(prefix) == Some(name))
                || title == format!("{name}{OTHER_SUFFIX}")
        };
        self.tools.iter().any(is_name)
    }

    /// Returns whether the client has a tool of this name.
    pub fn has(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool.name == name)
    }

    /// Chooses the tools that may be called from now on. Other calls, also those that wait, are answered with an error.
    pub fn offer(&self, names: Vec<String>) {
        let refused: Vec<ToolCall> = {
            let mut calls = self.lock();
            calls.offered = Some(names);
            let waiting = calls.waiting.iter().map(|(call, _)| call);
            waiting.filter(|call| !calls.offers(&call.name)).cloned().collect()
        };
        for ToolCall { id, name, .. } in refused {
            if let Some(call) = self.claim(&id) {
                call.answer(not_offered(&name));
            }
        }
    }

    /// Returns whether the client has a tool of this name, and it may be called.
    pub fn offers(&self, name: &str) -> bool {
        self.has(name) && self.lock().offers(name)
    }

    /// Returns a receiver that wakes up when something changes.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Waits until the agent has listed the tools.
    pub async fn listed(&self) {
        let mut changed = self.changed();
        while !self.lock().is_listed {
            let _ = changed.changed().await;
        }
    }

    /// Returns the calls that wait for their results.
    pub fn waiting(&self) -> Vec<ToolCall> {
        let mut calls = self.lock();
        // The agent has cancelled a call whose receiver is gone.
        calls.waiting.retain(|(_, sender)| !sender.is_closed());
        calls.waiting.iter().map(|(call, _)| call.clone()).collect()
    }

    /// Returns whether a call waits for its result.
    pub fn has_waiting(&self) -> bool {
        self.lock().waiting.iter().any(|(_, sender)| !sender.is_closed())
    }

    /// Takes a call that waits, so that nobody else answers it.
    pub fn claim(&self, id: &str) -> Option<ClaimedCall> {
        let mut calls = self.lock();
        let place = calls.waiting.iter().position(|(call, _)| call.id == id)?;
        Some(ClaimedCall(calls.waiting.remove(place).1))
    }

    /// Answers a call that waits with an error.
    pub fn refuse(&self, id: &str, reason: &str) {
        if let Some(call) = self.claim(id) {
            call.answer(ToolOutput { content: json!(reason), is_error: true });
        }
    }

    /// Answers all calls that wait with an error.
    pub fn refuse_all(&self, reason: &str) {
        for call in self.waiting() {
            self.refuse(&call.id, reason);
        }
    }

    /// Returns a result to the agent, now or when it makes the call.
    pub fn answer(&self, id: &str, output: ToolOutput) {
        let mut calls = self.lock();
        match calls.waiting.iter().position(|(call, _)| call.id == id) {
            Some(index) => drop(calls.waiting.remove(index).1.send(output)),
            None => drop(calls.early_results.insert(id.to_owned(), output)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> ToolCall {
        ToolCall { id: id.to_owned(), name: "add".to_owned(), input: json!({}) }
    }

    #[test]
    fn command_in_a_title_is_no_tool() {
        let server = ToolServers::default().open("a", tools());
        let exchange = server.exchange();
        for title in ["mcp__app__add", "app_add", "add (app MCP Server)"] {
            assert!(exchange.is_asked_for(title), "{title}");
        }
        for title in ["app_add; rm -rf x", "app/add", "app.add", "app_add.sh", "add", "app_add "] {
            assert!(!exchange.is_asked_for(title), "{title}");
        }
    }

    fn tools() -> Vec<ClientTool> {
        let (name, description) = ("add".to_owned(), String::new());
        vec![ClientTool { name, description, input_schema: Map::new() }]
    }

    fn output(text: &str) -> ToolOutput {
        ToolOutput { content: json!(text), is_error: false }
    }

    /// Waits until a call is there.
    async fn called(exchange: &ToolExchange) {
        let mut changed = exchange.changed();
        while exchange.waiting().is_empty() {
            changed.changed().await.unwrap();
        }
    }

    #[test]
    fn titles_of_all_agents_name_the_tool() {
        for title in
            ["mcp__app__add", "app_add", "Tool: app/add", "app.add: 1", "add (app MCP Server)"]
        {
            assert!(names_tool(title, "add"), "{title}");
        }
        for title in [
            "add",
            "app_adder",
            "app_add-all",
            "mcp__other__add",
            "Bash: app_add",
            "add (other MCP Server)",
        ] {
            assert!(!names_tool(title, "add"), "{title}");
        }
    }

    #[tokio::test]
    async fn results_reach_calls_that_wait_and_calls_that_come_later() {
        let servers = ToolServers::default();
        let server = servers.open("a", tools());
        let exchange = servers.find(&server.key, "a").unwrap();
        let unknown = ToolCall { name: "other".to_owned(), ..call("0") };
        assert!(exchange.call(unknown).await.unwrap().is_error, "it is not the client's");
        let client = async {
            called(&exchange).await;
            exchange.answer("2", output("two"));
            exchange.answer("1", output("one"));
        };
        let (first, ()) = tokio::join!(exchange.call(call("1")), client);
        assert_eq!(first, Some(output("one")));
        assert_eq!(exchange.call(call("2")).await, Some(output("two")));
        assert!(exchange.waiting().is_empty());
    }

    #[tokio::test]
    async fn tools_that_are_not_offered_are_refused() {
        let server = ToolServers::default().open("a", tools());
        let exchange = server.exchange();
        let withdraw = async {
            called(&exchange).await;
            exchange.offer(Vec::new());
        };
        let (waited, ()) = tokio::join!(exchange.call(call("1")), withdraw);
        assert!(waited.unwrap().is_error);
        // The client has given the result of this call while it was offered.
        exchange.answer("2", output("two"));
        assert_eq!(exchange.call(call("2")).await, Some(output("two")));
        assert!(exchange.call(call("3")).await.unwrap().is_error);
        assert!(exchange.has("add") && !exchange.offers("add"));
        exchange.offer(vec!["add".to_owned()]);
        assert!(exchange.offers("add"));
    }

    #[tokio::test]
    async fn a_closed_server_is_not_found_and_ends_its_calls() {
        let servers = ToolServers::default();
        let server = servers.open("a", tools());
        assert!(servers.find(&server.key, "b").is_none(), "of another app");
        let (key, exchange) = (server.key.clone(), server.exchange());
        let close = async {
            called(&exchange).await;
            drop(server);
        };
        let (result, ()) = tokio::join!(exchange.call(call("1")), close);
        assert_eq!(result, None);
        assert!(servers.find(&key, "a").is_none());
    }
}
