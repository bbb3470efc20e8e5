//! `/admin/apps`: apps and their tokens.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Json;
use hob_domain::memory::Principal;
use hob_domain::{App, AppFilter, AppName, Timestamp, Token};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use crate::audit_log;
use crate::error::{ApiError, ErrorBody};
use crate::extract::body::JsonBody;
use crate::extract::caller::Admin;
use crate::extract::path_and_query::ApiPath;
use crate::state::Gateway;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"app": "my-app"}))]
pub(crate) struct CreateApp {
    /// 1 to 64 characters of `A-Z a-z 0-9 . _ -`.
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    app: String,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true, "app": "my-app", "token": "hob_…"}))]
pub(crate) struct CreatedApp {
    ok: bool,
    app: String,
    /// Shown only once; Hob keeps its hash.
    token: String,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct AppList {
    ok: bool,
    count: usize,
    apps: Vec<AppEntry>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct AppEntry {
    app: String,
    /// RFC 3339, UTC.
    #[schema(format = DateTime)]
    created_at: String,
    /// Open sessions of the app.
    sessions_open: usize,
    /// Usage of turns that ended today (UTC).
    turns_today: u64,
    tokens_today: u64,
    cost_today: f64,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Done {
    ok: bool,
}

/// Creates an app and its token.
#[utoipa::path(post, path = "/admin/apps", tag = "admin", operation_id = "create_app", request_body = CreateApp,
    security(("token" = [])), responses(
    (status = 200, description = "The app and its token. The token is shown only once.", body = CreatedApp),
    (status = 400, description = "Invalid request; the error names the field.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 408, description = "The body did not arrive in time.", body = ErrorBody),
    (status = 409, description = "An app of this name exists.", body = ErrorBody),
    (status = 413, description = "The body is too large.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    JsonBody(body): JsonBody<CreateApp>,
) -> Result<Json<CreatedApp>, ApiError> {
    let name = app_name(&body.app)?;
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(|error| ApiError::Internal(error.to_string()))?;
    let token = Token::from_random(random);
    let app = App { name, created_at: Timestamp::now() };
    gateway.apps.create_app(&app, token.hash()).await?;
    audit_log::record(&gateway, "app_create", app.name.as_str(), json!({})).await;
    let token = token.expose().to_owned();
    Ok(Json(CreatedApp { ok: true, app: app.name.to_string(), token }))
}

/// Lists all apps.
#[utoipa::path(get, path = "/admin/apps", tag = "admin", operation_id = "list_apps", security(("token" = [])), responses(
    (status = 200, description = "All apps by name.", body = AppList),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
) -> Result<Json<AppList>, ApiError> {
    let open = gateway.sessions.open_by_app();
    let today = gateway.sessions.usage_since(Timestamp::now(), None).await?;
    let entry = |app: App| {
        let used = today.iter().find(|day| day.app == app.name);
        AppEntry {
            app: app.name.to_string(),
            created_at: app.created_at.to_string(),
            sessions_open: open.get(&app.name).copied().unwrap_or_default(),
            turns_today: used.map_or(0, |day| day.turns),
            tokens_today: used.map_or(0, |day| day.usage.tokens()),
            cost_today: used.map_or(0.0, |day| day.usage.cost_usd),
        }
    };
    let apps: Vec<AppEntry> =
        gateway.apps.apps(AppFilter::All).await?.into_iter().map(entry).collect();
    Ok(Json(AppList { ok: true, count: apps.len(), apps }))
}

/// Removes an app, its sessions and its files. Its token stops working at once.
#[utoipa::path(delete, path = "/admin/apps/{app}", tag = "admin", operation_id = "remove_app", security(("token" = [])),
    params(("app" = String, Path, description = "The app's name.",
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")), responses(
    (status = 200, description = "Removed.", body = Done),
    (status = 400, description = "Not a valid app name.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such app.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn remove(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    ApiPath(name): ApiPath<String>,
) -> Result<Json<Done>, ApiError> {
    let name = app_name(&name)?;
    let known = gateway.apps.apps(AppFilter::All).await?.iter().any(|app| app.name == name);
    // The name is removed last, so that an interrupted removal can be repeated. Then data that the app
    // created in between is removed.
    forget(&gateway, &name).await?;
    gateway.apps.remove_app(&name).await?;
    forget(&gateway, &name).await?;
    if !known {
        return Err(ApiError::NotFound(format!("no app is named {name}")));
    }
    audit_log::record(&gateway, "app_remove", name.as_str(), json!({})).await;
    Ok(Json(Done { ok: true }))
}

/// Removes all data of an app: a later app of this name is a different app.
async fn forget(gateway: &Gateway, name: &AppName) -> Result<(), ApiError> {
    gateway.runner.forget_app(name);
    gateway.batches.forget_app(name);
    gateway.completions.forget_app(name).await;
    gateway.sessions.forget_app(name).await?;
    let removed = gateway.files.remove_app(name);
    removed.map_err(|error| ApiError::Internal(error.to_string()))?;
    gateway.engine.forget_principal(&Principal::App(name.as_str().to_owned())).await?;
    Ok(())
}

pub(super) fn app_name(text: &str) -> Result<AppName, ApiError> {
    AppName::new(text).map_err(|error| ApiError::bad_request(format!("app: {error}")))
}
