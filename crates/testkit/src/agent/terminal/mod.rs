//! The scripted agent on a pseudo-terminal: behaves as the interactive Claude Code does.
//!
//! [`keys`] reads the bytes, [`screen`] draws, [`transcript`] writes the records, [`play`] plays a
//! turn. A dialog at start is asked for with the variable [`DIALOG`].

mod keys;
mod play;
mod screen;
mod status_line;
mod transcript;

use std::collections::VecDeque;
use std::io::Read;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use serde_json::json;
use uuid::Uuid;

use super::effects::Interrupt;
use super::flag;
use keys::{Key, Keys};
use screen::Screen;
use status_line::StatusLine;
pub(super) use transcript::{Transcript, Unfinished};

/// Names the dialog that is shown before the prompt: `trust`, `key`, `bypass` or `onboarding`.
pub const DIALOG: &str = "HOB_SCRIPT_DIALOG";
/// How long the start takes, in milliseconds; 20 unless set.
pub const STARTUP: &str = "HOB_SCRIPT_STARTUP_MS";

pub fn run(arguments: &[String]) -> ExitCode {
    raw_mode();
    let transcript =
        match Transcript::open(flag(arguments, "--session-id"), flag(arguments, "--resume")) {
            Ok(transcript) => transcript,
            Err(message) => {
                eprintln!("{message}");
                return ExitCode::from(1);
            }
        };
    let terminal = Arc::new(Terminal {
        screen: Screen::default(),
        status_line: StatusLine::new(arguments, transcript.session()),
        transcript,
        interrupt: Interrupt::default(),
        state: Mutex::new(State::default()),
    });
    if flag(arguments, "--resume").is_some() {
        terminal.status_line.begin();
    }
    let (turns, queue) = channel();
    let player = terminal.clone();
    std::thread::spawn(move || play::run(&player, &queue));
    let (bytes, incoming) = channel();
    std::thread::spawn(move || read_input(&bytes));
    terminal.converse(&incoming, &turns)
}

/// Everything the threads share.
struct Terminal {
    screen: Screen,
    status_line: StatusLine,
    transcript: Transcript,
    interrupt: Interrupt,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The input box.
    text: String,
    busy: bool,
    queued: VecDeque<String>,
    /// Where a key goes while a permission dialog is open.
    dialog: Option<Sender<char>>,
    ctrl_c: Option<Instant>,
}

impl Terminal {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws the screen, unless a dialog covers it.
    fn draw(&self) {
        let state = self.state();
        if state.dialog.is_none() {
            self.screen.draw(&state.text, state.busy);
        }
    }

    /// Runs the input loop, from the first byte drawn to the end.
    fn converse(&self, incoming: &Receiver<Vec<u8>>, turns: &Sender<String>) -> ExitCode {
        self.screen.start();
        if let Ok(name) = std::env::var(DIALOG) {
            self.screen.startup_dialog(&name);
            // Enter takes the default, which differs from dialog to dialog.
            let mut keys = Keys::default();
            loop {
                let Ok(bytes) = incoming.recv() else { return ExitCode::from(129) };
                match keys.read(&bytes).first() {
                    Some(Key::Enter { .. }) if matches!(name.as_str(), "key" | "bypass") => {
                        return ExitCode::from(1);
                    }
                    Some(Key::Enter { .. } | Key::Letter('1')) => break,
                    Some(Key::Escape) => return ExitCode::from(1),
                    _ => {}
                }
            }
        }
        let startup = std::env::var(STARTUP).ok().and_then(|ms| ms.parse().ok()).unwrap_or(20);
        let ready_at = Instant::now() + Duration::from_millis(startup);
        let mut keys = Keys::default();
        // Keys typed before the prompt is ready arrive, but Enter is lost.
        while let Ok(bytes) =
            incoming.recv_timeout(ready_at.saturating_duration_since(Instant::now()))
        {
            for key in keys.read(&bytes) {
                if !matches!(key, Key::Enter { .. }) {
                    self.press(key, turns);
                }
            }
        }
        self.draw();
        while let Ok(bytes) = incoming.recv() {
            for key in keys.read(&bytes) {
                if let Some(code) = self.press(key, turns) {
                    return code;
                }
            }
        }
        ExitCode::from(129)
    }

    /// Handles one key. Some keys end the process.
    fn press(&self, key: Key, turns: &Sender<String>) -> Option<ExitCode> {
        let mut state = self.state();
        if let Some(dialog) = &state.dialog {
            let answer = match key {
                Key::Letter(letter) => letter,
                Key::Enter { .. } => '1',
                Key::Escape | Key::CtrlC => '3',
                Key::Paste(_) | Key::Newline => return None,
            };
            let _ = dialog.send(answer);
            return None;
        }
        match key {
            Key::Letter(letter) => state.text.push(letter),
            Key::Newline => state.text.push('\n'),
            Key::Paste(text) => state.text.push_str(&text),
            Key::Enter { swallowed: true } => {}
            Key::Enter { swallowed: false } => {
                let text = std::mem::take(&mut state.text);
                drop(state);
                return self.submit(&text, turns);
            }
            Key::Escape if state.busy => self.interrupt.raise(),
            Key::Escape => state.text.clear(),
            Key::CtrlC if state.busy => self.interrupt.raise(),
            Key::CtrlC => {
                let again = state.ctrl_c.is_some_and(|at| at.elapsed() < Duration::from_secs(1));
                if again && state.text.is_empty() {
                    return Some(ExitCode::SUCCESS);
                }
                if state.text.is_empty() {
                    state.ctrl_c = Some(Instant::now());
                }
                state.text.clear();
            }
        }
        drop(state);
        self.draw();
        None
    }

    /// Handles Enter with a text in the box.
    fn submit(&self, text: &str, turns: &Sender<String>) -> Option<ExitCode> {
        let text = text.replace("\r\n", "\n").replace('\r', "\n").replace('\t', "    ");
        let text = text.trim_end();
        if text.trim().is_empty() {
            return None;
        }
        if matches!(text.trim(), "exit" | "quit" | ":q") || text.starts_with("/exit") {
            self.screen.line(&format!("claude --resume {}", self.transcript.session()));
            return Some(ExitCode::SUCCESS);
        }
        let command =
            text.strip_prefix('/').map(|rest| rest.split_whitespace().next().unwrap_or(""));
        if let Some(name) = command.filter(|name| !name.contains('/')) {
            let content = format!("Unknown command: /{name}");
            self.screen.line(&content);
            self.transcript.local(json!({"type": "system", "subtype": "informational",
                "content": content, "isMeta": false}));
            return None;
        }
        let mut state = self.state();
        if state.busy {
            self.transcript.note(json!({"type": "queue-operation", "operation": "enqueue",
                "content": text, "sessionId": self.transcript.session()}));
            state.queued.push_back(text.to_owned());
        } else {
            state.busy = true;
            let _ = turns.send(text.to_owned());
        }
        drop(state);
        self.draw();
        None
    }
}

fn raw_mode() {
    let stdin = std::io::stdin();
    if let Ok(mut settings) = tcgetattr(&stdin) {
        cfmakeraw(&mut settings);
        let _ = tcsetattr(&stdin, SetArg::TCSANOW, &settings);
    }
}

fn read_input(bytes: &Sender<Vec<u8>>) {
    let mut stdin = std::io::stdin();
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = stdin.read(&mut buffer) {
        if bytes.send(buffer[..count].to_vec()).is_err() {
            return;
        }
    }
}

fn new_id() -> String {
    Uuid::new_v4().to_string()
}
