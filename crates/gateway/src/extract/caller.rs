//! Authentication: the app or the admin that a request comes from.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use hob_domain::{App, AppFilter, AppName, Timestamp, Token};

use crate::app_requests::RequestSlot;
use crate::error::ApiError;
use crate::origin_guard;
use crate::owner::Owner;
use crate::state::Gateway;

/// The app that sent the request, by its token.
pub(crate) struct Caller(pub App);

impl Caller {
    /// A caller for a request that an admin makes on behalf of an app.
    pub fn on_behalf_of(name: AppName) -> Caller {
        Caller(App { name, created_at: Timestamp::UNIX_EPOCH })
    }
}

impl FromRequestParts<Arc<Gateway>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<Gateway>,
    ) -> Result<Caller, ApiError> {
        if parts.extensions.get::<Owner>().is_some() {
            return Ok(Caller::on_behalf_of(AppName::owner()));
        }
        let token = presented_token(&parts.headers).ok_or(ApiError::Unauthorized)?;
        let app = gateway.apps.apps(AppFilter::Token(token.hash())).await?.pop();
        let app = app.ok_or(ApiError::Unauthorized)?;
        if let Some(slot) = parts.extensions.get::<RequestSlot>() {
            slot.set(gateway.app_requests.open(&app.name)?);
        }
        keep_place(parts);
        Ok(Caller(app))
    }
}

/// Keeps the place of the connection for the request, whose caller is known now.
fn keep_place(parts: &Parts) {
    let (slot, place) = (parts.extensions.get::<RequestSlot>(), parts.extensions.get());
    if let (Some(slot), Some(place)) = (slot, place) {
        slot.keep_place(place);
    }
}

/// Proof that the request carries the admin token or a valid console cookie.
pub(crate) struct Admin {
    /// When the cookie expires; `None` for a token.
    pub until: Option<Timestamp>,
}

impl FromRequestParts<Arc<Gateway>> for Admin {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<Gateway>,
    ) -> Result<Admin, ApiError> {
        if parts.extensions.get::<Owner>().is_some() {
            return Ok(Admin { until: None });
        }
        if is_token_presented(&parts.headers) {
            let token = presented_token(&parts.headers).ok_or(ApiError::Unauthorized)?;
            let is_admins = token.hash() == gateway.admin;
            if is_admins {
                keep_place(parts);
                return Ok(Admin { until: None });
            }
            gateway.sign_in.record_wrong_request(Instant::now())?;
            return Err(ApiError::Unauthorized);
        }
        let until = gateway.sign_in.signed_in_until(&parts.headers, Timestamp::now());
        let until = until.ok_or(ApiError::Unauthorized)?;
        origin_guard::came_from_console(parts, &gateway.hosts)?;
        keep_place(parts);
        Ok(Admin { until: Some(until) })
    }
}

fn is_token_presented(headers: &HeaderMap) -> bool {
    headers.contains_key("authorization") || headers.contains_key("x-api-key")
}

/// The token of `Authorization: Bearer …` or, without that header, of `x-api-key`.
fn presented_token(headers: &HeaderMap) -> Option<Token> {
    let text = match headers.get("authorization") {
        Some(value) => {
            let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())?
        }
        None => headers.get("x-api-key")?.to_str().ok()?.trim(),
    };
    (!text.is_empty()).then(|| Token::presented(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(headers: &[(&'static str, &str)], expect: Option<&str>) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        assert_eq!(presented_token(&map).as_ref().map(Token::expose), expect, "{headers:?}");
    }

    #[test]
    fn token_is_read_from_bearer_or_api_key_header() {
        check(&[("authorization", "Bearer abc")], Some("abc"));
        check(&[("authorization", "bearer  abc ")], Some("abc"));
        check(&[("x-api-key", "abc")], Some("abc"));
        check(&[("authorization", "Bearer abc"), ("x-api-key", "other")], Some("abc"));
        check(&[("authorization", "Basic abc"), ("x-api-key", "abc")], None);
        check(&[("authorization", "Bearer ")], None);
        check(&[("authorization", "abc")], None);
        check(&[], None);
    }
}
