//! Output of commands that have to end.

use std::io::{self, Read};
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::campaign::is_campaign;

/// How long a command may run. A campaign imports and backs up much more.
const RUN_DEADLINE: Duration = Duration::from_secs(60);
const CAMPAIGN_RUN_DEADLINE: Duration = Duration::from_secs(3600);

const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Runs a command to its end, and returns what it printed. A command that does not end in time is killed, and the test
/// fails: on a build that starts where it should refuse, the test must not wait for ever.
#[track_caller]
pub fn output_in_time(mut command: Command) -> Output {
    let deadline = if is_campaign() { CAMPAIGN_RUN_DEADLINE } else { RUN_DEADLINE };
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    let stdout = reader(child.stdout.take().expect("stdout"));
    let stderr = reader(child.stderr.take().expect("stderr"));
    let started = Instant::now();
    loop {
        // A process that it started may hold the pipes for longer.
        let has_printed = stdout.is_finished() && stderr.is_finished();
        if let (true, Some(status)) = (has_printed, child.try_wait().expect("a child")) {
            let read = |reader: JoinHandle<io::Result<Vec<u8>>>| {
                reader.join().expect("no panic").expect("its output")
            };
            return Output { status, stdout: read(stdout), stderr: read(stderr) };
        }
        if started.elapsed() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{command:?} did not end within {deadline:?}");
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn reader(mut pipe: impl Read + Send + 'static) -> JoinHandle<io::Result<Vec<u8>>> {
    std::thread::spawn(move || {
        let mut read = Vec::new();
        pipe.read_to_end(&mut read).map(|_| read)
    })
}
