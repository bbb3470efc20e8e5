//! What an agent says of its settings between turns.

use hob_domain::session::{EventKind, SessionId};
use hob_sessions::session::SessionError;
use serde_json::Value;

use super::connection::Connection;
use crate::acp_protocol;
use crate::extract::session_id::session_id;

/// Shows the client the commands of a session's agent, and from then on each change of its settings, until the connection
/// ends.
pub(super) fn begin(connection: &Connection, id: &str) {
    let Ok(id) = session_id(id) else { return };
    let watched = connection.watch(&id);
    let connection = connection.clone();
    connection.gateway().runtime.tasks.clone().spawn(async move {
        let stopping = connection.gateway().runtime.stopping.clone();
        let show = async {
            match &watched {
                Some(watched) => follow(&connection, &watched.id).await,
                // Another task shows the changes, but the client has opened the session again.
                None => show_commands(&connection, &id).await,
            }
        };
        let ended = tokio::select! {
            ended = show => ended,
            () = connection.ended().cancelled() => Ok(()),
            () = stopping.cancelled() => Ok(()),
        };
        if let Err(error) = ended {
            tracing::warn!(%error, session = %id, "failed to follow an agent's settings");
        }
    });
}

async fn follow(connection: &Connection, id: &SessionId) -> Result<(), SessionError> {
    let (sessions, app, name) = (&connection.gateway().sessions, connection.app(), id.as_str());
    let last_event = sessions.get(app, id).await?.last_event;
    show_commands(connection, id).await?;
    let mut follow = sessions.follow(app, id, last_event).await?;
    while let Some(event) = follow.next().await? {
        // The client sees what happens in a turn that it follows; other clients run turns, too.
        if event.event.turn.is_some_and(|turn| connection.follows(id, turn)) {
            continue;
        }
        let body: Value = serde_json::from_str(&event.event.body).unwrap_or_default();
        let params = match event.event.kind {
            EventKind::Message if acp_protocol::is_settings_update(&body) => {
                acp_protocol::own_update(name, &body)
            }
            EventKind::Setting => acp_protocol::setting_update(name, &body),
            _ => None,
        };
        if let Some(params) = params {
            connection.notify(name, "session/update", params).await;
        }
    }
    Ok(())
}

async fn show_commands(connection: &Connection, id: &SessionId) -> Result<(), SessionError> {
    let settings = connection.gateway().sessions.settings(connection.app(), id).await?;
    if let Some(params) = acp_protocol::commands_update(id.as_str(), &settings) {
        connection.notify(id.as_str(), "session/update", params).await;
    }
    Ok(())
}
