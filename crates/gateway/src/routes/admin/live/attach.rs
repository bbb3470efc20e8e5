//! `GET /admin/live/{id}/attach`: watch and type over a WebSocket.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use hob_terminal::{MAX_SCROLLBACK_LINES, Size, TerminalError, Viewer, ViewerUpdate, Writer};
use serde::Deserialize;
use serde_json::{Value, json};

use super::events::{self, Following};
use super::find::{LiveTarget, find};
use super::screen;
use crate::audit_log;
use crate::error::{ApiError, ErrorBody};
use crate::extract::caller::Admin;
use crate::extract::path_and_query::{ApiPath, ApiQuery};
use crate::sign_in_expiry::{expiry_instant, sleep_until};
use crate::state::Gateway;

/// Maximum size of a viewer's message, in bytes.
const MESSAGE: usize = 64 << 10;
/// Interval of pings to a quiet viewer, and how long a viewer may stay silent.
const PING: Duration = Duration::from_secs(20);
const SILENT: Duration = Duration::from_secs(60);
/// How long sending to a viewer may block before it is disconnected.
const SENDING: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    scrollback: Option<usize>,
}

/// Watches a live terminal and types into it, over a WebSocket.
///
/// The server sends text frames with JSON (`hello`, `size`, `writer`, `refused`, `end`) and binary frames
/// with terminal output; the client sends binary frames with input and text frames
/// `resize`, `take`, `release`.
#[utoipa::path(get, path = "/admin/live/{id}/attach", tag = "admin", operation_id = "attach", security(("token" = [])),
    params(("id" = String, Path, description = "Id of a live session or process."),
        ("scrollback" = Option<u64>, Query, description = "Number of scrolled-off lines to send. Default and maximum: 2,000.")),
    responses(
    (status = 101, description = "Switched to a WebSocket."),
    (status = 400, description = "Not a WebSocket request.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 403, description = "The request comes from another origin.", body = ErrorBody),
    (status = 404, description = "No live session or process has this id.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn attach(
    State(gateway): State<Arc<Gateway>>,
    admin: Admin,
    ApiPath(id): ApiPath<String>,
    ApiQuery(wanted): ApiQuery<Wanted>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let found = find(&gateway, &id).await?;
    let upgrade = upgrade.map_err(|rejection| ApiError::BadRequest {
        code: "not_websocket",
        message: format!(
            "this endpoint accepts only WebSocket connections: {}",
            rejection.body_text()
        ),
    })?;
    let scrollback = wanted.scrollback.unwrap_or(MAX_SCROLLBACK_LINES).min(MAX_SCROLLBACK_LINES);
    let shown = match found {
        LiveTarget::Terminal(terminal) => Shown::Terminal(Box::new(terminal.watch(scrollback))),
        LiveTarget::Session(app, session) => {
            let (page, following) = events::page(&gateway, &app, &session).await?;
            Shown::Events(Some(page), Box::new(following))
        }
    };
    audit_log::record(&gateway, "attach", &id, json!({"terminal": shown.is_terminal()})).await;
    let until = expiry_instant(admin.until);
    // The connection leaves the serving loop; the task tracker still waits for it at shutdown.
    let place = gateway.runtime.terminals.tasks().token();
    let upgrade = upgrade.max_message_size(MESSAGE).max_frame_size(MESSAGE);
    Ok(upgrade.on_upgrade(async move |socket| {
        let _place = place;
        let mut attached = Attached {
            gateway,
            id,
            socket,
            shown,
            typed: 0,
            heard: Instant::now(),
            since: Instant::now(),
        };
        let reason = attached.run(until).await;
        attached.leave(reason).await;
    }))
}

/// What a viewer watches.
enum Shown {
    Terminal(Box<Viewer>),
    /// Events as text: first the past ones, then new ones.
    Events(Option<String>, Box<Following>),
}

impl Shown {
    fn is_terminal(&self) -> bool {
        matches!(self, Shown::Terminal(_))
    }

    async fn next(&mut self) -> Option<ViewerUpdate> {
        match self {
            Shown::Terminal(viewer) => viewer.next().await,
            Shown::Events(page, following) => {
                let text = match page.take().filter(|page| !page.is_empty()) {
                    Some(page) => page,
                    None => match following.next().await {
                        Some(text) => text,
                        None => return Some(ViewerUpdate::End("the session is closed".to_owned())),
                    },
                };
                Some(ViewerUpdate::Bytes(text.into_bytes()))
            }
        }
    }
}

struct Attached {
    gateway: Arc<Gateway>,
    id: String,
    socket: WebSocket,
    shown: Shown,
    typed: usize,
    heard: Instant,
    since: Instant,
}

/// Why watching ended. The text is for the viewer; `None` if the viewer left.
type Over = Option<String>;

/// A command of a viewer.
#[derive(Debug, PartialEq, Eq)]
enum Ask {
    Resize(Size),
    Take,
    Release,
}

impl Attached {
    async fn run(&mut self, until: Option<tokio::time::Instant>) -> Over {
        if let Err(over) = self.hello().await {
            return over;
        }
        let stopping = self.gateway.runtime.stopping.clone();
        let mut pings = tokio::time::interval(PING);
        loop {
            let step = tokio::select! {
                update = self.shown.next() => self.tell(update).await,
                message = self.socket.recv() => match message {
                    Some(Ok(message)) => self.hear(message).await,
                    Some(Err(_)) | None => Err(None),
                },
                _ = pings.tick() => self.ping().await,
                () = stopping.cancelled() => Err(Some("hob is stopping".to_owned())),
                () = sleep_until(until) => Err(Some("the sign-in has ended".to_owned())),
            };
            if let Err(over) = step {
                return over;
            }
        }
    }

    async fn hello(&mut self) -> Result<(), Over> {
        let (size, writer) = match &self.shown {
            Shown::Terminal(viewer) => (viewer.size(), viewer.writer()),
            Shown::Events(..) => (screen::PAGE, Writer::Nobody),
        };
        let hello = json!({"type": "hello", "id": self.id, "cols": size.cols, "rows": size.rows,
            "terminal": self.shown.is_terminal(), "writer": writer.as_str()});
        self.say(&hello).await
    }

    async fn tell(&mut self, update: Option<ViewerUpdate>) -> Result<(), Over> {
        match update {
            Some(ViewerUpdate::Bytes(bytes)) => self.send(Message::Binary(bytes.into())).await,
            Some(ViewerUpdate::Size(size)) => {
                self.say(&json!({"type": "size", "cols": size.cols, "rows": size.rows})).await
            }
            Some(ViewerUpdate::Writer(writer)) => {
                self.say(&json!({"type": "writer", "writer": writer.as_str()})).await
            }
            Some(ViewerUpdate::End(reason)) => Err(Some(reason)),
            None => Err(Some("it is over".to_owned())),
        }
    }

    async fn hear(&mut self, message: Message) -> Result<(), Over> {
        self.heard = Instant::now();
        match message {
            Message::Binary(bytes) => self.type_in(&bytes).await,
            Message::Text(text) => match read(&text) {
                Some(ask) => self.carry_out(ask).await,
                None => self.refuse("not a valid viewer message").await,
            },
            Message::Close(_) => Err(None),
            Message::Ping(_) | Message::Pong(_) => Ok(()),
        }
    }

    async fn type_in(&mut self, bytes: &[u8]) -> Result<(), Over> {
        let Shown::Terminal(viewer) = &mut self.shown else {
            return self.refuse("this session has no terminal to type into").await;
        };
        match viewer.write(bytes).await {
            Ok(begun) => {
                self.typed += bytes.len();
                if begun {
                    self.note_writer(Writer::Nobody).await;
                }
                Ok(())
            }
            // The end follows as its own update.
            Err(TerminalError::Ended) => Ok(()),
            Err(refused) => self.refuse(&refused.to_string()).await,
        }
    }

    async fn carry_out(&mut self, ask: Ask) -> Result<(), Over> {
        let Shown::Terminal(viewer) = &mut self.shown else {
            return self.refuse("this session has no terminal").await;
        };
        match ask {
            Ask::Resize(size) => match viewer.resize(size) {
                Ok(()) => Ok(()),
                Err(refused) => self.refuse(&refused.to_string()).await,
            },
            Ask::Take => {
                let before = viewer.take();
                if before != Writer::You {
                    self.note_writer(before).await;
                }
                Ok(())
            }
            Ask::Release => {
                viewer.release();
                Ok(())
            }
        }
    }

    async fn note_writer(&mut self, before: Writer) {
        let detail = json!({"from": before.as_str()});
        audit_log::record(&self.gateway, "take_writer", &self.id, detail).await;
    }

    async fn ping(&mut self) -> Result<(), Over> {
        if self.heard.elapsed() > SILENT {
            return Err(None);
        }
        self.send(Message::Ping(Default::default())).await
    }

    async fn refuse(&mut self, reason: &str) -> Result<(), Over> {
        self.say(&json!({"type": "refused", "reason": reason})).await
    }

    async fn say(&mut self, value: &Value) -> Result<(), Over> {
        self.send(Message::Text(value.to_string().into())).await
    }

    async fn send(&mut self, message: Message) -> Result<(), Over> {
        match tokio::time::timeout(SENDING, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(None),
        }
    }

    async fn leave(mut self, over: Over) {
        if let Some(reason) = over {
            let _ = self.say(&json!({"type": "end", "reason": reason})).await;
            let close = CloseFrame { code: close_code::NORMAL, reason: Default::default() };
            let _ = self.send(Message::Close(Some(close))).await;
            // Wait for the peer's close frame, so that no message is lost.
            let farewell = async { while let Some(Ok(_)) = self.socket.recv().await {} };
            let _ = tokio::time::timeout(Duration::from_secs(1), farewell).await;
        }
        let seconds = self.since.elapsed().as_secs();
        let detail = json!({"seconds": seconds, "typed_bytes": self.typed});
        drop(self.shown);
        audit_log::record(&self.gateway, "detach", &self.id, detail).await;
    }
}

/// Parses a viewer's message; `None` if it is not one.
fn read(text: &str) -> Option<Ask> {
    let message: Value = serde_json::from_str(text).ok()?;
    let size = || {
        let cells = |key: &str| message[key].as_u64().map(|n| n.min(u64::from(u16::MAX)) as u16);
        Some(Size { rows: cells("rows")?, cols: cells("cols")? })
    };
    match message.get("type").map(Value::as_str) {
        None | Some(Some("resize")) => size().map(Ask::Resize),
        Some(Some("take")) => Some(Ask::Take),
        Some(Some("release")) => Some(Ask::Release),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_viewers() {
        let size = |cols, rows| Some(Ask::Resize(Size { rows, cols }));
        assert_eq!(read(r#"{"type":"resize","cols":100,"rows":30}"#), size(100, 30));
        assert_eq!(read(r#"{"cols":100,"rows":99999999}"#), size(100, u16::MAX));
        assert_eq!(read(r#"{"type":"take"}"#), Some(Ask::Take));
        assert_eq!(read(r#"{"type":"release"}"#), Some(Ask::Release));
        for bad in
            ["", "[]", "{}", r#"{"type":"resize"}"#, r#"{"type":7}"#, r#"{"cols":-1,"rows":3}"#]
        {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
