//! `POST /files`: a file for a later run or turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// How long an upload may be silent, and how long it may be slow.
const SILENCE: Duration = Duration::from_secs(30);
/// A slower upload is refused: it would hold its connection for as long as its client likes.
const MIN_BYTES_PER_SECOND: u64 = 1 << 10;

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
    let mut pace = Pace::default();
    loop {
        let asked = Instant::now();
        let chunk = within(field.chunk()).await?;
        let chunk = chunk.map_err(|error| UploadError::Broken(error.body_text()))?;
        let Some(bytes) = chunk else { return Ok(upload) };
        if pace.is_too_slow(bytes.len() as u64, asked.elapsed()) {
            return Err(ApiError::SlowBody);
        }
        upload.write(&bytes).await?;
    }
}

/// How fast a client sends. The time in which Hob writes does not count.
#[derive(Default)]
struct Pace {
    waited: Duration,
    received: u64,
}

impl Pace {
    /// Counts what has arrived after a wait. Returns whether the client has been slow for [`SILENCE`].
    fn is_too_slow(&mut self, received: u64, waited: Duration) -> bool {
        self.waited += waited;
        self.received += received;
        if self.waited < SILENCE {
            return false;
        }
        let is_slow = self.received < MIN_BYTES_PER_SECOND * self.waited.as_secs();
        *self = Pace::default();
        is_slow
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upload_that_stays_slow_is_refused() {
        let seconds = Duration::from_secs;
        let mut pace = Pace::default();
        assert!(!pace.is_too_slow(1, seconds(20)), "it may begin slowly");
        assert!(!pace.is_too_slow(60 << 20, seconds(600)));
        let slow = (0..6).any(|_| pace.is_too_slow(1, seconds(5)));
        assert!(slow, "what came before does not help");
    }
}
