//! Sessions without a terminal: their events, shown where others have a screen.

use hob_domain::AppName;
use hob_domain::session::{SessionEvent, SessionId};
use hob_sessions::session::{Follow, render};
use serde_json::Value;

use crate::error::ApiError;
use crate::routes::sessions::shapes::EventView;
use crate::state::Gateway;

/// How many of the last events are shown to whoever comes.
const LAST: u64 = 500;

/// The last events as a page, and what comes after them.
pub(super) async fn page(
    gateway: &Gateway,
    app: &AppName,
    id: &SessionId,
) -> Result<(String, Following), ApiError> {
    let last = gateway.sessions.get(app, id).await?.last_event;
    let after = last.saturating_sub(LAST);
    let events = gateway.sessions.events(app, id, after, LAST as usize).await?;
    let mut page = render::Page::default();
    let text = events.iter().map(|event| page.next(&view(event))).collect();
    let after = events.last().map_or(after, |event| event.seq);
    let follow = gateway.sessions.follow(app, id, after).await?;
    Ok((text, Following { page, follow }))
}

/// Events as they come, as text for a terminal.
pub(super) struct Following {
    page: render::Page,
    follow: Follow,
}

impl Following {
    /// What comes next; `None` once the session is closed. Nothing is lost when the caller stops
    /// waiting.
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
