//! `POST /v1/messages/count_tokens`: an estimate of a request's input tokens.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::response::{IntoResponse, Json, Response};
use hob_domain::Message;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::anthropic::{REQUEST_ID_HEADER, as_user, request_id, system_text};
use super::dialect::{Dialect, Problem};
use super::tools;
use crate::error::ApiError;
use crate::extract::body::JsonBody;
use crate::extract::caller::Caller;
use crate::routes::v1::schemas;
use crate::state::Gateway;

/// About how many bytes of text are one token.
const BYTES_PER_TOKEN: usize = 4;
/// What a message costs in addition to its content.
pub(super) const MESSAGE_TOKENS: usize = 4;
/// What an image or a document costs. Its true cost depends on its size in pixels or pages.
const ATTACHMENT_TOKENS: usize = 1600;

/// The request whose tokens are counted.
#[derive(Deserialize, ToSchema)]
#[schema(example = json!({"model": "claude", "messages": [{"role": "user", "content": "Say hello."}]}))]
pub(crate) struct CountBody {
    #[schema(value_type = Vec<Object>, min_items = 1)]
    messages: Vec<Value>,
    #[schema(value_type = Value)]
    system: Option<Value>,
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Value>>,
}

/// Estimates the input tokens of a message request.
///
/// One token per four bytes of text, 4 per message and 1,600 per image or document. What Claude Code adds itself, its
/// system prompt and its tools, is not counted.
#[utoipa::path(post, path = "/v1/messages/count_tokens", tag = "v1", operation_id = "count_tokens", request_body = CountBody,
    security(("token" = [])), responses(
    (status = 200, description = "`{\"input_tokens\": N}`", body = schemas::InputTokens),
    (status = 400, description = "Invalid request (`invalid_request_error`).", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token (`authentication_error`).", body = schemas::VendorError),
    (status = 408, description = "The body did not arrive in time.", body = schemas::VendorError),
    (status = 413, description = "The body is too large (`request_too_large`).", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn count_tokens(
    State(gateway): State<Arc<Gateway>>,
    caller: Result<Caller, ApiError>,
    request: Request,
) -> Response {
    let counted = count(gateway, caller, request).await;
    let mut response = counted.unwrap_or_else(|problem| Dialect::Anthropic.respond(problem));
    response.headers_mut().insert(REQUEST_ID_HEADER, request_id());
    response
}

async fn count(
    gateway: Arc<Gateway>,
    caller: Result<Caller, ApiError>,
    request: Request,
) -> Result<Response, Problem> {
    caller?;
    let JsonBody(body) = JsonBody::<CountBody>::from_request(request, &gateway).await?;
    if body.messages.is_empty() {
        return Err(ApiError::bad_request("messages: must not be empty").into());
    }
    let messages: Vec<Value> = body.messages.into_iter().map(as_user).collect();
    for (index, message) in messages.iter().enumerate() {
        let wrong = |error| ApiError::bad_request(format!("messages[{index}].{error}"));
        Message::parse(message).map_err(wrong)?;
    }
    system_text(body.system.as_ref())?;
    tools::anthropic(body.tools.as_deref(), None)?;
    let messages: usize =
        messages.iter().map(|message| MESSAGE_TOKENS + tokens(&message["content"])).sum();
    let system = body.system.as_ref().map_or(0, tokens);
    let tools: usize = body.tools.iter().flatten().map(|tool| text_tokens(&tool.to_string())).sum();
    Ok(Json(json!({"input_tokens": messages + system + tools})).into_response())
}

/// Estimates the tokens of content: a text, or blocks.
pub(super) fn tokens(content: &Value) -> usize {
    let block = |block: &Value| match block["type"].as_str() {
        Some("image" | "document") => ATTACHMENT_TOKENS,
        Some("tool_result") => tokens(&block["content"]),
        Some("text") => tokens(&block["text"]),
        _ => text_tokens(&block.to_string()),
    };
    match content {
        Value::Null => 0,
        Value::String(text) => text_tokens(text),
        Value::Array(blocks) => blocks.iter().map(block).sum(),
        other => text_tokens(&other.to_string()),
    }
}

pub(super) fn text_tokens(text: &str) -> usize {
    text.len().div_ceil(BYTES_PER_TOKEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_results_and_images_are_estimated() {
        assert_eq!(tokens(&json!("eight by")), 2);
        assert_eq!(tokens(&json!([{"type": "text", "text": "four"}, {"type": "image"}])), 1601);
        let result =
            json!([{"type": "tool_result", "content": [{"type": "text", "text": "12345"}]}]);
        assert_eq!(tokens(&result), 2);
        assert_eq!(tokens(&Value::Null), 0);
    }
}
