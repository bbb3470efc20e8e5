//! `hob doctor`: checks of the home and the machine, each with its fix, and every setting with its
//! source.

mod agents;
mod check;
mod checks;
mod command;
mod home;
mod http;
mod ledger;
mod memory;

pub use command::{Args, run};
pub use http::HomeDoctor;
