//! Identifies the process at the other end of a Unix socket.
//!
//! A connection outlives the process that opened it, and the number of an ended process is given to another one. So
//! the number alone proves nothing: a sandboxed process could connect, end, and wait until its number belongs to a
//! process outside of the sandbox. A process descriptor of the peer names one process for good.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use hob_files::owned;
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};

use crate::tree::{self, Process};
use crate::wire::own;

/// How often the ancestors are looked up if they change meanwhile.
const MAX_WALKS: usize = 20;

/// Returns the process descriptor of a socket's peer (Linux 6.5 and later).
fn peer_descriptor(socket: BorrowedFd<'_>) -> nix::Result<OwnedFd> {
    let mut descriptor: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    let value = (&raw mut descriptor).cast::<libc::c_void>();
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERPIDFD);
    // SAFETY: the kernel writes at most `length` bytes, which is the size of the descriptor's number.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, value, &raw mut length) };
    Errno::result(result).map(|_| own(descriptor))
}

/// The process that opened a connection.
pub(crate) struct Peer {
    pid: i32,
    /// `None` on a kernel that does not provide it.
    descriptor: Option<OwnedFd>,
}

impl Peer {
    /// Identifies the peer of a connected socket. Returns `None` if its process has ended.
    pub fn of(socket: BorrowedFd<'_>) -> io::Result<Option<Peer>> {
        let descriptor = match peer_descriptor(socket) {
            Ok(descriptor) => descriptor,
            Err(Errno::ENOPROTOOPT) => {
                let pid = getsockopt(&socket, sockopt::PeerCredentials)?.pid();
                return Ok(Some(Peer { pid, descriptor: None }));
            }
            // The process has ended and was reaped.
            Err(Errno::ESRCH | Errno::EINVAL | Errno::ENODATA) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let info = owned::read_to_string(format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd()))?;
        let pid = info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
        Ok(pid.filter(|pid| *pid > 0).map(|pid| Peer { pid, descriptor: Some(descriptor) }))
    }

    /// Returns the process and its ancestors, up to the first one for which `is_last` is true. Returns `None` if the
    /// process has ended, so that its ancestors are unknown.
    pub fn ancestry(&self, is_last: impl Fn(i32) -> bool) -> Option<Vec<i32>> {
        for _ in 0..MAX_WALKS {
            let mut chain: Vec<Process> = Vec::new();
            let mut pid = self.pid;
            while pid > 1 && !is_last(pid) {
                let process = tree::process(pid)?;
                pid = process.parent;
                chain.push(process);
            }
            // An ancestor may have ended on the way, and its number may belong to another process. If nothing has changed
            // since, all of them lived at one time, and the numbers are theirs.
            let is_unchanged =
                |known: &Process| tree::process(known.pid).is_some_and(|now| now == *known);
            if chain.iter().all(is_unchanged) {
                let numbers = chain.iter().map(|process| process.pid).chain([pid]).collect();
                return self.is_alive().then_some(numbers);
            }
        }
        None
    }

    fn is_alive(&self) -> bool {
        let Some(descriptor) = &self.descriptor else { return true };
        let mut watched = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
        // The descriptor becomes readable when the process ends.
        matches!(poll(&mut watched, PollTimeout::ZERO), Ok(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_live_peer_is_known_with_its_ancestors() {
        let (one, other) = UnixStream::pair().unwrap();
        let peer = Peer::of(one.as_fd()).unwrap().expect("a live peer");
        let own = std::process::id() as i32;
        let chain = peer.ancestry(|_| false).expect("ancestors");
        assert_eq!(chain[0], own);
        assert_eq!(chain[1], std::os::unix::process::parent_id() as i32);
        assert_eq!(peer.ancestry(|pid| pid == own).unwrap(), [own]);
        drop(other);
    }
}
