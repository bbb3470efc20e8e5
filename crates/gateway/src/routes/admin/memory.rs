//! `/admin/memory`: the owner's memory, and what the owner reads of the memory of an app.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::response::Json;
use hob_domain::memory::{Around, Principal, Record, RecordId, Scope, TurnSource, Window};
use hob_domain::{AppFilter, Timestamp};
use hob_mcp::{CallerContext, DayEdge, parse_time};
use hob_memory::{RecallHit, RecallQuery};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::apps::app_name;
use crate::error::{ApiError, ErrorBody};
use crate::extract::caller::Admin;
use crate::extract::path_and_query::ApiQuery;
use crate::state::Gateway;

/// Default and maximum number of hits per response.
const PAGE: usize = 20;
const MAX_PAGE: usize = 200;
/// How many hits are searched for those of one client.
const SEARCHED: usize = 500;
/// A person reads the result, so no token budget applies.
const NO_BUDGET: usize = 1 << 24;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Search {
    q: Option<String>,
    app: Option<String>,
    project: Option<String>,
    client: Option<String>,
    session_id: Option<String>,
    since: Option<String>,
    until: Option<String>,
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    app: Option<String>,
    session_id: Option<String>,
    project: Option<String>,
    around: Option<String>,
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WhoseMemory {
    app: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true, "hits": [{"record_id": "9f…", "text": "we chose SQLite", "role": "assistant",
    "session_id": "4c…", "project": "/home/me/shop", "client": "claude", "ts": "2026-11-14T10:00:00Z",
    "score": 0.83, "reason": "matches sqlite", "superseded": false, "masked": false}],
    "omitted": 3, "partial": false, "took_ms": 4}))]
pub(crate) struct SearchAnswer {
    /// Always `true`.
    ok: bool,
    hits: Vec<RememberedTurn>,
    /// Number of further matches.
    omitted: usize,
    /// Whether captured turns are not searchable yet.
    partial: bool,
    took_ms: u64,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct TimelineAnswer {
    /// Always `true`.
    ok: bool,
    /// In the order of the conversation.
    turns: Vec<RememberedTurn>,
}

/// A remembered turn.
#[derive(Serialize, ToSchema)]
pub(crate) struct RememberedTurn {
    record_id: String,
    text: String,
    role: String,
    session_id: String,
    project: String,
    /// The client that the turn was captured from.
    client: String,
    #[schema(format = DateTime)]
    ts: String,
    /// From 0 to 1; present in search results.
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
    /// Why the turn was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Whether a newer record supersedes this one.
    superseded: bool,
    /// Whether the text has masked secrets.
    masked: bool,
    /// The app whose memory has the turn; absent in the owner's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    app: Option<String>,
}

impl From<Record> for RememberedTurn {
    fn from(record: Record) -> RememberedTurn {
        RememberedTurn {
            record_id: record.id.to_string(),
            text: record.text,
            role: record.role.as_str().to_owned(),
            session_id: record.session,
            project: record.place.project,
            client: record.client,
            ts: record.ts.to_string(),
            score: None,
            reason: None,
            superseded: record.superseded_by.is_some(),
            masked: record.sealed.is_some(),
            app: None,
        }
    }
}

impl RememberedTurn {
    /// Marks a turn of an app's memory.
    fn of_app(self, app: Option<&str>) -> RememberedTurn {
        RememberedTurn { app: app.map(str::to_owned), ..self }
    }
}

impl From<RecallHit> for RememberedTurn {
    fn from(found: RecallHit) -> RememberedTurn {
        let score = (found.score * 10_000.0).round() / 10_000.0;
        RememberedTurn { score: Some(score), reason: Some(found.reason), ..found.record.into() }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true, "projects": [{"name": "/home/me/shop", "turns": 420,
    "last": "2026-11-15T09:00:00Z"}], "clients": [{"name": "claude", "turns": 400}]}))]
