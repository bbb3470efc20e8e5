//! The client side of the socket, for short-lived commands: blocking, with a deadline for each
//! call.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use super::protocol::{Answer, Call, FRAME_LIMIT, Hello, PROTOCOL};
use crate::home::Home;

/// How long a hook waits for the server's hello before the server counts as unreachable.
pub const PROBE_TIMEOUT: Duration = Duration::from_millis(250);
/// How long a command waits for an answer before the server counts as unreachable.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection to the server.
pub struct Connection {
    stream: UnixStream,
    hello: Hello,
}

impl Connection {
    /// Connects and exchanges hellos, within `timeout`.
    pub fn open(path: &Path, timeout: Duration) -> io::Result<Connection> {
        Connection::greet(path, None, timeout)
    }

    /// Connects like [`Connection::open`]. Fails if the server serves another home: two homes may be set to
    /// one socket, and neither may answer with the other's data.
    pub fn open_home(path: &Path, home: &Home, timeout: Duration) -> io::Result<Connection> {
        let identity = match home.identity() {
            // A home that is not there yet is another one than the server's.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some("none".to_owned()),
            identity => identity.ok(),
        };
        Connection::greet(path, identity, timeout)
    }

    fn greet(path: &Path, home: Option<String>, timeout: Duration) -> io::Result<Connection> {
        let until = Instant::now() + timeout;
        let stream = connect_now(path)?;
        match call(&stream, &Call::Hello { protocol: PROTOCOL, home }, until)? {
            Answer::Hello(hello) => Ok(Connection { stream, hello }),
            Answer::Error(error) => Err(io::Error::other(error)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Sends a call and returns its answer, within `timeout`. After an error the connection must
    /// not be used again.
    pub fn call(&mut self, request: &Call, timeout: Duration) -> io::Result<Answer> {
        match call(&self.stream, request, Instant::now() + timeout)? {
            Answer::Error(error) => Err(io::Error::other(error)),
            answer => Ok(answer),
        }
    }

    /// Returns the stream, for a connection that switched to another protocol.
    pub fn into_stream(self) -> io::Result<UnixStream> {
        self.stream.set_read_timeout(None)?;
        self.stream.set_write_timeout(None)?;
        Ok(self.stream)
    }
}

/// Returns the hello of the server.
pub fn hello(socket: &Path) -> io::Result<Hello> {
    Ok(Connection::open(socket, CALL_TIMEOUT)?.hello)
}

/// Connects, or fails at once: a server that accepts no connections must not block the command.
fn connect_now(path: &Path) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let descriptor = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(descriptor.as_raw_fd(), &UnixAddr::new(path)?)?;
    let stream = UnixStream::from(descriptor);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Sends a call and reads the whole answer before the deadline, even if the server sends it byte by
/// byte.
fn call(stream: &UnixStream, call: &Call, deadline: Instant) -> io::Result<Answer> {
    let body = serde_json::to_vec(call)?;
    if body.len() > FRAME_LIMIT {
        return Err(io::Error::other("the request exceeds the maximum frame size"));
    }
    let mut stream = DeadlineStream { stream, deadline };
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

/// A stream whose reads and writes all end at the same deadline.
struct DeadlineStream<'a> {
    stream: &'a UnixStream,
    deadline: Instant,
}

impl DeadlineStream<'_> {
    fn remaining(&self) -> io::Result<Option<Duration>> {
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        // A timeout of zero would mean no timeout.
        if remaining.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(remaining)) }
    }
}

impl Read for DeadlineStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.remaining()?)?;
        self.stream.read(buffer)
    }
}

impl Write for DeadlineStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.remaining()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
