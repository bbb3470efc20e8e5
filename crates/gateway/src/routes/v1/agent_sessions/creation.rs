//! The creation of sessions, which a caller may repeat under an idempotency key.

use std::sync::Arc;

use hob_domain::session::IdempotencyKey;
use hob_domain::{AppName, DocumentKind};
use serde::Deserialize;

use super::prompt::Prompt;
use super::repeats::{RequestKey, earlier_turn};
use super::respond::uninterrupted;
use super::sessions::{self, DescribedSession, Description, or_close};
use crate::error::ApiError;
use crate::state::Gateway;

/// Returns the session that an earlier request with this key created, if any.
pub(super) async fn earlier(
    gateway: &Gateway,
    app: &AppName,
    key: Option<&IdempotencyKey>,
) -> Result<Option<DescribedSession>, ApiError> {
    let Some(key) = key else { return Ok(None) };
    for entry in gateway.catalog.list(app, DocumentKind::Session).await? {
        let created_by = entry.body.get("created_by");
        let created_by = created_by.and_then(|request| RequestKey::deserialize(request).ok());
        if let Some(request) = created_by
            && request.is_repeated_by(key)?
        {
            return Ok(Some(sessions::find(gateway, app, &entry.id).await?));
        }
    }
    Ok(None)
}

/// Creates a session with a description. If another request with this key has created one meanwhile, returns that one.
pub(super) async fn create(
    gateway: &Arc<Gateway>,
    app: &AppName,
    mut description: Description,
    key: Option<&IdempotencyKey>,
) -> Result<DescribedSession, ApiError> {
    let Some(key) = key.cloned() else {
        return sessions::create(gateway, app, description).await;
    };
    description.created_by = Some(RequestKey::of(&key));
    let (task_gateway, app) = (gateway.clone(), app.clone());
    // A caller that goes away and comes back must find the session.
    uninterrupted(gateway, async move {
        let _creating = task_gateway.catalog.lock_creation(&app).await;
        match earlier(&task_gateway, &app, Some(&key)).await? {
            Some(described) => Ok(described),
            None => sessions::create(&task_gateway, &app, description).await,
        }
    })
    .await
}

/// Returns whether the first turn of a session that exists is missing, because the server stopped before it queued the
/// turn.
pub(super) async fn lacks_first_turn(
    gateway: &Gateway,
    app: &AppName,
    described: &DescribedSession,
    key: Option<&IdempotencyKey>,
) -> Result<bool, ApiError> {
    let key = key.map(first_turn_key);
    Ok(earlier_turn(gateway, app, &described.session.id, key.as_ref()).await?.is_none())
}

/// Queues the first turn of a session, if there is a message. If that fails, the session is closed, and its request can be
/// repeated.
pub(super) async fn submit_first(
    gateway: &Gateway,
    app: &AppName,
    described: &DescribedSession,
    messages: Vec<Prompt>,
    key: Option<&IdempotencyKey>,
) -> Result<(), ApiError> {
    if messages.is_empty() {
        return Ok(());
    }
    let id = &described.session.id;
    let (prompt, turn_key) = (Prompt::joined(messages), key.map(first_turn_key));
    let submitted = sessions::submit(gateway, app, id, prompt, turn_key).await;
    let Err(error) = or_close(gateway, app, id, submitted).await else { return Ok(()) };
    if key.is_some() {
        sessions::change(gateway, app, id.as_str(), |description| {
            description.created_by = None;
            Ok(())
        })
        .await?;
    }
    Err(error)
}

/// Returns the key of a session's first turn. It differs from the keys of later requests to the session.
fn first_turn_key(key: &IdempotencyKey) -> IdempotencyKey {
    IdempotencyKey { key: format!("create {}", key.key), digest: key.digest.clone() }
}