pub(crate) struct FacetsAnswer {
    /// Always `true`.
    ok: bool,
    /// Most recent first.
    projects: Vec<ProjectView>,
    clients: Vec<ClientView>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct ProjectView {
    name: String,
    turns: u64,
    #[schema(format = DateTime)]
    last: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct ClientView {
    name: String,
    turns: u64,
}

/// Searches the memory of the owner or an app, or lists the newest turns if `q` is empty.
#[utoipa::path(get, path = "/admin/memory/search", tag = "admin", operation_id = "search_memory", security(("token" = [])),
    params(("q" = Option<String>, Query, description = "The search query."),
        ("app" = Option<String>, Query, description = "Search the memory of this app instead of the owner's."),
        ("project" = Option<String>, Query, description = "Only this project."),
        ("client" = Option<String>, Query, description = "Only turns captured from this client."),
        ("session_id" = Option<String>, Query, description = "Only this session."),
        ("since" = Option<String>, Query, description = "Not before this date or time."),
        ("until" = Option<String>, Query, description = "Not after this date or time."),
        ("limit" = Option<usize>, Query, description = "Maximum number of hits. Default: 20. Maximum: 200.")), responses(
    (status = 200, description = "The hits.", body = SearchAnswer),
    (status = 400, description = "Invalid query; the error names the parameter.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such app.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn search(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    ApiQuery(search): ApiQuery<Search>,
) -> Result<Json<SearchAnswer>, ApiError> {
    let started = Instant::now();
    let engine = &gateway.engine;
    let app = filled(search.app);
    let principal = principal_of(&gateway, app.as_deref()).await?;
    let limit = search.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let scope = Scope {
        project: filled(search.project),
        session: filled(search.session_id),
        since: time("since", search.since.as_deref(), DayEdge::Start)?,
        until: time("until", search.until.as_deref(), DayEdge::End)?,
    };
    let client = filled(search.client);
    let most = if client.is_some() { SEARCHED } else { limit };
    let of_client = |record: &Record| client.as_ref().is_none_or(|name| record.client == *name);
    let cue = search.q.unwrap_or_default();
    let (mut hits, omitted): (Vec<RememberedTurn>, usize) = if cue.trim().is_empty() {
        let window = Window { scope, around: None, limit: most };
        let newest = engine.timeline(&principal, &window).await?.into_iter().rev();
        (newest.filter(|record| of_client(record)).map(RememberedTurn::from).collect(), 0)
    } else {
        let budget_tokens = NO_BUDGET;
        let query = RecallQuery {
            text: cue,
            budget_tokens,
            limit: most,
            scope,
            preferred_project: None,
            min_score: None,
            explain: false,
        };
        let recall = engine.recall(&principal, &query).await?;
        let hits = recall.hits.into_iter().filter(|found| of_client(&found.record));
        // Turns of other clients do not match.
        let omitted = if client.is_some() { 0 } else { recall.omitted };
        (hits.map(RememberedTurn::from).collect(), omitted)
    };
    let omitted = omitted + hits.len().saturating_sub(limit);
    hits.truncate(limit);
    let hits = hits.into_iter().map(|hit| hit.of_app(app.as_deref())).collect();
    let partial = gateway.tools.backlog().files > 0;
    let took_ms = started.elapsed().as_millis() as u64;
    Ok(Json(SearchAnswer { ok: true, hits, omitted, partial, took_ms }))
}

/// Lists the turns of a session or project in order, around one record or the latest.
#[utoipa::path(get, path = "/admin/memory/timeline", tag = "admin", operation_id = "memory_timeline", security(("token" = [])),
    params(("app" = Option<String>, Query, description = "Read the memory of this app instead of the owner's."),
        ("session_id" = Option<String>, Query, description = "The turns of this session."),
        ("project" = Option<String>, Query, description = "The turns of this project."),
        ("around" = Option<String>, Query, description = "The record in the middle. Default: the latest turns."),
        ("limit" = Option<usize>, Query, description = "Maximum number of turns. Default: 20. Maximum: 200.")), responses(
    (status = 200, description = "The turns.", body = TimelineAnswer),
    (status = 400, description = "Invalid query; the error names the parameter.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such record or app.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn timeline(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    ApiQuery(asked): ApiQuery<Line>,
) -> Result<Json<TimelineAnswer>, ApiError> {
    let engine = &gateway.engine;
    let app = filled(asked.app);
    let principal = principal_of(&gateway, app.as_deref()).await?;
    let mut scope = Scope {
        project: filled(asked.project),
        session: filled(asked.session_id),
        ..Scope::default()
    };
    let around = match filled(asked.around) {
        None => None,
        Some(id) => {
            let id = RecordId::new(id);
            let record = engine.record(&principal, &id).await?;
            let record = record.ok_or_else(no_record)?;
            // `around` alone implies the record's session.
            if scope == Scope::default() {
                scope.session = Some(record.session);
            }
            Some(Around::Record(id))
        }
    };
    let limit = asked.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let turns = engine.timeline(&principal, &Window { scope, around, limit }).await?;
    let turns = turns.into_iter().map(|turn| RememberedTurn::from(turn).of_app(app.as_deref()));
    Ok(Json(TimelineAnswer { ok: true, turns: turns.collect() }))
}

/// Lists the projects and clients that the memory has turns of.
#[utoipa::path(get, path = "/admin/memory/facets", tag = "admin", operation_id = "memory_facets", security(("token" = [])),
    params(("app" = Option<String>, Query, description = "Describe the memory of this app instead of the owner's.")), responses(
    (status = 200, description = "The projects and clients.", body = FacetsAnswer),
    (status = 400, description = "Invalid query; the error names the parameter.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such app.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn facets(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    ApiQuery(whose): ApiQuery<WhoseMemory>,
) -> Result<Json<FacetsAnswer>, ApiError> {
    let principal = principal_of(&gateway, filled(whose.app).as_deref()).await?;
    let facets = gateway.engine.facets(&principal).await?;
    let projects = facets.projects.into_iter().map(|project| ProjectView {
        name: project.root,
        turns: project.turns,
        last: project.last.map(|last| last.to_string()),
    });
    let clients = facets.clients.into_iter().map(|(name, turns)| ClientView { name, turns });
    Ok(Json(FacetsAnswer { ok: true, projects: projects.collect(), clients: clients.collect() }))
}

/// Returns counts, backlog and health of the memory, as the tool `memory_stats` does.
#[utoipa::path(get, path = "/admin/memory/stats", tag = "admin", operation_id = "memory_stats", security(("token" = [])),
    params(("app" = Option<String>, Query, description = "Describe the memory of this app instead of the owner's.")), responses(
    (status = 200, description = "The figures.", body = Object),
    (status = 400, description = "Invalid query; the error names the parameter.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such app.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn stats(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    ApiQuery(whose): ApiQuery<WhoseMemory>,
) -> Result<Json<Value>, ApiError> {
    let principal = principal_of(&gateway, filled(whose.app).as_deref()).await?;
    let caller = CallerContext { principal, location: None, note_source: TurnSource::Owner };
    let stats = gateway.tools.call(&caller, "memory_stats", json!({})).await;
    let stats = stats.map_err(|error| ApiError::Internal(error.to_string()))?;
    let mut answer = json!({"ok": true});
    if let (Some(answer), Value::Object(stats)) = (answer.as_object_mut(), stats) {
        answer.extend(stats);
    }
    Ok(Json(answer))
}

pub(super) fn no_record() -> ApiError {
    ApiError::NotFound("no such record".to_owned())
}

/// Returns the principal whose memory is read: the app of this name, or the owner without one.
async fn principal_of(gateway: &Gateway, app: Option<&str>) -> Result<Principal, ApiError> {
    let Some(app) = app else { return Ok(Principal::Owner) };
    let name = app_name(app)?;
    let apps = gateway.apps.apps(AppFilter::All).await?;
    match apps.iter().any(|known| known.name == name) {
        true => Ok(Principal::App(name.as_str().to_owned())),
        false => Err(ApiError::NotFound(format!("no app is named {name}"))),
    }
}

/// An empty form field counts as absent.
fn filled(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// Reads a parameter that is a time or a date. An empty one counts as absent.
fn time(name: &str, text: Option<&str>, edge: DayEdge) -> Result<Option<Timestamp>, ApiError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let parsed = parse_time(text, edge).ok_or_else(|| {
        ApiError::bad_request(format!(
            "{name}: {text:?} is neither a date nor a time such as 2026-05-01T00:00:00Z"
        ))
    })?;
    Ok(Some(parsed))
}
