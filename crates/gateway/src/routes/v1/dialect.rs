//! Errors in each dialect's own shape and status.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use hob_agents::claude::BackendError;
use hob_sessions::session::SessionError;
use hob_sessions::{CompletionError, UploadError};
use serde_json::{Value, json};

use crate::error::ApiError;

/// The response header that names the kind of process: `warm`, `seeded` or `fresh`.
pub(super) const SESSION_HEADER: &str = "x-hob-session";

/// The response header by which SDKs decide whether they repeat a request by themselves.
const RETRY_HEADER: &str = "x-should-retry";
/// The longest `Retry-After` that all of Anthropic's and OpenAI's SDKs obey.
const MAX_WAIT_OF_SDKS: Duration = Duration::from_secs(60);

/// The API whose wire format a response uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Anthropic,
    OpenAi,
}

/// An error for the caller.
#[derive(Debug)]
pub(super) struct Problem {
    kind: Kind,
    message: String,
    /// The field that the error is about.
    param: Option<String>,
    retry_after: Option<Duration>,
    /// The feature that Hob does not have, for Anthropic's SDKs.
    unsupported: Option<&'static str>,
    /// Whether Hob or the app has no place for the request now.
    is_place_missing: bool,
    /// Whether a repetition would fail again, so that SDKs should not make one by themselves.
    is_lasting: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Invalid,
    Unauthorized,
    NotFound,
    MethodNotAllowed,
    SlowBody,
    /// Another memory has the path.
    PathTaken,
    /// The memory has another text than the caller expects.
    PreconditionFailed,
    TooLarge,
    Limited,
    Overloaded,
    TimedOut,
    Failed,
}

impl Problem {
    pub fn invalid(message: impl Into<String>) -> Problem {
        Problem::new(Kind::Invalid, message)
    }

    /// Refuses a conversation that the server is to hold. The SDKs then send the whole conversation themselves.
    pub fn no_threads() -> Problem {
        let text =
            "thread: the server holds no conversations; send all messages with every request";
        Problem { unsupported: Some("thread"), ..Problem::invalid(text) }
    }

    pub fn failed(message: impl Into<String>) -> Problem {
        Problem::new(Kind::Failed, message)
    }

    pub fn path_taken(message: impl Into<String>) -> Problem {
        Problem::new(Kind::PathTaken, message)
    }

    pub fn precondition_failed(message: impl Into<String>) -> Problem {
        Problem::new(Kind::PreconditionFailed, message)
    }

    fn new(kind: Kind, message: impl Into<String>) -> Problem {
        Problem {
            kind,
            message: message.into(),
            param: None,
            retry_after: None,
            unsupported: None,
            is_place_missing: false,
            is_lasting: matches!(kind, Kind::PathTaken | Kind::PreconditionFailed),
        }
    }

    /// Logs the cause and returns a generic error: the cause is never sent.
    fn internal(inside: &str) -> Problem {
        tracing::error!(error = inside, "a completion failed with an internal error");
        Problem::failed("internal error; see Hob's log")
    }

    fn after(self, retry_after: Duration) -> Problem {
        Problem { retry_after: Some(retry_after), ..self }
    }

    /// Tells SDKs not to repeat the request by themselves: it would fail again.
    fn lasting(self) -> Problem {
        Problem { is_lasting: true, ..self }
    }

    /// Names the fields as the Responses API calls them.
    pub fn in_responses(self) -> Problem {
        self.with_names(&[("messages", "input"), ("system", "instructions")])
    }

    /// Names the fields as the Conversations API calls them.
    pub fn in_conversations(self) -> Problem {
        self.with_names(&[("input", "items")])
    }

    fn with_names(mut self, names: &[(&str, &str)]) -> Problem {
        for (name, own) in names {
            let param = self.param.as_deref().and_then(|param| param.strip_prefix(*name));
            let param = param.map(|rest| format!("{own}{rest}"));
            if let Some(rest) = self.message.strip_prefix(*name).filter(|_| param.is_some()) {
                self.message = format!("{own}{rest}");
                self.param = param;
            }
        }
        self
    }

    /// Returns the code of a failed response. The SDK's types know only these.
    pub fn response_code(&self) -> &'static str {
        match self.kind {
            Kind::Limited => "rate_limit_exceeded",
            Kind::Invalid => "invalid_prompt",
            _ => "server_error",
        }
    }

    /// Returns how long to wait if Hob has no place for the request now; nothing for other problems.
    pub fn wait_for_place(&self) -> Option<Duration> {
        self.is_place_missing.then(|| self.retry_after.unwrap_or_default())
    }

    /// Returns the text for the caller.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns a short code for the log.
    pub fn code(&self) -> &'static str {
        Dialect::Anthropic.words(self.kind).1
    }
}

