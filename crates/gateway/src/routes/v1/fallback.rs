//! Answers for paths and methods below `/v1` that do not exist.

use axum::http::{HeaderMap, Uri};
use axum::response::Response;

use super::dialect::{Dialect, Problem};
use crate::error::ApiError;

/// Answers 405 in the caller's dialect.
pub(crate) async fn wrong_method(uri: Uri, headers: HeaderMap) -> Response {
    dialect(&uri, &headers).respond(Problem::from(ApiError::MethodNotAllowed))
}

/// Answers 404 in the caller's dialect.
pub(crate) async fn nowhere(uri: Uri, headers: HeaderMap) -> Response {
    let error = ApiError::NotFound("no such path below /v1".to_owned());
    dialect(&uri, &headers).respond(Problem::from(error))
}

/// Returns the caller's dialect. Only Anthropic's API has paths below `/v1/messages`.
fn dialect(uri: &Uri, headers: &HeaderMap) -> Dialect {
    // Nesting has removed `/v1`.
    match uri.path().strip_prefix("/messages") {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => Dialect::Anthropic,
        _ => Dialect::of(headers),
    }
}
