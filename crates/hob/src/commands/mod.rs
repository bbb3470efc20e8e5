//! One file per command.

pub mod app;
pub mod attach;
pub mod capture_transcript;
pub mod capture_turn;
pub mod claude;
pub mod completions;
pub mod doctor;
mod doctor_gateway;
mod doctor_ledger;
mod doctor_memory;
pub mod export;
pub mod forget;
pub mod hooks;
pub mod import;
pub mod key;
pub mod mcp;
pub mod recall;
pub mod run;
pub mod serve;
pub mod session_start;
pub mod sessions;
pub mod status;
pub mod store;

use std::process::ExitCode;
use std::sync::Arc;

use crate::home::ServeLock;
use crate::settings::Resolved;

/// How a command ended, as the process's exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Failed,
    /// Already running, or not running.
    WrongState,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> ExitCode {
        match outcome {
            Outcome::Done => ExitCode::SUCCESS,
            Outcome::Failed => ExitCode::from(1),
            Outcome::WrongState => ExitCode::from(3),
        }
    }
}

/// What every command starts from: settings, and the umask that agents get back.
pub struct Context {
    pub settings: Arc<Resolved>,
    pub umask: u32,
}

impl Context {
    /// The home's lock, for what may only be done while no server runs. `None` when one does, which is said.
    fn alone(&self) -> anyhow::Result<Option<ServeLock>> {
        Ok(match self.settings.home.take_lock()? {
            Ok(lock) => Some(lock),
            Err(holder) => {
                let pid = holder.pid.map_or("unknown".to_owned(), |pid| pid.to_string());
                eprintln!("hob: stop `hob serve` first (pid {pid})");
                None
            }
        })
    }
}
