//! Runs the hook commands and measures their time.

use std::fs;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use hob_testkit::{HobServer, Stopwatch, TestHome, wait_until, wait_until_ok};
use serde_json::{Value, json};

use crate::transcript::Transcript;

/// Contract, section 3: a hook exits 0 within 2 s on any input.
pub const LIMIT: Duration = Duration::from_secs(2);

/// The result of a hook.
#[derive(Debug)]
pub struct Done {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Done {
    /// Returns what `capture-transcript` printed: exactly one JSON object.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.stdout.lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    #[track_caller]
    pub fn status(&self) -> String {
        self.json()["status"].as_str().unwrap_or_else(|| panic!("no status: {self:?}")).to_owned()
    }
}

/// The times of all hooks of one test.
#[derive(Default)]
pub struct Watch {
    times: Mutex<Vec<Duration>>,
}

impl Watch {
    pub fn new() -> Watch {
        Watch::default()
    }

    pub fn add(&self, took: Duration) {
        self.times.lock().unwrap().push(took);
    }

    pub fn slowest(&self) -> Duration {
        self.times.lock().unwrap().iter().max().copied().unwrap_or_default()
    }

    /// Prints the percentiles.
    pub fn print(&self, what: &str) {
        let mut times = self.times.lock().unwrap().clone();
        times.sort();
        let at = |percent: usize| {
            let index = (times.len().saturating_sub(1) * percent).div_ceil(100);
            times.get(index).copied().unwrap_or_default().as_secs_f64() * 1000.0
        };
        println!(
            "{what}: {} hooks, ms p50 {:.0} p90 {:.0} p99 {:.0} slowest {:.0}",
            times.len(),
            at(50),
            at(90),
            at(99),
            at(100)
        );
    }

    /// Runs a hook and asserts that it exits 0 in time.
    #[track_caller]
    pub fn run(&self, command: Command, input: &str) -> Done {
        let done = finish(command, input);
        self.add(done.took);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.took < LIMIT, "{done:?}");
        done
    }

    /// Runs a hook again, as an agent's next hooks do, until its own limit does not cut its work off. Debug builds on a busy
    /// machine need longer for megabytes, so each attempt has twice the limit of the one before, and has to exit within it.
    #[track_caller]
    pub fn run_until_done(
        &self,
        command: impl Fn() -> Command,
        input: &str,
        is_done: impl Fn(&Done) -> bool,
    ) -> Done {
        let mut limit = LIMIT;
        loop {
            let done = finish_within(command(), input, limit);
            self.add(done.took);
            assert_eq!(done.code, Some(0), "{done:?}");
            assert!(done.took < limit, "{limit:?}: {done:?}");
            if is_done(&done) {
                return done;
            }
            limit *= 2;
            assert!(limit < Duration::from_secs(70), "{done:?}");
        }
    }

    /// `hob capture-transcript` with these flags.
    #[track_caller]
    pub fn capture(&self, home: &TestHome, flags: &[&str], path: &str) -> Done {
        self.run(capture_command(home, flags, path), "")
    }

    /// Captures a transcript until all of it is stored or deferred.
    #[track_caller]
    pub fn capture_eventually(&self, home: &TestHome, flags: &[&str], path: &str) -> Done {
        let command = || capture_command(home, flags, path);
        self.run_until_done(command, "", |done| done.status() != "failed")
    }

    /// `hob capture-turn`, until the turn is stored or deferred.
    #[track_caller]
    pub fn turn_eventually(&self, home: &TestHome, input: &Value) -> Done {
        let command = || home.command(&["capture-turn"]);
        self.run_until_done(command, &input.to_string(), |done| done.stderr.is_empty())
    }

    /// `hob capture-turn`, which prints nothing.
    #[track_caller]
    pub fn turn(&self, home: &TestHome, input: &Value) -> Done {
        let done = self.run(home.command(&["capture-turn"]), &input.to_string());
        assert_eq!(done.stdout, "", "{done:?}");
        done
    }

