//! Short-lived commands talk to the server through this: blocking, with a deadline.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::{Answer, Call, FRAME_LIMIT, Hello, PROTOCOL};

/// A server that has not answered by then counts as unreachable.
const DEADLINE: Duration = Duration::from_secs(1);

/// Asks who is there.
pub fn hello(socket: &Path) -> io::Result<Hello> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    match call(&mut stream, &Call::Hello { protocol: PROTOCOL })? {
        Answer::Hello(hello) => Ok(hello),
        Answer::Error(error) => Err(io::Error::other(error)),
    }
}

fn call(stream: &mut UnixStream, call: &Call) -> io::Result<Answer> {
    let body = serde_json::to_vec(call)?;
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
