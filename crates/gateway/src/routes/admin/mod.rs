//! `/admin`: what the owner's console and admin tools read and do.

pub(crate) mod apps;
pub(crate) mod audit;
pub(crate) mod health;
pub(crate) mod live;
pub(crate) mod login;
pub(crate) mod memory;
pub(crate) mod memory_change;
pub(crate) mod overview;
pub(crate) mod session_turns;
pub(crate) mod sessions;
pub(crate) mod usage;
