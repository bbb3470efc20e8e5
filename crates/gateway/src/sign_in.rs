//! Signing in to the console: the admin's token is given once, and a cookie stands for it.
//!
//! Nothing is kept of who is signed in. A cookie says until when it is good, under a key that follows from
//! the data key and the admin's token: so it outlives a restart, and a new token makes it worthless.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, COOKIE, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Json, Response};
use hmac::{Hmac, KeyInit, Mac};
use hob_domain::secret::{hex, unhex};
use hob_domain::{DataKey, Timestamp, Token, TokenHash};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::Sha256;
use utoipa::ToSchema;

use crate::audit;
use crate::auth::Admin;
use crate::body::JsonBody;
use crate::error::{ApiError, ErrorBody};
use crate::state::Gateway;

const COOKIE_NAME: &str = "hob_console";
/// So many wrong tokens in a minute, and nobody signs in until it is over.
const WRONG_TOKENS: usize = 10;
const MINUTE: Duration = Duration::from_secs(60);

/// Who may be signed in, and for how long.
pub struct SignIn {
    key: [u8; 32],
    life: Duration,
    wrong: Mutex<VecDeque<Instant>>,
}

impl SignIn {
    pub fn new(data_key: &DataKey, admin: TokenHash, life: Duration) -> SignIn {
        let key = code(data_key.expose(), &format!("hob console 1 {}", admin.to_hex()));
        SignIn { key, life, wrong: Mutex::default() }
    }

    /// The value of a cookie that is good until then.
    fn cookie(&self, until: Timestamp, random: [u8; 16]) -> String {
        let claim = format!("1.{}.{}", until.as_second(), hex(&random));
        format!("{claim}.{}", hex(&code(&self.key, &claim)))
    }

    /// Until when a cookie is good; `None` when it is not.
    fn check(&self, value: &str, now: Timestamp) -> Option<Timestamp> {
        let (claim, presented) = value.rsplit_once('.')?;
        let presented = unhex(presented)?;
        // Compared in constant time.
        keyed(&self.key, claim).verify_slice(&presented).ok()?;
        let mut parts = claim.split('.');
        let (Some("1"), Some(until)) = (parts.next(), parts.next()) else { return None };
        let until = Timestamp::from_second(until.parse().ok()?).ok()?;
        (now < until).then_some(until)
    }

    /// Until when whoever sent these headers is signed in.
    pub(crate) fn signed_in_until(&self, headers: &HeaderMap, now: Timestamp) -> Option<Timestamp> {
        let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
        let mut values = lines
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .filter(|(name, _)| *name == COOKIE_NAME);
        // One is ours; a second one was put there by somebody else, and which came first says nothing.
        let (value, other) = (values.next()?.1, values.next());
        if other.is_some() {
            return None;
        }
        self.check(value, now)
    }

    /// How long nobody may sign in.
    fn is_shut(&self, now: Instant) -> Option<Duration> {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        while wrong.front().is_some_and(|at| now.saturating_duration_since(*at) >= MINUTE) {
            wrong.pop_front();
        }
        let oldest = wrong.front().filter(|_| wrong.len() >= WRONG_TOKENS)?;
        Some(MINUTE.saturating_sub(now.saturating_duration_since(*oldest)))
    }

    fn note_wrong(&self, now: Instant) {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).push_back(now);
    }
}

fn keyed(key: &[u8; 32], text: &str) -> Hmac<Sha256> {
    // A key is filled up with zeros to the length of a block, as the algorithm does with a shorter one.
    let mut block = [0; 64];
    block[..32].copy_from_slice(key);
    let mut code = Hmac::<Sha256>::new(&block.into());
    code.update(text.as_bytes());
    code
}

fn code(key: &[u8; 32], text: &str) -> [u8; 32] {
    keyed(key, text).finalize().into_bytes().into()
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"token": "hob_…"}))]
pub(crate) struct Login {
    /// The admin's token.
    token: String,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true, "expires_at": "2026-11-15T21:00:00Z"}))]
pub(crate) struct SignedIn {
    /// Always `true`.
    ok: bool,
    /// Until when the cookie is good.
    #[schema(format = DateTime)]
    expires_at: String,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true}))]
pub(crate) struct SignedOut {
    /// Always `true`.
    ok: bool,
}

