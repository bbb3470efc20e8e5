//! `GET /admin/audit`: the audit log.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Json;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::{ApiError, ErrorBody};
use crate::extract::caller::Admin;
use crate::extract::path_and_query::ApiQuery;
use crate::state::Gateway;

/// Default and maximum number of entries per response.
const DEFAULT_PAGE: usize = 100;
const MAX_PAGE: usize = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    limit: Option<usize>,
    before: Option<u64>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct AuditList {
    ok: bool,
    entries: Vec<AuditView>,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({"id": 7, "at": "2026-11-15T12:00:00Z", "action": "attach",
    "target": "0198…", "detail": {"viewers": 1}}))]
pub(crate) struct AuditView {
    id: u64,
    /// RFC 3339, UTC.
    #[schema(format = DateTime)]
    at: String,
    /// The action.
    action: String,
    /// The action's target; empty if it has none.
    target: String,
    #[schema(value_type = Object)]
    detail: Value,
}

/// Lists actions done with admin rights, newest first.
#[utoipa::path(get, path = "/admin/audit", tag = "admin", operation_id = "list_audit", security(("token" = [])),
    params(("limit" = Option<usize>, Query, description = "Maximum number of entries. Default: 100. Maximum: 1,000."),
        ("before" = Option<usize>, Query, description = "Return entries with a smaller number.")), responses(
    (status = 200, description = "The entries.", body = AuditList),
    (status = 400, description = "Invalid query; the error names the parameter.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    ApiQuery(which): ApiQuery<Which>,
) -> Result<Json<AuditList>, ApiError> {
    let limit = which.limit.unwrap_or(DEFAULT_PAGE).min(MAX_PAGE);
    let entries = gateway.audit.list_audit(limit, which.before).await?;
    let entries = entries
        .into_iter()
        .map(|entry| AuditView {
            id: entry.id,
            at: entry.at.to_string(),
            action: entry.action,
            target: entry.target,
            detail: entry.detail,
        })
        .collect();
    Ok(Json(AuditList { ok: true, entries }))
}
