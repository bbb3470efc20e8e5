//! Answers for paths and methods below `/v1` that do not exist.

use axum::http::header::UPGRADE;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;

use super::dialect::{Dialect, Problem};
use crate::error::ApiError;

/// Answers 405 in the caller's dialect, or 404 for a part of the vendors' APIs that has the path of another one.
pub(crate) async fn wrong_method(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let part = match (method.as_str(), uri.path()) {
        ("GET", "/responses") if headers.contains_key(UPGRADE) => {
            Some("the WebSocket of responses")
        }
        ("POST", "/responses/compact") => Some("compaction of responses"),
        _ => None,
    };
    let error = match part {
        Some(part) => ApiError::NotFound(format!("hob does not support {part}")),
        None => ApiError::MethodNotAllowed,
    };
    dialect(&uri, &headers).respond(Problem::from(error))
}

/// Answers 404 in the caller's dialect. Parts of the vendors' APIs that Hob does not serve are named.
pub(crate) async fn nowhere(uri: Uri, headers: HeaderMap) -> Response {
    let text = match unsupported(uri.path()) {
        Some(part) => format!("hob does not support {}", part.replace('_', " ")),
        None => "no such path below /v1".to_owned(),
    };
    dialect(&uri, &headers).respond(Problem::from(ApiError::NotFound(text)))
}

/// Paths that Hob does not serve, but which look like those of agents.
pub(crate) const LIKE_AGENTS: [&str; 2] = ["/agents/environments", "/agents/automations"];

/// The first parts of paths in the vendors' APIs that Hob does not serve.
const UNSUPPORTED: [&str; 23] = [
    "assistants",
    "audio",
    "chatkit",
    "containers",
    "deployment_runs",
    "deployments",
    "dreams",
    "embeddings",
    "evals",
    "files",
    "fine_tuning",
    "images",
    "moderations",
    "organizations",
    "realtime",
    "skills",
    "threads",
    "tunnels",
    "uploads",
    "user_profiles",
    "vaults",
    "vector_stores",
    "videos",
];

/// Returns the name of a part of the vendors' APIs that Hob does not serve.
fn unsupported(path: &str) -> Option<&'static str> {
    let path: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match path[..] {
        ["agents", "environments", ..] => Some("environments outside of a session"),
        ["agents", "automations", ..] => Some("automations"),
        ["agents", "sessions", _, "subagents", ..] => Some("subagents"),
        ["agents", "sessions", _, "traces", ..] => Some("traces"),
        ["sessions", _, "threads", ..] => Some("threads"),
        ["sessions", _, "resources", ..] => Some("changes of a session's resources"),
        ["environments", _, "work", ..] => Some("work of environments"),
        ["batches", ..] => Some("OpenAI's batches"),
        ["complete" | "completions", ..] => Some("text completions"),
        [first, ..] => UNSUPPORTED.into_iter().find(|name| *name == first),
        [] => None,
    }
}

/// Returns the caller's dialect. Only Anthropic's API has paths below `/v1/messages`.
fn dialect(uri: &Uri, headers: &HeaderMap) -> Dialect {
    // Nesting has removed `/v1`.
    match uri.path().strip_prefix("/messages") {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => Dialect::Anthropic,
        _ => Dialect::of(headers),
    }
}
