//! The events of one request to a session, as both vendors' APIs receive them.

use std::sync::Arc;

use axum::extract::{FromRequest, Request};
use axum::http::HeaderMap;
use hob_domain::AppName;
use hob_domain::session::{IdempotencyKey, SessionId};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::repeats::{SentInterrupt, earlier_interrupt, earlier_turn};
use super::respond::Called;
use super::sessions::{self, DescribedSession};
use crate::error::ApiError;
use crate::extract::body::JsonBody;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::ApiPath;
use crate::idempotency::idempotency;
use crate::routes::v1::dialect::Problem;
use crate::state::Gateway;

/// The most events of one request.
const MAX_EVENTS: usize = 20;

/// Events that a caller sends to a session.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"events": [{"type": "user.message", "content": [{"type": "text", "text": "Say hello."}]}]}))]
pub(crate) struct SessionEventsBody {
    /// In Anthropic's API, their types begin with `user.`, in OpenAI's with `agent.session.input.`.
    #[schema(value_type = Vec<Object>, min_items = 1, max_items = 20)]
    events: Vec<Value>,
}

/// The events that a caller sends to a session, before they are read.
pub(super) struct Incoming {
    pub app: AppName,
    pub id: SessionId,
    pub events: Vec<Value>,
    pub key: Option<IdempotencyKey>,
    /// Whether an earlier request with the same key has sent its messages or its interrupt.
    pub is_repeat: bool,
    /// The interrupt of an earlier request with the same key.
    pub interrupt: Option<SentInterrupt>,
}

impl Incoming {
    /// Receives a request. Fails if the session has ended, unless the request repeats an earlier one.
    pub async fn receive(
        gateway: &Arc<Gateway>,
        headers: &HeaderMap,
        caller: Called<Caller>,
        id: Called<ApiPath<String>>,
        request: Request,
    ) -> Result<Incoming, Problem> {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        let DescribedSession { session, description } =
            sessions::find(gateway, &app.name, &id).await?;
        let JsonBody(body) = JsonBody::<SessionEventsBody>::from_request(request, gateway).await?;
        let key = idempotency(headers, &body.events)?;
        let (app, id) = (app.name, session.id);
        let interrupt = earlier_interrupt(&description.interrupts, key.as_ref())?;
        let turn = earlier_turn(gateway, &app, &id, key.as_ref()).await?;
        let is_repeat = turn.is_some() || interrupt.is_some();
        if session.closed_at.is_some() && !is_repeat {
            return Err(ApiError::Gone.into());
        }
        if body.events.is_empty() || body.events.len() > MAX_EVENTS {
            return Err(Problem::invalid(format!("events: must have 1 to {MAX_EVENTS} events")));
        }
        Ok(Incoming { app, id, events: body.events, key, is_repeat, interrupt })
    }
}
