//! `/v1/agents/sessions/{id}/artifacts`: the files that the turns of a session have left in its own folder.
//!
//! An artifact is a version of a file: its id has the file's path, size and time in it. Hob keeps no copies, so the
//! artifact of a file that changes or disappears is gone.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use hob_domain::session::SessionTurn;
use hob_domain::{AppName, secret};
use hob_sessions::session::{SessionWorkspace, WorkspaceFile};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, Take};

use super::objects;
use crate::error::ApiError;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::ApiPath;
use crate::routes::v1::agent_sessions::cursor::{Query, openai_page};
use crate::routes::v1::agent_sessions::respond::{Called, answer};
use crate::routes::v1::agent_sessions::sessions::{self, DescribedSession};
use crate::routes::v1::dialect::{Dialect, Problem};
use crate::routes::v1::schemas;
use crate::state::Gateway;

/// The most turns of a session whose files are found.
const MAX_TURNS: usize = 10_000;
/// The most artifacts of a session that can be deleted.
const MAX_DELETED: usize = 1000;
/// How many bytes of a file are read at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// How far the clock of a file system may be behind: it goes on with the ticks of the kernel.
const CLOCK_TICK_MILLISECONDS: i64 = 10;

/// The error for a session whose files are not its own.
const IN_CALLERS_FOLDER: &str = "artifacts: the session works in `workspace_directory`; Hob lists files of folders that it made for a session only";

