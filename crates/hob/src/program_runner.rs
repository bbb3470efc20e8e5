//! Runs short programs of the machine, such as `systemctl`.

use std::io;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Runs a program without input, and kills it if it takes longer than `limit`. Its output is read after it has ended, so
/// piped output must fit into a pipe.
pub fn run_within(mut command: Command, limit: Duration) -> io::Result<Output> {
    let name = command.get_program().display().to_string();
    command.stdin(Stdio::null());
    #[allow(clippy::disallowed_methods, reason = "it is waited for, and killed if it hangs")]
    let mut child = command.spawn()?;
    let deadline = Instant::now() + limit;
    while child.try_wait()?.is_none() {
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            let text = format!("{name} does not answer");
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    child.wait_with_output()
}
