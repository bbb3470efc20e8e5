//! The messages of a connection over streamable HTTP, and the streams that carry them to the client.
//!
//! A message waits until a stream takes it. What a stream has taken is kept for a while: a client whose stream broke opens it
//! again with the number of the last message that it has received, and gets the rest.
//!
//! A message has its number from the stream that takes it, so that the numbers of a stream ascend. One that is sent again has
//! a new number.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit};

use super::connection::Outbound;

/// How many messages may wait for a stream.
const MAX_WAITING_MESSAGES: usize = 1024;
/// How many messages are kept after a stream has taken them.
const MAX_SENT_MESSAGES: usize = 1024;
/// How many bytes of such messages are kept. One message may be larger.
const MAX_SENT_BYTES: usize = 1 << 20;

/// The session whose messages a stream shows; `None` for all that no other stream shows.
type Scope = Option<String>;

/// Messages after the one that the client has received last are no longer kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Forgotten;

/// The messages to one client.
pub(super) struct Mailbox {
    state: Mutex<MailboxState>,
    /// Wakes up when a message came or was taken, and when a stream was opened or closed.
    changed: Notify,
}

struct MailboxState {
    used_at: Instant,
    /// The number of the message that was taken last.
    last_taken: u64,
    /// The number of the latest stream.
    last_stream: u64,
    /// In the order in which they came.
    messages: VecDeque<Letter>,
    /// The open streams, at most one of each scope.
    streams: Vec<(Scope, u64)>,
    /// The number of the last message of a scope that is no longer kept.
    forgotten: HashMap<Scope, u64>,
}

/// A message.
struct Letter {
    session: Option<String>,
    text: String,
    delivery: Delivery,
}

enum Delivery {
    /// With the room that it takes. A message that is sent again takes none.
    Waiting { _room: Option<OwnedSemaphorePermit> },
    /// Taken by a stream of this scope, under this number.
    Sent { scope: Scope, number: u64 },
}

impl Letter {
    fn is_waiting(&self) -> bool {
        matches!(self.delivery, Delivery::Waiting { .. })
    }

    /// Returns the number under which a stream has taken the message.
    fn number(&self) -> Option<u64> {
        match self.delivery {
            Delivery::Waiting { .. } => None,
            Delivery::Sent { number, .. } => Some(number),
        }
    }
}

/// A stream that the client reads. Dropping it closes the stream.
pub(super) struct MessageStream {
    mailbox: Arc<Mailbox>,
    scope: Scope,
    number: u64,
}

impl Mailbox {
    pub fn new() -> Mailbox {
        let state = MailboxState {
            used_at: Instant::now(),
            last_taken: 0,
            last_stream: 0,
            messages: VecDeque::new(),
            streams: Vec::new(),
            forgotten: HashMap::new(),
        };
        Mailbox { state: Mutex::new(state), changed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, MailboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the client has sent something.
    pub fn touch(&self) {
        self.lock().used_at = Instant::now();
    }

    /// Returns whether the client has no stream and has sent nothing for this long.
    pub fn is_idle(&self, limit: Duration) -> bool {
        let state = self.lock();
        state.streams.is_empty() && state.used_at.elapsed() > limit
    }

    /// Adds a message, once there is room for it.
    pub async fn put(&self, message: Outbound) {
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.lock();
                let waiting = state.messages.iter().filter(|letter| letter.is_waiting()).count();
                if waiting < MAX_WAITING_MESSAGES {
                    let Outbound { session, text, room } = message;
                    let delivery = Delivery::Waiting { _room: Some(room) };
                    state.messages.push_back(Letter { session, text, delivery });
                    break;
                }
            }
            changed.await;
        }
        self.changed.notify_waiters();
    }

