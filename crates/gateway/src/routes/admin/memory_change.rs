//! `/admin/memory` changes: correct, forget, restore and unseal.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Json;
use hob_domain::Timestamp;
use hob_domain::memory::{Forget, Principal, RecordId, TurnSource};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::memory::no_record;
use crate::audit_log;
use crate::error::{ApiError, ErrorBody};
use crate::extract::body::JsonBody;
use crate::extract::caller::Admin;
use crate::state::Gateway;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"record_id": "9f…", "text": "we chose PostgreSQL"}))]
pub(crate) struct Correct {
    /// The record to correct.
    record_id: String,
    /// The corrected text.
    #[schema(min_length = 1)]
    text: String,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Corrected {
    /// Always `true`.
    ok: bool,
    /// The new record.
    record_id: String,
    /// The superseded record; it stays and ranks lower.
    superseded: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"record_id": "9f…"}))]
pub(crate) struct ForgetBody {
    /// One record.
    record_id: Option<String>,
    /// A whole session instead.
    session_id: Option<String>,
}

impl ForgetBody {
    /// Returns the turns, and what their ID is of.
    fn turns(&self) -> Result<(Forget, &'static str), ApiError> {
        let turns = Forget::named(self.record_id.as_deref(), self.session_id.as_deref());
        let turns = turns.ok_or_else(|| {
            ApiError::bad_request("specify exactly one of record_id and session_id")
        })?;
        let kind = match turns {
            Forget::Record(_) => "record",
            Forget::Session(_) => "session",
        };
        Ok((turns, kind))
    }
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true, "forgotten": 1}))]
pub(crate) struct Forgotten {
    /// Always `true`.
    ok: bool,
    /// Number of hidden records.
    forgotten: usize,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true, "restored": 1}))]
pub(crate) struct Restored {
    /// Always `true`.
    ok: bool,
    /// Number of restored records. 0 if they were erased, or never forgotten.
    restored: usize,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"record_id": "9f…"}))]
pub(crate) struct Unseal {
    record_id: String,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Unsealed {
    /// Always `true`.
    ok: bool,
    /// The original text.
    text: String,
}

/// Stores a corrected text; the old record is superseded.
#[utoipa::path(post, path = "/admin/memory/correct", tag = "admin", operation_id = "correct_memory", request_body = Correct,
    security(("token" = [])), responses(
    (status = 200, description = "The new record; the old one is marked as superseded.", body = Corrected),
    (status = 400, description = "Invalid request; the error names the field.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such record.", body = ErrorBody),
    (status = 408, description = "The body did not arrive in time.", body = ErrorBody),
    (status = 413, description = "The body is too large.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn correct(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    JsonBody(body): JsonBody<Correct>,
) -> Result<Json<Corrected>, ApiError> {
    if body.text.trim().is_empty() {
        return Err(ApiError::bad_request("text: must not be empty"));
    }
    let old = RecordId::new(body.record_id);
    let engine = &gateway.engine;
    let new = engine
        .correct(&Principal::Owner, &old, &body.text, TurnSource::Owner, Timestamp::now())
        .await?;
    let new = new.ok_or_else(no_record)?;
    audit_log::record(&gateway, "correct", old.as_str(), json!({"record_id": new.as_str()})).await;
    let superseded = old.to_string();
    Ok(Json(Corrected { ok: true, record_id: new.to_string(), superseded }))
}

/// Hides a record or a session at once, and erases it after `memory.forget_undo_secs`.
#[utoipa::path(post, path = "/admin/memory/forget", tag = "admin", operation_id = "forget_memory", request_body = ForgetBody,
    security(("token" = [])), responses(
    (status = 200, description = "Hidden. Later imports skip it.", body = Forgotten),
    (status = 400, description = "Invalid request; the error names the field.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 408, description = "The body did not arrive in time.", body = ErrorBody),
    (status = 413, description = "The body is too large.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn forget(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    JsonBody(body): JsonBody<ForgetBody>,
) -> Result<Json<Forgotten>, ApiError> {
    let (turns, kind) = body.turns()?;
    let engine = &gateway.engine;
    let forgotten = engine.forget(&Principal::Owner, &turns, Timestamp::now()).await?;
    let detail = json!({"kind": kind, "forgotten": forgotten});
    audit_log::record(&gateway, "forget", turns.target(), detail).await;
    Ok(Json(Forgotten { ok: true, forgotten }))
}

/// Restores a record or a session that was forgotten and is not erased yet.
#[utoipa::path(post, path = "/admin/memory/restore", tag = "admin", operation_id = "restore_memory", request_body = ForgetBody,
    security(("token" = [])), responses(
    (status = 200, description = "Restored.", body = Restored),
    (status = 400, description = "Invalid request; the error names the field.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 408, description = "The body did not arrive in time.", body = ErrorBody),
    (status = 413, description = "The body is too large.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn restore(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    JsonBody(body): JsonBody<ForgetBody>,
) -> Result<Json<Restored>, ApiError> {
    let (turns, kind) = body.turns()?;
    let engine = &gateway.engine;
    let restored = engine.undo_forget(&Principal::Owner, &turns, Timestamp::now()).await?;
    let detail = json!({"kind": kind, "restored": restored});
    audit_log::record(&gateway, "undo_forget", turns.target(), detail).await;
    Ok(Json(Restored { ok: true, restored }))
}

/// Returns a record's original text, including its secrets.
#[utoipa::path(post, path = "/admin/memory/unseal", tag = "admin", operation_id = "unseal_memory", request_body = Unseal,
    security(("token" = [])), responses(
    (status = 200, description = "The text.", body = Unsealed),
    (status = 400, description = "Invalid request; the error names the field.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No such record.", body = ErrorBody),
    (status = 408, description = "The body did not arrive in time.", body = ErrorBody),
    (status = 409, description = "The secret was encrypted with another key.", body = ErrorBody),
    (status = 413, description = "The body is too large.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn unseal(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    JsonBody(body): JsonBody<Unseal>,
) -> Result<Json<Unsealed>, ApiError> {
    let engine = &gateway.engine;
    let id = RecordId::new(body.record_id);
    let record = engine.record(&Principal::Owner, &id).await?.ok_or_else(no_record)?;
    // The audit entry comes before the text leaves.
    audit_log::record(&gateway, "unseal", id.as_str(), json!({})).await;
    let text = engine.unseal(&record).ok_or_else(|| {
        ApiError::Conflict(
            "cannot decrypt the secret: it was encrypted with another key".to_owned(),
        )
    })?;
    Ok(Json(Unsealed { ok: true, text }))
}
