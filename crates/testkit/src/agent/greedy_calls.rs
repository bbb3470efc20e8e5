//! Calls to Hob's socket that take what they can get: frames and lines that never end, many calls at once, and a
//! connection of a process that has ended.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};

/// How long a connection may take to answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_millis(200);
/// How long the connections of one attack send, if the server goes on reading.
const MAX_SENDING: Duration = Duration::from_millis(600);
/// How many times in a row no connection could send, before an attack ends.
const MAX_IDLE_ROUNDS: u32 = 5;
/// How many processes start and end, so that numbers of processes are used again.
const SHORT_LIVES: u32 = 4;

/// Returns a frame of Hob's socket: a length and a text.
pub fn frame(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

/// Sends something and returns what is answered at once.
pub fn answer_of(mut stream: &UnixStream, sent: &[u8]) -> Vec<u8> {
    let _ = stream.set_read_timeout(Some(ANSWER_TIMEOUT));
    let _ = stream.set_write_timeout(Some(ANSWER_TIMEOUT));
    let _ = stream.write_all(sent);
    let mut answer = vec![0; 64 << 10];
    let count = stream.read(&mut answer).unwrap_or_default();
    answer.truncate(count);
    answer
}

/// Returns whether Hob answers this connection as it answers only the owner.
pub fn speaks_as_the_owner(mut stream: &UnixStream) -> bool {
    if stream.write_all(&frame(r#"{"call":"http"}"#)).is_err() {
        return false;
    }
    let request = b"GET /admin/apps HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut answer = answer_of(stream, request);
    // The answer to the frame may come first.
    answer.extend(answer_of(stream, b""));
    answer.windows(9).any(|window| window == b" 200 OK\r\n")
}

/// Returns connections that each announce a frame of this length and never finish it.
pub fn unfinished_frames(hob: &Path, count: usize, length: u32) -> Vec<UnixStream> {
    let streams = connections(hob, count);
    for mut stream in &streams {
        let _ = stream.write_all(&length.to_be_bytes());
    }
    send_without_end(&streams, length as usize - 1);
    streams
}

/// Returns connections that have switched to MCP and send one line without an end.
pub fn endless_lines(hob: &Path, count: usize, length: usize) -> Vec<UnixStream> {
    let streams = connections(hob, count);
    for stream in &streams {
        answer_of(stream, &frame(r#"{"call":"mcp","cwd":null}"#));
    }
    send_without_end(&streams, length);
    streams
}

/// Returns connections whose calls all need the project of a folder. Nobody reads their answers.
pub fn calls_from(hob: &Path, folder: &Path, count: usize) -> Vec<UnixStream> {
    let call =
        format!(r#"{{"call":"tool","name":"memory_stats","cwd":{folder:?},"arguments":{{}}}}"#);
    let streams = connections(hob, count);
    for mut stream in &streams {
        let _ = stream.set_write_timeout(Some(ANSWER_TIMEOUT));
        let _ = stream.write_all(&frame(&call));
    }
    streams
}

/// Returns a connection that a process has opened which has ended. Other processes have started since then, and one of
/// them may have its number.
pub fn connection_of_an_ended_process(hob: &Path) -> Option<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let stream: OwnedFd = socket(AddressFamily::Unix, SockType::Stream, flags, None).ok()?;
    let address = UnixAddr::new(hob).ok()?;
    in_process(|| {
        let _ = connect(stream.as_raw_fd(), &address);
    });
    (0..SHORT_LIVES).for_each(|_| in_process(|| ()));
    Some(UnixStream::from(stream))
}

/// Runs something in a process of its own and waits for its end.
fn in_process(work: impl FnOnce()) {
    // SAFETY: the program has one thread.
    match unsafe { fork() } {
        Ok(ForkResult::Parent { child }) => drop(waitpid(child, None)),
        Ok(ForkResult::Child) => {
            work();
            // SAFETY: ends this process without running what its parent has registered.
            unsafe { nix::libc::_exit(0) };
        }
        Err(_) => {}
    }
}

fn connections(hob: &Path, count: usize) -> Vec<UnixStream> {
    (0..count).map_while(|_| UnixStream::connect(hob).ok()).collect()
}

/// Sends up to `length` bytes on every connection, for as long as the server reads.
fn send_without_end(streams: &[UnixStream], length: usize) {
    let part = [b'x'; 64 << 10];
    let mut left: Vec<(&UnixStream, usize)> =
        streams.iter().filter(|s| s.set_nonblocking(true).is_ok()).map(|s| (s, length)).collect();
    let (started, mut idle) = (Instant::now(), 0);
    while started.elapsed() < MAX_SENDING && idle < MAX_IDLE_ROUNDS && !left.is_empty() {
        idle += 1;
        left.retain_mut(|(stream, length)| {
            let part = &part[..part.len().min(*length)];
            match stream.write(part) {
                Ok(sent) => {
                    idle = 0;
                    *length -= sent;
                    *length > 0
                }
                Err(error) => error.kind() == ErrorKind::WouldBlock,
            }
        });
        if idle > 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
