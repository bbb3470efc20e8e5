//! Turns and items of sessions of OpenAI's API.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use hob_domain::AppName;
use hob_domain::session::{SessionId, SessionTurn};
use serde_json::Value;

use super::objects;
use super::render;
use crate::error::ApiError;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::ApiPath;
use crate::routes::v1::agent_sessions::cursor::{Query, openai_page};
use crate::routes::v1::agent_sessions::feed::all_steps;
use crate::routes::v1::agent_sessions::respond::{Called, answer};
use crate::routes::v1::agent_sessions::sessions;
use crate::routes::v1::dialect::Dialect;
use crate::routes::v1::schemas;
use crate::state::Gateway;

/// The most turns of a session that are listed.
const MAX_TURNS: usize = 10_000;

/// Lists the turns of a session.
#[utoipa::path(get, path = "/v1/agents/sessions/{id}/turns", tag = "v1", operation_id = "list_openai_turns", security(("token" = [])),
    params(("id" = String, Path, description = "The session."),
        ("limit" = Option<u32>, Query, description = "At most this many, from 1 to 1000."),
        ("after" = Option<String>, Query, description = "The last turn of the page before."),
        ("order" = Option<String>, Query, description = "`desc` (the default) or `asc`.")), responses(
    (status = 200, description = "The turns.", body = schemas::ObjectPage),
    (status = 400, description = "Invalid query; the error names the parameter.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such session of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
    query: Called<Query>,
) -> Response {
    let listed = async {
        let (Caller(app), ApiPath(id), query) = (caller?, id?, query?);
        let described = sessions::find(&gateway, &app.name, &id).await?;
        let (agent, id) = (described.agent_id(), described.session.id);
        let turns = all_turns(&gateway, &app.name, &id).await?;
        let mut turns: Vec<Value> =
            turns.iter().map(|turn| objects::turn(&agent, &id, turn)).collect();
        if query.is_descending("desc")? {
            turns.reverse();
        }
        Ok(openai_page(turns, &query)?)
    };
    answer(Dialect::OpenAi, listed.await)
}

/// Returns a turn.
#[utoipa::path(get, path = "/v1/agents/sessions/{id}/turns/{turn}", tag = "v1", operation_id = "get_openai_turn", security(("token" = [])),
    params(("id" = String, Path, description = "The session."), ("turn" = String, Path, description = "The turn.")), responses(
    (status = 200, description = "The turn.", body = schemas::AgentTurnObject),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such turn of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    path: Called<ApiPath<(String, String)>>,
) -> Response {
    let found = async {
        let (Caller(app), ApiPath((id, turn))) = (caller?, path?);
        let described = sessions::find(&gateway, &app.name, &id).await?;
        let (agent, id) = (described.agent_id(), described.session.id);
        let number = turn_number(&id, &turn)?;
        let turn = gateway.sessions.turn(&app.name, &id, number).await?;
        Ok(objects::turn(&agent, &id, &turn))
    };
    answer(Dialect::OpenAi, found.await)
}

/// Lists the items of a session.
#[utoipa::path(get, path = "/v1/agents/sessions/{id}/items", tag = "v1", operation_id = "list_openai_items", security(("token" = [])),
    params(("id" = String, Path, description = "The session."),
        ("limit" = Option<u32>, Query, description = "At most this many, from 1 to 1000."),
        ("after" = Option<String>, Query, description = "The last item of the page before."),
        ("order" = Option<String>, Query, description = "`desc` (the default) or `asc`.")), responses(
    (status = 200, description = "The items.", body = schemas::ObjectPage),
    (status = 400, description = "Invalid query; the error names the parameter.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such session of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn items(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
    query: Called<Query>,
) -> Response {
    let listed = async {
        let (Caller(app), ApiPath(id), query) = (caller?, id?, query?);
        let session = sessions::find(&gateway, &app.name, &id).await?.session;
        Ok(item_page(&gateway, &app.name, &session.id, None, &query).await?)
    };
    answer(Dialect::OpenAi, listed.await)
}

/// Lists the items of a turn.
#[utoipa::path(get, path = "/v1/agents/sessions/{id}/turns/{turn}/items", tag = "v1", operation_id = "list_openai_turn_items",
    security(("token" = [])),
    params(("id" = String, Path, description = "The session."), ("turn" = String, Path, description = "The turn."),
        ("limit" = Option<u32>, Query, description = "At most this many, from 1 to 1000."),
        ("after" = Option<String>, Query, description = "The last item of the page before."),
        ("order" = Option<String>, Query, description = "`desc` (the default) or `asc`.")), responses(
    (status = 200, description = "The items.", body = schemas::ObjectPage),
    (status = 400, description = "Invalid query; the error names the parameter.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such turn of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn turn_items(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    path: Called<ApiPath<(String, String)>>,
    query: Called<Query>,
) -> Response {
    let listed = async {
        let (Caller(app), ApiPath((id, turn)), query) = (caller?, path?, query?);
        let id = sessions::find(&gateway, &app.name, &id).await?.session.id;
        let number = turn_number(&id, &turn)?;
        gateway.sessions.turn(&app.name, &id, number).await?;
        Ok(item_page(&gateway, &app.name, &id, Some(&turn), &query).await?)
    };
    answer(Dialect::OpenAi, listed.await)
}

async fn item_page(
    gateway: &Gateway,
    app: &AppName,
    id: &SessionId,
    turn: Option<&str>,
    query: &Query,
) -> Result<Value, ApiError> {
    let steps = all_steps(gateway, app, id).await?;
    let turns = all_turns(gateway, app, id).await?;
    let mut items = render::items(id, &steps, &turns);
    items.retain(|item| turn.is_none_or(|turn| item["turn_id"] == turn));
    if query.is_descending("desc")? {
        items.reverse();
    }
    openai_page(items, query)
}

async fn all_turns(
    gateway: &Gateway,
    app: &AppName,
    id: &SessionId,
) -> Result<Vec<SessionTurn>, ApiError> {
    Ok(gateway.sessions.turns_before(app, id, u32::MAX, MAX_TURNS).await?)
}

fn turn_number(id: &SessionId, turn: &str) -> Result<u32, ApiError> {
    objects::turn_number(id, turn).ok_or_else(|| ApiError::NotFound("no such turn".to_owned()))
}
