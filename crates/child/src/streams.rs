//! The streams of a child: a pseudo-terminal or three pipes.

use std::io;
use std::os::fd::OwnedFd;

use hob_files::owned;
use nix::fcntl::OFlag;

use crate::pty;
use crate::spec::{Stdin, Streams};

/// How much of a terminal's output is kept.
const TERMINAL_RING_BYTES: usize = 256 << 10;
/// How much of standard error is kept.
const STDERR_TAIL_BYTES: usize = 16 << 10;

/// Both ends of a child's streams.
pub(crate) struct OpenStreams {
    /// The child's ends: one for a terminal, three for pipes.
    pub child_ends: Vec<OwnedFd>,
    /// The caller's end of standard input.
    pub stdin: Option<OwnedFd>,
    /// The caller's end of standard output.
    pub stdout: Option<OwnedFd>,
    /// The end that the owning thread drains: the terminal, or standard error.
    pub drained: OwnedFd,
    /// How many of the drained bytes are kept.
    pub ring: usize,
}

/// Opens the terminal or the pipes of a child.
pub(crate) fn open_streams(streams: Streams) -> io::Result<OpenStreams> {
    match streams {
        Streams::Terminal { size } => {
            let (drained, terminal) = pty::open(size)?;
            let (stdin, stdout) = (None, None);
            let ring = TERMINAL_RING_BYTES;
            Ok(OpenStreams { child_ends: vec![terminal], stdin, stdout, drained, ring })
        }
        Streams::Pipes { stdin: kind } => {
            let (input, stdin) = match kind {
                Stdin::Null => (owned::open("/dev/null")?.into(), None),
                Stdin::Pipe => {
                    let (reading, writing) = pipe_pair()?;
                    nonblocking(&writing)?;
                    (reading, Some(writing))
                }
            };
            let (out_reading, out_writing) = pipe_pair()?;
            let (err_reading, err_writing) = pipe_pair()?;
            nonblocking(&out_reading)?;
            nonblocking(&err_reading)?;
            Ok(OpenStreams {
                child_ends: vec![input, out_writing, err_writing],
                stdin,
                stdout: Some(out_reading),
                drained: err_reading,
                ring: STDERR_TAIL_BYTES,
            })
        }
    }
}

fn pipe_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(io::Error::from)
}

fn nonblocking(fd: &OwnedFd) -> io::Result<()> {
    nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
        .map_err(io::Error::from)?;
    Ok(())
}
