//! Child processes that never outlive their owner.
//!
//! This is the only crate that starts processes. Every agent runs under a *shim*: a small
//! single-threaded process (this same executable, entered through [`shim::run`]) that is the
//! subreaper and waiter of the agent's whole tree. The shim ends that tree on command, when
//! the agent itself ends, and when its control socket reaches end of file. The last case covers
//! everything that can happen to the owner: a dropped handle, a dropped runtime, a panic, `kill -9`.
//!
//! - [`Children`] owns all children of one Hob process and the thread that looks after them.
//! - [`Child`] is the handle of one child; dropping it ends the whole tree.
//! - [`Confinement`] is what a child may not reach; the shim enforces it on the agent's whole tree.
//! - [`show_in_pager`] lets the user page through a text, and waits for it.
//! - [`open_in_browser`] asks the user's desktop to show a page. It is the one process that outlives Hob.
//! - [`sweep`] is the second line of defence: at start it ends processes that an earlier run left.
//!
//! Invariant: nothing here signals a process by pid alone. Inside a tree the shim is the reaper, so
//! a pid it sees as its descendant cannot have been reused; across runs a pid counts only together
//! with its start time or with the run marker in its environment.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make and look at files"))]

mod browser;
mod cgroup;
mod child;
mod children;
mod confine;
mod environment;
mod exit;
mod limits;
pub mod namespace_processes;
mod namespaces;
mod network_filter;
mod pager;
mod peer;
mod program;
mod pty;
mod record;
mod ring;
pub mod shim;
mod shim_link;
pub mod signals;
mod spec;
mod streams;
pub mod sweep;
pub mod tree;
mod wire;

pub use browser::open_in_browser;
pub use cgroup::{ControlGroups, has_control_groups};
pub use child::{Child, ChildTerminal, Exit, Output, StopLadder};
pub use children::{Children, ChildrenOptions, Placed, SpawnError};
pub use confine::{Confinement, STRICT_LANDLOCK_VERSION, landlock_version, opens};
pub use environment::{cleaned_environment, name_matches};
pub use exit::exit_at_once;
pub use limits::{DiskLimit, Limit, TreeLimits, machine_memory};
pub use pager::show_in_pager;
pub use program::own_program;
pub use pty::{Size, size_of};
pub use ring::Ring;
pub use spec::{ChildSpec, Owner, Stdin, Streams};
