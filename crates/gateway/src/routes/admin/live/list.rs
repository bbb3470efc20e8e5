//! `GET /admin/live`: lists open sessions and backend processes.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Json;
use hob_agents::claude::ProcessInfo;
use hob_domain::session::Session;
use hob_terminal::{Terminal, TerminalKind};
use serde::Serialize;
use utoipa::ToSchema;

use super::screen;
use crate::error::{ApiError, ErrorBody};
use crate::extract::caller::Admin;
use crate::state::Gateway;

#[derive(Serialize, ToSchema)]
pub(crate) struct LiveList {
    /// Always `true`.
    ok: bool,
    live: Vec<LiveView>,
}

/// An open session or a process of the Claude backend.
#[derive(Serialize, ToSchema, Clone, PartialEq)]
#[schema(example = json!({"id": "0d5c…", "kind": "session", "session_id": "0d5c…", "app": "my-app",
    "agent": "claude", "cwd": "/home/me/project", "pid": 4711, "terminal": true, "cols": 120, "rows": 40,
    "busy": false, "waiting": false, "turns": 3, "since": "2026-11-15T09:00:00Z", "last_at": "2026-11-15T09:05:00Z",
    "cost_usd": 0.02, "tokens": 5120, "viewers": 1, "writer": false}))]
pub(crate) struct LiveView {
    id: String,
    /// `session` or `backend`.
    kind: &'static str,
    session_id: Option<String>,
    app: String,
    agent: String,
    cwd: String,
    pid: Option<i32>,
    /// Whether it has a terminal now; otherwise viewers see its events as text.
    terminal: bool,
    cols: u16,
    rows: u16,
    busy: bool,
    /// Whether the agent waits for an answer to a permission request or a form.
    waiting: bool,
    turns: u32,
    /// RFC 3339, UTC.
    #[schema(format = DateTime)]
    since: String,
    #[schema(format = DateTime)]
    last_at: Option<String>,
    cost_usd: Option<f64>,
    tokens: Option<u64>,
    viewers: usize,
    /// Whether a viewer is the writer.
    writer: bool,
}

/// Lists open sessions and processes of the Claude backend.
#[utoipa::path(get, path = "/admin/live", tag = "admin", operation_id = "list_live", security(("token" = [])), responses(
    (status = 200, description = "Sessions first, each oldest first.", body = LiveList),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
) -> Result<Json<LiveList>, ApiError> {
    Ok(Json(LiveList { ok: true, live: views(&gateway).await? }))
}

pub(super) async fn views(gateway: &Gateway) -> Result<Vec<LiveView>, ApiError> {
    let mut terminals: BTreeMap<String, Arc<Terminal>> =
        gateway.runtime.terminals.all().into_iter().map(|one| (one.info.id.clone(), one)).collect();
    let mut live = Vec::new();
    for session in gateway.sessions.list_open().await? {
        let terminal = terminals.remove(session.id.as_str());
        let waiting = gateway.sessions.is_waiting(&session.id);
        let view = LiveView::of_session(&session, terminal.as_deref());
        live.push(LiveView { waiting, ..view });
    }
    for process in gateway.completions.live_processes() {
        live.push(match terminals.get(&process.session_id) {
            Some(terminal) => LiveView::of_terminal(terminal),
            None => LiveView::of_process(&process),
        });
    }
    Ok(live)
}

impl LiveView {
    fn of_terminal(terminal: &Terminal) -> LiveView {
        let (about, now) = (&terminal.info, terminal.status());
        let (kind, session_id) = match about.kind {
            TerminalKind::Session => ("session", Some(about.id.clone())),
            TerminalKind::Backend => ("backend", None),
        };
        LiveView {
            id: about.id.clone(),
            kind,
            session_id,
            app: about.app.clone(),
            agent: about.agent.clone(),
            cwd: about.cwd.display().to_string(),
            pid: Some(about.pid),
            terminal: true,
            cols: now.size.cols,
            rows: now.size.rows,
            busy: now.busy,
            waiting: false,
            turns: now.turns,
            since: about.since.to_string(),
            last_at: now.last_at.map(|at| at.to_string()),
            cost_usd: None,
            tokens: None,
            viewers: now.viewers,
            writer: now.has_writer,
        }
    }

    /// A process without a terminal, or one that is starting.
    fn of_process(process: &ProcessInfo) -> LiveView {
        LiveView {
            id: process.session_id.clone(),
            kind: "backend",
            session_id: None,
            app: process.app.clone(),
            agent: "claude".to_owned(),
            cwd: process.cwd.display().to_string(),
            pid: process.pid,
            terminal: false,
            cols: screen::PAGE.cols,
            rows: screen::PAGE.rows,
            busy: process.busy,
            waiting: false,
            turns: process.turns,
            since: process.since.to_string(),
            last_at: None,
            cost_usd: None,
            tokens: None,
            viewers: 0,
            writer: false,
        }
    }

    fn of_session(session: &Session, terminal: Option<&Terminal>) -> LiveView {
        let now = terminal.map(Terminal::status);
        let size = now.as_ref().map_or(screen::PAGE, |now| now.size);
        let last_at = session.last_turn_at.or(now.as_ref().and_then(|now| now.last_at));
        LiveView {
            id: session.id.to_string(),
            kind: "session",
            session_id: Some(session.id.to_string()),
            app: session.app.to_string(),
            agent: session.setup.agent.to_string(),
            cwd: session.setup.cwd.clone(),
            pid: terminal.map(|terminal| terminal.info.pid),
            terminal: terminal.is_some(),
            cols: size.cols,
            rows: size.rows,
            busy: session.busy,
            waiting: false,
            turns: session.turn_count,
            since: session.created_at.to_string(),
            last_at: last_at.map(|at| at.to_string()),
            cost_usd: Some(session.usage.cost_usd),
            tokens: Some(session.usage.tokens()),
            viewers: now.as_ref().map_or(0, |now| now.viewers),
            writer: now.is_some_and(|now| now.has_writer),
        }
    }
}
