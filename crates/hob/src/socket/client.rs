//! Short-lived commands talk to the server through this: blocking, with a deadline.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use super::protocol::{Answer, Call, FRAME_LIMIT, Hello, PROTOCOL};

/// A server that has not said hello by then counts as unreachable.
pub const PROBE: Duration = Duration::from_millis(250);
/// A server that has not answered by then counts as unreachable.
pub const DEADLINE: Duration = Duration::from_secs(1);

/// A conversation with the server.
pub struct Connection {
    stream: UnixStream,
    hello: Hello,
}

impl Connection {
    /// Connects and says hello, within `deadline`.
    pub fn open(path: &Path, deadline: Duration) -> io::Result<Connection> {
        let until = Instant::now() + deadline;
        let stream = connect_now(path)?;
        match call(&stream, &Call::Hello { protocol: PROTOCOL }, until)? {
            Answer::Hello(hello) => Ok(Connection { stream, hello }),
            Answer::Error(error) => Err(io::Error::other(error)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// One call and its answer, within `deadline`. After an error the conversation is over.
    pub fn call(&mut self, what: &Call, deadline: Duration) -> io::Result<Answer> {
        match call(&self.stream, what, Instant::now() + deadline)? {
            Answer::Error(error) => Err(io::Error::other(error)),
            answer => Ok(answer),
        }
    }
}

impl Connection {
    /// The stream itself, for another kind of conversation.
    pub fn into_stream(self) -> io::Result<UnixStream> {
        self.stream.set_read_timeout(None)?;
        self.stream.set_write_timeout(None)?;
        Ok(self.stream)
    }
}

/// Asks who is there.
pub fn hello(socket: &Path) -> io::Result<Hello> {
    Ok(Connection::open(socket, DEADLINE)?.hello)
}

/// Connects, or fails at once: a server that accepts nobody must not hold anybody up.
fn connect_now(path: &Path) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let descriptor = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(descriptor.as_raw_fd(), &UnixAddr::new(path)?)?;
    let stream = UnixStream::from(descriptor);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// One call and its answer, all of it before the deadline: a server that trickles is as good as none.
fn call(stream: &UnixStream, call: &Call, deadline: Instant) -> io::Result<Answer> {
    let body = serde_json::to_vec(call)?;
    if body.len() > FRAME_LIMIT {
        return Err(io::Error::other("the call is longer than a frame may be"));
    }
    let mut stream = Timed { stream, deadline };
    stream.write_all(&(body.len() as u32).to_be_bytes())?;
    stream.write_all(&body)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > FRAME_LIMIT {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = Vec::new();
    stream.take(length as u64).read_to_end(&mut body)?;
    if body.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&body)?)
}

/// A stream of which every step ends at the same time.
struct Timed<'a> {
    stream: &'a UnixStream,
    deadline: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        // A timeout of zero would mean none.
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
