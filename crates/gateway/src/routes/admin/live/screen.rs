//! `GET /admin/live/{id}/screen`: the current screen.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Json, Response};
use hob_terminal::{ScreenModel, Size};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::events;
use super::find::{LiveTarget, find};
use crate::error::{ApiError, ErrorBody};
use crate::extract::caller::Admin;
use crate::extract::path_and_query::{ApiPath, ApiQuery};
use crate::state::Gateway;

/// The screen size for sessions without a terminal.
pub(super) const PAGE: Size = Size { rows: 40, cols: 120 };

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    format: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    Ansi,
    Svg,
    Json,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct ScreenView {
    /// Always `true`.
    ok: bool,
    id: String,
    cols: u16,
    rows: u16,
    cursor: CursorView,
    text: String,
    /// Escape sequences that draw the screen on a terminal of this size.
    ansi: String,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct CursorView {
    row: u16,
    col: u16,
    visible: bool,
}

/// Returns the screen of a live terminal as text, ANSI, SVG or JSON.
///
/// For a session without a terminal it shows the last events.
#[utoipa::path(get, path = "/admin/live/{id}/screen", tag = "admin", operation_id = "get_screen", security(("token" = [])),
    params(("id" = String, Path, description = "Id of a live session or process."),
        ("format" = Option<String>, Query, description = "`text` (default), `ansi`, `svg` or `json`. The `Accept` header works too.")),
    responses(
    (status = 200, description = "The screen.",
        content((String = "text/plain"), (String = "image/svg+xml"), (ScreenView = "application/json"))),
    (status = 400, description = "Unknown format.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 404, description = "No live session or process has this id.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn screen(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    ApiPath(id): ApiPath<String>,
    ApiQuery(wanted): ApiQuery<Wanted>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let format = match wanted.format.as_deref() {
        Some("text") => Format::Text,
        Some("ansi") => Format::Ansi,
        Some("svg") => Format::Svg,
        Some("json") => Format::Json,
        Some(_) => {
            return Err(ApiError::bad_request("format: must be text, ansi, svg or json"));
        }
        None => accepted(&headers),
    };
    match find(&gateway, &id).await? {
        LiveTarget::Terminal(terminal) => {
            Ok(terminal.with_screen(|model| show(&id, model, format)))
        }
        LiveTarget::Session(app, session) => {
            let mut model = ScreenModel::new(PAGE);
            let (page, _) = events::page(&gateway, &app, &session).await?;
            model.feed(page.as_bytes());
            Ok(show(&id, &model, format))
        }
    }
}

fn show(id: &str, model: &ScreenModel, format: Format) -> Response {
    let of_kind = |kind: &'static str, body: String| {
        ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], body).into_response()
    };
    match format {
        Format::Text => of_kind("text/plain; charset=utf-8", text(model) + "\n"),
        Format::Ansi => of_kind("text/plain; charset=utf-8", ansi(model)),
        Format::Svg => {
            let mut response = of_kind("image/svg+xml", model.svg());
            // Keep the SVG inert when it is opened directly.
            let policy =
                HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; sandbox");
            response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
            response
        }
        Format::Json => {
            let (size, cursor) = (model.size(), model.cursor());
            Json(ScreenView {
                ok: true,
                id: id.to_owned(),
                cols: size.cols,
                rows: size.rows,
                cursor: CursorView { row: cursor.row, col: cursor.col, visible: cursor.visible },
                text: text(model),
                ansi: ansi(model),
            })
            .into_response()
        }
    }
}

/// Returns the screen's lines without trailing blanks.
fn text(model: &ScreenModel) -> String {
    let text = model.text();
    let lines: Vec<&str> = text.lines().map(|line| line.trim_end_matches(' ')).collect();
    lines.join("\n").trim_end_matches('\n').to_owned()
}

pub(super) fn ansi(model: &ScreenModel) -> String {
    String::from_utf8_lossy(&model.redraw(0)).into_owned()
}

fn accepted(headers: &HeaderMap) -> Format {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let kinds = values.flat_map(|value| value.split(','));
    let mut named =
        kinds.filter_map(|kind| match kind.split(';').next().unwrap_or_default().trim() {
            "text/plain" => Some(Format::Text),
            "image/svg+xml" => Some(Format::Svg),
            "application/json" => Some(Format::Json),
            _ => None,
        });
    named.next().unwrap_or(Format::Text)
}
