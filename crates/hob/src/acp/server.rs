//! The requests of an editor.

use std::collections::HashMap;
use std::io::BufRead;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hob_gateway::acp_protocol::{
    self, INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, NOT_FOUND, PARSE_ERROR,
};
use hob_gateway::acp_questions::RequestedCalls;
use hob_gateway::client::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::settings::SessionSettings;
use super::turn::{Turns, open_questions};
use super::wire::{AcpError, Editor};
use crate::owner_client;

/// How many lines of the editor are read ahead.
const MAX_WAITING_LINES: usize = 64;
/// How many sessions a list has at most.
const MAX_LISTED: usize = 500;
/// How many turns of a session's past are read at a time.
const PAGE_TURNS: usize = 500;

/// Hob as an ACP agent on standard input and output.
#[derive(Clone)]
pub struct AcpServer {
    socket: PathBuf,
    /// The agent of new sessions.
    agent: String,
    editor: Arc<Editor>,
    /// The tasks that follow turns. They end with this program.
    following: TaskTracker,
    /// The task that follows a session's turn, and the turns that a prompt of this editor follows.
    followed: Arc<Mutex<HashMap<String, Followed>>>,
}

/// Who follows the turns of a session.
#[derive(Default)]
struct Followed {
    /// Ends the task that follows a turn which ran when the editor came.
    task: Option<AbortHandle>,
    /// Prompts of this editor that are running.
    prompts: usize,
    /// Is cancelled once the editor cancels these prompts. Later ones have another.
    cancelled: CancellationToken,
    /// The task that shows what the agent says of its settings.
    watch: Option<AbortHandle>,
    /// The last update of each kind that says what the agent offers or which of its settings hold.
    settings: HashMap<String, Value>,
}

