//! Live terminals: what agents in pseudo-terminals show, and how people watch them and type.
//!
//! Every agent in a pseudo-terminal is entered into [`Terminals`]. A [`Terminal`] keeps a [`Model`] of its
//! screen, which is also where the driver looks, so there is one reading of the bytes and one size. A
//! [`Viewer`] follows it; what reaches one has passed the [`Filter`].

mod filter;
mod live;
mod model;
mod registry;
mod svg;
mod viewer;

pub use filter::{Filter, Mark, Policy};
pub use hob_child::Size;
pub use live::{About, Glance, Kind, Refused, Terminal, Typing};
pub use model::{Cursor, Model, Place, SCROLLBACK};
pub use registry::{Entered, Entering, Terminals};
pub use viewer::{Update, Viewer, Writer};

#[cfg(test)]
mod tests;
