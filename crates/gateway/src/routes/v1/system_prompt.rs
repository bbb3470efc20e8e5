//! The system prompt of a request, and what Hob adds to it.

use hob_sessions::Conversation;
use serde_json::Value;

use super::dialect::Problem;
use super::structured::AnswerForm;
use super::tools::ToolUse;
use crate::error::ApiError;

/// Maximum length of a system prompt, in bytes. The prompt is a program argument, which the kernel limits.
const SYSTEM_LIMIT: usize = 120_000;

/// Checks that a system prompt can be passed on.
pub(super) fn checked(text: String) -> Result<Option<String>, Problem> {
    if text.contains('\0') || text.len() > SYSTEM_LIMIT {
        let text = format!("system: must not contain NUL or exceed {SYSTEM_LIMIT} bytes");
        return Err(ApiError::bad_request(text).into());
    }
    Ok((!text.trim().is_empty()).then_some(text))
}

/// Returns the conversation of a request, without its attachments and its model. A form of the answer is asked for in the
/// system prompt, and checked.
pub(super) fn conversation(
    messages: Vec<Value>,
    system: Option<String>,
    tools: ToolUse,
    form: Option<AnswerForm>,
) -> Conversation {
    let instruction = form.as_ref().map(|form| form.instruction.clone());
    let systems: Vec<String> = [system, instruction].into_iter().flatten().collect();
    let system = (!systems.is_empty()).then(|| systems.join("\n\n"));
    Conversation {
        messages,
        prompt: None,
        system,
        model: None,
        tools: tools.tools,
        answer_check: form.map(|form| form.check),
        choice: tools.choice,
        one_call_at_a_time: tools.one_at_a_time,
    }
}
