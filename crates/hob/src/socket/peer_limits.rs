//! Who is at the other end of a connection, and how much it may send and ask for at once.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hob_domain::AppName;
use hob_domain::json_size::has_too_many_values;
use hob_domain::memory::Principal;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How long the rest of a frame or line may take to arrive.
pub const MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest frame of an agent's process. A hook inside an agent sends its turns in smaller parts.
pub const AGENT_FRAME_LIMIT: usize = 8 << 20;
/// A longer frame or line of an agent needs a permit while it is in memory, so that an app cannot send many of them at once.
pub const LONG_MESSAGE_BYTES: usize = 64 << 10;
/// The most long frames and lines of one app's agents that are being received or answered; further ones wait.
const MAX_APP_LONG_MESSAGES: usize = 8;
/// The longest line of an agent that speaks MCP.
const MAX_AGENT_LINE_BYTES: usize = 2 << 20;
/// The most connections of one app's agents. Each bridge of an agent keeps one open.
const MAX_APP_CONNECTIONS: usize = 256;
/// The most calls that the owner's processes run at once; further calls wait.
const MAX_OWNER_CALLS: usize = 64;
/// The most calls that the agents of one app run at once; further calls wait.
const MAX_APP_CALLS: usize = 8;
/// The most folders that the agents of one app look up at once; further lookups wait. Each takes a thread, of which the server
/// has a limited number.
const MAX_APP_LOOKUPS: usize = 2;
/// The most calls over MCP that the agents of one app may have open; further calls are refused.
const MAX_APP_OPEN_CALLS: usize = 64;

/// How often one act of agents is noted in the audit log.
const NOTE_INTERVAL: Duration = Duration::from_secs(3600);

/// The process at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Peer {
    Owner,
    /// A process that an agent of this app has started.
    AgentOf(String),
}

impl Peer {
    /// Returns whose memory the peer uses. Agents in the owner's own sessions use that of the
    /// owner.
    pub fn principal(&self) -> Principal {
        match self {
            Peer::AgentOf(app) if app != AppName::owner().as_str() => Principal::App(app.clone()),
            Peer::Owner | Peer::AgentOf(_) => Principal::Owner,
        }
    }
}

/// The permits of all peers.
pub struct PeerLimits {
    connections: Permits,
    long_messages: Permits,
    calls: Permits,
    open_calls: Permits,
    lookups: Permits,
    line_timeout: Duration,
    /// What the audit log was told, and when.
    noted: Mutex<HashMap<String, Instant>>,
}

impl PeerLimits {
    pub fn new() -> PeerLimits {
        let of = |owner, app| Permits { owner, app, by_peer: Mutex::default() };
        PeerLimits {
            connections: of(Semaphore::MAX_PERMITS, MAX_APP_CONNECTIONS),
            long_messages: of(Semaphore::MAX_PERMITS, MAX_APP_LONG_MESSAGES),
            calls: of(MAX_OWNER_CALLS, MAX_APP_CALLS),
            open_calls: of(Semaphore::MAX_PERMITS, MAX_APP_OPEN_CALLS),
            lookups: of(MAX_OWNER_CALLS, MAX_APP_LOOKUPS),
            line_timeout: MESSAGE_TIMEOUT,
            noted: Mutex::default(),
        }
    }

    /// Returns whether an act of an agent was noted in the last hour, and remembers it. An agent must not be able to fill the
    /// audit log, from which old entries are removed.
    pub fn is_noted(&self, act: &str) -> bool {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        noted.retain(|_, at| at.elapsed() < NOTE_INTERVAL);
        let is_noted = noted.contains_key(act);
        if !is_noted {
            noted.insert(act.to_owned(), Instant::now());
        }
        is_noted
    }

    /// Returns the permit of a connection, or `None` if the peer has too many.
    pub fn connection(&self, peer: &Peer) -> Option<OwnedSemaphorePermit> {
        self.connections.of(peer).try_acquire_owned().ok()
    }

    /// Waits for the permit of a long message.
    pub async fn long_message(&self, peer: &Peer) -> io::Result<OwnedSemaphorePermit> {
        self.long_messages.of(peer).acquire_owned().await.map_err(io::Error::other)
    }

    /// Waits for the permit of a call.
    pub async fn call(&self, peer: &Peer) -> io::Result<OwnedSemaphorePermit> {
        self.calls.of(peer).acquire_owned().await.map_err(io::Error::other)
    }

    /// Waits for the permit of a lookup of a folder that the peer names.
    pub async fn lookup(&self, peer: &Peer) -> io::Result<OwnedSemaphorePermit> {
        self.lookups.of(peer).acquire_owned().await.map_err(io::Error::other)
    }

    /// Waits for the permit of a call over MCP, of which many may arrive at once on one connection. Returns `None` if too many
    /// wait already.
    pub async fn mcp_call(&self, peer: &Peer) -> Option<[OwnedSemaphorePermit; 2]> {
        let open = self.open_calls.of(peer).try_acquire_owned().ok()?;
        Some([open, self.call(peer).await.ok()?])
    }