    /// `hob session-start`.
    #[track_caller]
    pub fn session_start(&self, home: &TestHome, cwd: &str) -> Done {
        let input = json!({"session_id": "new", "cwd": cwd, "hook_event_name": "SessionStart"});
        self.run(home.command(&["session-start"]), &input.to_string())
    }
}

pub fn capture_command(home: &TestHome, flags: &[&str], path: &str) -> Command {
    let mut command = home.command(&["capture-transcript"]);
    command.args(flags).arg(path);
    command
}

/// Returns the input that an agent gives its hook.
pub fn hook_input(transcript: &Transcript, event: &str, answer: Option<&str>) -> Value {
    let mut input = json!({
        "session_id": transcript.session, "transcript_path": transcript.path,
        "cwd": transcript.cwd, "hook_event_name": event,
    });
    if let Some(answer) = answer {
        input["last_assistant_message"] = json!(answer);
    }
    input
}

/// Starts a hook with its usual time limit, and hands it its input.
pub fn start(mut command: Command, input: &str) -> Child {
    command.env_remove("HOB_MEMORY_HOOK_TIMEOUT_SECS");
    start_as_set(command, input)
}

fn start_as_set(mut command: Command, input: &str) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A hook that has no use for it may be gone already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child
}

pub fn finish(command: Command, input: &str) -> Done {
    let stopwatch = Stopwatch::start();
    ended(start(command, input), &stopwatch)
}

fn finish_within(mut command: Command, input: &str, limit: Duration) -> Done {
    command.env("HOB_MEMORY_HOOK_TIMEOUT_SECS", limit.as_secs().to_string());
    let stopwatch = Stopwatch::start();
    ended(start_as_set(command, input), &stopwatch)
}

fn ended(child: Child, stopwatch: &Stopwatch) -> Done {
    let output = child.wait_with_output().unwrap();
    Done {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        took: stopwatch.elapsed(),
    }
}

/// A server without HTTP.
pub fn serve(home: &TestHome) -> HobServer {
    home.serve_with(|command| {
        command.arg("--no-http");
    })
}

pub fn deferred_folder(home: &TestHome) -> PathBuf {
    home.hob_home().join("deferred-captures")
}

/// The names in the folder of deferral files.
pub fn deferred(home: &TestHome) -> Vec<String> {
    let entries = fs::read_dir(deferred_folder(home)).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

pub fn set_aside(home: &TestHome) -> Vec<String> {
    deferred(home).into_iter().filter(|name| name.ends_with(".failed.jsonl")).collect()
}

/// Waits until the server has drained the folder.
#[track_caller]
pub fn wait_drained(home: &TestHome) {
    wait_until_ok("every deferral file is drained", || {
        let mut left = deferred(home);
        left.retain(|name| name.ends_with(".jsonl") && !name.ends_with(".failed.jsonl"));
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}

/// Every deferral file is whole: a header, then lines that are JSON objects, the last one ended.
#[track_caller]
pub fn assert_whole(home: &TestHome) {
    for name in deferred(home) {
        if !name.ends_with(".jsonl") {
            continue;
        }
        let Ok(bytes) = fs::read(deferred_folder(home).join(&name)) else { continue };
        assert_eq!(bytes.last(), Some(&b'\n'), "{name} is torn");
        for (number, line) in bytes.lines().enumerate() {
            let value: Value = serde_json::from_str(&line.unwrap())
                .unwrap_or_else(|error| panic!("{name}:{number}: {error}"));
            let key = if number == 0 { "version" } else { "text" };
            assert!(value.get(key).is_some(), "{name}:{number}: {value}");
        }
    }
}

/// Returns temporary files that were never renamed to their final name.
pub fn temporary(home: &TestHome) -> Vec<PathBuf> {
    let mut files = hob_testkit::leak::files_below(&home.hob_home());
    files.retain(|path| path.extension().is_some_and(|extension| extension == "tmp"));
    files
}

/// No process of this home runs any more.
pub fn assert_no_process(home: &TestHome) {
    wait_until("no process is left", || {
        let text = format!("HOB_HOME={}", home.hob_home().display());
        hob_testkit::leak::processes_with(&text).is_empty().then_some(())
    });
}
