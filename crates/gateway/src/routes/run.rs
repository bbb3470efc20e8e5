//! `POST /run`: one prompt, one answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::Json;
use hob_domain::RunRequest;
use hob_domain::file::prompt_with_files;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::{AgentErrorBody, ApiError, ErrorBody};
use crate::extract::body::JsonBody;
use crate::extract::caller::Caller;
use crate::state::Gateway;

/// A one-shot run.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"prompt": "Reply with JSON: {\"hello\":\"world\"}", "agent": "demo"}))]
pub(crate) struct RunBody {
    /// The prompt.
    #[schema(min_length = 1)]
    prompt: String,
    /// A model name of the agent.
    model: Option<String>,
    /// Added to the agent's system prompt.
    system: Option<String>,
    /// Ids of uploaded files.
    files: Option<Vec<String>>,
    /// Timeout in seconds: at least 1, at most `sessions.turn_timeout_secs`, which is the
    /// default.
    #[schema(minimum = 1)]
    timeout_secs: Option<f64>,
    /// The agent's name. Default: `sessions.default_agent`.
    agent: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true, "result": {"hello": "world"}, "duration_ms": 1204,
    "stop_reason": "end_turn"}))]
pub(crate) struct RunAnswer {
    /// Always `true`.
    ok: bool,
    /// The parsed reply if it is one JSON object or array, else its text.
    result: Value,
    duration_ms: u64,
    stop_reason: String,
}

/// Runs one prompt and returns the agent's answer.
///
/// The run works in a temporary folder. A client that disconnects ends it.
#[utoipa::path(post, path = "/run", tag = "runs", request_body = RunBody,
    security(("token" = [])), responses(
    (status = 200, description = "The agent's answer.", body = RunAnswer),
    (status = 400, description = "Invalid request; the error names the field.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 408, description = "The body did not arrive in time.", body = ErrorBody),
    (status = 413, description = "The body is too large.", body = ErrorBody),
    (status = 429, description = "The app has used up its quota; see Retry-After.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
    (status = 502, description = "The agent failed or is not installed.", body = AgentErrorBody),
    (status = 503, description = "`sessions.max_live` is reached; see Retry-After.", body = ErrorBody),
    (status = 504, description = "The run timed out. Its processes have ended.", body = ErrorBody),
))]
pub(crate) async fn run(
    State(gateway): State<Arc<Gateway>>,
    Caller(app): Caller,
    JsonBody(body): JsonBody<RunBody>,
) -> Result<Json<RunAnswer>, ApiError> {
    if body.prompt.trim().is_empty() {
        return Err(ApiError::bad_request("prompt: must not be empty"));
    }
    let name = body.agent.as_deref().unwrap_or(gateway.default_agent.as_str());
    let (name, agent) = gateway.agent(name)?;
    for (field, value) in [("model", &body.model), ("system", &body.system)] {
        if value.as_ref().is_some_and(|value| value.is_empty() || value.contains('\0')) {
            return Err(ApiError::bad_request(format!(
                "{field}: must not be empty or contain NUL"
            )));
        }
    }
    let paths = gateway.file_paths(&app.name, body.files.as_deref().unwrap_or_default()).await?;
    let timeout = timeout(body.timeout_secs, gateway.limits.run_timeout)?;
    let prompt = prompt_with_files(&body.prompt, &paths);
    let request = RunRequest { prompt, model: body.model, system: body.system, timeout };
    gateway.sessions.check_capacity().await?;
    gateway.sessions.check_app(&app.name).await?;
    let started = Instant::now();
    let answer = gateway.runner.run(&app.name, agent, request).await;
    let duration_ms = started.elapsed().as_millis() as u64;
    match answer {
        Ok(reply) => {
            tracing::info!(app = %app.name, agent = %name, duration_ms, "a run ended");
            Ok(Json(RunAnswer {
                ok: true,
                result: reply_value(&reply.text),
                duration_ms,
                stop_reason: reply.stop_reason,
            }))
        }
        Err(error) => {
            // Do not log the text: an agent's output may contain the prompt.
            let code = error.code();
            tracing::warn!(app = %app.name, agent = %name, duration_ms, code, "a run failed");
            Err(ApiError::Run(error, duration_ms))
        }
    }
}

fn timeout(asked: Option<f64>, most: Duration) -> Result<Duration, ApiError> {
    let Some(seconds) = asked else { return Ok(most) };
    if seconds >= 1.0 && seconds <= most.as_secs_f64() {
        return Ok(Duration::from_secs_f64(seconds));
    }
    let most = most.as_secs();
    Err(ApiError::bad_request(format!("timeout_secs: must be between 1 and {most}")))
}

/// Returns the parsed value if the whole reply is one JSON object or array, else the text itself.
fn reply_value(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Object(_) | Value::Array(_))) => value,
        _ => Value::String(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_and_arrays_are_parsed_all_else_is_text() {
        assert_eq!(reply_value(r#"{"hello":"world"}"#), json!({"hello": "world"}));
        assert_eq!(reply_value(" [1, 2]\n"), json!([1, 2]));
        for text in ["hi", "42", "\"x\"", "true", "null", "", "{broken", "{} and more"] {
            assert_eq!(reply_value(text), json!(text));
        }
    }
}
