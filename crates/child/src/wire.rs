//! The control protocol between Hob and a shim.
//!
//! Hob sends one launch message (length-prefixed byte strings, with the child's descriptors as
//! ancillary data on its first byte) and then one-line orders. The shim answers with one-line notes.
//! End of file from Hob means "end the tree"; end of file from the shim means "the tree is gone".

use std::ffi::{OsStr, OsString};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::confine::Confinement;
use crate::limits::TreeLimits;

/// What the shim is to start. Descriptors travel with it: three for pipes, one for a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Launch {
    pub terminal: bool,
    pub umask: u32,
    pub cwd: OsString,
    pub program: OsString,
    pub args: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub confinement: Option<Confinement>,
}

impl Launch {
    /// The message: its length in four bytes, then the fields, each with its own length.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let mut put = |bytes: &[u8]| {
            body.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
            body.extend_from_slice(bytes);
        };
        put(if self.terminal { b"t" } else { b"p" });
        put(self.umask.to_string().as_bytes());
        put(self.cwd.as_bytes());
        put(self.program.as_bytes());
        put(self.args.len().to_string().as_bytes());
        for arg in &self.args {
            put(arg.as_bytes());
        }
        // No list means no confinement.
        let lists: Vec<&[PathBuf]> = match &self.confinement {
            None => Vec::new(),
            Some(c) => vec![
                &c.hidden,
                &c.writable,
                &c.readable,
                &c.sockets,
                &c.visible,
                std::slice::from_ref(&c.temporary),
            ],
        };
        put(lists.len().to_string().as_bytes());
        if let Some(confinement) = &self.confinement {
            put(&[u8::from(confinement.view_required), u8::from(confinement.strict)]);
            // An empty list of ports allows none.
            put(&[u8::from(confinement.ports.is_some())]);
            let ports = confinement.ports.iter().flatten().flat_map(|port| port.to_be_bytes());
            put(&ports.collect::<Vec<u8>>());
        }
        for list in lists {
            put(list.len().to_string().as_bytes());
            for path in list {
                put(path.as_os_str().as_bytes());
            }
        }
        for (name, value) in &self.env {
            put(name.as_bytes());
            put(value.as_bytes());
        }
        let mut message = (body.len() as u32).to_be_bytes().to_vec();
        message.extend_from_slice(&body);
        message
    }

    /// Reads a message's body. `None` for anything [`Launch::encode`] does not write.
    pub fn decode(body: &[u8]) -> Option<Launch> {
        let mut fields = Vec::new();
        let mut rest = body;
        while !rest.is_empty() {
            let (length, tail) = rest.split_at_checked(4)?;
            let length = u32::from_be_bytes(length.try_into().ok()?) as usize;
            let (field, tail) = tail.split_at_checked(length)?;
            fields.push(field);
            rest = tail;
        }
        let mut fields = fields.into_iter();
        let text = |bytes| std::str::from_utf8(bytes).ok();
        let os = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let terminal = match fields.next()? {
            b"t" => true,
            b"p" => false,
            _ => return None,
        };
        let umask = text(fields.next()?)?.parse().ok()?;
        let cwd = os(fields.next()?);
        let program = os(fields.next()?);
        let args = paths(&mut fields)?.into_iter().map(PathBuf::into_os_string).collect();
        let lists: usize = text(fields.next()?)?.parse().ok()?;
        let confinement = match lists {
            0 => None,
            _ => {
                let &[view_required, strict] = fields.next()? else { return None };
                let are_ports_given = fields.next()? == [1];
                let ports = fields.next()?.chunks(2).map(|port| port.try_into().ok());
                let ports: Option<Vec<u16>> =
                    ports.map(|port| port.map(u16::from_be_bytes)).collect();
                Some(Confinement {
                    ports: ports.filter(|_| are_ports_given),
                    view_required: view_required == 1,
                    strict: strict == 1,
                    hidden: paths(&mut fields)?,
                    writable: paths(&mut fields)?,
                    readable: paths(&mut fields)?,
                    sockets: paths(&mut fields)?,
                    visible: paths(&mut fields)?,
                    temporary: paths(&mut fields)?.pop()?,
                    limits: TreeLimits::default(),
                })
            }
        };
        let mut env = Vec::new();
        while let Some(name) = fields.next() {
            env.push((os(name), os(fields.next()?)));
        }
        Some(Launch { terminal, umask, cwd, program, args, env, confinement })
    }
}

/// Reads a list: its length, then its elements.
fn paths<'a>(fields: &mut impl ExactSizeIterator<Item = &'a [u8]>) -> Option<Vec<PathBuf>> {
    let count: usize = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
    (count <= fields.len()).then(|| fields.by_ref().take(count).map(path).collect())
}

