//! Answers for paths and methods below `/v1` that do not exist.

use axum::http::HeaderMap;
use axum::response::Response;

use super::dialect::{Dialect, Problem};
use crate::error::ApiError;

/// Answers 405 in the caller's dialect.
pub(crate) async fn wrong_method(headers: HeaderMap) -> Response {
    Dialect::of(&headers).respond(Problem::from(ApiError::MethodNotAllowed))
}

/// Answers 404 in the caller's dialect.
pub(crate) async fn nowhere(headers: HeaderMap) -> Response {
    let error = ApiError::NotFound("no such path below /v1".to_owned());
    Dialect::of(&headers).respond(Problem::from(error))
}