/// Signs in to the console: the admin's token for a cookie.
#[utoipa::path(post, path = "/admin/login", tag = "console", operation_id = "login", request_body = Login, responses(
    (status = 200, description = "Signed in; the cookie is set.", body = SignedIn),
    (status = 400, description = "The request is wrong; the error names the field.", body = ErrorBody),
    (status = 401, description = "Not the admin's token.", body = ErrorBody),
    (status = 403, description = "The host is none of ours, or another page asks.", body = ErrorBody),
    (status = 408, description = "The body did not arrive.", body = ErrorBody),
    (status = 413, description = "The body is too large.", body = ErrorBody),
    (status = 429, description = "Too many wrong tokens; see Retry-After.", body = ErrorBody),
    (status = 500, description = "Something failed inside Hob.", body = ErrorBody),
))]
pub(crate) async fn login(
    State(gateway): State<Arc<Gateway>>,
    JsonBody(body): JsonBody<Login>,
) -> Result<Response, ApiError> {
    let sign_in = &gateway.sign_in;
    if let Some(retry_after) = sign_in.is_shut(Instant::now()) {
        let message = "too many wrong tokens; wait a moment".to_owned();
        return Err(ApiError::Limited { code: "too_many_attempts", message, retry_after });
    }
    if Token::presented(body.token.trim()).hash() != gateway.admin {
        sign_in.note_wrong(Instant::now());
        audit::record(&gateway, "login_failed", "", json!({})).await;
        return Err(ApiError::Unauthorized);
    }
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| ApiError::Internal(error.to_string()))?;
    let life = sign_in.life.as_secs();
    let until = Timestamp::now().as_second().saturating_add_unsigned(life);
    let until = Timestamp::from_second(until).unwrap_or(Timestamp::MAX);
    audit::record(&gateway, "login", "", json!({"expires_at": until.to_string()})).await;
    let answer = Json(SignedIn { ok: true, expires_at: until.to_string() });
    Ok(with_cookie(answer, &sign_in.cookie(until, random), life))
}

/// Signs out of the console: the cookie is cleared.
#[utoipa::path(post, path = "/admin/logout", tag = "console", operation_id = "logout", security(("token" = [])), responses(
    (status = 200, description = "Signed out.", body = SignedOut),
    (status = 401, description = "Nobody is signed in.", body = ErrorBody),
    (status = 403, description = "The host is none of ours, or another page asks.", body = ErrorBody),
    (status = 500, description = "Something failed inside Hob.", body = ErrorBody),
))]
pub(crate) async fn logout(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
) -> Result<Response, ApiError> {
    audit::record(&gateway, "logout", "", json!({})).await;
    Ok(with_cookie(Json(SignedOut { ok: true }), "", 0))
}

fn with_cookie(answer: impl IntoResponse, value: &str, life: u64) -> Response {
    let cookie =
        format!("{COOKIE_NAME}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={life}");
    let mut response = answer.into_response();
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sign_in(data: u8, token: &str) -> SignIn {
        let hash = Token::presented(token).hash();
        SignIn::new(&DataKey::from_bytes([data; 32]), hash, Duration::from_secs(60))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_cookie_is_good_until_its_time_and_under_its_key() {
        let ours = sign_in(1, "a");
        let cookie = ours.cookie(at(1000), [7; 16]);
        assert_eq!(ours.check(&cookie, at(999)), Some(at(1000)));
        assert_eq!(sign_in(1, "a").check(&cookie, at(999)), Some(at(1000)), "after a restart");
        assert_eq!(ours.check(&cookie, at(1000)), None, "its time is over");
        assert_eq!(sign_in(1, "b").check(&cookie, at(999)), None, "another token");
        assert_eq!(sign_in(2, "a").check(&cookie, at(999)), None, "another home");
        let longer = cookie.replacen(".1000.", ".9000.", 1);
        assert_eq!(ours.check(&longer, at(999)), None);
        // Any change of any character is noticed.
        for place in 0..cookie.len() {
            let mut bytes = cookie.clone().into_bytes();
            bytes[place] = if bytes[place] == b'1' { b'2' } else { b'1' };
            let changed = String::from_utf8(bytes).unwrap();
            assert_eq!(ours.check(&changed, at(999)), None, "{changed}");
        }
        for text in ["", ".", "1.1000", "1.1000..", "1.1000.07.", &cookie[..cookie.len() - 2]] {
            assert_eq!(ours.check(text, at(999)), None, "{text}");
        }
    }

    #[test]
    fn the_cookie_among_others() {
        let ours = sign_in(1, "a");
        let cookie = ours.cookie(at(1000), [7; 16]);
        let check = |line: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(COOKIE, line.parse().unwrap());
            ours.signed_in_until(&headers, at(1)).is_some()
        };
        assert!(check(&format!("a=b; hob_console={cookie}; c")));
        assert!(!check(&format!("a=b; xhob_console={cookie}")));
        assert!(!check(&format!("hob_console={cookie}; hob_console={cookie}")));
        assert!(!check("hob_console=") && !check("hob_console"));
    }

    #[test]
    fn ten_wrong_ones_a_minute() {
        let (ours, start) = (sign_in(1, "a"), Instant::now());
        let later = |seconds| start + Duration::from_secs(seconds);
        for second in 0..10 {
            assert_eq!(ours.is_shut(later(second)), None);
            ours.note_wrong(later(second));
        }
        assert_eq!(ours.is_shut(later(10)), Some(Duration::from_secs(50)));
        assert_eq!(ours.is_shut(later(60)), None);
    }
}
