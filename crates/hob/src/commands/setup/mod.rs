//! `hob setup`.

mod command;
mod plan;
mod step;
mod undo;

pub use command::{Args, run};
