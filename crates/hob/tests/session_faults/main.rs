//! The faults that sessions have to live with: `kill -9` at any moment, other apps that try what is not
//! theirs, agents that look for secrets, clients that are slow, huge or broken.
//!
//! Everything is looked at from outside. Small counts here; `HOB_CAMPAIGN=1` runs the full ones, and prints
//! figures.
#![allow(clippy::disallowed_methods, reason = "tests start hob to look at it from outside")]

mod abuse;
mod kills;
mod loris;
mod prying;
mod setup;
mod tenants;
mod timing;
