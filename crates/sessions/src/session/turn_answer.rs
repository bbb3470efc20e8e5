//! The messages of one turn, as its answer contains them.

use hob_domain::AppName;
use hob_domain::session::{EventKind, EventRange, SessionId, SessionStore, SessionTurn, TurnState};
use serde_json::Value;

use super::error::SessionError;
use super::events::cancelled_result;
use hob_agents::app_permits::AppPermit;

/// The most bytes of messages that the answer of a turn contains.
const MAX_ANSWER_BYTES: usize = 8 << 20;
/// Answers with more bytes keep their permit until they are sent.
const LONG_ANSWER_BYTES: usize = 64 << 10;
/// How many events are read at a time.
const PAGE_EVENTS: usize = 500;

/// The messages of a turn.
pub struct TurnMessages {
    pub messages: Vec<String>,
    /// Whether the turn has more messages than these. They are in the session's events.
    pub is_cut: bool,
    /// Must live until a long answer is sent.
    pub permit: Option<AppPermit>,
}

impl TurnMessages {
    pub(super) async fn read(
        store: &dyn SessionStore,
        app: &AppName,
        id: &SessionId,
        turn: &SessionTurn,
        permit: AppPermit,
    ) -> Result<TurnMessages, SessionError> {
        let (mut messages, mut bytes, mut is_cut) = (Vec::new(), 0, false);
        let mut range = EventRange::Turn(turn.index);
        'pages: loop {
            let events = store.events(app, id, range).await?.unwrap_or_default();
            let Some(last) = events.last() else { break };
            range = EventRange::After { after: last.seq, limit: PAGE_EVENTS };
            // A turn that has its end among these, or no event among them, has no later one. One that runs shows what it
            // has by now.
            let is_end = |kind: &EventKind| *kind == EventKind::Turn;
            let mut is_over = events.iter().all(|event| event.event.turn != Some(turn.index));
            for event in events {
                if event.event.turn != Some(turn.index) {
                    continue;
                }
                is_over |= is_end(&event.event.kind);
                if event.event.kind != EventKind::Message {
                    continue;
                }
                bytes += event.event.body.len();
                if bytes > MAX_ANSWER_BYTES {
                    is_cut = true;
                    break 'pages;
                }
                messages.push(event.event.body);
            }
            if is_over {
                break;
            }
        }
        // A turn that was cancelled before its agent was asked has no message of it.
        let has_result = |body: &String| {
            serde_json::from_str(body).is_ok_and(|body: Value| body.get("result").is_some())
        };
        if turn.state == TurnState::Cancelled && !is_cut && !messages.last().is_some_and(has_result)
        {
            messages.push(cancelled_result(turn.index).body);
        }
        let permit = (bytes > LONG_ANSWER_BYTES).then_some(permit);
        Ok(TurnMessages { messages, is_cut, permit })
    }
}