impl AcpServer {
    pub fn new(socket: PathBuf, agent: String) -> AcpServer {
        AcpServer {
            socket,
            agent,
            editor: Arc::default(),
            following: TaskTracker::new(),
            followed: Arc::default(),
        }
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
                        let opened = match (method.as_str(), &result) {
                            ("session/new", Ok(made)) => made["sessionId"].as_str(),
                            ("session/load" | "session/resume", Ok(_)) => {
                                message["params"]["sessionId"].as_str()
                            }
                            _ => None,
                        };
                        let opened = opened.map(str::to_owned);
                        if let Some(id) = id {
                            server.editor.answer(&id, result);
                        }
                        if let Some(opened) = opened {
                            server.watch(&opened);
                        }
                    });
                }
            }
            while requests.try_join_next().is_some() {}
        }
    }

    async fn call(&self, method: &str, params: &Value) -> Result<Value, AcpError> {
        match method {
            "initialize" => {
                self.editor.introduce(params);
                Ok(acp_protocol::initialize())
            }
            "authenticate" => Ok(json!({})),
            "session/new" => self.new_session(params).await,
            "session/load" => self.load(params).await,
            "session/resume" => {
                let id = self.session(params).await?;
                self.follow_running(&id, &self.all_turns(&id).await?, &self.events(&id).await?);
                Ok(self.with_settings(&id, json!({})).await)
            }
            "session/set_mode" | "session/set_config_option" => {
                let id = self.session(params).await?;
                self.settings(&id).change(params).await
            }
            "session/list" => self.list(params).await,
            "session/prompt" => self.prompt(params).await,
            // An idle session costs nothing, so closing it only ends its turn. The editor can load it again.
            "session/cancel" | "session/close" => {
                self.note_cancel(params);
                self.at_session(params, Method::POST, "/cancel").await
            }
            "session/delete" => self.at_session(params, Method::DELETE, "").await,
            _ => Err(AcpError::new(METHOD_NOT_FOUND, format!("unknown method {method:?}"))),
        }
    }

    async fn new_session(&self, params: &Value) -> Result<Value, AcpError> {
        let body = json!({"agent": self.agent, "cwd": text(params, "cwd")?, "permissions": "ask",
            "mcp_servers": acp_protocol::session_servers(params),
            "meta": {"from": "hob acp"}});
        let session = self.ask(Method::POST, "/sessions", Some(&body)).await?;
        let id = text(&session, "session_id")?;
        Ok(self.with_settings(id, json!({"sessionId": id})).await)
    }

    /// Adds what the agent offers to an answer that opens a session. A session whose agent cannot be asked opens all the same.
    async fn with_settings(&self, id: &str, answer: Value) -> Value {
        let settings = self.settings(id).read().await.unwrap_or_default();
        let mut followed = self.followed();
        let followed = followed.entry(id.to_owned()).or_default();
        // The answer replaces what the editor was shown before.
        followed.settings.clear();
        if let Some(watch) = followed.watch.take() {
            watch.abort();
        }
        acp_protocol::with_settings(answer, &settings)
    }

    fn settings<'a>(&'a self, session: &'a str) -> SessionSettings<'a> {
        SessionSettings { socket: &self.socket, session }
    }

    /// Shows the editor what the agent says of its settings between turns. A task that does so already goes on.
    fn watch(&self, id: &str) {
        let mut followed = self.followed();
        let followed = followed.entry(id.to_owned()).or_default();
        if followed.watch.as_ref().is_some_and(|watch| !watch.is_finished()) {
            return;
        }
        let (server, id) = (self.clone(), id.to_owned());
        let task = self.following.spawn(async move {
            // After a restart of the server, the next prompt begins it again.
            let _ = server.settings(&id).watch(|message| server.show(&id, message)).await;
        });
        followed.watch = Some(task.abort_handle());
    }

    /// Shows the past of a session to the editor.
    async fn load(&self, params: &Value) -> Result<Value, AcpError> {
        let id = self.session(params).await?;
        let (turns, events) = (self.all_turns(&id).await?, self.events(&id).await?);
        for turn in &turns {
            let content = json!({"type": "text", "text": turn["prompt"]});
            let update = json!({"sessionUpdate": "user_message_chunk", "content": content});
            self.editor.notify("session/update", json!({"sessionId": id, "update": update}));
            let of_turn = events.iter().filter(|event| event["turn_index"] == turn["turn_index"]);
            for message in of_turn.map(|event| &event["message"]) {
                self.show(&id, message);
            }
        }
        self.follow_running(&id, &turns, &events);
        Ok(self.with_settings(&id, json!({})).await)
    }

    /// Returns the turns of a session, oldest first.
    async fn all_turns(&self, id: &str) -> Result<Vec<Value>, AcpError> {
        let mut turns: Vec<Value> = Vec::new();
        loop {
            let before = turns.first().map_or(u64::from(u32::MAX), |turn| {
                turn["turn_index"].as_u64().unwrap_or_default()
            });
            let path = format!("/admin/sessions/{id}/turns?before={before}&limit={PAGE_TURNS}");
            let page = self.ask(Method::GET, &path, None).await?;
            let page = page["turns"].as_array().cloned().unwrap_or_default();
            let is_last = page.len() < PAGE_TURNS;
            turns.splice(..0, page);
            if is_last {
                return Ok(turns);
            }
        }
    }

    async fn events(&self, id: &str) -> Result<Vec<Value>, AcpError> {
        let mut client = owner_client::connect(&self.socket).await?;
        Ok(owner_client::events_after(&mut client, &format!("/sessions/{id}"), 0).await?)
    }

    /// Follows the turn that runs, for an editor that was not there when it began.
    fn follow_running(&self, id: &str, turns: &[Value], events: &[Value]) {
        let running = turns.iter().find(|turn| turn["ended_at"].is_null());
        let Some(turn) = running.and_then(|turn| turn["turn_index"].as_u64()) else { return };
        let last_event = events.last().and_then(|event| event["seq"].as_u64()).unwrap_or_default();
        let of_turn = events.iter().filter(|event| event["turn_index"] == turn);
        let asked = open_questions(RequestedCalls::default(), of_turn);
        let (server, id) = (self.clone(), id.to_owned());
        let mut followed = self.followed();
        let followed = followed.entry(id.clone()).or_default();
        // A prompt of this editor shows its turn itself.
        if followed.prompts > 0 {
            return;
        }
        if let Some(earlier) = followed.task.take() {
            earlier.abort();
        }
        let task = self.following.spawn(async move {
            let show = |message: &Value| server.show(&id, message);
            // The editor has no request that waits for the end.
            let _ = server.turns(&id).follow(turn, last_event, asked, show).await;
        });
        followed.task = Some(task.abort_handle());
    }

    fn followed(&self) -> MutexGuard<'_, HashMap<String, Followed>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turns<'a>(&'a self, session: &'a str) -> Turns<'a> {
        Turns { socket: &self.socket, editor: &self.editor, session }
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

    /// Notes that the editor cancels the prompts of a session, also while the server cannot be reached.
    fn note_cancel(&self, params: &Value) {
        let session = params["sessionId"].as_str().unwrap_or_default();
        if let Some(followed) = self.followed().get_mut(session) {
            std::mem::take(&mut followed.cancelled).cancel();
        }
    }

    async fn prompt(&self, params: &Value) -> Result<Value, AcpError> {
        let id = self.session(params).await?;
        let prompt = acp_protocol::prompt_text(&params["prompt"])
            .map_err(|text| AcpError::new(INVALID_PARAMS, text))?;
        self.watch(&id);
        let cancelled = {
            let mut followed = self.followed();
            let followed = followed.entry(id.clone()).or_default();
            followed.prompts += 1;
            followed.cancelled.clone()
        };
        let show = |message: &Value| self.show(&id, message);
        let answer = self.turns(&id).run(&prompt, &cancelled, show).await;
        self.followed().entry(id.clone()).or_default().prompts -= 1;
        let answer = answer?;
        if answer["ok"] != true {
            let text = answer["error"].as_str().unwrap_or("the turn failed");
            return Err(AcpError::new(INTERNAL_ERROR, text));
        }
        let reason = answer["stop_reason"].as_str().unwrap_or("end_turn");
        Ok(json!({"stopReason": reason}))
    }

    /// Passes an update of the agent on, as one of Hob's session.
    fn show(&self, id: &str, message: &Value) {
        let Some(params) = acp_protocol::own_update(id, message) else { return };
        // Such an update arrives twice: with its turn, and with the events of the session.
        if acp_protocol::is_settings_update(message) {
            let kind = params["update"]["sessionUpdate"].to_string();
            let mut followed = self.followed();
            let shown = &mut followed.entry(id.to_owned()).or_default().settings;
            if shown.insert(kind, params.clone()).as_ref() == Some(&params) {
                return;
            }
        }
        self.editor.notify("session/update", params);
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
