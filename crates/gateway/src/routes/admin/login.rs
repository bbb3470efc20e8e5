//! `POST /admin/login` and `/admin/logout`: the admin token for a cookie, and back.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::response::{Json, Response};
use hob_domain::{Timestamp, Token};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use crate::audit_log;
use crate::error::{ApiError, ErrorBody};
use crate::extract::body::SmallJsonBody;
use crate::extract::caller::Admin;
use crate::sign_in::with_cookie;
use crate::state::Gateway;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"token": "hob_…"}))]
pub(crate) struct Login {
    /// The admin token.
    token: String,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true, "expires_at": "2026-11-15T21:00:00Z"}))]
pub(crate) struct SignedIn {
    /// Always `true`.
    ok: bool,
    /// When the cookie expires.
    #[schema(format = DateTime)]
    expires_at: String,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true}))]
pub(crate) struct SignedOut {
    /// Always `true`.
    ok: bool,
}

/// Signs in to the console: exchanges the admin token for a cookie.
#[utoipa::path(post, path = "/admin/login", tag = "console", operation_id = "login", request_body = Login, responses(
    (status = 200, description = "Signed in; the cookie is set.", body = SignedIn),
    (status = 400, description = "Invalid request; the error names the field.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 403, description = "Unknown Host header, or a request from another origin.", body = ErrorBody),
    (status = 408, description = "The body did not arrive in time.", body = ErrorBody),
    (status = 413, description = "The body is too large.", body = ErrorBody),
    (status = 429, description = "Too many wrong tokens; see Retry-After.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn login(
    State(gateway): State<Arc<Gateway>>,
    SmallJsonBody(body): SmallJsonBody<Login>,
) -> Result<Response, ApiError> {
    let sign_in = &gateway.sign_in;
    // The right token is accepted at any time: others cannot lock the owner out by wrong ones.
    if Token::presented(body.token.trim()).hash() != gateway.admin {
        sign_in.record_wrong_sign_in(Instant::now())?;
        audit_log::record(&gateway, "login_failed", "", json!({})).await;
        return Err(ApiError::Unauthorized);
    }
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| ApiError::Internal(error.to_string()))?;
    let life = sign_in.lifetime().as_secs();
    let until = Timestamp::now().as_second().saturating_add_unsigned(life);
    let until = Timestamp::from_second(until).unwrap_or(Timestamp::MAX);
    audit_log::record(&gateway, "login", "", json!({"expires_at": until.to_string()})).await;
    let answer = Json(SignedIn { ok: true, expires_at: until.to_string() });
    Ok(with_cookie(answer, &sign_in.cookie(until, random), life))
}

/// Signs out of the console: clears the cookie.
#[utoipa::path(post, path = "/admin/logout", tag = "console", operation_id = "logout", security(("token" = [])), responses(
    (status = 200, description = "Signed out.", body = SignedOut),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 403, description = "Unknown Host header, or a request from another origin.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn logout(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
) -> Result<Response, ApiError> {
    audit_log::record(&gateway, "logout", "", json!({})).await;
    Ok(with_cookie(Json(SignedOut { ok: true }), "", 0))
}
