//! A validated request for one turn of a conversation.

use std::collections::HashSet;
use std::sync::Arc;

use hob_domain::{Block, Fingerprint, Message, Role, fingerprint};
use hob_transcript::claude::{Event, TurnResult, echoes, last_text};
use serde_json::{Value, json};

use super::error::BackendError;
use super::input;
use super::profile::Profile;
use crate::call_choice::CallChoice;
use crate::client_tools::{ToolExchange, ToolOutput};

/// The prompt after results of the client's tools, if no live process waits for them.
pub const CONTINUE_PROMPT: &str = "Continue with these results.";

/// The mark of a text that is not the user's.
const REMINDER: &str = "<system-reminder>";

/// Checks an answer. The error says what is wrong with it.
pub type AnswerCheck = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// What is wrong with an answer.
pub struct Objection {
    /// The prompt that asks for another answer.
    pub prompt: String,
    /// The error if the other answer is no better.
    pub error: BackendError,
}

/// A validated request.
pub struct CompletionRequest {
    pub profile: Profile,
    messages: Vec<Message>,
    pub prompt: String,
    /// Checks the text of the last message.
    pub answer_check: Option<AnswerCheck>,
    /// Which of the client's tools the answer may call, or must call.
    pub choice: CallChoice,
    /// Whether an answer may have only one call.
    pub one_call_at_a_time: bool,
    /// The results of the client's tools in the last message, by the ids of the calls.
    pub results: Vec<(String, ToolOutput)>,
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
        let is_passed = |block: &Block| matches!(block, Block::Text(_) | Block::ToolResult { .. });
        if prompt.is_none() && !last.content.iter().all(is_passed) {
            let text = "messages: the last message must contain text and tool results only";
            return Err(invalid(text.to_owned()));
        }
        let results = results(&messages).map_err(invalid)?;
        let mut profile = profile.clone();
        profile.cwd = profile
            .cwd
            .canonicalize()
            .map_err(|_| invalid(format!("cwd: {} does not exist", profile.cwd.display())))?;
        let mut prompt = prompt.map_or_else(|| last.text(), str::to_owned);
        if !results.is_empty() && prompt.trim().is_empty() {
            prompt = CONTINUE_PROMPT.to_owned();
        }
        if input::typed(&prompt).is_none() {
            return Err(invalid("messages: the last message must not be empty".to_owned()));
        }
        let scope = profile.scope();
        Ok(CompletionRequest {
            profile,
            messages,
            prompt,
            answer_check: None,
            choice: CallChoice::Auto,
            one_call_at_a_time: false,
            results,
            scope,
        })
    }

    /// Returns all messages except the last, which is the prompt.
    pub fn history(&self) -> &[Message] {
        &self.messages[..self.messages.len() - 1]
    }

    /// Returns what a new process must know before the prompt, with the agent's names of the client's tools.
    pub fn seed(&self) -> Vec<Message> {
        let mut seed = self.history().to_vec();
        if !self.results.is_empty() {
            let last = self.messages.last().into_iter().flat_map(|last| &last.content);
            let results = last.filter(|block| matches!(block, Block::ToolResult { .. }));
            seed.push(Message { role: Role::User, content: results.cloned().collect() });
        }
        for block in seed.iter_mut().flat_map(|message| &mut message.content) {
            if let Block::ToolUse { name, .. } = block
                && let Some(known) = self.profile.agent_tool_name(name)
            {
                *name = known;
            }
        }
        seed
    }

    /// Returns what is wrong with the answer that ended the turn, if anything is.
    pub fn objection(&self, result: &TurnResult, events: &[Event]) -> Option<Objection> {
        // The model was stopped, and the client is told why.
        if matches!(result.stop_reason.as_str(), "refusal" | "max_tokens") {
            return None;
        }
        if let Some(instruction) = self.instruction().filter(|_| self.choice.is_required()) {
            let text = "the model did not call a tool, which tool_choice requires";
            let error = BackendError::WrongAnswer(text.to_owned());
            return Some(Objection { prompt: instruction, error });
        }
        let wrong = self.answer_check.as_ref()?(&last_text(events)).err()?;
        let prompt = format!(
            "That answer does not have the required form: {wrong}\nAnswer again with the corrected JSON and nothing else."
        );
        let text = format!("the model's answer did not have the required form ({wrong})");
        Some(Objection { prompt, error: BackendError::WrongAnswer(text) })
    }

    /// Returns the names of the client's tools that this answer may call.
    pub fn offered_tools(&self) -> Vec<String> {
        self.choice.offered(&self.profile.client_tools)
    }

    /// Returns the instruction for the agent about the calls of this answer.
    fn instruction(&self) -> Option<String> {
        self.choice.instruction(&self.profile.client_tools)
    }

    /// Returns the instruction as a text that does not look like the user's words.
    fn reminder(&self) -> Option<String> {
        self.instruction().map(|text| format!("{REMINDER}\n{text}\n</system-reminder>"))
    }

    /// Returns the prompt for the agent. What holds for this answer alone is in it, because a live process keeps its system
    /// prompt.
    pub fn told_prompt(&self) -> String {
        match self.reminder() {
            Some(reminder) => format!("{}\n{reminder}", self.prompt),
            None => self.prompt.clone(),
        }
    }

    /// Returns the text that the last message has next to its tool results.
    fn text_with_results(&self) -> Option<&str> {
        let has_text = !self.results.is_empty() && self.prompt != CONTINUE_PROMPT;
        has_text.then_some(self.prompt.as_str())
    }

    /// Returns the results to the agent. A text with them, and what holds for this answer alone, is added to the last one: the
    /// turn has no other place for it.
    pub fn answer(&self, exchange: &ToolExchange) {
        let reminder = self.reminder();
        let texts = self.text_with_results().into_iter().chain(reminder.as_deref());
        for (index, (id, output)) in self.results.iter().enumerate() {
            let mut output = output.clone();
            if index + 1 == self.results.len() {
                output = texts.clone().fold(output, with_text);
            }
            exchange.answer(id, output);
        }
    }

    /// Returns the fingerprint of a paused turn that this request continues.
    pub fn paused_key(&self) -> Fingerprint {
        fingerprint(&self.profile.paused_scope(), self.history())
    }

    /// Returns the fingerprints of the requests that can continue this turn after a pause. `said` are the texts and the
    /// calls that the client has received, in their order.
    pub fn keys_after_pause(&self, said: &[Block]) -> Vec<Fingerprint> {
        let (texts, calls): (Vec<Block>, Vec<Block>) =
            said.iter().cloned().partition(|block| matches!(block, Block::Text(_)));
        // Clients may send texts first, or none.
        let forms = [said.to_vec(), texts.into_iter().chain(calls.clone()).collect(), calls];
        let key = |content: Vec<Block>| {
            let answer = Message { role: Role::Assistant, content };
            let after: Vec<Message> = self.messages.iter().cloned().chain([answer]).collect();
            fingerprint(&self.profile.paused_scope(), &after)
        };
        forms.into_iter().map(key).collect()
    }

    /// Returns the fingerprints under which the session can be found after this turn.
    /// `scope` is that of the request for which its process was started.
    pub fn keys(&self, scope: &Value, events: &[Event]) -> Vec<Fingerprint> {
        let key = |echo: Vec<Message>| {
            let after: Vec<Message> = self.messages.iter().cloned().chain(echo).collect();
            fingerprint(scope, &after)
        };
        echoes(events).into_iter().map(key).collect()
    }
}

