//! `POST /files`: a file for a later run or turn.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::multipart::{Field, Multipart, MultipartRejection};
use axum::extract::{FromRequest, Request, State};
use axum::response::Json;
use bytes::Bytes;
use futures_util::StreamExt;
use hob_domain::AppName;
use hob_sessions::{Upload, UploadError};
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::{ApiError, ErrorBody};
use crate::extract::caller::Caller;
use crate::state::Gateway;

/// How long an upload may be silent.
const SILENCE: Duration = Duration::from_secs(30);

/// Maximum size of a form around its file, in bytes.
const AROUND: u64 = 1 << 20;
/// How much of an oversized form is read and discarded, in bytes.
const DISCARDED: usize = 64 << 20;

/// A form with one file.
#[derive(ToSchema)]
#[allow(dead_code, reason = "only described; the form is read field by field")]
pub(crate) struct UploadForm {
    /// The file, with its name.
    #[schema(value_type = String, format = Binary, content_media_type = "application/octet-stream")]
    file: Vec<u8>,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true, "file_id": "5f0c…", "path": "…/files/my-app/5f0c…/notes.txt"}))]
pub(crate) struct Uploaded {
    ok: bool,
    /// The id for `files` of a run or turn.
    file_id: String,
    /// The path for the agent.
    path: String,
}

/// Stores a file for this app's agents.
///
/// The form part with a file name is the file; a form with two of them is refused. Hob makes the name safe.
#[utoipa::path(post, path = "/files", tag = "runs", security(("token" = [])),
    request_body(content = UploadForm, content_type = "multipart/form-data"), responses(
    (status = 200, description = "Stored.", body = Uploaded),
    (status = 400, description = "The body is not a multipart form with a file.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 408, description = "The file did not arrive in time.", body = ErrorBody),
    (status = 413, description = "The file is too large.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
    (status = 507, description = "The app's files take all the room they may take, or the disk is full.", body = ErrorBody),
))]
pub(crate) async fn upload(
    State(gateway): State<Arc<Gateway>>,
    Caller(app): Caller,
    request: Request,
) -> Result<Json<Uploaded>, ApiError> {
    let most = gateway.files.limit().saturating_add(AROUND);
    let form = Multipart::from_request(request.map(|body| bounded(body, most)), &gateway).await;
    let mut form = form.map_err(|error: MultipartRejection| {
        ApiError::bad_request(format!("the body must be a multipart form: {error}"))
    })?;
    let broken = |error: String| ApiError::bad_request(format!("invalid form: {error}"));
    let received = loop {
        let field = within(form.next_field()).await?;
        let Some(field) = field.map_err(|error| broken(error.body_text()))? else {
            return Err(ApiError::bad_request("file: the form contains no file"));
        };
        if let Some(name) = field.file_name().map(str::to_owned) {
            break receive(&gateway, &app.name, &name, field).await;
        }
    };
    // Read the rest also after an error, so that the client receives the response.
    let mut has_another = false;
    let rest = loop {
        match within(form.next_field()).await {
            Ok(Ok(Some(field))) => has_another |= field.file_name().is_some(),
            Ok(Ok(None)) => break Ok(()),
            Ok(Err(error)) => break Err(broken(error.body_text())),
            Err(error) => break Err(error),
        }
    };
    let received = received?;
    rest?;
    if has_another {
        let text = "file: the form contains more than one file; send each in a request of its own";
        return Err(ApiError::bad_request(text));
    }
    let stored = received.finish().await?;
    gateway.files.share(&app.name, &stored).await?;
    tracing::info!(app = %app.name, file = stored.id, "a file was stored");
    let path = stored.path.display().to_string();
    Ok(Json(Uploaded { ok: true, file_id: stored.id, path }))
}

/// Receives a file. It is stored once the upload is finished.
async fn receive(
    gateway: &Gateway,
    app: &AppName,
    name: &str,
    mut field: Field<'_>,
) -> Result<Upload, ApiError> {
    let mut upload = gateway.files.begin(app, name).await?;
    loop {
        let chunk = within(field.chunk()).await?;
        match chunk.map_err(|error| UploadError::Broken(error.body_text()))? {
            Some(bytes) => upload.write(&bytes).await?,
            None => return Ok(upload),
        }
    }
}

/// Returns the form's bytes. Data before the first part, and data beyond the maximum length of a file and
/// its form, is read and discarded: a parser would keep it in memory, and a client that writes before it
/// reads must still receive the response.
fn bounded(body: Body, most: u64) -> Body {
    let (mut begun, mut passed, mut thrown) = (None, 0, 0);
    let frames = body.into_data_stream().map(move |chunk| {
        let chunk = chunk.map_err(|error| error.to_string())?;
        let begins = || chunk.trim_ascii_start().starts_with(b"--");
        if !chunk.is_empty() && *begun.get_or_insert_with(begins) && passed < most {
            passed += chunk.len() as u64;
            return Ok(chunk);
        }
        thrown += chunk.len();
        match thrown > DISCARDED {
            true => Err("the form is too long".to_owned()),
            false => Ok(Bytes::new()),
        }
    });
    Body::from_stream(frames)
}

async fn within<T>(wait: impl Future<Output = T>) -> Result<T, ApiError> {
    tokio::time::timeout(SILENCE, wait).await.map_err(|_| ApiError::SlowBody)
}
