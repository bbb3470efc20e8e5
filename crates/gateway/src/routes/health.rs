//! Is it up? Open to all, so these say nothing else.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Json;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::{ApiError, ErrorBody};
use crate::state::Gateway;

#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// Always `true`.
    ok: bool,
    version: &'static str,
}

/// Whether Hob answers.
#[utoipa::path(get, path = "/healthz", tag = "service", responses(
    (status = 200, description = "It does.", body = Health),
))]
pub(crate) async fn healthz(State(gateway): State<Arc<Gateway>>) -> Json<Health> {
    Json(Health { ok: true, version: gateway.version })
}

/// Whether the process lives.
///
/// When it fails, start it anew.
#[utoipa::path(get, path = "/livez", tag = "service", responses(
    (status = 200, description = "It does.", body = Health),
))]
pub(crate) async fn livez(State(gateway): State<Arc<Gateway>>) -> Json<Health> {
    healthz(State(gateway)).await
}

/// Whether requests should be sent here.
///
/// Not while it stops, nor while the database has not heard of this node for too long: then others have what it held.
#[utoipa::path(get, path = "/readyz", tag = "service", responses(
    (status = 200, description = "They should.", body = Health),
    (status = 503, description = "They should go to another node.", body = ErrorBody),
))]
pub(crate) async fn readyz(State(gateway): State<Arc<Gateway>>) -> Result<Json<Health>, ApiError> {
    match gateway.sessions.is_ready() {
        true => Ok(healthz(State(gateway)).await),
        false => Err(ApiError::Busy {
            code: "not_ready",
            message: "this node stops, or the database does not hear of it".to_owned(),
        }),
    }
}
