//! Bodies and answers of the Conversations API.

use std::sync::Arc;

use axum::response::{IntoResponse, Json, Response};
use hob_domain::AppName;
use serde_json::Value;

use super::super::dialect::{Dialect, Problem};
use super::super::responses::input;
use crate::error::ApiError;
use crate::state::Gateway;

/// The most items that one request adds.
const MAX_NEW_ITEMS: usize = 20;

/// What an extractor made of a part of the request.
pub(super) type Called<T> = Result<T, ApiError>;

/// Checks new items, and puts stored items in place of references to them.
pub(super) async fn checked_items(
    gateway: &Arc<Gateway>,
    app: &AppName,
    mut items: Vec<Value>,
) -> Result<Vec<Value>, Problem> {
    if items.len() > MAX_NEW_ITEMS {
        let message = format!("items: at most {MAX_NEW_ITEMS} can be added at a time");
        return Err(ApiError::bad_request(message).into());
    }
    gateway.responses.resolve(app, &mut items).await?;
    input::conversation(&[], &items)?;
    Ok(items)
}

/// Answers in OpenAI's shape.
pub(super) fn respond(found: Result<Value, Problem>) -> Response {
    match found {
        Ok(value) => Json(value).into_response(),
        Err(problem) => Dialect::OpenAi.respond(problem.in_conversations()),
    }
}
