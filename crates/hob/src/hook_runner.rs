//! Runs the commands that agents call as hooks. They exit with code 0 within the time of the setting
//! `memory.hook_timeout_secs`, even after a wrong argument, a panic, or on a disk that hangs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::commands::{capture_transcript, capture_turn, session_start};
use crate::printer::{self, errln};
use crate::settings::{self, Resolved};

/// The limit until the settings are read.
const DEFAULT_HOOK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long before its limit a hook exits even if its work is not done, so that the exit is in time.
const EXIT_RESERVE: Duration = Duration::from_millis(150);
/// How long before its exit a hook should have done its work.
const WORK_RESERVE: Duration = Duration::from_millis(250);

pub fn capture_transcript(args: capture_transcript::Args) -> ! {
    let args = args.without_empty();
    let work = move |settings: &Arc<Resolved>, deadline| {
        Ok(capture_transcript::run(settings, &args, deadline).to_string())
    };
    let failed = |error: String| {
        json!({"status": "failed", "inserted": 0, "duplicates": 0, "errors": 1, "error": error})
            .to_string()
    };
    let answer = run_in_time(work).unwrap_or_else(failed);
    print(&format!("{answer}\n"))
}

pub fn capture_turn(args: capture_turn::Args) -> ! {
    let work = move |settings: &Arc<Resolved>, deadline| {
        capture_turn::run(settings, &args, deadline).map(|()| String::new())
    };
    match run_in_time(work) {
        Ok(_) => end(),
        Err(error) => print_error(&error),
    }
}

pub fn session_start(args: session_start::Args) -> ! {
    let work =
        move |settings: &Arc<Resolved>, deadline| session_start::run(settings, &args, deadline);
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
    work: impl FnOnce(&Arc<Resolved>, Instant) -> anyhow::Result<String> + Send + 'static,
) -> Result<String, String> {
    hob_child::signals::ignore_file_size_limit();
    let started = Instant::now();
    let (steps, progress) = mpsc::channel();
    let body = move || {
        let result = catch_unwind(AssertUnwindSafe(|| {
            let settings = Arc::new(settings::load_or_default()?);
            let exit = started + settings.values.hook_timeout.saturating_sub(EXIT_RESERVE);
            let _ = steps.send(Step::SettingsRead { exit });
            work(&settings, exit - WORK_RESERVE)
        }));
        let result = match result {
            Ok(result) => result.map_err(|error| format!("{error:#}")),
            Err(_) => Err("the command panicked".to_owned()),
        };
        let _ = steps.send(Step::Done(result));
    };
    if let Err(error) = std::thread::Builder::new().spawn(body) {
        return Err(format!("cannot start a thread: {error}"));
    }
    let mut exit = started + DEFAULT_HOOK_TIMEOUT - EXIT_RESERVE;
    loop {
        match progress.recv_timeout(exit.saturating_duration_since(Instant::now())) {
            Ok(Step::SettingsRead { exit: set }) => exit = set,
            Ok(Step::Done(result)) => return result,
            Err(_) => return Err("the command took too long".to_owned()),
        }
    }
}

/// How far the thread of a hook is.
enum Step {
    SettingsRead { exit: Instant },
    Done(Result<String, String>),
}

fn print(text: &str) -> ! {
    printer::try_out(text);
    end()
}

fn print_error(error: &str) -> ! {
    errln!("hob: {error}");
    end()
}

/// Ends the process, even if its work is not done.
fn end() -> ! {
    hob_child::exit_at_once(0)
}
