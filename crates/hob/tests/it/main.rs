//! Hob from outside: the real executable on temporary homes, with scripted agents.
#![allow(clippy::disallowed_methods, reason = "tests start hob to look at it from outside")]

mod cli;
mod files;
mod http;
mod run;
mod serve;
mod setup;
