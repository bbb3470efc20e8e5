//! Idle sessions under the fingerprints of the conversations that they can continue.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hob_domain::Fingerprint;

/// Idle sessions of type `S`. Each can be found by any of its fingerprints and leaves with all of them.
#[derive(Debug)]
pub struct Pool<S> {
    idle: HashMap<u64, Idle<S>>,
    /// Several sessions may have equal conversations; the newest is taken first.
    by_key: HashMap<Fingerprint, Vec<u64>>,
    next: u64,
}

#[derive(Debug)]
struct Idle<S> {
    session: S,
    keys: Vec<Fingerprint>,
    since: Instant,
}

impl<S> Default for Pool<S> {
    fn default() -> Pool<S> {
        Pool { idle: HashMap::new(), by_key: HashMap::new(), next: 0 }
    }
}

impl<S> Pool<S> {
    pub fn put(&mut self, session: S, mut keys: Vec<Fingerprint>, now: Instant) {
        keys.sort_unstable();
        keys.dedup();
        let number = self.next;
        self.next += 1;
        for key in &keys {
            self.by_key.entry(*key).or_default().push(number);
        }
        self.idle.insert(number, Idle { session, keys, since: now });
    }

    /// Takes the session that can continue this conversation.
    pub fn take(&mut self, key: Fingerprint) -> Option<S> {
        let number = *self.by_key.get(&key)?.last()?;
        self.remove(number)
    }

    /// Takes the session that has been idle for longest.
    pub fn take_oldest(&mut self) -> Option<S> {
        self.take_oldest_where(|_, _| true)
    }

    /// Takes the session that has been idle for longest of those that `matches` selects, by when they became idle.
    pub fn take_oldest_where(&mut self, matches: impl Fn(&S, Instant) -> bool) -> Option<S> {
        let found = self.idle.iter().filter(|(_, idle)| matches(&idle.session, idle.since));
        let (number, _) = found.min_by_key(|(number, idle)| (idle.since, **number))?;
        self.remove(*number)
    }

    /// Takes all sessions that have been idle for at least `limit`.
    pub fn take_expired(&mut self, limit: Duration, now: Instant) -> Vec<S> {
        let expired: Vec<u64> = self
            .idle
            .iter()
            .filter(|(_, idle)| now.saturating_duration_since(idle.since) >= limit)
            .map(|(number, _)| *number)
            .collect();
        expired.into_iter().filter_map(|number| self.remove(number)).collect()
    }

    /// Takes all sessions that `matches` selects.
    pub fn take_where(&mut self, matches: impl Fn(&S) -> bool) -> Vec<S> {
        let found = self.idle.iter().filter(|(_, idle)| matches(&idle.session));
        let found: Vec<u64> = found.map(|(number, _)| *number).collect();
        found.into_iter().filter_map(|number| self.remove(number)).collect()
    }

    pub fn take_all(&mut self) -> Vec<S> {
        self.by_key.clear();
        self.idle.drain().map(|(_, idle)| idle.session).collect()
    }

    /// Returns when the next session expires.
    pub fn next_expiry(&self, limit: Duration) -> Option<Instant> {
        self.idle.values().map(|idle| idle.since + limit).min()
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.idle.len()
    }

    fn remove(&mut self, number: u64) -> Option<S> {
        let idle = self.idle.remove(&number)?;
        for key in &idle.keys {
            if let Some(numbers) = self.by_key.get_mut(key) {
                numbers.retain(|other| *other != number);
                if numbers.is_empty() {
                    self.by_key.remove(key);
                }
            }
        }
        Some(idle.session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hob_domain::{Message, fingerprint};
    use serde_json::json;

    fn key(text: &str) -> Fingerprint {
        fingerprint(&json!({}), &[Message::user(text)])
    }

    #[test]
    fn a_session_leaves_with_all_its_keys() {
        let start = Instant::now();
        let mut pool = Pool::default();
        pool.put("one", vec![key("a"), key("b"), key("a")], start);
        assert_eq!(pool.take(key("c")), None);
        assert_eq!(pool.take(key("b")), Some("one"));
        assert_eq!(pool.take(key("a")), None);
        assert_eq!(pool.len(), 0);
        assert!(pool.by_key.is_empty());
    }

    #[test]
    fn equal_conversations_are_taken_one_by_one() {
        let start = Instant::now();
        let mut pool = Pool::default();
        pool.put("one", vec![key("a")], start);
        pool.put("two", vec![key("a")], start);
        assert_eq!(pool.take(key("a")), Some("two"));
        assert_eq!(pool.take(key("a")), Some("one"));
        assert_eq!(pool.take(key("a")), None);
    }

    #[test]
    fn oldest_and_expired_sessions_are_taken() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let limit = Duration::from_secs(10);
        let mut pool = Pool::default();
        pool.put("old", vec![key("a")], start);
        pool.put("new", vec![key("b")], at(5));
        assert_eq!(pool.next_expiry(limit), Some(at(10)));
        assert!(pool.take_expired(limit, at(9)).is_empty());
        assert_eq!(pool.take_expired(limit, at(10)), ["old"]);
        assert_eq!(pool.take_oldest(), Some("new"));
        assert_eq!(pool.take_oldest(), None);
    }
}
