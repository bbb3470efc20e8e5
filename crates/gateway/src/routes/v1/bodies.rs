//! Bodies of requests for completions, read without the server's state. The errors are for logs.

use hob_sessions::Conversation;
use serde_json::Value;

use super::anthropic::MessagesBody;
use super::openai::ChatBody;
use super::responses::create::read_alone;
use crate::extract::body::parse;

/// Reads the body of `POST /v1/messages`.
pub(crate) fn messages(bytes: &[u8]) -> Result<Conversation, String> {
    let body: MessagesBody = parse(bytes).map_err(text)?;
    body.conversation().map(|(asked, _)| asked).map_err(text)
}

/// Reads the body of `POST /v1/chat/completions`.
pub(crate) fn chat(bytes: &[u8]) -> Result<Conversation, String> {
    let body: ChatBody = parse(bytes).map_err(text)?;
    body.conversation().map(|(asked, _)| asked).map_err(text)
}

/// Reads the body of `POST /v1/responses`. It continues no other response.
pub(crate) fn response(bytes: &[u8]) -> Result<Conversation, String> {
    let body: Value = parse(bytes).map_err(text)?;
    read_alone(&body).map_err(text)
}

fn text(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}