impl Dialect {
    /// Returns the dialect of a request to a path that both APIs have.
    pub fn of(headers: &HeaderMap) -> Dialect {
        match headers.contains_key("anthropic-version") {
            true => Dialect::Anthropic,
            false => Dialect::OpenAi,
        }
    }

    /// Returns the status, the type and, if the dialect has one, the code.
    fn words(self, kind: Kind) -> (u16, &'static str, Option<&'static str>) {
        match (self, kind) {
            (_, Kind::Invalid) => (400, "invalid_request_error", None),
            (Dialect::Anthropic, Kind::Unauthorized) => (401, "authentication_error", None),
            (Dialect::OpenAi, Kind::Unauthorized) => {
                (401, "invalid_request_error", Some("invalid_api_key"))
            }
            (Dialect::Anthropic, Kind::NotFound) => (404, "not_found_error", None),
            (Dialect::OpenAi, Kind::NotFound) => (404, "invalid_request_error", Some("not_found")),
            (_, Kind::MethodNotAllowed) => (405, "invalid_request_error", None),
            (_, Kind::PathTaken) => (409, "memory_path_conflict_error", None),
            (_, Kind::PreconditionFailed) => (409, "memory_precondition_failed_error", None),
            (_, Kind::SlowBody) => (408, "invalid_request_error", None),
            (Dialect::Anthropic, Kind::TooLarge) => (413, "request_too_large", None),
            (Dialect::OpenAi, Kind::TooLarge) => {
                (413, "invalid_request_error", Some("request_too_large"))
            }
            (Dialect::Anthropic, Kind::Limited) => (429, "rate_limit_error", None),
            (Dialect::OpenAi, Kind::Limited) => {
                (429, "rate_limit_error", Some("rate_limit_exceeded"))
            }
            (Dialect::Anthropic, Kind::Overloaded) => (529, "overloaded_error", None),
            (Dialect::OpenAi, Kind::Overloaded) => (503, "server_error", Some("overloaded")),
            (Dialect::Anthropic, Kind::TimedOut) => (504, "timeout_error", None),
            (Dialect::OpenAi, Kind::TimedOut) => (504, "server_error", Some("timeout")),
            (Dialect::Anthropic, Kind::Failed) => (500, "api_error", None),
            (Dialect::OpenAi, Kind::Failed) => (500, "server_error", None),
        }
    }

    /// Returns the body of an error, also for a stream that has begun.
    pub fn body(self, problem: &Problem) -> Value {
        let (_, kind, code) = self.words(problem.kind);
        match self {
            Dialect::Anthropic => {
                let mut error = json!({"type": kind, "message": problem.message});
                if let Some(feature) = problem.unsupported {
                    let code = format!("{feature}_unsupported_request");
                    error["details"] = json!({"error_code": code, "unsupported": [feature]});
                }
                json!({"type": "error", "error": error})
            }
            Dialect::OpenAi => json!({"error": {"message": problem.message, "type": kind,
                "param": problem.param, "code": code}}),
        }
    }

    pub fn respond(self, problem: Problem) -> Response {
        let (status, _, _) = self.words(problem.kind);
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self.body(&problem))).into_response();
        if let Some(after) = problem.retry_after {
            let seconds = after.as_secs_f64().ceil().max(1.0) as u64;
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        // SDKs do not wait longer, and would repeat the request after a second of their own.
        let is_long = problem.retry_after.is_some_and(|after| after > MAX_WAIT_OF_SDKS);
        if problem.is_lasting || is_long {
            response.headers_mut().insert(RETRY_HEADER, HeaderValue::from_static("false"));
        }
        response
    }
}

impl From<ApiError> for Problem {
    fn from(error: ApiError) -> Problem {
        match error {
            ApiError::BadRequest { message, .. } => {
                let field = message.split_once(": ").map(|(field, _)| field);
                let is_field =
                    |field: &&str| !field.is_empty() && !field.contains(char::is_whitespace);
                let param = field.filter(is_field).map(str::to_owned);
                Problem { param, ..Problem::invalid(message) }
            }
            ApiError::Unauthorized => Problem::new(
                Kind::Unauthorized,
                "no token, or a wrong one: use an app's token as the API key",
            ),
            ApiError::NotFound(message) => Problem::new(Kind::NotFound, message),
            ApiError::MethodNotAllowed => {
                Problem::new(Kind::MethodNotAllowed, "this path does not support this method")
            }
            ApiError::SlowBody => {
                Problem::new(Kind::SlowBody, "the request body did not arrive in time")
            }
            ApiError::TooLarge(message) => Problem::new(Kind::TooLarge, message),
            ApiError::Limited { message, retry_after, .. } => {
                Problem::new(Kind::Limited, message).after(retry_after)
            }
            ApiError::Busy { message, .. } => {
                Problem::new(Kind::Overloaded, message).after(Duration::from_secs(1))
            }
            ApiError::Internal(inside) => Problem::internal(&inside),
            ApiError::Gone => Problem::invalid("the session has ended"),
            ApiError::Conflict(message) => Problem::invalid(message),
            // These occur only in sessions, runs, the console and `/acp`.
            other @ (ApiError::BadHost
            | ApiError::BadOrigin
            | ApiError::NotAcceptable(_)
            | ApiError::UnsupportedMedia(_)
            | ApiError::NoRoom { .. }
            | ApiError::Turn { .. }
            | ApiError::Run(..)) => Problem::internal(&format!("{other:?}")),
        }
    }
}

