//! Sign-in to the console: the admin presents the token once and receives a cookie.
//!
//! The server keeps no list of sign-ins. A cookie carries its expiry, authenticated with a key derived
//! from the data key and the admin token. So it survives a restart, and a new token voids it.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::header::{CACHE_CONTROL, COOKIE, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use hmac::{Hmac, KeyInit, Mac};
use hob_domain::secret::{hex, unhex};
use hob_domain::{DataKey, Timestamp, TokenHash};
use sha2::Sha256;

use crate::error::ApiError;

const COOKIE_NAME: &str = "hob_console";
/// After this many wrong tokens within a minute, further ones are refused until the minute is over.
const MAX_WRONG_SIGN_INS_PER_MINUTE: usize = 10;
const MAX_WRONG_REQUESTS_PER_MINUTE: usize = 300;
const MINUTE: Duration = Duration::from_secs(60);

/// Signs and checks the console's cookies, and limits failed attempts.
pub struct SignIn {
    key: [u8; 32],
    lifetime: Duration,
    /// Wrong tokens at sign-in.
    sign_ins: Failures,
    /// Wrong tokens of other requests with admin rights.
    requests: Failures,
}

/// The times of wrong tokens in the last minute.
struct Failures {
    max: usize,
    times: Mutex<VecDeque<Instant>>,
}

impl SignIn {
    pub fn new(data_key: &DataKey, admin: TokenHash, lifetime: Duration) -> SignIn {
        let key = hmac(data_key.expose(), &format!("hob console 1 {}", admin.to_hex()));
        let failures = |max| Failures { max, times: Mutex::default() };
        SignIn {
            key,
            lifetime,
            sign_ins: failures(MAX_WRONG_SIGN_INS_PER_MINUTE),
            requests: failures(MAX_WRONG_REQUESTS_PER_MINUTE),
        }
    }

    /// Returns how long a sign-in lasts.
    pub(crate) fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Returns a cookie value that is valid until `until`.
    pub(crate) fn cookie(&self, until: Timestamp, random: [u8; 16]) -> String {
        let claim = format!("1.{}.{}", until.as_second(), hex(&random));
        format!("{claim}.{}", hex(&hmac(&self.key, &claim)))
    }

    /// Returns when a cookie expires; `None` if it is invalid or expired.
    fn check(&self, value: &str, now: Timestamp) -> Option<Timestamp> {
        let (claim, presented) = value.rsplit_once('.')?;
        let presented = unhex(presented)?;
        // Compared in constant time.
        hmac_state(&self.key, claim).verify_slice(&presented).ok()?;
        let mut parts = claim.split('.');
        let (Some("1"), Some(until)) = (parts.next(), parts.next()) else { return None };
        let until = Timestamp::from_second(until.parse().ok()?).ok()?;
        (now < until).then_some(until)
    }

    /// Returns when the sign-in of a request with these headers expires.
    pub(crate) fn signed_in_until(&self, headers: &HeaderMap, now: Timestamp) -> Option<Timestamp> {
        let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
        let mut values = lines
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .filter(|(name, _)| *name == COOKIE_NAME);
        // Hob sets one cookie. A second one of this name comes from somebody else, and their order
        // says nothing about which is genuine.
        let (value, other) = (values.next()?.1, values.next());
        if other.is_some() {
            return None;
        }
        self.check(value, now)
    }

    /// Records a wrong token at sign-in. Fails if there were too many lately.
    pub(crate) fn record_wrong_sign_in(&self, now: Instant) -> Result<(), ApiError> {
        self.sign_ins.record(now)
    }

    /// Records a wrong token of another request. Fails if there were too many lately.
    pub(crate) fn record_wrong_request(&self, now: Instant) -> Result<(), ApiError> {
        self.requests.record(now)
    }
}

impl Failures {
    fn record(&self, now: Instant) -> Result<(), ApiError> {
        if let Some(retry_after) = self.locked_for(now) {
            let message = "too many wrong tokens; try again later".to_owned();
            return Err(ApiError::Limited { code: "too_many_attempts", message, retry_after });
        }
        self.times.lock().unwrap_or_else(PoisonError::into_inner).push_back(now);
        Ok(())
    }

    /// Returns how long wrong tokens are refused after too many of them.
    fn locked_for(&self, now: Instant) -> Option<Duration> {
        let mut failures = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        while failures.front().is_some_and(|at| now.saturating_duration_since(*at) >= MINUTE) {
            failures.pop_front();
        }
        let oldest = failures.front().filter(|_| failures.len() >= self.max)?;
        Some(MINUTE.saturating_sub(now.saturating_duration_since(*oldest)))
    }
}

fn hmac_state(key: &[u8; 32], text: &str) -> Hmac<Sha256> {
    // HMAC pads a key shorter than its block with zeros; so does this.
    let mut block = [0; 64];
    block[..32].copy_from_slice(key);
    let mut state = Hmac::<Sha256>::new(&block.into());
    state.update(text.as_bytes());
    state
}

/// Adds the console's cookie to an answer, for `life` seconds. With 0 the browser deletes it.
pub(crate) fn with_cookie(answer: impl IntoResponse, value: &str, life: u64) -> Response {
    let cookie =
        format!("{COOKIE_NAME}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={life}");
    let mut response = answer.into_response();
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn hmac(key: &[u8; 32], text: &str) -> [u8; 32] {
    hmac_state(key, text).finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use hob_domain::Token;

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
    fn ten_failed_sign_ins_lock_for_a_minute() {
        let (ours, start) = (sign_in(1, "a"), Instant::now());
        let later = |seconds| start + Duration::from_secs(seconds);
        for second in 0..10 {
            assert!(ours.record_wrong_sign_in(later(second)).is_ok());
        }
        let retry = match ours.record_wrong_sign_in(later(10)) {
            Err(ApiError::Limited { retry_after, .. }) => Some(retry_after),
            _ => None,
        };
        assert_eq!(retry, Some(Duration::from_secs(50)));
        assert!(
            ours.record_wrong_request(later(10)).is_ok(),
            "other requests have their own limit"
        );
        assert!(ours.record_wrong_sign_in(later(60)).is_ok());
    }
}