/// A command from Hob to the shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShimCommand {
    /// Send this signal to the agent itself.
    Signal(i32),
    /// TERM to the whole tree, KILL to what is left after this many milliseconds.
    End { grace_ms: u64 },
}

impl ShimCommand {
    pub fn encode(self) -> String {
        match self {
            ShimCommand::Signal(number) => format!("signal {number}\n"),
            ShimCommand::End { grace_ms } => format!("end {grace_ms}\n"),
        }
    }

    pub fn decode(line: &str) -> Option<ShimCommand> {
        let (word, number) = line.trim_end().split_once(' ')?;
        match word {
            "signal" => Some(ShimCommand::Signal(number.parse().ok()?)),
            "end" => Some(ShimCommand::End { grace_ms: number.parse().ok()? }),
            _ => None,
        }
    }
}

/// An event from the shim to Hob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ShimEvent {
    /// The agent runs under this pid since this time.
    Started { pid: i32, start: u64 },
    /// The agent could not be started; an operating system error number.
    Failed { errno: i32 },
    /// The agent was not started because it could not be confined; an operating system error number.
    NotConfined { errno: i32 },
    /// The agent itself ended with this raw wait status. Its descendants are being ended.
    Exited { status: i32 },
}

impl ShimEvent {
    pub fn encode(&self) -> String {
        match self {
            ShimEvent::Started { pid, start } => format!("started {pid} {start}\n"),
            ShimEvent::Failed { errno } => format!("failed {errno}\n"),
            ShimEvent::NotConfined { errno } => format!("not-confined {errno}\n"),
            ShimEvent::Exited { status } => format!("exited {status}\n"),
        }
    }

    pub fn decode(line: &str) -> Option<ShimEvent> {
        let mut words = line.split_ascii_whitespace();
        match words.next()? {
            "started" => {
                let pid = words.next()?.parse().ok()?;
                Some(ShimEvent::Started { pid, start: words.next()?.parse().ok()? })
            }
            "failed" => Some(ShimEvent::Failed { errno: words.next()?.parse().ok()? }),
            "not-confined" => Some(ShimEvent::NotConfined { errno: words.next()?.parse().ok()? }),
            "exited" => Some(ShimEvent::Exited { status: words.next()?.parse().ok()? }),
            _ => None,
        }
    }
}

/// Takes ownership of a descriptor that was just received over a socket.
pub(crate) fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: the kernel has just created this descriptor for this process, and nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Returns whether the text contains NUL, which arguments and variables must not.
pub(crate) fn has_nul(text: &OsStr) -> bool {
    text.as_bytes().contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn os() -> impl Strategy<Value = OsString> {
        prop::collection::vec(any::<u8>(), 0..20).prop_map(OsString::from_vec)
    }

    fn confinement() -> impl Strategy<Value = Option<Confinement>> {
        let path = || os().prop_map(PathBuf::from);
        let paths = || prop::collection::vec(path(), 0..6);
        let ports = prop::option::of(prop::collection::vec(any::<u16>(), 0..4));
        let some = (path(), paths(), paths(), any::<bool>(), ports).prop_map(
            |(temporary, hidden, writable, strict, ports)| Confinement {
                strict,
                ports,
                view_required: !strict,
                readable: writable.clone(),
                hidden,
                writable,
                temporary,
                ..Confinement::default()
            },
        );
        prop::option::of(some)
    }

    proptest! {
        #[test]
        fn a_launch_survives_the_wire(
            terminal: bool, umask in 0u32..0o777, cwd in os(), program in os(),
            args in prop::collection::vec(os(), 0..6),
            env in prop::collection::vec((os(), os()), 0..6),
            confinement in confinement(),
        ) {
            let launch = Launch { terminal, umask, cwd, program, args, env, confinement };
            let message = launch.encode();
            prop_assert_eq!(u32::from_be_bytes(message[..4].try_into().unwrap()) as usize, message.len() - 4);
            prop_assert_eq!(Launch::decode(&message[4..]), Some(launch));
        }

        #[test]
        fn garbage_is_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Launch::decode(&bytes);
            let text = String::from_utf8_lossy(&bytes);
            let _ = (ShimCommand::decode(&text), ShimEvent::decode(&text));
        }
    }

    #[test]
    fn orders_and_notes_survive_the_wire() {
        for order in [ShimCommand::Signal(15), ShimCommand::End { grace_ms: 500 }] {
            assert_eq!(ShimCommand::decode(&order.encode()), Some(order));
        }
        let notes = [
            ShimEvent::Started { pid: 7, start: 99 },
            ShimEvent::Failed { errno: 2 },
            ShimEvent::NotConfined { errno: 2 },
            ShimEvent::Exited { status: 9 },
        ];
        for note in notes {
            assert_eq!(ShimEvent::decode(&note.encode()), Some(note));
        }
    }
}