    /// Opens a stream. It takes the place of an earlier one of its scope. `received` is the number of the last message that
    /// the client has of such a stream; what was sent after it is sent again.
    pub fn open(
        self: &Arc<Self>,
        scope: Scope,
        received: Option<u64>,
    ) -> Result<MessageStream, Forgotten> {
        let mut state = self.lock();
        if let Some(received) = received {
            state.send_again(&scope, received)?;
        }
        state.used_at = Instant::now();
        state.last_stream += 1;
        let number = state.last_stream;
        state.streams.retain(|(open, _)| *open != scope);
        state.streams.push((scope.clone(), number));
        drop(state);
        self.changed.notify_waiters();
        Ok(MessageStream { mailbox: self.clone(), scope, number })
    }
}

impl MailboxState {
    /// Lets the messages wait that a stream of this scope took after a number.
    fn send_again(&mut self, scope: &Scope, received: u64) -> Result<(), Forgotten> {
        let forgotten = self.forgotten.get(scope).copied().unwrap_or_default();
        if received < forgotten || received > self.last_taken {
            return Err(Forgotten);
        }
        for letter in &mut self.messages {
            let is_missing = matches!(&letter.delivery,
                Delivery::Sent { scope: sent, number } if sent == scope && *number > received);
            if is_missing {
                letter.delivery = Delivery::Waiting { _room: None };
            }
        }
        Ok(())
    }

    /// Takes the next message for a stream.
    fn take(&mut self, scope: &Scope) -> Option<(u64, String)> {
        let place = (0..self.messages.len()).find(|place| {
            let letter = &self.messages[*place];
            letter.is_waiting() && self.is_for(letter, scope)
        })?;
        self.last_taken += 1;
        let number = self.last_taken;
        let letter = &mut self.messages[place];
        letter.delivery = Delivery::Sent { scope: scope.clone(), number };
        let taken = (number, letter.text.clone());
        self.forget();
        Some(taken)
    }

    /// Returns whether a stream of this scope shows a message: that of its session, else that of all messages.
    fn is_for(&self, letter: &Letter, scope: &Scope) -> bool {
        match scope {
            Some(_) => letter.session == *scope,
            None => {
                letter.session.is_none()
                    || !self.streams.iter().any(|(open, _)| *open == letter.session)
            }
        }
    }

    /// Removes the messages that were sent first while there are too many.
    fn forget(&mut self) {
        let sent = |letter: &&Letter| !letter.is_waiting();
        let mut count = self.messages.iter().filter(sent).count();
        let mut bytes: usize = self.messages.iter().filter(sent).map(|one| one.text.len()).sum();
        while count > 1 && (count > MAX_SENT_MESSAGES || bytes > MAX_SENT_BYTES) {
            let numbers = self.messages.iter().enumerate();
            let numbers = numbers.filter_map(|(place, one)| Some((one.number()?, place)));
            let place = numbers.min().map(|(_, place)| place);
            let Some(letter) = place.and_then(|place| self.messages.remove(place)) else { return };
            count -= 1;
            bytes -= letter.text.len();
            if let Delivery::Sent { scope, number } = letter.delivery {
                self.forgotten.insert(scope, number);
            }
        }
    }
}

impl MessageStream {
    /// Returns the next message with its number, or `None` when another stream has taken this one's place. Cancel-safe.
    pub async fn next(&mut self) -> Option<(u64, String)> {
        loop {
            let changed = self.mailbox.changed.notified();
            {
                let mut state = self.mailbox.lock();
                if state.streams.iter().all(|(_, number)| *number != self.number) {
                    return None;
                }
                if let Some(taken) = state.take(&self.scope) {
                    drop(state);
                    // There is room for another message.
                    self.mailbox.changed.notify_waiters();
                    return Some(taken);
                }
            }
            changed.await;
        }
    }
}

