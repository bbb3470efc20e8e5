//! `/admin/sessions`: the sessions of all apps, for the owner.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{Json, Response};
use hob_domain::AppName;
use hob_domain::session::SessionId;
use serde_json::json;

use crate::audit_log;
use crate::error::{ApiError, ErrorBody};
use crate::extract::caller::{Admin, Caller};
use crate::extract::path_and_query::{ApiPath, ApiQuery};
use crate::extract::session_id::session_id;
use crate::routes::sessions::control::CancelAnswer;
use crate::routes::sessions::events::{After, Page, beginning, respond, respond_before};
use crate::routes::sessions::list::{ListQuery, send_list};
use crate::routes::sessions::manage::Closed;
use crate::routes::sessions::shapes::{EventList, SessionAnswer, SessionList};
use crate::sign_in_expiry::expiry_instant;
use crate::state::Gateway;

/// Lists the sessions of all apps, oldest first.
///
/// `limit` and `after` ask for a page; its `next` is the `after` of the page after it. Without `limit`, all sessions are listed.
#[utoipa::path(get, path = "/admin/sessions", tag = "admin", operation_id = "list_all_sessions", security(("token" = [])),
    params(("limit" = Option<usize>, Query, description = "Maximum number of sessions."),
        ("after" = Option<String>, Query, description = "The last session of the page before.")), responses(
    (status = 200, description = "The sessions.", body = SessionList),
    (status = 400, description = "Invalid request; the error names the field.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    ApiQuery(query): ApiQuery<ListQuery>,
) -> Result<Response, ApiError> {
    send_list(gateway, None, &query).await
}

/// Returns any session.
#[utoipa::path(get, path = "/admin/sessions/{id}", tag = "admin", operation_id = "get_any_session", security(("token" = [])),
    params(("id" = String, Path, description = "The session.")), responses(
    (status = 200, description = "The session.", body = SessionAnswer),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such session.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    ApiPath(id): ApiPath<String>,
) -> Result<Json<SessionAnswer>, ApiError> {
    let (app, id) = whose(&gateway, &id).await?;
    let session = gateway.sessions.get(&app, &id).await?;
    Ok(Json(SessionAnswer::new(&gateway, session)))
}

/// Returns the event log of any session.
#[utoipa::path(get, path = "/admin/sessions/{id}/events", tag = "admin", operation_id = "list_any_events", security(("token" = [])),
    params(("id" = String, Path, description = "The session."),
        ("after" = Option<usize>, Query, description = "Return events with a greater number."),
        ("before" = Option<usize>, Query, description = "Return the last events with a smaller number; `after` is ignored."),
        ("limit" = Option<usize>, Query, description = "Maximum number of events. Default and maximum: 10,000."),
        ("Last-Event-ID" = Option<usize>, Header, description = "Number of the last event received, as browsers send it.")), responses(
    (status = 200, description = "The events.",
        content((EventList = "application/json"), (String = "text/event-stream"))),
    (status = 400, description = "Invalid request; the error names the field.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such session.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn events(
    State(gateway): State<Arc<Gateway>>,
    admin: Admin,
    ApiPath(id): ApiPath<String>,
    ApiQuery(page): ApiQuery<Page>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let (app, id) = whose(&gateway, &id).await?;
    let from = After { after: page.after.clone() };
    beginning(&from, &headers)?;
    match page.before {
        Some(before) => respond_before(&gateway, &app, &id, before, page.limit()).await,
        None => {
            let limit = page.limit();
            let until = expiry_instant(admin.until);
            respond(gateway, app, id, &from, limit, until, &headers).await
        }
    }
}

/// Cancels the running turn of any session.
#[utoipa::path(post, path = "/admin/sessions/{id}/cancel", tag = "admin", operation_id = "cancel_any_turn", security(("token" = [])),
    params(("id" = String, Path, description = "The session.")), responses(
    (status = 200, description = "No turn is running.", body = CancelAnswer),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such session.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn cancel(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    ApiPath(id): ApiPath<String>,
) -> Result<Json<CancelAnswer>, ApiError> {
    let (caller, id) = caller(&gateway, &id).await?;
    audit_log::record(&gateway, "session_cancel", &id.0, json!({})).await;
    crate::routes::sessions::control::cancel(State(gateway), caller, id).await
}

/// Closes any session.
#[utoipa::path(delete, path = "/admin/sessions/{id}", tag = "admin", operation_id = "close_any_session", security(("token" = [])),
    params(("id" = String, Path, description = "The session.")), responses(
    (status = 200, description = "The session is closed.", body = Closed),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such session.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn close(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    ApiPath(id): ApiPath<String>,
) -> Result<Json<Closed>, ApiError> {
    let (caller, id) = caller(&gateway, &id).await?;
    audit_log::record(&gateway, "session_close", &id.0, json!({})).await;
    crate::routes::sessions::manage::close(State(gateway), caller, id).await
}

pub(super) async fn whose(gateway: &Gateway, id: &str) -> Result<(AppName, SessionId), ApiError> {
    let id = session_id(id)?;
    Ok((gateway.sessions.app_of(&id).await?, id))
}

async fn caller(gateway: &Gateway, id: &str) -> Result<(Caller, ApiPath<String>), ApiError> {
    let (app, id) = whose(gateway, id).await?;
    Ok((Caller::on_behalf_of(app), ApiPath(id.to_string())))
}
