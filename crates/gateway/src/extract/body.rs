//! Strict JSON bodies: bounded in size and time; unknown fields and wrong types are refused with the
//! field's name.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRequest, Request};
use hob_agents::app_permits::{AppPermit, PermitsOfApp};
use hob_domain::json_size::{MAX_JSON_VALUES, has_too_many_values};
use http_body_util::BodyExt;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::app_requests::{LONG_BODY_BYTES, RequestSlot};
use crate::error::ApiError;
use crate::state::Gateway;

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How much of an oversized body is read and discarded, so that a client that writes before it reads
/// still receives the response.
pub(crate) const MAX_DISCARDED_BYTES: usize = 64 << 20;

const MAX_SMALL_BODY_BYTES: usize = 16 << 10;

/// A request body of type `T`. The content type is ignored.
pub(crate) struct JsonBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Arc<Gateway>> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(
        request: Request,
        gateway: &Arc<Gateway>,
    ) -> Result<JsonBody<T>, ApiError> {
        receive(request, gateway.limits.max_body_bytes).await.map(JsonBody)
    }
}

/// A small request body of type `T`, for callers that have not been authenticated.
pub(crate) struct SmallJsonBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Arc<Gateway>> for SmallJsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(
        request: Request,
        gateway: &Arc<Gateway>,
    ) -> Result<SmallJsonBody<T>, ApiError> {
        let limit = gateway.limits.max_body_bytes.min(MAX_SMALL_BODY_BYTES);
        receive(request, limit).await.map(SmallJsonBody)
    }
}

async fn receive<T: DeserializeOwned>(request: Request, limit: usize) -> Result<T, ApiError> {
    let slot = request.extensions().get::<RequestSlot>().cloned().unwrap_or_default();
    let (bytes, _permit) = receive_bytes(request.into_body(), limit, &slot).await?;
    parse(&bytes)
}

/// Receives a body. A long one comes with a permit of its app, which is held until the body is parsed, and counts until
/// the response has been sent.
pub(crate) async fn receive_bytes(
    body: Body,
    limit: usize,
    slot: &RequestSlot,
) -> Result<(Vec<u8>, Option<AppPermit>), ApiError> {
    let announced = body.size_hint().exact().map(|length| limit.min(length as usize));
    if let Some(length) = announced
        && let Err(error) = slot.count_body(length)
    {
        // Nothing of it is kept.
        let mut no_permit = None;
        let discarding = read(body, 0, None, &mut no_permit);
        let _ = tokio::time::timeout(BODY_TIMEOUT, discarding).await;
        return Err(error);
    }
    let mut permit = None;
    let reading = read(body, limit, slot.long_bodies(), &mut permit);
    let bytes =
        tokio::time::timeout(BODY_TIMEOUT, reading).await.map_err(|_| ApiError::SlowBody)??;
    if announced.is_none() {
        slot.count_body(bytes.len())?;
    }
    Ok((bytes, permit))
}

/// Reads a body. A long one needs a permit of its app, which it leaves in `permit`.
async fn read(
    mut body: Body,
    limit: usize,
    permits: Option<PermitsOfApp>,
    permit: &mut Option<AppPermit>,
) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::new();
    let mut seen = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::bad_request("the request body is incomplete"))?;
        let Ok(data) = frame.into_data() else { continue };
        seen += data.len();
        if seen > LONG_BODY_BYTES
            && permit.is_none()
            && let Some(permits) = &permits
        {
            *permit = Some(permits.acquire().await);
        }
        if seen <= limit {
            bytes.extend_from_slice(&data);
        } else if seen > limit.saturating_add(MAX_DISCARDED_BYTES) {
            break;
        }
    }
    if seen > limit {
        let message = format!("the body is larger than {limit} bytes (max_body_bytes)");
        return Err(ApiError::TooLarge(message));
    }
    Ok(bytes)
}

/// Parses a whole body.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    if has_too_many_values(bytes) {
        let message = format!("the body has more than {MAX_JSON_VALUES} values");
        return Err(ApiError::bad_request(message));
    }
    // A structure could also be read from a list of its fields, but every body of this API is an object.
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if first != Some(&b'{') && serde_json::from_slice::<IgnoredAny>(bytes).is_ok() {
        return Err(ApiError::bad_request("the body must be a JSON object"));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        match (inner.classify(), path.as_str()) {
            (serde_json::error::Category::Data, ".") => ApiError::bad_request(inner.to_string()),
            (serde_json::error::Category::Data, path) => {
                ApiError::bad_request(format!("{path}: {inner}"))
            }
            // The parser also calls it a mistake in the syntax if a value cannot be a name, such as a number.
            (_, path) if path != "." && serde_json::from_slice::<IgnoredAny>(bytes).is_ok() => {
                ApiError::bad_request(format!("{path}: the value has a wrong type"))
            }
            _ => ApiError::BadRequest {
                code: "bad_json",
                message: format!("the body is not valid JSON: {inner}"),
            },
        }
    })?;
    deserializer.end().map_err(|error| ApiError::BadRequest {
        code: "bad_json",
        message: format!("the body is not valid JSON: {error}"),
    })?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Example {
        #[allow(dead_code)]
        name: String,
        #[allow(dead_code)]
        sizes: Option<Vec<u8>>,
    }

    fn check(body: &str, expect_code: &str, expect_text: &str) {
        match parse::<Example>(body.as_bytes()) {
            Err(ApiError::BadRequest { code, message }) => {
                assert_eq!(code, expect_code, "{body}: {message}");
                assert!(message.contains(expect_text), "{body}: {message}");
            }
            other => panic!("{body}: {other:?}"),
        }
    }

    #[test]
    fn errors_name_the_field() {
        check(r#"{"name":1}"#, "bad_request", "name:");
        check(r#"{"name":"x","sizes":[1,"y"]}"#, "bad_request", "sizes[1]:");
        check(r#"{"name":"x","size":1}"#, "bad_request", "`size`");
        check(r#"{}"#, "bad_request", "`name`");
        check(r#"[]"#, "bad_request", "must be a JSON object");
        check("null", "bad_request", "must be a JSON object");
        check(r#" ["x", [1]]"#, "bad_request", "must be a JSON object");
        check(r#"{"name":"#, "bad_json", "not valid JSON");
        check(r#""#, "bad_json", "not valid JSON");
        check(r#"{"name":"x"} tail"#, "bad_json", "not valid JSON");
        check("{\"name\":\"\u{fffd}", "bad_json", "not valid JSON");
        assert!(parse::<Example>(br#"{"name":"x","sizes":null}"#).is_ok());
    }
}
