//! Health probes. They are open to everyone and reveal nothing else.

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

/// Answers while Hob runs.
#[utoipa::path(get, path = "/healthz", tag = "service", responses(
    (status = 200, description = "Hob answers.", body = Health),
))]
pub(crate) async fn healthz(State(gateway): State<Arc<Gateway>>) -> Json<Health> {
    Json(Health { ok: true, version: gateway.version })
}

/// Liveness probe.
///
/// Restart the process when it fails.
#[utoipa::path(get, path = "/livez", tag = "service", responses(
    (status = 200, description = "Hob answers.", body = Health),
))]
pub(crate) async fn livez(State(gateway): State<Arc<Gateway>>) -> Json<Health> {
    healthz(State(gateway)).await
}

/// Readiness probe: should requests be sent to this node?
///
/// A node is not ready while it stops, while its disk cannot be written, or after its heartbeats failed
/// for too long: then other nodes have taken over its sessions.
#[utoipa::path(get, path = "/readyz", tag = "service", responses(
    (status = 200, description = "The node accepts requests.", body = Health),
    (status = 503, description = "The node is stopping, cannot write to its disk, or has lost its connection to the database. Send requests elsewhere.", body = ErrorBody),
))]
pub(crate) async fn readyz(State(gateway): State<Arc<Gateway>>) -> Result<Json<Health>, ApiError> {
    let not_ready = |message: String| Err(ApiError::Busy { code: "not_ready", message });
    if !gateway.sessions.is_ready() {
        return not_ready(
            "this node is stopping or has lost its connection to the database; try again later"
                .to_owned(),
        );
    }
    match gateway.readiness.check().await {
        Ok(()) => Ok(healthz(State(gateway)).await),
        Err(reason) => {
            not_ready(format!("hob cannot store anything: {reason}; see its log and `hob doctor`"))
        }
    }
}
