//! A turn, followed to its end.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hob_domain::session::{EventKind, SessionId, SessionTurn};
use hob_sessions::session::SessionError;
use serde_json::Value;

use super::connection::Connection;
use super::messages::AcpError;
use crate::acp_protocol::{self, INTERNAL_ERROR};
use crate::acp_questions::{self, OpenQuestions, Question};

/// Shows a turn's messages after an event to the client and puts the agent's questions to it, first those that are `open`
/// already. Returns the turn once it is over.
pub(super) async fn follow(
    connection: &Connection,
    id: &SessionId,
    turn: u32,
    after: u64,
    asked: OpenQuestions,
) -> Result<SessionTurn, AcpError> {
    let (sessions, app) = (&connection.gateway().sessions, connection.app());
    let mut follow = sessions.follow_turn(app, id, turn, after).await?;
    // Somebody else may answer a question, so that the turn goes on while the client is still asked.
    let mut questions = FuturesUnordered::new();
    let OpenQuestions { mut calls, open } = asked;
    questions.extend(open.into_iter().map(|question| ask_permission(connection, id, question)));
    loop {
        let next = tokio::select! {
            next = follow.next() => next,
            Some(()) = questions.next(), if !questions.is_empty() => continue,
        };
        let event = match next {
            Ok(Some(event)) if event.event.turn == Some(turn) => event,
            Ok(Some(_)) => continue,
            Ok(None) => break,
            Err(error) => {
                tracing::error!(%error, session = %id, "failed to follow a turn");
                return Err(AcpError::new(
                    INTERNAL_ERROR,
                    "cannot read the events of this turn; see Hob's log",
                ));
            }
        };
        match event.event.kind {
            EventKind::Message => {
                let message: Value = serde_json::from_str(&event.event.body).unwrap_or_default();
                calls.note(&message);
                show(connection, id, &message).await;
            }
            EventKind::Permission => {
                let asked: Value = serde_json::from_str(&event.event.body).unwrap_or_default();
                if asked["status"] == "asked" {
                    let question = Question::new(asked, &mut calls);
                    questions.push(ask_permission(connection, id, question));
                } else {
                    calls.forget(asked["request_id"].as_str().unwrap_or_default());
                }
            }
            EventKind::Turn => break,
            _ => {}
        }
    }
    Ok(sessions.turn(app, id, turn).await?)
}

/// Passes an update of the agent on, as one of Hob's session.
pub(super) async fn show(connection: &Connection, id: &SessionId, message: &Value) {
    if let Some(params) = acp_protocol::own_update(id.as_str(), message) {
        connection.notify(id.as_str(), "session/update", params).await;
    }
}

/// Asks the client, and passes its answer on. Without one, Hob rejects the request after a while.
async fn ask_permission(connection: &Connection, id: &SessionId, question: Question) {
    let (method, params) = question.request(id.as_str(), connection.shows_forms());
    let Some(answer) = connection.ask(id.as_str(), method, params).await else {
        // The client has gone. Another one, or the same one later, may answer.
        return;
    };
    // Another client may have answered it; the turn goes on.
    let sessions = &connection.gateway().sessions;
    let request = question.request_id();
    let mut chosen = acp_questions::chosen(&answer);
    let content = chosen.get_mut("content").map(Value::take);
    let option = chosen["option"].as_str().unwrap_or_default();
    let answered = sessions.answer(connection.app(), id, request, option, content, None).await;
    if let Err(SessionError::Invalid(error)) = answered {
        tracing::debug!(%error, session = %id, "a client's answer does not fit its question");
        let _ = sessions.answer(connection.app(), id, request, "reject_once", None, None).await;
    }
}
