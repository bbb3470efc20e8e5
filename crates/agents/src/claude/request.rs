//! A validated request for one turn of a conversation.

use hob_domain::{Block, Fingerprint, Message, Role, fingerprint};
use hob_transcript::claude::{Event, echoes};
use serde_json::Value;

use super::error::BackendError;
use super::input;
use super::profile::Profile;

/// A validated request.
pub struct CompletionRequest {
    pub profile: Profile,
    messages: Vec<Message>,
    pub prompt: String,
    /// The part of the fingerprint other than the history.
    pub scope: Value,
}

impl CompletionRequest {
    /// Validates a conversation. Without `prompt`, the text of the last message is the prompt.
    pub fn new(
        profile: &Profile,
        messages: &[Value],
        prompt: Option<&str>,
    ) -> Result<CompletionRequest, BackendError> {
        let invalid = |text: String| BackendError::Invalid(text);
        let messages: Vec<Message> = messages
            .iter()
            .enumerate()
            .map(|(index, value)| {
                Message::parse(value).map_err(|error| invalid(format!("messages[{index}].{error}")))
            })
            .collect::<Result<_, _>>()?;
        let last = messages.last().ok_or_else(|| invalid("messages: must not be empty".into()))?;
        if last.role != Role::User {
            return Err(invalid("messages: the last message must have the role user".to_owned()));
        }
        let only_text = last.content.iter().all(|block| matches!(block, Block::Text(_)));
        if prompt.is_none() && !only_text {
            let text = "messages: the last message must contain text only";
            return Err(invalid(text.to_owned()));
        }
        let mut profile = profile.clone();
        profile.cwd = profile
            .cwd
            .canonicalize()
            .map_err(|_| invalid(format!("cwd: {} does not exist", profile.cwd.display())))?;
        let prompt = prompt.map_or_else(|| last.text(), str::to_owned);
        if input::typed(&prompt).is_none() {
            return Err(invalid("messages: the last message must not be empty".to_owned()));
        }
        let scope = profile.scope();
        Ok(CompletionRequest { profile, messages, prompt, scope })
    }

    /// Returns all messages except the last, which is the prompt.
    pub fn history(&self) -> &[Message] {
        &self.messages[..self.messages.len() - 1]
    }

    /// Returns the fingerprints under which the session can be found after this turn.
    pub fn keys(&self, events: &[Event]) -> Vec<Fingerprint> {
        let key = |echo: Vec<Message>| {
            let after: Vec<Message> = self.messages.iter().cloned().chain(echo).collect();
            fingerprint(&self.scope, &after)
        };
        echoes(events).into_iter().map(key).collect()
    }
}
