//! Installs Hob's hooks into the settings of the coding agents, and takes them out again.

mod clients;
mod command;
mod error;
mod file;
mod install;
mod json_edit;
mod json_scan;
mod render;
#[cfg(test)]
mod tests;
mod wanted;

pub use clients::Places;
pub use install::{Report, State, install, status, uninstall};
