//! `GET /admin/health` and `GET /admin/limits`: checks, settings and limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Json;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::doctor::{Check, SettingRow};
use crate::error::{ApiError, ErrorBody};
use crate::extract::caller::Admin;
use crate::state::Gateway;

#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true, "checks": [{"name": "agent", "status": "warn",
    "text": "codex: `codex-acp` is not installed", "fix": "npm install -g …"}],
    "settings": [{"key": "listen", "value": "\"127.0.0.1:7717\"", "source": "default"}]}))]
pub(crate) struct HealthReport {
    /// Always `true`; `checks` has the results.
    ok: bool,
    checks: Vec<Check>,
    settings: Vec<SettingRow>,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true, "limits": {"app_sessions": 0}, "sessions": {"max_live": 16}}))]
pub(crate) struct Limits {
    /// Always `true`.
    ok: bool,
    #[serde(flatten)]
    bounds: Bounds,
}

/// The settings that limit apps and sessions, by section.
#[derive(Serialize, ToSchema)]
pub(crate) struct Bounds {
    #[schema(value_type = Object)]
    limits: BTreeMap<String, Value>,
    #[schema(value_type = Object)]
    sessions: BTreeMap<String, Value>,
}

/// Returns the checks of `hob doctor` and every setting with its source.
#[utoipa::path(get, path = "/admin/health", tag = "admin", operation_id = "health", security(("token" = [])), responses(
    (status = 200, description = "The checks and settings.", body = HealthReport),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn health(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
) -> Result<Json<HealthReport>, ApiError> {
    let doctor = gateway.doctor.clone();
    let look =
        move || HealthReport { ok: true, checks: doctor.checks(), settings: doctor.settings() };
    let health = tokio::task::spawn_blocking(look).await;
    health.map(Json).map_err(|error| ApiError::Internal(error.to_string()))
}

/// Returns the configured limits.
#[utoipa::path(get, path = "/admin/limits", tag = "admin", operation_id = "limits", security(("token" = [])), responses(
    (status = 200, description = "The settings below `limits` and `sessions`.", body = Limits),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
))]
pub(crate) async fn limits(State(gateway): State<Arc<Gateway>>, _: Admin) -> Json<Limits> {
    Json(Limits { ok: true, bounds: bounds(&gateway) })
}

pub(super) fn bounds(gateway: &Gateway) -> Bounds {
    let settings = gateway.doctor.settings();
    let below = |section: &str| {
        let rows = settings.iter().filter_map(|row| {
            let key = row.key.strip_prefix(section)?.strip_prefix('.')?;
            // Values are printed as JSON.
            let value = serde_json::from_str(&row.value);
            Some((key.to_owned(), value.unwrap_or_else(|_| Value::String(row.value.clone()))))
        });
        rows.collect()
    };
    Bounds { limits: below("limits"), sessions: below("sessions") }
}
