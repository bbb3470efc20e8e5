//! What every command starts from, and how it ends.

use std::process::ExitCode;
use std::sync::Arc;

use crate::home::ServeLock;
use crate::printer::errln;
use crate::settings::Resolved;

/// How a command ended; becomes the exit code of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Done,
    Failed,
    /// The server is already running, or is not running.
    WrongState,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        match exit {
            Exit::Done => ExitCode::SUCCESS,
            Exit::Failed => ExitCode::from(1),
            Exit::WrongState => ExitCode::from(3),
        }
    }
}

/// The settings of a command, and the umask of its caller, which agents inherit.
pub struct Context {
    pub settings: Arc<Resolved>,
    pub umask: u32,
}

impl Context {
    /// Locks the home for a command that must not run next to `hob serve`. If a server is running,
    /// or another command for too long, says so and returns `None`.
    pub fn lock_home(&self) -> anyhow::Result<Option<ServeLock>> {
        Ok(match self.settings.home.take_lock()? {
            Ok(lock) => Some(lock),
            Err(holder) => {
                match holder.pid {
                    Some(pid) => {
                        errln!("hob: the server is running (pid {pid}); run `hob stop` first");
                    }
                    None => errln!(
                        "hob: another hob command is using the databases; try again when it is done"
                    ),
                }
                None
            }
        })
    }
}

/// Returns the path of the running `hob`, for files that start it later.
pub fn own_path() -> anyhow::Result<String> {
    let path = std::env::current_exe()
        .map_err(|error| anyhow::anyhow!("cannot determine the path of this program: {error}"))?;
    path.into_os_string().into_string().map_err(|path| {
        anyhow::anyhow!("the path of this program must be UTF-8: {}", path.display())
    })
}
