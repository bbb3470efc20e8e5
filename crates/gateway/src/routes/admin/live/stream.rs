//! `GET /admin/live/stream`: changes of the list and the screens, for live previews.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures_util::Stream;
use hob_terminal::StreamPosition;
use serde_json::json;
use tokio::time::MissedTickBehavior;

use super::list::{LiveView, views};
use super::screen;
use crate::error::{ApiError, ErrorBody};
use crate::extract::caller::Admin;
use crate::sign_in_expiry::{expiry_instant, sleep_until};
use crate::state::Gateway;

/// Interval of looking for changes.
const LOOK: Duration = Duration::from_millis(500);
/// Minimum interval between two sends of one screen.
const SCREEN: Duration = Duration::from_millis(1000);
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Streams changes: `live` events with the whole list, `screen` events with one terminal.
#[utoipa::path(get, path = "/admin/live/stream", tag = "admin", operation_id = "stream_live", security(("token" = [])), responses(
    (status = 200, description = "A stream of events.", body = Object, content_type = "text/event-stream"),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn stream(
    State(gateway): State<Arc<Gateway>>,
    admin: Admin,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let first = views(&gateway).await?;
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looking = Looking {
        gateway,
        ticks,
        listed: Vec::new(),
        shown: HashMap::new(),
        waiting: VecDeque::new(),
        until: expiry_instant(admin.until),
    };
    looking.tell_list(first);
    let events = futures_util::stream::unfold(looking, |mut looking| async move {
        let event = looking.next().await?;
        Some((Ok(event), looking))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

struct Looking {
    gateway: Arc<Gateway>,
    ticks: tokio::time::Interval,
    listed: Vec<LiveView>,
    /// The version of each screen that was sent, and when.
    shown: HashMap<String, (StreamPosition, Instant)>,
    waiting: VecDeque<Event>,
    until: Option<tokio::time::Instant>,
}

impl Looking {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            tokio::select! {
                _ = self.ticks.tick() => {}
                () = self.gateway.runtime.stopping.cancelled() => return None,
                () = sleep_until(self.until) => return None,
            }
            match views(&self.gateway).await {
                Ok(list) if list != self.listed => self.tell_list(list),
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(?error, "failed to list live sessions");
                    return None;
                }
            }
            self.tell_screens();
        }
    }

    fn tell_list(&mut self, list: Vec<LiveView>) {
        let data = json!({"ok": true, "live": list});
        self.waiting.push_back(Event::default().event("live").data(data.to_string()));
        self.listed = list;
    }

    fn tell_screens(&mut self) {
        let terminals = self.gateway.runtime.terminals.all();
        self.shown.retain(|id, _| terminals.iter().any(|one| one.info.id == *id));
        for terminal in terminals {
            let id = &terminal.info.id;
            let place = terminal.status().position;
            let due = self.shown.get(id).is_none_or(|(seen, at)| {
                *seen != place && at.elapsed() + Duration::from_millis(20) >= SCREEN
            });
            if !due {
                continue;
            }
            let data = terminal.with_screen(|model| {
                let size = model.size();
                json!({"id": id, "cols": size.cols, "rows": size.rows, "ansi": screen::ansi(model)})
            });
            self.shown.insert(id.clone(), (place, Instant::now()));
            self.waiting.push_back(Event::default().event("screen").data(data.to_string()));
        }
    }
}