/// Lists the files that the turns of a session have left in its own folder.
///
/// A file belongs to the turn in which it changed last, or after which it did, once that turn is over. Hidden files are not
/// listed. A session that works in a folder of the caller has no artifacts: others change files there, too.
#[utoipa::path(get, path = "/v1/agents/sessions/{id}/artifacts", tag = "v1", operation_id = "list_openai_artifacts",
    security(("token" = [])), params(("id" = String, Path, description = "The session."),
        ("limit" = Option<u32>, Query, description = "At most this many, from 1 to 1000."),
        ("after" = Option<String>, Query, description = "The last artifact of the page before."),
        ("order" = Option<String>, Query, description = "`desc` (the default) or `asc`."),
        ("environment_id" = Option<String>, Query, description = "Only artifacts of this environment.")), responses(
    (status = 200, description = "The artifacts.", body = schemas::ObjectPage),
    (status = 400, description = "Invalid query, or the session works in a folder of the caller.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such session of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
    query: Called<Query>,
) -> Response {
    let listed = async {
        let (Caller(app), ApiPath(id), query) = (caller?, id?, query?);
        let found = SessionArtifacts::of(&gateway, &app.name, &id).await?;
        let mut artifacts: Vec<Value> = found.all.iter().map(|one| one.shown.clone()).collect();
        if let Some(environment) = query.get("environment_id") {
            artifacts.retain(|artifact| artifact["environment_id"] == environment);
        }
        if query.is_descending("desc")? {
            artifacts.reverse();
        }
        Ok(openai_page(artifacts, &query)?)
    };
    answer(Dialect::OpenAi, listed.await)
}

/// Returns an artifact.
#[utoipa::path(get, path = "/v1/agents/sessions/{id}/artifacts/{artifact_id}", tag = "v1", operation_id = "get_openai_artifact",
    security(("token" = [])), params(("id" = String, Path, description = "The session."),
        ("artifact_id" = String, Path, description = "The artifact.")), responses(
    (status = 200, description = "The artifact.", body = schemas::ArtifactObject),
    (status = 400, description = "The session works in a folder of the caller.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such artifact of this app, or its file has changed.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    path: Called<ApiPath<(String, String)>>,
) -> Response {
    let found = async {
        let (Caller(app), ApiPath((id, artifact))) = (caller?, path?);
        let found = SessionArtifacts::of(&gateway, &app.name, &id).await?;
        Ok(found.artifact(&artifact)?.shown.clone())
    };
    answer(Dialect::OpenAi, found.await)
}

/// Returns the content of an artifact.
#[utoipa::path(get, path = "/v1/agents/sessions/{id}/artifacts/{artifact_id}/content", tag = "v1", operation_id = "get_openai_artifact_content",
    security(("token" = [])), params(("id" = String, Path, description = "The session."),
        ("artifact_id" = String, Path, description = "The artifact.")), responses(
    (status = 200, description = "The file.", content_type = "application/octet-stream", body = String),
    (status = 400, description = "The session works in a folder of the caller.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such artifact of this app, or its file has changed.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn content(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    path: Called<ApiPath<(String, String)>>,
) -> Response {
    let opened = async {
        let (Caller(app), ApiPath((id, artifact))) = (caller?, path?);
        let found = SessionArtifacts::of(&gateway, &app.name, &id).await?;
        let wanted = &found.artifact(&artifact)?.file;
        let opened = found.workspace.open(wanted).await.map_err(unreadable)?;
        let file = tokio::fs::File::from_std(opened.ok_or_else(missing)?);
        let headers = [
            (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
            (header::CONTENT_LENGTH, wanted.bytes.to_string()),
        ];
        let body = Body::from_stream(chunks(file.take(wanted.bytes)));
        Ok::<Response, Problem>((headers, body).into_response())
    };
    opened.await.unwrap_or_else(|problem| Dialect::OpenAi.respond(problem))
}

/// Deletes an artifact. Its file stays where it is.
#[utoipa::path(delete, path = "/v1/agents/sessions/{id}/artifacts/{artifact_id}", tag = "v1", operation_id = "delete_openai_artifact",
    security(("token" = [])), params(("id" = String, Path, description = "The session."),
        ("artifact_id" = String, Path, description = "The artifact.")), responses(
    (status = 200, description = "It is deleted.", body = schemas::DeletedObject),
    (status = 400, description = "Too many artifacts of the session are deleted, or it works in a folder of the caller.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such artifact of this app, or its file has changed.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn delete(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    path: Called<ApiPath<(String, String)>>,
) -> Response {
    let deleted = async {
        let (Caller(app), ApiPath((id, artifact))) = (caller?, path?);
        let found = SessionArtifacts::of(&gateway, &app.name, &id).await?;
        found.artifact(&artifact)?;
        sessions::change(&gateway, &app.name, &id, |description| {
            let deleted = &mut description.deleted_artifacts;
            if deleted.len() >= MAX_DELETED {
                return Err(ApiError::bad_request(format!(
                    "{MAX_DELETED} artifacts of the session are deleted, which is the limit"
                )));
            }
            if !deleted.contains(&artifact) {
                deleted.push(artifact.clone());
            }
            Ok(())
        })
        .await?;
        Ok(json!({"id": artifact, "object": "agent.session.artifact.deleted", "deleted": true}))
    };
    answer(Dialect::OpenAi, deleted.await)
}

/// The artifacts of a session, in the order in which their files changed.
struct SessionArtifacts {
    workspace: SessionWorkspace,
    all: Vec<Artifact>,
}

struct Artifact {
    id: String,
    file: WorkspaceFile,
    /// The artifact as the API shows it.
    shown: Value,
}

impl SessionArtifacts {
    async fn of(gateway: &Gateway, app: &AppName, id: &str) -> Result<SessionArtifacts, ApiError> {
        let described = sessions::find(gateway, app, id).await?;
        let session = &described.session.id;
        let workspace = gateway.sessions.workspace(app, session).await?;
        // Nobody can tell which files of a shared folder are the session's, and which of another app or of the owner.
        let workspace = workspace.ok_or_else(|| ApiError::bad_request(IN_CALLERS_FOLDER))?;
        let turns = gateway.sessions.turns_before(app, session, u32::MAX, MAX_TURNS).await?;
        let mut files = workspace.files().await.map_err(unreadable)?;
        files.sort_by_key(|file| file.changed_at);
        let folder = workspace.path();
        let artifacts = files.into_iter().filter_map(|file| {
            let turn = turn_of(&file, &turns)?;
            let id = artifact_id(&file);
            let shown = json!({"id": id, "object": "agent.session.artifact",
                "session_id": session.as_str(), "turn_id": objects::turn_id(session, turn),
                "environment_id": environment_id(&described), "size_bytes": file.bytes,
                "path": folder.join(&file.path).display().to_string(),
                "created_at": file.changed_at.as_second()});
            Some(Artifact { id, file, shown })
        });
        let deleted = &described.description.deleted_artifacts;
        let all = artifacts.filter(|artifact| !deleted.contains(&artifact.id)).collect();
        Ok(SessionArtifacts { workspace, all })
    }

    fn artifact(&self, id: &str) -> Result<&Artifact, ApiError> {
        self.all.iter().find(|artifact| artifact.id == id).ok_or_else(missing)
    }
}

/// Returns the turn that has left a file: the last one that began before the file changed, once that turn is over.
fn turn_of(file: &WorkspaceFile, turns: &[SessionTurn]) -> Option<u32> {
    let latest = file.changed_at.as_millisecond() + CLOCK_TICK_MILLISECONDS;
    let began = |turn: &&SessionTurn| {
        turn.started_at.is_some_and(|started_at| started_at.as_millisecond() <= latest)
    };
    let last = turns.iter().filter(began).max_by_key(|turn| turn.index)?;
    last.state.is_over().then_some(last.index)
}

/// Returns the id of this version of a file.
fn artifact_id(file: &WorkspaceFile) -> String {
    let version = json!([file.path, file.bytes, file.changed_at.to_string()]);
    let digest = secret::hex(&Sha256::digest(version.to_string()));
    format!("artifact_{}", digest.get(..32).unwrap_or(&digest))
}

fn environment_id(described: &DescribedSession) -> String {
    let description = &described.description;
    let shown = description.environment.as_ref().and_then(|shown| shown["id"].as_str());
    shown.or(description.environment_id.as_deref()).unwrap_or("env_hob").to_owned()
}

/// Streams a file.
fn chunks(
    file: Take<tokio::fs::File>,
) -> impl Stream<Item = std::io::Result<Bytes>> + Send + 'static {
    stream::unfold(Some(file), async |opened| {
        let mut file = opened?;
        let mut chunk = BytesMut::with_capacity(CHUNK_BYTES);
        match file.read_buf(&mut chunk).await {
            Ok(0) => None,
            Ok(_) => Some((Ok(chunk.freeze()), Some(file))),
            Err(error) => Some((Err(error), None)),
        }
    })
}

fn missing() -> ApiError {
    ApiError::NotFound("no such artifact, or its file has changed".to_owned())
}

fn unreadable(error: std::io::Error) -> ApiError {
    ApiError::Internal(format!("failed to read the folder of a session: {error}"))
}

#[cfg(test)]
mod tests {
    use hob_domain::Timestamp;
    use hob_domain::session::{TurnState, TurnUsage};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn turn(index: u32, state: TurnState, started_at: i64) -> SessionTurn {
        SessionTurn {
            index,
            state,
            prompt: String::new(),
            files: Vec::new(),
            text: String::new(),
            stop_reason: None,
            error: None,
            queued_at: at(0),
            started_at: Some(at(started_at)),
            ended_at: None,
            usage: TurnUsage::default(),
        }
    }

    fn file(changed_at: i64) -> WorkspaceFile {
        WorkspaceFile { path: "a.txt".to_owned(), bytes: 3, changed_at: at(changed_at) }
    }

    #[test]
    fn file_belongs_to_the_turn_that_is_over() {
        let turns = [
            turn(1, TurnState::Finished, 10),
            turn(2, TurnState::Failed, 20),
            turn(3, TurnState::Running, 30),
        ];
        for (changed_at, expect) in
            [(5, None), (10, Some(1)), (19, Some(1)), (25, Some(2)), (31, None)]
        {
            assert_eq!(turn_of(&file(changed_at), &turns), expect, "{changed_at}");
        }
    }

    #[test]
    fn changed_file_is_another_artifact() {
        assert_eq!(artifact_id(&file(1)), artifact_id(&file(1)));
        assert_ne!(artifact_id(&file(1)), artifact_id(&file(2)));
        assert_eq!(artifact_id(&file(1)).len(), "artifact_".len() + 32);
    }
}
