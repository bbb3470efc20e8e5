//! Counts open connections, records since when there has been none, and says how many there may be.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most connections that HTTP may have, however many descriptors the process may open.
const MAX_CONNECTIONS: usize = 1 << 16;
/// The connections that HTTP may have, however few descriptors the process may open.
const MIN_CONNECTIONS: usize = 16;

/// The open connections of all listeners. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Connections {
    inner: Arc<Mutex<Count>>,
}

#[derive(Debug)]
struct Count {
    open: usize,
    idle_since: Instant,
}

/// One open connection; dropping it ends the count.
#[derive(Debug)]
pub struct OpenConnection {
    connections: Connections,
}

impl Connections {
    pub fn new(now: Instant) -> Connections {
        Connections { inner: Arc::new(Mutex::new(Count { open: 0, idle_since: now })) }
    }

    /// Counts a connection until the returned value is dropped.
    pub fn open(&self) -> OpenConnection {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).open += 1;
        OpenConnection { connections: self.clone() }
    }

    /// Returns how long there has been no connection; zero while one is open.
    pub fn idle_for(&self, now: Instant) -> Duration {
        let count = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if count.open > 0 {
            Duration::ZERO
        } else {
            now.saturating_duration_since(count.idle_since)
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut count = self.connections.inner.lock().unwrap_or_else(PoisonError::into_inner);
        count.open -= 1;
        count.idle_since = Instant::now();
    }
}

/// Returns how many connections HTTP may have if the process may open this number of descriptors; `None` is an unknown
/// number. The other descriptors are for the owner's socket, agents and databases.
pub fn max_connections(max_descriptors: Option<u64>) -> usize {
    let Some(max_descriptors) = max_descriptors else { return MAX_CONNECTIONS };
    let connections = usize::try_from(max_descriptors / 4 * 3).unwrap_or(MAX_CONNECTIONS);
    connections.clamp(MIN_CONNECTIONS, MAX_CONNECTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_idle_only_between_connections() {
        let start = Instant::now();
        let connections = Connections::new(start);
        let later = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(connections.idle_for(later(5)), Duration::from_secs(5));
        let (first, second) = (connections.open(), connections.open());
        assert_eq!(connections.idle_for(later(9)), Duration::ZERO);
        drop(first);
        assert_eq!(connections.idle_for(later(9)), Duration::ZERO);
        drop(second);
        let idle = connections.idle_for(later(9));
        assert!(idle > Duration::from_secs(8) && idle <= Duration::from_secs(9));
    }

    #[test]
    fn most_descriptors_are_for_http() {
        let check = |descriptors: Option<u64>, expect: usize| {
            assert_eq!(max_connections(descriptors), expect)
        };
        check(None, MAX_CONNECTIONS);
        check(Some(0), MIN_CONNECTIONS);
        check(Some(1024), 768);
        check(Some(u64::MAX), MAX_CONNECTIONS);
    }
}