impl From<SessionError> for Problem {
    fn from(error: SessionError) -> Problem {
        ApiError::from(error).into()
    }
}

impl From<CompletionError> for Problem {
    fn from(error: CompletionError) -> Problem {
        let is_place_missing = matches!(
            error,
            CompletionError::Session(SessionError::PoolFull { .. } | SessionError::Limited { .. })
                | CompletionError::Backend(BackendError::PoolFull { .. })
        );
        let problem: Problem = match error {
            CompletionError::Session(error) => error.into(),
            CompletionError::Backend(error) => error.into(),
        };
        Problem { is_place_missing, ..problem }
    }
}

impl From<UploadError> for Problem {
    fn from(error: UploadError) -> Problem {
        ApiError::from(error).into()
    }
}

impl From<BackendError> for Problem {
    fn from(error: BackendError) -> Problem {
        let message = error.to_string();
        let soon = Duration::from_secs(1);
        match error {
            BackendError::Invalid(message) => ApiError::bad_request(message).into(),
            BackendError::Closed | BackendError::Cancelled => {
                Problem::new(Kind::Overloaded, message).after(soon)
            }
            BackendError::PoolFull { retry_after, .. } => {
                Problem::new(Kind::Overloaded, message).after(retry_after)
            }
            BackendError::TimedOut { limit, .. } => {
                let text = format!("claude did not answer within {} s", limit.as_secs());
                Problem::new(Kind::TimedOut, text).lasting()
            }
            BackendError::Api { status, kind, .. } => {
                let problem = Problem::new(upstream(status, &kind), message);
                // A login that the model's API refuses is refused again.
                match (status, kind.as_str()) {
                    (Some(401 | 403), _) | (None, "authentication_failed") => problem.lasting(),
                    _ => problem,
                }
            }
            BackendError::WrongAnswer(_) => Problem::failed(message).lasting(),
            BackendError::Internal(inside) => Problem::internal(&inside),
            // The screen and the last output go to the log only: they may contain the prompt.
            BackendError::Died { how, .. } => Problem::failed(format!("claude ended with {how}")),
            BackendError::InputNotTaken(_) => Problem::failed("claude did not accept the prompt"),
            BackendError::NotClean(_) | BackendError::Interrupted => {
                Problem::failed("the turn was interrupted")
            }
            BackendError::NotInstalled(_) | BackendError::Dialog { .. } => {
                Problem::failed(message).lasting()
            }
        }
    }
}

/// Maps an error of the model's API to the caller. A refused login is Hob's own error.
fn upstream(status: Option<u16>, kind: &str) -> Kind {
    match (status, kind) {
        (Some(429), _) | (None, "rate_limit") => Kind::Limited,
        (Some(503 | 529), _) | (None, "overloaded") => Kind::Overloaded,
        (Some(404), _) => Kind::NotFound,
        (Some(413), _) => Kind::TooLarge,
        (Some(400 | 422), _) | (None, "invalid_request") => Kind::Invalid,
        (Some(504), _) => Kind::TimedOut,
        _ => Kind::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dialect_has_its_own_shape() {
        let problem = Problem::from(ApiError::bad_request("messages: the list is empty"));
        let anthropic = Dialect::Anthropic.body(&problem);
        assert_eq!(anthropic["type"], "error");
        assert_eq!(anthropic["error"]["type"], "invalid_request_error");
        let openai = Dialect::OpenAi.body(&problem);
        assert_eq!(openai["error"]["param"], "messages");
        assert_eq!(openai["error"]["message"], "messages: the list is empty");
    }

    #[test]
    fn the_models_own_errors_are_passed_on() {
        let of = |status, kind: &str| {
            let error = BackendError::Api { status, kind: kind.into(), message: "x".into() };
            let problem = Problem::from(error);
            (
                Dialect::Anthropic.words(problem.kind).0,
                Dialect::OpenAi.respond(problem).status().as_u16(),
            )
        };
        assert_eq!(of(Some(429), "rate_limit"), (429, 429));
        assert_eq!(of(Some(529), "server_error"), (529, 503));
        assert_eq!(of(Some(404), "invalid_request"), (404, 404));
        assert_eq!(of(Some(400), "invalid_request"), (400, 400));
        assert_eq!(of(Some(401), "authentication_failed"), (500, 500));
        assert_eq!(of(None, "unknown"), (500, 500));
    }
}
