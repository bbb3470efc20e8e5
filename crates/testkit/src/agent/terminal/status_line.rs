//! The command of the status line, which the interactive Claude Code runs a while after each message.
//!
//! Other than the real program, the scripted one does not run it for a new conversation that has cost nothing: load tests have
//! thousands of those. One that resumes a conversation names its first cost, which is zero, before it takes a prompt.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

/// How long the program waits after a message before it runs the command.
const DELAY: Duration = Duration::from_millis(300);

/// The status line of one process.
pub struct StatusLine {
    command: Option<String>,
    session: String,
    /// What the process has cost so far, in USD.
    cost: Mutex<f64>,
}

impl StatusLine {
    /// Reads the settings among the arguments.
    pub fn new(arguments: &[String], session: &str) -> StatusLine {
        let settings = arguments.iter().find_map(|argument| argument.strip_prefix("--settings="));
        let settings: Value =
            settings.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let command = settings["statusLine"]["command"].as_str().map(str::to_owned);
        StatusLine { command, session: session.to_owned(), cost: Mutex::default() }
    }

    pub fn spend(&self, usd: f64) {
        *self.cost.lock().unwrap_or_else(PoisonError::into_inner) += usd;
    }

    /// Names the first cost of a process that resumes a conversation.
    pub fn begin(&self) {
        if let Some(command) = &self.command {
            run(command, &self.input(0.0));
        }
    }

    /// Runs the command, later and without being waited for.
    pub fn update(&self) {
        let cost = *self.cost.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(command) = self.command.clone().filter(|_| cost > 0.0) else { return };
        let input = self.input(cost);
        std::thread::spawn(move || {
            std::thread::sleep(DELAY);
            run(&command, &input);
        });
    }

    fn input(&self, cost: f64) -> String {
        json!({"session_id": self.session, "model": {"id": "claude-scripted"},
            "cost": {"total_cost_usd": cost, "total_duration_ms": 5}})
        .to_string()
    }
}

fn run(command: &str, input: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut running) = shell.spawn() else { return };
    if let Some(mut stdin) = running.stdin.take() {
        let _ = stdin.write_all(input.as_bytes());
    }
    let _ = running.wait();
}
