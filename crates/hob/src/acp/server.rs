//! The requests of an editor.

use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;

use hob_gateway::acp_protocol::{
    self, INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, NOT_FOUND, PARSE_ERROR,
};
use hob_gateway::client::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::turn::Turn;
use super::wire::{AcpError, Editor};
use crate::owner_client;

/// How many lines of the editor are read ahead.
const MAX_WAITING_LINES: usize = 64;
/// How many sessions a list has at most.
const MAX_LISTED: usize = 500;
/// How many turns of a session's past are shown at most.
const MAX_PAST_TURNS: usize = 500;

/// Hob as an ACP agent on standard input and output.
#[derive(Clone)]
pub struct AcpServer {
    socket: PathBuf,
    /// The agent of new sessions.
    agent: String,
    editor: Arc<Editor>,
}

impl AcpServer {
    pub fn new(socket: PathBuf, agent: String) -> AcpServer {
        AcpServer { socket, agent, editor: Arc::default() }
    }

    /// Answers requests until standard input ends. Running turns go on in the server.
    pub async fn run(&self) {
        let mut lines = read_lines();
        let mut requests = JoinSet::new();
        while let Some(line) = lines.recv().await {
            if line.trim().is_empty() {
                continue;
            }
            let Ok(message) = serde_json::from_str::<Value>(&line) else {
                let error = AcpError::new(PARSE_ERROR, "the line is not JSON");
                self.editor.answer(&Value::Null, Err(error));
                continue;
            };
            match (message["method"].as_str().map(str::to_owned), message.get("id").cloned()) {
                (None, _) => self.editor.take_answer(message),
                (Some(method), id) => {
                    let server = self.clone();
                    requests.spawn(async move {
                        let result = server.call(&method, &message["params"]).await;
                        if let Some(id) = id {
                            server.editor.answer(&id, result);
                        }
                    });
                }
            }
            while requests.try_join_next().is_some() {}
        }
    }

    async fn call(&self, method: &str, params: &Value) -> Result<Value, AcpError> {
        match method {
            "initialize" => Ok(acp_protocol::initialize()),
            "authenticate" => Ok(json!({})),
            "session/new" => self.new_session(params).await,
            "session/load" => self.load(params).await,
            "session/resume" => self.session(params).await.map(|_| json!({})),
            "session/list" => self.list(params).await,
            "session/prompt" => self.prompt(params).await,
            // An idle session costs nothing, so closing it only ends its turn. The editor can load it again.
            "session/cancel" | "session/close" => {
                self.at_session(params, Method::POST, "/cancel").await
            }
            "session/delete" => self.at_session(params, Method::DELETE, "").await,
            _ => Err(AcpError::new(METHOD_NOT_FOUND, format!("unknown method {method:?}"))),
        }
    }

    async fn new_session(&self, params: &Value) -> Result<Value, AcpError> {
        let body = json!({"agent": self.agent, "cwd": text(params, "cwd")?, "permissions": "ask",
            "mcp_servers": params.get("mcpServers").cloned().unwrap_or(json!([])),
            "meta": {"from": "hob acp"}});
        let session = self.ask(Method::POST, "/sessions", Some(&body)).await?;
        Ok(json!({"sessionId": session["session_id"]}))
    }

    /// Shows the past of a session to the editor.
    async fn load(&self, params: &Value) -> Result<Value, AcpError> {
        let id = self.session(params).await?;
        let path = format!("/admin/sessions/{id}/turns?limit={MAX_PAST_TURNS}");
        let turns = self.ask(Method::GET, &path, None).await?;
        let mut client = owner_client::connect(&self.socket).await?;
        let events = owner_client::events_after(&mut client, &format!("/sessions/{id}"), 0).await?;
        for turn in turns["turns"].as_array().into_iter().flatten() {
            let content = json!({"type": "text", "text": turn["prompt"]});
            let update = json!({"sessionUpdate": "user_message_chunk", "content": content});
            self.editor.notify("session/update", json!({"sessionId": id, "update": update}));
            let of_turn = events.iter().filter(|event| event["turn_index"] == turn["turn_index"]);
            for message in of_turn.map(|event| &event["message"]) {
                self.show(&id, message);
            }
        }
        Ok(json!({}))
    }

