//! The open connections of clients, and the streams of those that use streamable HTTP.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hob_domain::AppName;
use tokio::sync::{Notify, mpsc};
use uuid::Uuid;

use super::connection::{Connection, Outbound};

/// How many messages are kept while no stream is open for them.
const MAX_KEPT_MESSAGES: usize = 1024;
/// How many messages may wait for a stream that the client does not read.
const MAX_STREAM_MESSAGES: usize = 256;
/// A connection without a request and without a stream ends after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(60);
const MAX_CONNECTIONS_PER_APP: usize = 64;

/// The connections of all apps.
#[derive(Default)]
pub(crate) struct AcpConnections {
    state: Mutex<ConnectionsState>,
}

#[derive(Default)]
struct ConnectionsState {
    /// The connections over streamable HTTP, by their ids.
    http: HashMap<String, Arc<HttpConnection>>,
    /// How many connections each app has.
    counts: HashMap<AppName, usize>,
}

/// A place among the connections of an app. Dropping it frees the place.
pub(super) struct ConnectionPlace {
    connections: Arc<AcpConnections>,
    app: AppName,
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut state = self.connections.lock();
        if let Some(count) = state.counts.get_mut(&self.app) {
            *count -= 1;
            if *count == 0 {
                state.counts.remove(&self.app);
            }
        }
    }
}

/// A connection over streamable HTTP.
pub(super) struct HttpConnection {
    pub connection: Connection,
    state: Mutex<StreamState>,
    /// Wakes up when a stream was opened.
    opened: Notify,
}

struct StreamState {
    used_at: Instant,
    streams: Vec<OpenStream>,
    /// Messages that no stream is open for.
    kept: Vec<Outbound>,
}

/// A stream that the client reads.
struct OpenStream {
    /// The session whose messages it shows; `None` for all that no other stream shows.
    session: Option<String>,
    sender: mpsc::Sender<Outbound>,
}

impl AcpConnections {
    fn lock(&self) -> MutexGuard<'_, ConnectionsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a connection; `None` if the app has too many.
    pub(super) fn place(self: &Arc<Self>, app: &AppName) -> Option<ConnectionPlace> {
        let mut state = self.lock();
        let count = state.counts.entry(app.clone()).or_default();
        if *count >= MAX_CONNECTIONS_PER_APP {
            return None;
        }
        *count += 1;
        Some(ConnectionPlace { connections: self.clone(), app: app.clone() })
    }

    /// Adds a connection over streamable HTTP and returns its id.
    pub(super) fn add(
        self: &Arc<Self>,
        connection: Connection,
        mut outbound: mpsc::Receiver<Outbound>,
        place: ConnectionPlace,
    ) -> String {
        let state = StreamState { used_at: Instant::now(), streams: Vec::new(), kept: Vec::new() };
        let added = Arc::new(HttpConnection {
            connection: connection.clone(),
            state: Mutex::new(state),
            opened: Notify::new(),
        });
        let id = Uuid::new_v4().simple().to_string();
        self.lock().http.insert(id.clone(), added.clone());
        let (connections, own_id) = (self.clone(), id.clone());
        connection.gateway().runtime.tasks.clone().spawn(async move {
            let _place = place;
            let stopping = connection.gateway().runtime.stopping.clone();
            let mut check = tokio::time::interval(IDLE_CHECK_INTERVAL);
            loop {
                let message = tokio::select! {
                    message = outbound.recv() => message,
                    _ = check.tick() => match added.is_idle() || !connection.is_allowed().await {
                        true => None,
                        false => continue,
                    },
                    () = connection.ended().cancelled() => None,
                    () = stopping.cancelled() => None,
                };
                let Some(message) = message else { break };
                tokio::select! {
                    () = added.publish(message) => {}
                    () = connection.ended().cancelled() => break,
                    () = stopping.cancelled() => break,
                }
            }
            connection.end();
            connections.lock().http.remove(&own_id);
        });
        id
    }

    /// Returns a connection of an app.
    pub(super) fn find(&self, id: &str, app: &AppName) -> Option<Arc<HttpConnection>> {
        let found = self.lock().http.get(id).cloned();
        let found = found.filter(|one| one.connection.app() == app)?;
        found.state().used_at = Instant::now();
        (!found.connection.ended().is_cancelled()).then_some(found)
    }

    /// Ends a connection of an app. Returns whether there was one.
    pub(super) fn remove(&self, id: &str, app: &AppName) -> bool {
        let Some(found) = self.find(id, app) else { return false };
        found.connection.end();
        self.lock().http.remove(id);
        true
    }
}

impl HttpConnection {
    fn state(&self) -> MutexGuard<'_, StreamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether nobody uses the connection.
    fn is_idle(&self) -> bool {
        let mut state = self.state();
        state.streams.retain(|stream| !stream.sender.is_closed());
        state.streams.is_empty() && state.used_at.elapsed() > IDLE_TIMEOUT
    }

    /// Gives a message to the stream that is open for it. Without one, the message waits for it.
    async fn publish(&self, message: Outbound) {
        let mut message = message;
        loop {
            let opened = self.opened.notified();
            let sender = {
                let mut state = self.state();
                match state.sender_for(&message) {
                    Some(sender) => Some(sender),
                    None if state.kept.len() < MAX_KEPT_MESSAGES => {
                        return state.kept.push(message);
                    }
                    None => None,
                }
            };
            match sender {
                None => opened.await,
                Some(sender) => match sender.send(message).await {
                    Ok(()) => return,
                    // The stream was closed, so the message waits for the next one.
                    Err(returned) => message = returned.0,
                },
            }
        }
    }

    /// Opens a stream of the messages of one session, or of all that no other stream shows.
    pub fn subscribe(&self, session: Option<&str>) -> (Vec<Outbound>, mpsc::Receiver<Outbound>) {
        let (sender, receiver) = mpsc::channel(MAX_STREAM_MESSAGES);
        let mut state = self.state();
        state.used_at = Instant::now();
        let is_for = |message: &Outbound| {
            session.is_none_or(|session| message.session.as_deref() == Some(session))
        };
        let (taken, kept): (Vec<Outbound>, Vec<Outbound>) =
            std::mem::take(&mut state.kept).into_iter().partition(is_for);
        state.kept = kept;
        state.streams.push(OpenStream { session: session.map(str::to_owned), sender });
        self.opened.notify_waiters();
        (taken, receiver)
    }
}

impl StreamState {
    /// Returns the stream of the message's session, else the stream of all messages.
    fn sender_for(&mut self, message: &Outbound) -> Option<mpsc::Sender<Outbound>> {
        self.streams.retain(|stream| !stream.sender.is_closed());
        let of = |session: Option<&str>| {
            self.streams.iter().rfind(|stream| stream.session.as_deref() == session)
        };
        let own = message.session.as_deref().and_then(|session| of(Some(session)));
        own.or_else(|| of(None)).map(|stream| stream.sender.clone())
    }
}
