//! Claude Code in the words of other APIs: Anthropic's messages and OpenAI's chat completions.
//!
//! Each dialect has wire types of its own ([`anthropic`], [`openai`]) and its own shape of errors
//! ([`dialect`]); what both mean is a [`reply`] to a conversation. Images and documents become files
//! that the agent is told of ([`attachments`]).

pub(crate) mod anthropic;
mod attachments;
mod dialect;
pub(crate) mod models;
pub(crate) mod openai;
mod reply;

use axum::http::HeaderMap;
use axum::response::Response;

use self::dialect::{Dialect, Problem};
use crate::error::ApiError;

/// Says how the process was come by: `warm`, `seeded` or `fresh`.
const SESSION_HEADER: &str = "x-hob-session";

/// This path is not for this method.
pub(crate) async fn wrong_method(headers: HeaderMap) -> Response {
    Dialect::of(&headers).respond(Problem::from(ApiError::MethodNotAllowed))
}

/// There is no such path below `/v1`.
pub(crate) async fn nowhere(headers: HeaderMap) -> Response {
    let error = ApiError::NotFound("there is no such path below /v1".to_owned());
    Dialect::of(&headers).respond(Problem::from(error))
}
