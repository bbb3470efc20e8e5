//! The methods that a client calls.

use hob_domain::session::{EventKind, EventRange, Permissions, Session, SessionId};
use hob_sessions::session::{ChangedSettings, NewSession, TurnSubmission};
use serde_json::{Value, json};

use super::connection::Connection;
use super::messages::AcpError;
use super::turn;
use crate::acp_protocol::{self, INTERNAL_ERROR, METHOD_NOT_FOUND, NOT_FOUND};
use crate::acp_questions::OpenQuestions;
use crate::error::ApiError;
use crate::extract::session_id::session_id;

/// How many sessions a list has at most.
const MAX_LISTED: usize = 500;
/// How many events of a session's past are read at a time.
const PAGE_EVENTS: usize = 1000;

/// Answers a request.
pub(super) async fn call(
    connection: &Connection,
    method: &str,
    params: &Value,
) -> Result<Value, AcpError> {
    match method {
        "initialize" => {
            connection.introduce(params);
            Ok(acp_protocol::initialize())
        }
        "authenticate" => Ok(json!({})),
        "session/new" => new_session(connection, params).await,
        "session/load" => load(connection, params).await,
        "session/resume" => {
            let session = session(connection, params).await?;
            follow_running(connection, &session).await?;
            Ok(with_settings(connection, &session.id, json!({})).await)
        }
        "session/set_mode" | "session/set_config_option" => configure(connection, params).await,
        "session/list" => list(connection, params).await,
        "session/prompt" => prompt(connection, params).await,
        // An idle session costs nothing, so closing it only ends its turn. The client can load it again.
        "session/cancel" | "session/close" => {
            let id = session(connection, params).await?.id;
            connection.gateway().sessions.cancel(connection.app(), &id).await?;
            Ok(json!({}))
        }
        "session/delete" => {
            let id = session(connection, params).await?.id;
            connection.gateway().sessions.close(connection.app(), &id).await?;
            Ok(json!({}))
        }
        _ => Err(AcpError::new(METHOD_NOT_FOUND, format!("unknown method {method:?}"))),
    }
}

/// Creates a session. A client on another machine does not know the folders of this one: if its folder does not lie in
/// `sessions.roots`, the session works in its own folder.
async fn new_session(connection: &Connection, params: &Value) -> Result<Value, AcpError> {
    let cwd = params["cwd"].as_str().ok_or_else(|| AcpError::invalid("cwd: must be a string"))?;
    let request = |cwd: Option<String>| NewSession {
        agent: connection.agent().clone(),
        meta: json!({"from": "/acp"}),
        cwd,
        model: None,
        system: None,
        permissions: Permissions::Ask,
        mcp_servers: acp_protocol::session_servers(params),
        client_tools: Vec::new(),
    };
    let (sessions, app) = (&connection.gateway().sessions, connection.app());
    let created = sessions.create(app, request(Some(cwd.to_owned()))).await.map_err(ApiError::from);
    let session = match created {
        Err(ApiError::BadRequest { code: "bad_folder", .. }) => {
            sessions.create(app, request(None)).await?
        }
        created => created?,
    };
    let answer = json!({"sessionId": session.id.as_str(), "_meta": {"cwd": session.setup.cwd}});
    Ok(with_settings(connection, &session.id, answer).await)
}

/// Adds what the agent offers to an answer that opens a session. A session whose agent cannot be asked opens all the same: a
/// node of an earlier version may hold it.
async fn with_settings(connection: &Connection, id: &SessionId, answer: Value) -> Value {
    let settings = connection.gateway().sessions.settings(connection.app(), id).await;
    let settings = settings.unwrap_or_else(|error| {
        tracing::warn!(%error, session = %id, "failed to read an agent's settings");
        Value::Null
    });
    acp_protocol::with_settings(answer, &settings)
}

/// Changes the mode of a session's agent, or one of its options.
async fn configure(connection: &Connection, params: &Value) -> Result<Value, AcpError> {
    let id = session(connection, params).await?.id;
    let change = acp_protocol::setting_change(params).map_err(AcpError::invalid)?;
    let sessions = &connection.gateway().sessions;
    match sessions.configure(connection.app(), &id, change.clone()).await? {
        ChangedSettings::Changed(settings) => Ok(acp_protocol::changed(&change, &settings)),
        ChangedSettings::Refused(refusal) => Err(AcpError::new(refusal.code, refusal.message)),
    }
}

/// Returns the session that the parameters name.
async fn session(connection: &Connection, params: &Value) -> Result<Session, AcpError> {
    let id = params["sessionId"].as_str();
    let id = id.ok_or_else(|| AcpError::invalid("sessionId: must be a string"))?;
    let missing = || AcpError::new(NOT_FOUND, format!("no session has the ID {id:?}"));
    let id = session_id(id).map_err(|_| missing())?;
    match connection.gateway().sessions.get(connection.app(), &id).await.map_err(ApiError::from) {
        Err(ApiError::NotFound(_)) => Err(missing()),
        found => Ok(found?),
    }
}

