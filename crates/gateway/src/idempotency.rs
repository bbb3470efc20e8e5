//! The `Idempotency-Key` header, under which a caller may repeat a request.

use axum::http::HeaderMap;
use hob_domain::secret;
use hob_domain::session::IdempotencyKey;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::error::ApiError;

/// Maximum length of an idempotency key, in bytes.
const MAX_KEY_BYTES: usize = 255;

/// Reads the key of a request with this body.
pub(crate) fn idempotency(
    headers: &HeaderMap,
    body: &impl Serialize,
) -> Result<Option<IdempotencyKey>, ApiError> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let key = key.to_str().ok().filter(|key| !key.is_empty() && key.len() <= MAX_KEY_BYTES);
    let key = key.ok_or_else(|| {
        ApiError::bad_request(format!(
            "Idempotency-Key: must be 1 to {MAX_KEY_BYTES} printable ASCII characters"
        ))
    })?;
    let text = serde_json::to_vec(body).map_err(|error| ApiError::Internal(error.to_string()))?;
    let digest = secret::hex(&Sha256::digest(text));
    Ok(Some(IdempotencyKey { key: key.to_owned(), digest }))
}

/// Returns the key of one of the turns that a request starts. The first turn has the request's own key.
pub(crate) fn key_of_turn(key: &IdempotencyKey, turn: usize) -> IdempotencyKey {
    let name = match turn {
        0 => key.key.clone(),
        _ => format!("{} #{turn}", key.key),
    };
    IdempotencyKey { key: name, digest: key.digest.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(key: &str, body: &str) -> Result<Option<IdempotencyKey>, ApiError> {
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", key.parse().expect("a header"));
        idempotency(&headers, &body)
    }

    #[test]
    fn key_has_the_digest_of_the_body() {
        assert_eq!(idempotency(&HeaderMap::new(), &"body").unwrap(), None);
        let key = read("k", "body").unwrap().expect("a key");
        assert_eq!(read("k", "body").unwrap().as_ref(), Some(&key));
        assert_ne!(read("k", "other").unwrap().expect("a key").digest, key.digest);
        assert!(read("", "body").is_err());
        assert!(read(&"k".repeat(MAX_KEY_BYTES + 1), "body").is_err());
    }

    #[test]
    fn turns_of_one_request_have_different_keys() {
        let key = read("k", "body").unwrap().expect("a key");
        assert_eq!(key_of_turn(&key, 0), key);
        assert_ne!(key_of_turn(&key, 1).key, key.key);
    }
}