    async fn list(&self, params: &Value) -> Result<Value, AcpError> {
        let answer = self.ask(Method::GET, "/sessions", None).await?;
        let wanted = params["cwd"].as_str();
        let sessions = answer["sessions"].as_array().into_iter().flatten();
        let open = sessions.filter(|session| {
            session["closed_at"].is_null() && wanted.is_none_or(|cwd| session["cwd"] == cwd)
        });
        let mut listed = Vec::new();
        // The newest first.
        for session in open.rev().take(MAX_LISTED) {
            let id = session["session_id"].as_str().unwrap_or_default();
            let updated = match &session["last_turn_at"] {
                Value::Null => &session["created_at"],
                at => at,
            };
            listed.push(json!({"sessionId": id, "cwd": session["cwd"], "updatedAt": updated,
                "title": self.title(id).await}));
        }
        Ok(json!({"sessions": listed}))
    }

    /// Returns the beginning of a session's first prompt.
    async fn title(&self, id: &str) -> Value {
        let path = format!("/admin/sessions/{id}/turns?before=2&limit=1");
        let turns = self.ask(Method::GET, &path, None).await.unwrap_or_default();
        let prompt = turns["turns"][0]["prompt"].as_str().unwrap_or_default();
        json!(acp_protocol::title(prompt))
    }

    async fn prompt(&self, params: &Value) -> Result<Value, AcpError> {
        let id = self.session(params).await?;
        let prompt = acp_protocol::prompt_text(&params["prompt"])
            .map_err(|text| AcpError::new(INVALID_PARAMS, text))?;
        let turn =
            Turn { socket: &self.socket, editor: &self.editor, session: &id, prompt: &prompt };
        let answer = turn.run(|message| self.show(&id, message)).await?;
        if answer["ok"] != true {
            let text = answer["error"].as_str().unwrap_or("the turn failed");
            return Err(AcpError::new(INTERNAL_ERROR, text));
        }
        let reason = answer["stop_reason"].as_str().unwrap_or("end_turn");
        Ok(json!({"stopReason": reason}))
    }

    /// Passes an update of the agent on, as one of Hob's session.
    fn show(&self, id: &str, message: &Value) {
        if let Some(params) = acp_protocol::own_update(id, message) {
            self.editor.notify("session/update", params);
        }
    }

    /// Returns the session that the parameters name, if it exists.
    async fn session(&self, params: &Value) -> Result<String, AcpError> {
        let id = text(params, "sessionId")?;
        let is_id = !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric());
        let missing = || AcpError::new(NOT_FOUND, format!("no session has the ID {id:?}"));
        if !is_id {
            return Err(missing());
        }
        let mut client = owner_client::connect(&self.socket).await?;
        let path = format!("/sessions/{id}");
        let reply = client.ask(Method::GET, &path, "application/json", None).await;
        match reply.map_err(anyhow::Error::from)?.status {
            404 => Err(missing()),
            _ => Ok(id.to_owned()),
        }
    }

    async fn at_session(
        &self,
        params: &Value,
        method: Method,
        path: &str,
    ) -> Result<Value, AcpError> {
        let id = self.session(params).await?;
        self.ask(method, &format!("/sessions/{id}{path}"), None).await?;
        Ok(json!({}))
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, AcpError> {
        let mut client = owner_client::connect(&self.socket).await?;
        Ok(owner_client::request(&mut client, method, path, body).await?)
    }
}

/// Reads lines from standard input, in a thread of its own, since a read cannot be cancelled.
fn read_lines() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(MAX_WAITING_LINES);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

fn text<'p>(params: &'p Value, field: &str) -> Result<&'p str, AcpError> {
    let wrong = || AcpError::new(INVALID_PARAMS, format!("{field}: must be a string"));
    params[field].as_str().ok_or_else(wrong)
}
