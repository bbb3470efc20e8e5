//! Extractors for path variables and query strings, with Hob's own errors.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::error::ApiError;
use crate::state::Gateway;

/// Path variables. A path that cannot be parsed does not exist (404).
pub(crate) struct ApiPath<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<Gateway>> for ApiPath<T> {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<Gateway>,
    ) -> Result<ApiPath<T>, ApiError> {
        let path = Path::<T>::from_request_parts(parts, gateway).await;
        let none = |_| ApiError::NotFound("no such path".to_owned());
        path.map(|Path(value)| ApiPath(value)).map_err(none)
    }
}

/// The query string. Unknown parameters are refused (400).
pub(crate) struct ApiQuery<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<Arc<Gateway>> for ApiQuery<T> {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<Gateway>,
    ) -> Result<ApiQuery<T>, ApiError> {
        let query = Query::<T>::from_request_parts(parts, gateway).await;
        let bad = |error: axum::extract::rejection::QueryRejection| {
            ApiError::bad_request(format!("invalid query: {}", error.body_text()))
        };
        query.map(|Query(value)| ApiQuery(value)).map_err(bad)
    }
}
