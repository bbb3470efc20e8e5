//! `GET /healthz`: is it up? Open to all, so it says nothing else.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Json;
use serde::Serialize;
use utoipa::ToSchema;

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
