//! `/v1/sessions/{id}/events`: what happens in a session.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::{StreamExt, stream};
use hob_domain::session::TurnState;

use super::render::{Deltas, EventRenderer, user_message};
use crate::extract::caller::Caller;
use crate::extract::path_and_query::ApiPath;
use crate::routes::v1::agent_sessions::cursor::{Query, anthropic_page};
use crate::routes::v1::agent_sessions::feed::{FeedStart, StepFeed, all_steps};
use crate::routes::v1::agent_sessions::respond::{self, Called, answer};
use crate::routes::v1::agent_sessions::sessions;
use crate::routes::v1::dialect::{Dialect, Problem};
use crate::routes::v1::schemas;
use crate::state::Gateway;

/// The most turns that can wait at a time.
const RECENT_TURNS: usize = 200;

/// Lists the events of a session.
#[utoipa::path(get, path = "/v1/sessions/{id}/events", tag = "v1", operation_id = "list_session_events",
    security(("token" = [])), params(("id" = String, Path, description = "The session."),
        ("limit" = Option<u32>, Query, description = "At most this many, from 1 to 1000."),
        ("page" = Option<String>, Query, description = "`next_page` of the page before."),
        ("order" = Option<String>, Query, description = "`asc` (the default) or `desc`."),
        ("types" = Option<Vec<String>>, Query, description = "Only events of these types."),
        ("created_at[gte]" = Option<String>, Query, description = "Only events from this time on; also `gt`, `lt`, `lte`.")), responses(
    (status = 200, description = "The events.", body = schemas::ObjectPage),
    (status = 400, description = "Invalid query; the error names the parameter.", body = schemas::VendorError),
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
        let session = sessions::find(&gateway, &app.name, &id).await?.session;
        let (app, id) = (app.name, session.id);
        let deltas = Deltas::default();
        let mut renderer = EventRenderer::new(gateway.clone(), app.clone(), id.clone(), deltas);
        let mut events = Vec::new();
        for step in all_steps(&gateway, &app, &id).await? {
            events.extend(renderer.render(&step).await);
        }
        let turns = gateway.sessions.turns_before(&app, &id, u32::MAX, RECENT_TURNS).await;
        for turn in turns? {
            if turn.state == TurnState::Queued {
                events.push(user_message(&id, turn.index, &turn.prompt, &turn.files, None));
            }
        }
        let types = query.all("types");
        if !types.is_empty() {
            events.retain(|event| event["type"].as_str().is_some_and(|kind| types.contains(&kind)));
        }
        let created = query.times("created_at")?;
        events.retain(|event| created.contains_rendered(&event["processed_at"]));
        if query.is_descending("asc")? {
            events.reverse();
        }
        Ok(anthropic_page(events, &query)?)
    };
    answer(Dialect::Anthropic, listed.await)
}

/// Streams the events of a session from now on.
///
/// A client that resumes a stream sends the id of the last event that it has received in `Last-Event-ID`, and gets all
/// events after it. Events have the same ids in the list and in every stream.
#[utoipa::path(get, path = "/v1/sessions/{id}/events/stream", tag = "v1", operation_id = "stream_session_events",
    security(("token" = [])), params(("id" = String, Path, description = "The session."),
        ("Last-Event-ID" = Option<String>, Header, description = "Begin after this event."),
        ("event_deltas" = Option<Vec<String>>, Query,
            description = "`agent.message`, `agent.thinking`: also send these texts while they are written.")), responses(
    (status = 200, description = "The events, as they happen.", content((String = "text/event-stream"))),
    (status = 400, description = "The session has no event with the id in Last-Event-ID.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such session of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn follow(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
    query: Called<Query>,
) -> Response {
    let opened = async {
        let (Caller(app), ApiPath(id), query) = (caller?, id?, query?);
        let session = sessions::find(&gateway, &app.name, &id).await?.session;
        let last_id = respond::last_event_id(&headers)?;
        let start = if last_id.is_some() { FeedStart::Session } else { FeedStart::RunningTurn };
        let (feed, before) = StepFeed::open(gateway.clone(), &app.name, &session, start).await?;
        let wanted = query.all("event_deltas");
        let deltas = Deltas {
            answer: wanted.contains(&"agent.message"),
            thinking: wanted.contains(&"agent.thinking"),
        };
        let mut renderer = EventRenderer::new(gateway.clone(), app.name, session.id, deltas);
        let mut missed = Vec::new();
        for step in &before {
            missed.extend(renderer.render(step).await);
        }
        let missed = match last_id {
            Some(id) => respond::events_after(missed, "id", id)?,
            None => Vec::new(),
        };
        Ok::<_, Problem>((feed, renderer, missed))
    };
    match opened.await {
        Ok((feed, renderer, missed)) => {
            let steps = stream::unfold((feed, renderer), |(mut feed, mut renderer)| async {
                let step = feed.next().await?;
                let events = renderer.render(&step).await;
                Some((stream::iter(events), (feed, renderer)))
            });
            respond::stream(stream::iter(missed).chain(steps.flatten()), "id")
        }
        Err(problem) => Dialect::Anthropic.respond(problem),
    }
}
