//! `hob serve`: the one long-lived process, and the place where all parts are put together.

mod backups;
mod command;
mod listeners;
mod parts;
mod probe;
mod record_watch;
mod runtime;
mod server;
mod signals;
mod watchdog;

pub use command::{Args, run};
