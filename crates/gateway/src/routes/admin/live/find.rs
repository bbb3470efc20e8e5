//! Resolves an id of `/admin/live`.

use std::sync::Arc;

use hob_domain::AppName;
use hob_domain::session::SessionId;
use hob_terminal::Terminal;

use crate::error::ApiError;
use crate::extract::session_id::session_id;
use crate::state::Gateway;

/// What an id of `/admin/live` refers to.
pub(super) enum LiveTarget {
    Terminal(Arc<Terminal>),
    /// A session without a terminal; viewers see its events.
    Session(AppName, SessionId),
}

/// Finds the terminal or session with this id.
pub(super) async fn find(gateway: &Gateway, id: &str) -> Result<LiveTarget, ApiError> {
    if let Some(terminal) = gateway.runtime.terminals.get(id) {
        return Ok(LiveTarget::Terminal(terminal));
    }
    if gateway.completions.live_processes().iter().any(|process| process.session_id == id) {
        return Err(ApiError::NotFound("this process has no terminal".to_owned()));
    }
    let none = || ApiError::NotFound("no live session or process has this ID".to_owned());
    let id = session_id(id).map_err(|_| none())?;
    let app = gateway.sessions.app_of(&id).await.map_err(|_| none())?;
    let session = gateway.sessions.get(&app, &id).await?;
    if session.closed_at.is_some() { Err(none()) } else { Ok(LiveTarget::Session(app, id)) }
}