    /// Passes complete lines of an agent on, until it closes the connection or breaks a limit.
    pub async fn pass_lines(
        &self,
        peer: &Peer,
        mut from: impl AsyncBufRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        // Between two lines, a connection may be silent for any time.
        while !from.fill_buf().await?.is_empty() {
            let mut line = Vec::new();
            // Held until the line is passed on. How many calls may be open then is bounded by their own permits.
            let _permit = self.read_line(peer, &mut from, &mut line).await?;
            if has_too_many_values(&line) {
                return Err(io::Error::other("the message has too many values"));
            }
            to.write_all(&line).await?;
        }
        Ok(())
    }

    /// Reads one line. Returns the permit of a long one.
    async fn read_line(
        &self,
        peer: &Peer,
        from: &mut (impl AsyncBufRead + Unpin),
        line: &mut Vec<u8>,
    ) -> io::Result<Option<OwnedSemaphorePermit>> {
        let mut permit = None;
        let mut deadline = Instant::now() + self.line_timeout;
        loop {
            let part = tokio::time::timeout_at(deadline, from.fill_buf()).await??;
            let end = part.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(part.len(), |end| end + 1);
            line.extend_from_slice(&part[..taken]);
            from.consume(taken);
            if end.is_some() || taken == 0 {
                return Ok(permit);
            }
            if line.len() > MAX_AGENT_LINE_BYTES {
                return Err(io::Error::other("the message is too long"));
            }
            if line.len() > LONG_MESSAGE_BYTES && permit.is_none() {
                let asked = Instant::now();
                permit = Some(self.long_message(peer).await?);
                // The wait for others does not count.
                deadline += asked.elapsed();
            }
        }
    }
}

/// Permits of which every peer has its own, so that the agents of one app cannot keep the owner or another app waiting.
struct Permits {
    /// How many the owner's processes have.
    owner: usize,
    /// How many the agents of each app have.
    app: usize,
    by_peer: Mutex<HashMap<Peer, Arc<Semaphore>>>,
}

impl Permits {
    fn of(&self, peer: &Peer) -> Arc<Semaphore> {
        let max = if *peer == Peer::Owner { self.owner } else { self.app };
        let mut all = self.by_peer.lock().unwrap_or_else(PoisonError::into_inner);
        // An entry whose permits nobody uses or waits for is not needed.
        all.retain(|known, permits| known == peer || Arc::strong_count(permits) > 1);
        all.entry(peer.clone()).or_insert_with(|| Arc::new(Semaphore::new(max))).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, BufReader, duplex};

    fn agent(app: &str) -> Peer {
        Peer::AgentOf(app.to_owned())
    }

    async fn passed(text: Vec<u8>) -> (io::Result<()>, Vec<u8>) {
        let limits = PeerLimits::new();
        let (to, mut out) = duplex(64 << 10);
        let reading = async {
            let mut all = Vec::new();
            out.read_to_end(&mut all).await.unwrap();
            all
        };
        let peer = agent("a");
        tokio::join!(limits.pass_lines(&peer, BufReader::new(text.as_slice()), to), reading)
    }

    #[tokio::test]
    async fn lines_are_passed_on_whole() {
        let text = format!("{{\"a\":1}}\n\n{}\nthe rest", "x".repeat(MAX_AGENT_LINE_BYTES - 10));
        let (end, found) = passed(text.clone().into_bytes()).await;
        assert!(end.is_ok() && found == text.as_bytes());
    }

    #[tokio::test]
    async fn lines_that_are_too_long_or_have_too_many_values_end_the_connection() {
        let (end, found) = passed(vec![b'x'; 2 * MAX_AGENT_LINE_BYTES]).await;
        assert!(end.is_err() && found.is_empty());
        let (end, found) = passed([b"[],".repeat(300_000), b"\n".to_vec()].concat()).await;
        assert!(end.is_err() && found.is_empty());
    }

    #[tokio::test]
    async fn line_without_an_end_times_out_and_frees_its_permit() {
        let limits = PeerLimits { line_timeout: Duration::from_millis(50), ..PeerLimits::new() };
        let peer = agent("a");
        let (mut agent_end, from) = duplex(1 << 20);
        agent_end.write_all(&vec![b'x'; 2 * LONG_MESSAGE_BYTES]).await.unwrap();
        let end = limits.pass_lines(&peer, BufReader::new(from), tokio::io::sink()).await;
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(limits.long_messages.of(&peer).available_permits(), MAX_APP_LONG_MESSAGES);
    }

    #[tokio::test]
    async fn agents_of_the_owner_do_not_use_up_the_permits_of_the_owner() {
        let limits = PeerLimits::new();
        let owners_agent = agent(AppName::owner().as_str());
        assert_eq!(owners_agent.principal(), Principal::Owner);
        let mut held = Vec::new();
        for _ in 0..MAX_APP_CALLS {
            held.push(limits.call(&owners_agent).await.unwrap());
        }
        assert_eq!(limits.calls.of(&owners_agent).available_permits(), 0);
        assert_eq!(limits.calls.of(&Peer::Owner).available_permits(), MAX_OWNER_CALLS);
        assert_eq!(limits.calls.of(&agent("b")).available_permits(), MAX_APP_CALLS);
    }
}
