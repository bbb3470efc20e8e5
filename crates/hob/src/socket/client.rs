//! Short-lived commands talk to the server through this: blocking, with a deadline.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use super::{Answer, Call, FRAME_LIMIT, Hello, PROTOCOL};

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
        let stream = connect_now(path)?;
        stream.set_read_timeout(Some(deadline))?;
        stream.set_write_timeout(Some(deadline))?;
        let mut stream = stream;
        match call(&mut stream, &Call::Hello { protocol: PROTOCOL })? {
            Answer::Hello(hello) => Ok(Connection { stream, hello }),
            Answer::Error(error) => Err(io::Error::other(error)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// One call and its answer, within `deadline`. After an error the conversation is over.
    pub fn call(&mut self, what: &Call, deadline: Duration) -> io::Result<Answer> {
        // A timeout of zero would mean none.
        let deadline = deadline.max(Duration::from_millis(1));
        self.stream.set_read_timeout(Some(deadline))?;
        self.stream.set_write_timeout(Some(deadline))?;
        match call(&mut self.stream, what)? {
            Answer::Error(error) => Err(io::Error::other(error)),
            answer => Ok(answer),
        }
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

fn call(stream: &mut UnixStream, call: &Call) -> io::Result<Answer> {
    let body = serde_json::to_vec(call)?;
    if body.len() > FRAME_LIMIT {
        return Err(io::Error::other("the call is longer than a frame may be"));
    }
    stream.write_all(&(body.len() as u32).to_be_bytes())?;
    stream.write_all(&body)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > FRAME_LIMIT {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(serde_json::from_slice(&body)?)
}
