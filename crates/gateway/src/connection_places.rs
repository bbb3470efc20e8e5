//! The places of connections over TCP. When all are taken, a new connection gets the place of the one that has been
//! without a caller for longest: without a request that proves who sent it. So nobody keeps others out by connections alone.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// The places of all connections. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionPlaces {
    permits: Arc<Semaphore>,
    state: Arc<Mutex<PlacesState>>,
}

#[derive(Debug, Default)]
struct PlacesState {
    next: u64,
    connections: HashMap<u64, PlacedConnection>,
    /// The connections without a caller, each with the number of the time since when; the oldest first.
    idle: BTreeSet<(u64, u64)>,
    /// Whether a new connection waits for the next one that becomes idle.
    is_wanted: bool,
}

#[derive(Debug)]
struct PlacedConnection {
    /// Cancelled when it has to leave at once.
    leave: CancellationToken,
    /// Cancelled when it has to leave after what it still sends.
    finish: CancellationToken,
    /// How many requests of callers are open.
    requests: usize,
    /// Its number in `idle`.
    since: u64,
}

impl PlacedConnection {
    /// Asks it to leave. A caller may still receive the end of an answer.
    fn ask_to_leave(&self, id: u64) {
        let had_caller = self.since != id;
        if had_caller { self.finish.cancel() } else { self.leave.cancel() }
    }
}

/// The place of a connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct TakenPlace {
    pub place: ConnectionPlace,
    /// Cancelled when the connection has to leave at once.
    pub leave: CancellationToken,
    /// Cancelled when the connection has to leave after what it still sends.
    pub finish: CancellationToken,
    _permit: Option<OwnedSemaphorePermit>,
}

/// A connection's place, as its requests know it.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionPlace {
    places: ConnectionPlaces,
    id: u64,
}

/// Keeps the place of a connection while a request of a caller is open.
#[derive(Debug)]
pub(crate) struct PlaceInUse(ConnectionPlace);

impl ConnectionPlaces {
    pub fn new(max: usize) -> ConnectionPlaces {
        ConnectionPlaces { permits: Arc::new(Semaphore::new(max)), state: Arc::default() }
    }

    /// Waits for a place. Only one caller may wait at a time.
    pub async fn take(&self) -> TakenPlace {
        let permit = match self.permits.clone().try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) => {
                self.make_room();
                // The semaphore is never closed.
                let permit = self.permits.clone().acquire_owned().await.ok();
                self.state().is_wanted = false;
                permit
            }
        };
        let (leave, finish) = (CancellationToken::new(), CancellationToken::new());
        let mut state = self.state();
        let id = state.number();
        let connection = PlacedConnection {
            leave: leave.clone(),
            finish: finish.clone(),
            requests: 0,
            since: id,
        };
        state.connections.insert(id, connection);
        state.idle.insert((id, id));
        let place = ConnectionPlace { places: self.clone(), id };
        TakenPlace { place, leave, finish, _permit: permit }
    }

    /// Lets the connection leave that has been idle for longest, or else the next one that becomes idle.
    fn make_room(&self) {
        let mut state = self.state();
        let oldest = state.idle.pop_first();
        let found = oldest.and_then(|(_, id)| Some((id, state.connections.get(&id)?)));
        match found {
            Some((id, connection)) => connection.ask_to_leave(id),
            None => state.is_wanted = true,
        }
    }

    fn state(&self) -> MutexGuard<'_, PlacesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PlacesState {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Drop for TakenPlace {
    fn drop(&mut self) {
        let mut state = self.place.places.state();
        if let Some(gone) = state.connections.remove(&self.place.id) {
            state.idle.remove(&(gone.since, self.place.id));
        }
    }
}

impl ConnectionPlace {
    /// Keeps the place until the returned value is dropped.
    pub fn keep(&self) -> PlaceInUse {
        let mut state = self.places.state();
        if let Some(connection) = state.connections.get_mut(&self.id) {
            connection.requests += 1;
            let since = connection.since;
            state.idle.remove(&(since, self.id));
        }
        PlaceInUse(self.clone())
    }
}

impl Drop for PlaceInUse {
    fn drop(&mut self) {
        let id = self.0.id;
        let mut state = self.0.places.state();
        let (now, is_wanted) = (state.number(), state.is_wanted);
        let Some(connection) = state.connections.get_mut(&id) else { return };
        connection.requests -= 1;
        if connection.requests > 0 {
            return;
        }
        connection.since = now;
        if is_wanted {
            connection.ask_to_leave(id);
            state.is_wanted = false;
        } else {
            state.idle.insert((now, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn connections_without_callers_make_room_and_others_stay() {
        let places = ConnectionPlaces::new(2);
        let (first, second) = (places.take().await, places.take().await);
        let in_use = first.place.keep();
        let ((), third) = tokio::join!(
            async {
                second.leave.cancelled().await;
                drop(second);
            },
            places.take()
        );
        assert!(!first.leave.is_cancelled());
        let kept = third.place.keep();
        // Both have callers, so a fourth waits for the first that has none any more.
        let wait = tokio::time::timeout(Duration::from_millis(1), places.take());
        assert!(wait.await.is_err());
        drop(in_use);
        assert!(first.finish.is_cancelled() && !first.leave.is_cancelled());
        assert!(!third.finish.is_cancelled());
        drop(first);
        let fourth = places.take().await;
        drop(kept);
        assert!(!third.finish.is_cancelled() && !fourth.leave.is_cancelled(), "nobody waits");
    }
}