/// Shows the past of a session to the client, and follows the turn that runs.
async fn load(connection: &Connection, params: &Value) -> Result<Value, AcpError> {
    let session = session(connection, params).await?;
    let (sessions, app, id) = (&connection.gateway().sessions, connection.app(), &session.id);
    let (mut after, mut last_turn) = (0, 0);
    loop {
        let range = EventRange::After { after, limit: PAGE_EVENTS };
        let events = sessions.events(app, id, range).await?;
        for event in &events {
            // The events after the session was read belong to the turn that is followed.
            if event.seq > session.last_event {
                break;
            }
            let turn = event.event.turn.unwrap_or_default();
            if turn > last_turn {
                last_turn = turn;
                show_prompt(connection, id, turn).await?;
            }
            if event.event.kind == EventKind::Message {
                let message = serde_json::from_str(&event.event.body).unwrap_or_default();
                turn::show(connection, id, &message).await;
            }
        }
        after = events.last().map_or(after, |event| event.seq);
        if events.is_empty() || after >= session.last_event {
            break;
        }
    }
    follow_running(connection, &session).await?;
    Ok(with_settings(connection, id, json!({})).await)
}

async fn show_prompt(connection: &Connection, id: &SessionId, turn: u32) -> Result<(), AcpError> {
    let turn = connection.gateway().sessions.turn(connection.app(), id, turn).await?;
    let content = json!({"type": "text", "text": turn.prompt});
    let update = json!({"sessionUpdate": "user_message_chunk", "content": content});
    let params = json!({"sessionId": id.as_str(), "update": update});
    connection.notify(id.as_str(), "session/update", params).await;
    Ok(())
}

/// Follows the turn that runs, for a client that was not there when it began.
async fn follow_running(connection: &Connection, session: &Session) -> Result<(), AcpError> {
    if !session.busy {
        return Ok(());
    }
    let sessions = &connection.gateway().sessions;
    let turns = sessions.turns_before(connection.app(), &session.id, u32::MAX, MAX_LISTED).await?;
    let Some(turn) = turns.iter().find(|turn| !turn.state.is_over()) else { return Ok(()) };
    let Some(followed) = connection.follow(&session.id, turn.index) else { return Ok(()) };
    let (connection, id) = (connection.clone(), session.id.clone());
    let (turn, after) = (turn.index, session.last_event);
    let asked = open_questions(&connection, session, turn).await?;
    connection.gateway().runtime.tasks.clone().spawn(async move {
        let _followed = followed;
        tokio::select! {
            followed = turn::follow(&connection, &id, turn, after, asked) => drop(followed),
            () = connection.ended().cancelled() => {}
        }
    });
    Ok(())
}

/// Returns the questions of a turn so far.
async fn open_questions(
    connection: &Connection,
    session: &Session,
    turn: u32,
) -> Result<OpenQuestions, AcpError> {
    let range = EventRange::Before { before: session.last_event + 1, limit: PAGE_EVENTS };
    let events = connection.gateway().sessions.events(connection.app(), &session.id, range).await?;
    let mut questions = OpenQuestions::default();
    for stored in events.iter().filter(|stored| stored.event.turn == Some(turn)) {
        let body = || serde_json::from_str::<Value>(&stored.event.body).unwrap_or_default();
        match stored.event.kind {
            EventKind::Message => questions.calls.note(&body()),
            EventKind::Permission => questions.permission(body()),
            _ => {}
        }
    }
    Ok(questions)
}

async fn list(connection: &Connection, params: &Value) -> Result<Value, AcpError> {
    let sessions = &connection.gateway().sessions;
    let wanted = params["cwd"].as_str();
    let is_open = |session: &Session| {
        session.closed_at.is_none() && wanted.is_none_or(|cwd| session.setup.cwd == cwd)
    };
    let open = sessions.list(connection.app(), is_open).await?;
    let mut listed = Vec::new();
    for session in open.into_iter().rev().take(MAX_LISTED) {
        let first = sessions.turn(connection.app(), &session.id, 1).await;
        let title = first.ok().and_then(|turn| acp_protocol::title(&turn.prompt));
        let updated = session.last_turn_at.unwrap_or(session.created_at);
        listed.push(json!({"sessionId": session.id.as_str(), "cwd": session.setup.cwd,
            "updatedAt": updated.to_string(), "title": title}));
    }
    Ok(json!({"sessions": listed}))
}

async fn prompt(connection: &Connection, params: &Value) -> Result<Value, AcpError> {
    let id = session(connection, params).await?.id;
    let prompt = acp_protocol::prompt_text(&params["prompt"]).map_err(AcpError::invalid)?;
    let ask = TurnSubmission { prompt, files: Vec::new(), idempotency: None };
    let turn = connection.gateway().submit(connection.app(), &id, ask, None).await?;
    let _followed = connection.follow(&id, turn);
    let ended = turn::follow(connection, &id, turn, 0, OpenQuestions::default()).await?;
    match ended.error {
        Some(error) => Err(AcpError::new(INTERNAL_ERROR, error)),
        None => {
            let reason = ended.stop_reason.unwrap_or_else(|| "end_turn".to_owned());
            Ok(json!({"stopReason": reason}))
        }
    }
}
