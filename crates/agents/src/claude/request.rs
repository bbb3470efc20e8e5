//! A conversation as it was asked for, checked.

use hob_domain::{Block, Fingerprint, Message, Role, fingerprint};
use hob_transcript::claude::{Event, echoes};
use serde_json::Value;

use super::error::BackendError;
use super::input;
use super::options::Profile;

/// A checked request.
pub struct Request {
    pub profile: Profile,
    messages: Vec<Message>,
    pub prompt: String,
    /// What must be equal besides the history.
    pub scope: Value,
}

impl Request {
    /// Without a `prompt` the last message's text is it.
    pub fn new(
        profile: &Profile,
        messages: &[Value],
        prompt: Option<&str>,
    ) -> Result<Request, BackendError> {
        let invalid = |text: String| BackendError::Invalid(text);
        let messages: Vec<Message> = messages
            .iter()
            .enumerate()
            .map(|(index, value)| {
                Message::parse(value).map_err(|error| invalid(format!("messages[{index}].{error}")))
            })
            .collect::<Result<_, _>>()?;
        let last = messages.last().ok_or_else(|| invalid("messages: the list is empty".into()))?;
        if last.role != Role::User {
            return Err(invalid("messages: the last message must be the user's".to_owned()));
        }
        let only_text = last.content.iter().all(|block| matches!(block, Block::Text(_)));
        if prompt.is_none() && !only_text {
            let text = "messages: the last message must hold text only";
            return Err(invalid(text.to_owned()));
        }
        let mut profile = profile.clone();
        profile.cwd = profile.cwd.canonicalize().map_err(|_| {
            invalid(format!("the working folder {} does not exist", profile.cwd.display()))
        })?;
        let prompt = prompt.map_or_else(|| last.text(), str::to_owned);
        if input::typed(&prompt).is_none() {
            return Err(invalid("messages: the last message is empty".to_owned()));
        }
        let scope = profile.scope();
        Ok(Request { profile, messages, prompt, scope })
    }

    /// All but the new prompt.
    pub fn history(&self) -> &[Message] {
        &self.messages[..self.messages.len() - 1]
    }

    /// The fingerprints under which the session is found after this turn.
    pub fn keys(&self, events: &[Event]) -> Vec<Fingerprint> {
        let key = |echo: Vec<Message>| {
            let after: Vec<Message> = self.messages.iter().cloned().chain(echo).collect();
            fingerprint(&self.scope, &after)
        };
        echoes(events).into_iter().map(key).collect()
    }
}
