//! `hob doctor`: checks of the home and the machine, each with its fix, and every setting with its
//! source.

mod agents;
mod backups;
mod check;
mod checks;
mod command;
mod deep;
mod home;
mod http;
mod ledger;
mod memory;

pub use agents::program_of;
pub use command::{Args, run};
pub use http::HomeDoctor;
