//! The open connections of clients, and the streams of those that use streamable HTTP.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hob_domain::AppName;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::connection::{Connection, Outbound};
use super::mailbox::Mailbox;

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
    pub mailbox: Arc<Mailbox>,
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
        let mailbox = Arc::new(Mailbox::new());
        let added = HttpConnection { connection: connection.clone(), mailbox: mailbox.clone() };
        let id = Uuid::new_v4().simple().to_string();
        self.lock().http.insert(id.clone(), Arc::new(added));
        let (connections, own_id) = (self.clone(), id.clone());
        connection.gateway().runtime.tasks.clone().spawn(async move {
            let _place = place;
            let stopping = connection.gateway().runtime.stopping.clone();
            let mut check = tokio::time::interval(IDLE_CHECK_INTERVAL);
            loop {
                let message = tokio::select! {
                    message = outbound.recv() => message,
                    _ = check.tick() => match mailbox.is_idle(IDLE_TIMEOUT) || !connection.is_allowed().await {
                        true => None,
                        false => continue,
                    },
                    () = connection.ended().cancelled() => None,
                    () = stopping.cancelled() => None,
                };
                let Some(message) = message else { break };
                tokio::select! {
                    () = mailbox.put(message) => {}
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
        found.mailbox.touch();
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
