//! JSON-RPC messages, one per line.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use hob_gateway::acp_protocol::{self, INTERNAL_ERROR};
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// An error for the editor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcpError {
    pub code: i64,
    pub message: String,
}

impl AcpError {
    pub fn new(code: i64, message: impl Into<String>) -> AcpError {
        AcpError { code, message: message.into() }
    }
}

impl From<anyhow::Error> for AcpError {
    fn from(error: anyhow::Error) -> AcpError {
        AcpError::new(INTERNAL_ERROR, format!("{error:#}"))
    }
}

/// The connection to the editor.
#[derive(Default)]
pub struct Editor {
    state: Mutex<EditorState>,
}

#[derive(Default)]
struct EditorState {
    next_id: u64,
    /// Requests to the editor that wait for their answers.
    waiting: HashMap<u64, oneshot::Sender<Value>>,
    /// Whether the editor shows forms.
    shows_forms: bool,
}

impl Editor {
    /// Writes a message. If the editor has closed the pipe, the loop that reads from it ends as well.
    fn write(&self, message: &Value) {
        // The lock keeps lines whole.
        let _state = self.state();
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{message}").and_then(|()| out.flush());
    }

    pub fn answer(&self, id: &Value, result: Result<Value, AcpError>) {
        self.write(&match result {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(AcpError { code, message }) => {
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
            }
        });
    }

    pub fn notify(&self, method: &str, params: Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Asks the editor. Returns `None` if it refuses, or has gone.
    pub async fn ask(&self, method: &str, params: Value) -> Option<Value> {
        let (sender, answer) = oneshot::channel();
        let id = {
            let mut state = self.state();
            state.next_id += 1;
            let id = state.next_id;
            state.waiting.insert(id, sender);
            id
        };
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        answer.await.ok()?.get("result").cloned()
    }

    /// Notes what the parameters of `initialize` say of the editor.
    pub fn introduce(&self, params: &Value) {
        self.state().shows_forms = acp_protocol::shows_forms(params);
    }

    pub fn shows_forms(&self) -> bool {
        self.state().shows_forms
    }

    /// Takes the answer to an earlier request.
    pub fn take_answer(&self, message: Value) {
        let waiting = message["id"].as_u64().and_then(|id| self.state().waiting.remove(&id));
        if let Some(waiting) = waiting {
            let _ = waiting.send(message);
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, EditorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
