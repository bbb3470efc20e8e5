//! The router: all routes on one screen.

use std::sync::Arc;
use std::time::Instant;

pub use axum::Router;
use axum::extract::{DefaultBodyLimit, Extension, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{MethodRouter, any, delete, get, post};
use uuid::Uuid;

use crate::app_requests::RequestSlot;
use crate::error::ApiError;
use crate::held_body::hold;
use crate::routes::acp::{AcpConnections, http as acp};
use crate::routes::admin::{
    apps, audit, health as doctor, live, login, memory, memory_change, overview, session_turns,
    sessions as all_sessions, usage,
};
use crate::routes::sessions::{control, events, manage, settings, turns};
use crate::routes::v1::agent_sessions::{self, shared_paths};
use crate::routes::v1::{
    anthropic, batches, conversations, count_tokens, fallback, models, openai, responses,
};
use crate::routes::{console, files, health, mcp, metrics, run};
use crate::state::Gateway;
use crate::{openapi, origin_guard, unread_body};

/// The whole HTTP surface.
pub fn router(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route("/", get(console::page))
        .route("/assets/{*file}", get(console::asset))
        .route("/favicon.svg", get(console::icon))
        .route("/healthz", get(health::healthz))
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/openapi.json", get(openapi::openapi_json))
        .route("/metrics", get(metrics::metrics))
        .route("/run", post(run::run))
        // The handler has its own limit.
        .route("/files", post(files::upload).layer(DefaultBodyLimit::disable()))
        .route("/sessions", get(manage::list).post(manage::create))
        .route("/sessions/{id}", get(manage::get).delete(manage::close))
        .route("/sessions/{id}/turn", post(turns::turn))
        .route("/sessions/{id}/turns/{n}", get(turns::get))
        .route("/sessions/{id}/events", get(events::events))
        .route("/sessions/{id}/cancel", post(control::cancel))
        .route("/sessions/{id}/settings", get(settings::get).post(settings::change))
        .route("/sessions/{id}/permissions/{request_id}", post(control::permit))
        .route("/sessions/{id}/tool_results/{call_id}", post(control::return_tool_result))
        .route("/.well-known/oauth-protected-resource/mcp", get(mcp::metadata))
        .route("/acp", acp_methods())
        .route("/admin/login", post(login::login))
        .route("/admin/logout", post(login::logout))
        .route("/admin/me", get(overview::me))
        .route("/admin/overview", get(overview::overview))
        .route("/admin/health", get(doctor::health))
        .route("/admin/limits", get(doctor::limits))
        .route("/admin/usage", get(usage::usage))
        .route("/admin/memory/search", get(memory::search))
        .route("/admin/memory/timeline", get(memory::timeline))
        .route("/admin/memory/facets", get(memory::facets))
        .route("/admin/memory/stats", get(memory::stats))
        .route("/admin/memory/correct", post(memory_change::correct))
        .route("/admin/memory/forget", post(memory_change::forget))
        .route("/admin/memory/restore", post(memory_change::restore))
        .route("/admin/memory/unseal", post(memory_change::unseal))
        .route("/admin/sessions", get(all_sessions::list).post(session_turns::create))
        .route("/admin/sessions/{id}", get(all_sessions::get).delete(all_sessions::close))
        .route("/admin/sessions/{id}/events", get(all_sessions::events))
        .route("/admin/sessions/{id}/cancel", post(all_sessions::cancel))
        .route("/admin/sessions/{id}/turn", post(session_turns::turn))
        .route("/admin/sessions/{id}/turns", get(session_turns::turns))
        .route("/admin/sessions/{id}/permissions/{request_id}", post(session_turns::permit))
        .route("/admin/apps", get(apps::list).post(apps::create))
        .route("/admin/apps/{app}", delete(apps::remove))
        .route("/admin/audit", get(audit::list))
        .route("/admin/live", get(live::list::list))
        .route("/admin/live/stream", get(live::stream::stream))
        .route("/admin/live/{id}/screen", get(live::screen::screen))
        .route("/admin/live/{id}/attach", get(live::attach::attach))
        .nest("/v1", v1_routes())
        .merge(mcp::route(&gateway))
        .fallback(async || ApiError::NotFound("no such path".to_owned()))
        .method_not_allowed_fallback(async || ApiError::MethodNotAllowed)
        .layer(middleware::from_fn_with_state(gateway.clone(), origin_guard::guard))
        .layer(middleware::from_fn_with_state(gateway.clone(), trace))
        .layer(middleware::from_fn_with_state(gateway.clone(), unread_body::discard))
        .with_state(gateway)
}

/// The routes of other vendors' APIs, with their own error shapes.
fn v1_routes() -> Router<Arc<Gateway>> {
    let nowhere = |routes: Router<_>, path| routes.route(path, any(fallback::nowhere));
    let unsupported = fallback::LIKE_AGENTS.into_iter().fold(Router::new(), nowhere);
    unsupported
        .route("/messages", post(anthropic::messages))
        .merge(batch_routes())
        .route("/messages/count_tokens", post(count_tokens::count_tokens))
        .route("/chat/completions", post(openai::chat))
        .route("/responses", post(responses::create::create))
        .route("/responses/input_tokens", post(responses::stored::input_tokens))
        .route("/responses/{id}", get(responses::stored::get).delete(responses::stored::delete))
        .route("/responses/{id}/cancel", post(responses::stored::cancel))
        .route("/responses/{id}/input_items", get(responses::stored::input_items))
        .route("/agents", get(shared_paths::list).post(shared_paths::create))
        .route(
            "/agents/{id}",
            get(shared_paths::get).post(shared_paths::update).delete(shared_paths::delete),
        )
        .route("/agents/{id}/archive", post(shared_paths::archive))
        .route("/agents/{id}/versions", get(shared_paths::versions))
        .merge(conversation_routes())
        .merge(anthropic_session_routes())
        .merge(memory_store_routes())
        .merge(openai_session_routes())
        .route("/models", get(models::list))
        .route("/models/{model}", get(models::get))
        .fallback(fallback::nowhere)
        .method_not_allowed_fallback(fallback::wrong_method)
}

/// The routes of Anthropic's message batches.
fn batch_routes() -> Router<Arc<Gateway>> {
    use batches::manage as batches;
    Router::new()
        .route("/messages/batches", get(batches::list).post(batches::create))
        .route("/messages/batches/{id}", get(batches::get).delete(batches::delete))
        .route("/messages/batches/{id}/cancel", post(batches::cancel))
        .route("/messages/batches/{id}/results", get(batches::results))
}

/// The routes of OpenAI's Conversations.
fn conversation_routes() -> Router<Arc<Gateway>> {
    use conversations::{items, manage};
    Router::new()
        .route("/conversations", post(manage::create))
        .route("/conversations/{id}", get(manage::get).post(manage::update).delete(manage::delete))
        .route("/conversations/{id}/items", get(items::list).post(items::create))
        .route("/conversations/{id}/items/{item_id}", get(items::get).delete(items::delete))
}

/// The routes of Anthropic's Managed Agents.
fn anthropic_session_routes() -> Router<Arc<Gateway>> {
    use agent_sessions::anthropic::{environments, events, send, sessions};
    Router::new()
        .route("/environments", get(environments::list).post(environments::create))
        .route(
            "/environments/{id}",
            get(environments::get).post(environments::update).delete(environments::delete),
        )
        .route("/environments/{id}/archive", post(environments::archive))
        .route("/sessions", get(sessions::list).post(sessions::create))
        .route("/sessions/{id}", get(sessions::get).post(sessions::update).delete(sessions::delete))
        .route("/sessions/{id}/archive", post(sessions::archive))
        .route("/sessions/{id}/events", get(events::list).post(send::send))
        .route("/sessions/{id}/events/stream", get(events::follow))
}

/// The routes of Anthropic's memory stores.
fn memory_store_routes() -> Router<Arc<Gateway>> {
    use agent_sessions::memory_stores::{memories, stores, versions};
    Router::new()
        .route("/memory_stores", get(stores::list).post(stores::create))
        .route("/memory_stores/{id}", get(stores::get).post(stores::update).delete(stores::delete))
        .route("/memory_stores/{id}/archive", post(stores::archive))
        .route("/memory_stores/{id}/memories", get(memories::list).post(memories::create))
        .route(
            "/memory_stores/{id}/memories/{memory_id}",
            get(memories::get).post(memories::update).delete(memories::delete),
        )
        .route("/memory_stores/{id}/memory_versions", get(versions::list))
        .route("/memory_stores/{id}/memory_versions/{version_id}", get(versions::get))
        .route("/memory_stores/{id}/memory_versions/{version_id}/redact", post(versions::redact))
}

/// The routes of OpenAI's Agents API.
fn openai_session_routes() -> Router<Arc<Gateway>> {
    use agent_sessions::openai::{artifacts, events, sessions, turns};
    Router::new()
        .route("/agents/sessions", get(sessions::list).post(sessions::create))
        .route(
            "/agents/sessions/{id}",
            get(sessions::get).post(sessions::update).delete(sessions::delete),
        )
        .route("/agents/sessions/{id}/artifacts", get(artifacts::list))
        .route(
            "/agents/sessions/{id}/artifacts/{artifact_id}",
            get(artifacts::get).delete(artifacts::delete),
        )
        .route("/agents/sessions/{id}/artifacts/{artifact_id}/content", get(artifacts::content))
        .route("/agents/sessions/{id}/events", get(events::follow).post(events::send))
        .route("/agents/sessions/{id}/items", get(turns::items))
        .route("/agents/sessions/{id}/turns", get(turns::list))
        .route("/agents/sessions/{id}/turns/{turn}", get(turns::get))
        .route("/agents/sessions/{id}/turns/{turn}/items", get(turns::turn_items))
}

/// The methods of `/acp`, which share its connections.
fn acp_methods() -> MethodRouter<Arc<Gateway>> {
    let connections = Arc::new(AcpConnections::default());
    get(acp::get).post(acp::post).delete(acp::delete).layer(Extension(connections))
}

/// Gives every request an id and a log line. Queries and headers are not logged.
async fn trace(State(gateway): State<Arc<Gateway>>, mut request: Request, next: Next) -> Response {
    let id = Uuid::new_v4().to_string();
    let started = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let slot = RequestSlot::default();
    request.extensions_mut().insert(slot.clone());
    let mut response = hold(next.run(request).await, slot);
    gateway.requests.count(response.status().as_u16());
    tracing::debug!(
        request = id, %method, path, status = response.status().as_u16(),
        ms = started.elapsed().as_millis() as u64, "answered",
    );
    if let Ok(value) = id.parse() {
        response.headers_mut().insert("x-request-id", value);
    }
    response
}
