//! What to start: a program with its folder, its environment and its streams.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::confine::Confinement;
use crate::pty::Size;

/// A program to start. The environment is exactly `env`: nothing is inherited.
#[derive(Debug, Clone)]
pub struct ChildSpec {
    pub program: OsString,
    pub args: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
    pub streams: Streams,
    /// For whom the child works; see [`crate::Children::placed`].
    pub owner: Option<Owner>,
    /// The confinement; `None` for a child that may do whatever the user may.
    pub confinement: Option<Confinement>,
}

/// For whom a child works, in the caller's terms.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owner {
    pub app: String,
    /// The hosts whose Git credentials the child may ask for.
    pub git_hosts: Vec<String>,
}

/// How the child's three streams are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// Pipes. The caller reads standard output; a bounded tail of standard error is kept.
    Pipes { stdin: Stdin },
    /// A pseudo-terminal as the controlling terminal, drained continuously into a bounded ring.
    Terminal { size: Size },
}

/// Standard input of a child on pipes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdin {
    /// `/dev/null`: the child reads end of file at once.
    Null,
    /// A pipe whose other end is in [`crate::Child::stdin`].
    Pipe,
}
