//! `hob recall --interactive`: a full-screen search that runs while the user types.

mod layout;
mod search;
mod state;

pub use search::run;
pub use state::{Query, Scope};
