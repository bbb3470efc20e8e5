//! Runs the commands that agents call as hooks. They exit with code 0 within two seconds, even
//! after a wrong argument, a panic, or on a disk that hangs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::commands::{capture_transcript, capture_turn, session_start};
use crate::printer::{self, errln};
use crate::settings::{self, Resolved};

/// When the work should be done.
const WORK_DEADLINE: Duration = Duration::from_millis(1600);
/// When the command exits even if its work is not done.
const EXIT_DEADLINE: Duration = Duration::from_millis(1850);

pub fn capture_transcript(args: capture_transcript::Args) -> ExitCode {
    let work = move |settings: &Resolved, deadline| {
        Ok(capture_transcript::run(settings, &args, deadline).to_string())
    };
    let failed = |error: String| {
        json!({"status": "failed", "inserted": 0, "duplicates": 0, "errors": 1, "error": error})
            .to_string()
    };
    let answer = run_in_time(work).unwrap_or_else(failed);
    print(&format!("{answer}\n"))
}

pub fn capture_turn() -> ExitCode {
    let work = |settings: &Resolved, deadline| {
        capture_turn::run(settings, deadline).map(|()| String::new())
    };
    match run_in_time(work) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => print_error(&error),
    }
}

pub fn session_start(args: session_start::Args) -> ExitCode {
    let work = move |settings: &Resolved, deadline| session_start::run(settings, &args, deadline);
    match run_in_time(work) {
        Ok(text) => print(&text),
        Err(error) => print_error(&error),
    }
}

/// Prints help, or the error of a wrong command line. Both exit with code 0.
pub fn wrong_usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    ExitCode::SUCCESS
}

/// Does the work on a thread of its own, and waits no longer than a hook may take.
fn run_in_time(
    work: impl FnOnce(&Resolved, Instant) -> anyhow::Result<String> + Send + 'static,
) -> Result<String, String> {
    hob_child::signals::ignore_file_size_limit();
    let started = Instant::now();
    let (done, waiting) = mpsc::channel();
    let body = move || {
        let result = catch_unwind(AssertUnwindSafe(|| {
            let settings = settings::load_or_default()?;
            work(&settings, started + WORK_DEADLINE)
        }));
        let result = match result {
            Ok(result) => result.map_err(|error| format!("{error:#}")),
            Err(_) => Err("the command panicked".to_owned()),
        };
        let _ = done.send(result);
    };
    if let Err(error) = std::thread::Builder::new().spawn(body) {
        return Err(format!("cannot start a thread: {error}"));
    }
    match waiting.recv_timeout(EXIT_DEADLINE) {
        Ok(result) => result,
        Err(_) => Err("the command took too long".to_owned()),
    }
}

fn print(text: &str) -> ExitCode {
    printer::out(text);
    ExitCode::SUCCESS
}

fn print_error(error: &str) -> ExitCode {
    errln!("hob: {error}");
    ExitCode::SUCCESS
}
