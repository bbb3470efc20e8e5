//! Faults that must not harm sessions: `kill -9` at any moment, apps that try to reach others' resources,
//! agents that look for secrets, and clients that are slow, huge or broken.
//!
//! Small counts here; `HOB_CAMPAIGN=1` runs the full ones and prints figures.
#![allow(clippy::disallowed_methods, reason = "tests start hob to look at it from outside")]

mod abuse;
mod client_tools;
mod kills;
mod other_apps;
mod prying_agent;
mod setup;
mod slow_clients;
mod timing;