impl Drop for MessageStream {
    fn drop(&mut self) {
        let mut state = self.mailbox.lock();
        state.used_at = Instant::now();
        state.streams.retain(|(_, number)| *number != self.number);
        drop(state);
        // The stream of all messages shows those of the session from now on.
        self.mailbox.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    async fn put(mailbox: &Mailbox, session: &str, text: &str) {
        let room = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
        let session = (!session.is_empty()).then(|| session.to_owned());
        mailbox.put(Outbound { session, text: text.to_owned(), room }).await;
    }

    fn scope(session: &str) -> Scope {
        Some(session.to_owned())
    }

    #[tokio::test]
    async fn messages_go_to_the_stream_of_their_session() {
        let mailbox = Arc::new(Mailbox::new());
        put(&mailbox, "a", "before").await;
        let mut all = mailbox.open(None, None).unwrap();
        assert_eq!(all.next().await, Some((1, "before".to_owned())));
        let mut own = mailbox.open(scope("a"), None).unwrap();
        put(&mailbox, "a", "to a").await;
        put(&mailbox, "", "to all").await;
        assert_eq!(own.next().await, Some((2, "to a".to_owned())));
        assert_eq!(all.next().await, Some((3, "to all".to_owned())));
        put(&mailbox, "a", "late").await;
        drop(own);
        assert_eq!(all.next().await, Some((4, "late".to_owned())));
        assert!(!mailbox.is_idle(Duration::ZERO));
    }

    #[tokio::test]
    async fn broken_stream_is_resumed_after_the_last_message_that_arrived() {
        let mailbox = Arc::new(Mailbox::new());
        let mut broken = mailbox.open(scope("a"), None).unwrap();
        for text in ["one", "two", "three", "four"] {
            put(&mailbox, "a", text).await;
        }
        for _ in 0..3 {
            broken.next().await.unwrap();
        }
        // The server has not noticed yet that the stream is broken.
        let mut again = mailbox.open(scope("a"), Some(1)).unwrap();
        assert_eq!(broken.next().await, None);
        drop(broken);
        for expect in [(4, "two"), (5, "three"), (6, "four")] {
            assert_eq!(again.next().await, Some((expect.0, expect.1.to_owned())));
        }
        assert_eq!(mailbox.open(scope("a"), Some(7)).err(), Some(Forgotten));
        // What was sent again can be lost as well.
        let mut third = mailbox.open(scope("a"), Some(5)).unwrap();
        assert_eq!(third.next().await, Some((7, "four".to_owned())));
    }

    #[tokio::test]
    async fn message_that_waited_for_another_stream_is_numbered_by_the_one_that_sends_it() {
        let mailbox = Arc::new(Mailbox::new());
        let mut all = mailbox.open(None, None).unwrap();
        let own = mailbox.open(scope("a"), None).unwrap();
        put(&mailbox, "a", "to a").await;
        put(&mailbox, "", "to all").await;
        assert_eq!(all.next().await, Some((1, "to all".to_owned())));
        drop(own);
        assert_eq!(all.next().await, Some((2, "to a".to_owned())));
        // Only the first one arrived.
        let mut again = mailbox.open(None, Some(1)).unwrap();
        assert_eq!(again.next().await, Some((3, "to a".to_owned())));
        let mut again = mailbox.open(None, Some(3)).unwrap();
        put(&mailbox, "", "next").await;
        assert_eq!(again.next().await, Some((4, "next".to_owned())));
    }

    #[tokio::test]
    async fn sent_messages_are_kept_up_to_a_limit() {
        let mailbox = Arc::new(Mailbox::new());
        let mut stream = mailbox.open(None, None).unwrap();
        let large = "x".repeat(MAX_SENT_BYTES / 2);
        for _ in 0..3 {
            put(&mailbox, "", &large).await;
            stream.next().await.unwrap();
        }
        assert_eq!(mailbox.open(None, Some(0)).err(), Some(Forgotten));
        let mut again = mailbox.open(None, Some(1)).unwrap();
        assert_eq!(again.next().await.map(|(number, _)| number), Some(4));
        // A stream of another scope has lost nothing.
        assert!(mailbox.open(scope("a"), Some(0)).is_ok());
    }
}
