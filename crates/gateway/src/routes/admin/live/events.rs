//! The events of sessions without a terminal, rendered as text.

use hob_domain::AppName;
use hob_domain::session::{EventRange, SessionEvent, SessionId};
use hob_sessions::session::{Follow, event_text};
use serde_json::Value;

use crate::error::ApiError;
use crate::routes::sessions::shapes::EventView;
use crate::state::Gateway;

/// Number of past events that a new viewer receives.
const LAST: u64 = 500;

/// Returns the last events as text, and a follower of later ones.
pub(super) async fn page(
    gateway: &Gateway,
    app: &AppName,
    id: &SessionId,
) -> Result<(String, Following), ApiError> {
    let last = gateway.sessions.get(app, id).await?.last_event;
    let after = last.saturating_sub(LAST);
    let range = EventRange::After { after, limit: LAST as usize };
    let events = gateway.sessions.events(app, id, range).await?;
    let mut page = event_text::TerminalRenderer::default();
    let text = events.iter().map(|event| page.next(&view(event))).collect();
    let after = events.last().map_or(after, |event| event.seq);
    let follow = gateway.sessions.follow(app, id, after).await?;
    Ok((text, Following { page, follow }))
}

/// Follows events as text for a terminal.
pub(super) struct Following {
    page: event_text::TerminalRenderer,
    follow: Follow,
}

impl Following {
    /// Returns the next text, or `None` once the session is closed. Cancel-safe.
    pub async fn next(&mut self) -> Option<String> {
        loop {
            match self.follow.next().await {
                Ok(Some(event)) => {
                    let text = self.page.next(&view(&event));
                    if !text.is_empty() {
                        return Some(text);
                    }
                }
                Ok(None) => return None,
                Err(error) => {
                    tracing::error!(%error, "failed to follow a session");
                    return None;
                }
            }
        }
    }
}

fn view(event: &SessionEvent) -> Value {
    serde_json::to_value(EventView::from(event)).unwrap_or_default()
}
