//! Lists of sessions, which are read and sent page by page: together the sessions may be larger than the memory.

use std::io;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hob_domain::session::{Session, SessionId, SessionPage};
use hob_domain::{AppName, Timestamp};
use hob_sessions::session::{MAX_LISTED_AT_ONCE, SessionError};
use serde::Deserialize;
use serde_json::json;

use super::shapes::SessionView;
use crate::error::ApiError;
use crate::extract::session_id::session_id;
use crate::state::Gateway;

/// The part of a list that a request asks for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    after: Option<String>,
    limit: Option<usize>,
}

/// Answers with a list of the sessions of an app, or of all apps. Errors of the first page become the answer; a later one
/// breaks the connection, so that no client takes a part for the whole.
pub(crate) async fn send_list(
    gateway: Arc<Gateway>,
    app: Option<AppName>,
    query: &ListQuery,
) -> Result<Response, ApiError> {
    if query.limit == Some(0) {
        return Err(ApiError::bad_request("limit: must be at least 1"));
    }
    let after = match &query.after {
        None => None,
        Some(id) => Some(place(&gateway, app.as_ref(), id).await?),
    };
    let mut list = ListWriter { gateway, app, after, left: query.limit, count: 0 };
    let first = list.page().await?;
    let parts = futures_util::stream::unfold(Some((list, first)), async |state| {
        let (mut list, page) = state?;
        match list.write(page).await {
            Ok((bytes, Some(next))) => Some((Ok(bytes), Some((list, next)))),
            Ok((bytes, None)) => Some((Ok(bytes), None)),
            Err(error) => {
                tracing::error!(%error, "failed to read a list of sessions");
                Some((Err(io::Error::other(error)), None))
            }
        }
    });
    Ok(([(header::CONTENT_TYPE, "application/json")], Body::from_stream(parts)).into_response())
}

/// Returns the place of the session that a page begins after.
async fn place(
    gateway: &Gateway,
    app: Option<&AppName>,
    id: &str,
) -> Result<(Timestamp, SessionId), ApiError> {
    let unknown = || ApiError::bad_request("after: no session has this ID");
    let id = session_id(id).map_err(|_| unknown())?;
    match gateway.sessions.place_in_lists(app, &id).await {
        Err(SessionError::NotFound) => Err(unknown()),
        found => Ok(found?),
    }
}

/// Writes a list as JSON, one page of sessions at a time.
struct ListWriter {
    gateway: Arc<Gateway>,
    app: Option<AppName>,
    /// The last session that was read.
    after: Option<(Timestamp, SessionId)>,
    /// How many sessions may follow; `None` without a limit.
    left: Option<usize>,
    /// How many sessions were written.
    count: usize,
}

impl ListWriter {
    /// Reads the next page.
    async fn page(&mut self) -> Result<Vec<Session>, SessionError> {
        let limit = self.left.unwrap_or(MAX_LISTED_AT_ONCE).min(MAX_LISTED_AT_ONCE);
        if limit == 0 {
            return Ok(Vec::new());
        }
        let page = SessionPage { app: self.app.clone(), after: self.after.clone(), limit };
        let found = self.gateway.sessions.page(page).await?;
        if let Some(last) = found.last() {
            self.after = Some((last.created_at, last.id.clone()));
        }
        self.left = self.left.map(|left| left.saturating_sub(found.len()));
        Ok(found)
    }

    /// Writes a page. Returns it with the page after it, or with the end of the list after an empty page.
    async fn write(
        &mut self,
        page: Vec<Session>,
    ) -> Result<(Bytes, Option<Vec<Session>>), SessionError> {
        let mut text =
            if self.count == 0 { r#"{"ok":true,"sessions":["#.to_owned() } else { String::new() };
        if page.is_empty() {
            text.push_str(&format!(r#"],"count":{}"#, self.count));
            if let Some(next) = self.next().await? {
                text.push_str(&format!(r#","next":{}"#, json!(next.as_str())));
            }
            text.push('}');
            return Ok((text.into(), None));
        }
        for session in page {
            if self.count > 0 {
                text.push(',');
            }
            self.count += 1;
            text.push_str(&json!(SessionView::new(&self.gateway, session)).to_string());
        }
        Ok((text.into(), Some(self.page().await?)))
    }

    /// Returns the last session of this list if the limit ended it.
    async fn next(&self) -> Result<Option<&SessionId>, SessionError> {
        let Some((at, id)) = self.after.as_ref().filter(|_| self.left == Some(0)) else {
            return Ok(None);
        };
        let page = SessionPage { app: self.app.clone(), after: Some((*at, id.clone())), limit: 1 };
        let more = self.gateway.sessions.page(page).await?;
        Ok((!more.is_empty()).then_some(id))
    }
}