/// Returns the tool results of the last message. There must be one for every call of the message before it.
fn results(messages: &[Message]) -> Result<Vec<(String, ToolOutput)>, String> {
    let [before @ .., last] = messages else { return Ok(Vec::new()) };
    let results: Vec<(String, ToolOutput)> = last
        .content
        .iter()
        .filter_map(|block| match block {
            Block::ToolResult { tool_use_id, content, is_error } => {
                let output = ToolOutput { content: content.clone(), is_error: *is_error };
                Some((tool_use_id.clone(), output))
            }
            _ => None,
        })
        .collect();
    if results.is_empty() {
        return Ok(results);
    }
    let mut seen = HashSet::new();
    if let Some((id, _)) = results.iter().find(|(id, _)| !seen.insert(id.as_str())) {
        return Err(format!("messages: there are two tool results for the call {id:?}"));
    }
    let calls: Vec<&str> = before
        .last()
        .into_iter()
        .flat_map(|message| &message.content)
        .filter_map(|block| match block {
            Block::ToolUse { id, .. } => Some(id.as_str()),
            _ => None,
        })
        .collect();
    if let Some((id, _)) = results.iter().find(|(id, _)| !calls.contains(&id.as_str())) {
        return Err(format!("messages: the tool result {id:?} has no tool call before it"));
    }
    let is_missing = |id: &&str| !results.iter().any(|(known, _)| known == id);
    match calls.into_iter().find(is_missing) {
        Some(id) => {
            Err(format!("messages: the tool call {id:?} has no result in the last message"))
        }
        None => Ok(results),
    }
}

fn with_text(output: ToolOutput, text: &str) -> ToolOutput {
    let mut blocks = match output.content {
        Value::Null => Vec::new(),
        Value::Array(blocks) => blocks,
        content => {
            vec![json!({"type": "text", "text": content.as_str().unwrap_or_default()})]
        }
    };
    // Reminders say themselves that they are not the user's words.
    let is_reminder = text.trim_start().starts_with(REMINDER);
    let text = if is_reminder { text.to_owned() } else { format!("The user adds: {text}") };
    blocks.push(json!({"type": "text", "text": text}));
    ToolOutput { content: Value::Array(blocks), ..output }
}
