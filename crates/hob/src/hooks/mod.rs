//! Installs Hob's hooks into the settings of the coding agents, and takes them out again.

mod clients;
mod command;
mod error;
mod file;
pub mod hook_spec;
mod install;
pub mod json_edit;
pub mod json_scan;
pub mod plugin;
mod plugin_file;
mod render;
#[cfg(test)]
mod tests;

pub use clients::ClientFolders;
pub use command::quoted;
pub use error::HookError;
pub use file::{Edited, SettingsFile};
pub use install::{HookState, Report, has_hooks, install, status, uninstall};
