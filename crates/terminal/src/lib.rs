//! Live terminals: what agents in pseudo-terminals show, and how people watch them and type.
//!
//! Every agent in a pseudo-terminal is registered in [`Terminals`]. A [`Terminal`] keeps a
//! [`ScreenModel`] of its screen. The agent's driver reads the same model, so the bytes are parsed once
//! and there is one size. A [`Viewer`] follows a terminal; the [`Filter`] decides which bytes reach it.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make and look at files"))]

mod filter;
mod model;
mod registry;
mod svg;
mod terminal;
mod viewer;

pub use filter::{Filter, FilterMark, FilterPolicy};
pub use hob_child::Size;
pub use model::{Cursor, MAX_SCROLLBACK_LINES, ScreenModel, StreamPosition};
pub use registry::{TerminalRegistrar, TerminalRegistration, Terminals};
pub use terminal::{
    InputLock, Terminal, TerminalError, TerminalInfo, TerminalKind, TerminalStatus,
};
pub use viewer::{Viewer, ViewerUpdate, Writer};

#[cfg(test)]
mod tests;
