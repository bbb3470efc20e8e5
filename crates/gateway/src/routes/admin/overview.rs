//! `GET /admin/me` and `GET /admin/overview`: the sign-in and the current state.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Json;
use hob_domain::Driver;
use hob_domain::memory::Principal;
use serde::Serialize;
use utoipa::ToSchema;

use super::health::{Bounds, bounds};
use crate::error::{ApiError, ErrorBody};
use crate::extract::caller::Admin;
use crate::state::Gateway;

#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true, "version": "0.1.0", "expires_at": "2026-11-15T21:00:00Z",
    "started_at": "2026-11-15T09:00:00Z", "agents": [{"name": "demo", "driver": "demo", "installed": true}],
    "default_agent": "claude",
    "limits": {"limits": {"app_sessions": 0}, "sessions": {"max_live": 16}}}))]
pub(crate) struct Me {
    /// Always `true`.
    ok: bool,
    version: &'static str,
    /// When the console's cookie expires; `null` for a token.
    #[schema(format = DateTime)]
    expires_at: Option<String>,
    #[schema(format = DateTime)]
    started_at: String,
    agents: Vec<AgentView>,
    /// The setting `sessions.default_agent`.
    default_agent: String,
    limits: Bounds,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct AgentView {
    name: String,
    driver: &'static str,
    /// Whether the agent's program is installed.
    installed: bool,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true, "version": "0.1.0", "started_at": "2026-11-15T09:00:00Z",
    "sessions": {"open": 3, "busy": 1, "waiting": 0}, "live": {"used": 3, "limit": 16}, "agents": 2,
    "pool": {"busy": 0, "idle": 1, "warm": 9, "seeded": 1, "fresh": 2}, "turns": {"queued": 0, "finished": 12},
    "memory": {"turns": 4711, "backlog_files": 0, "backlog_events": 0}}))]
pub(crate) struct Overview {
    /// Always `true`.
    ok: bool,
    version: &'static str,
    #[schema(format = DateTime)]
    started_at: String,
    sessions: SessionFigures,
    live: LiveFigures,
    /// Process trees of agents.
    agents: usize,
    /// The pool of the Claude backend.
    pool: PoolFigures,
    /// Turns that ended since the start, by state, and `queued` turns now.
    #[schema(value_type = Object)]
    turns: BTreeMap<&'static str, u64>,
    memory: MemoryFigures,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct SessionFigures {
    open: usize,
    /// Sessions with a running or queued turn.
    busy: usize,
    /// Sessions whose agent waits for a permission answer.
    waiting: usize,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct LiveFigures {
    used: usize,
    limit: usize,
}

/// Processes of the Claude backend, and the origin of its turns since the start.
#[derive(Serialize, ToSchema)]
pub(crate) struct PoolFigures {
    busy: usize,
    idle: usize,
    warm: u64,
    seeded: u64,
    fresh: u64,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct MemoryFigures {
    turns: u64,
    /// Captured turns that are not stored yet.
    backlog_files: usize,
    backlog_events: usize,
}

/// Returns the current sign-in and server.
#[utoipa::path(get, path = "/admin/me", tag = "console", operation_id = "me", security(("token" = [])), responses(
    (status = 200, description = "The sign-in.", body = Me),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 403, description = "Unknown Host header, or a request from another origin.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn me(
    State(gateway): State<Arc<Gateway>>,
    admin: Admin,
) -> Result<Json<Me>, ApiError> {
    let expires_at = admin.until.map(|until| until.to_string());
    let look = move || Me {
        ok: true,
        version: gateway.version,
        expires_at,
        started_at: gateway.started_at.to_string(),
        default_agent: gateway.default_agent.to_string(),
        agents: gateway
            .agents
            .iter()
            .map(|(name, agent)| AgentView {
                name: name.to_string(),
                driver: agent.driver.as_str(),
                installed: agent.driver == Driver::Demo || gateway.doctor.is_installed(agent),
            })
            .collect(),
        limits: bounds(&gateway),
    };
    let me = tokio::task::spawn_blocking(look).await;
    me.map(Json).map_err(|error| ApiError::Internal(error.to_string()))
}

/// Returns the current state of sessions, agents and memory.
#[utoipa::path(get, path = "/admin/overview", tag = "admin", operation_id = "overview", security(("token" = [])), responses(
    (status = 200, description = "The figures.", body = Overview),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn overview(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
) -> Result<Json<Overview>, ApiError> {
    let figures = gateway.sessions.figures();
    let pool = gateway.completions.figures();
    let (waiting, queued) = gateway.sessions.waiting();
    let ended = figures.turns.iter().filter(|(state, _)| state.is_over());
    let mut turns: BTreeMap<_, _> = ended.map(|(state, count)| (state.as_str(), *count)).collect();
    turns.insert("queued", queued as u64);
    let remembered = gateway.engine.counts(&Principal::Owner).await?.turns;
    let tools = gateway.tools.clone();
    let look = move || match tools.backlog().files {
        0 => (0, 0),
        files => (files, tools.waiting_turns()),
    };
    let (backlog_files, backlog_events) = tokio::task::spawn_blocking(look)
        .await
        .map_err(|error| ApiError::Internal(error.to_string()))?;
    Ok(Json(Overview {
        ok: true,
        version: gateway.version,
        started_at: gateway.started_at.to_string(),
        sessions: SessionFigures { open: figures.open, busy: figures.busy, waiting },
        live: LiveFigures { used: figures.live, limit: figures.live_limit },
        agents: figures.agents,
        pool: PoolFigures {
            busy: pool.busy,
            idle: pool.idle,
            warm: pool.warm,
            seeded: pool.seeded,
            fresh: pool.fresh,
        },
        turns,
        memory: MemoryFigures { turns: remembered, backlog_files, backlog_events },
    }))
}
