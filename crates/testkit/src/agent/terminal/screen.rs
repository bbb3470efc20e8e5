//! The screen of the terminal.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// The prompt: `❯` and a no-break space. Dialogs use an ordinary one.
const PROMPT: &str = "❯\u{a0}";
/// A longer or taller paste is shown as a placeholder.
const SHOWN: usize = 800;

/// The lines above the box, and the drawing of it all.
#[derive(Default)]
pub struct Screen {
    lines: Mutex<Vec<String>>,
}

impl Screen {
    /// The first bytes, before anything is drawn.
    pub fn start(&self) {
        write("\x1b7\x1b[r\x1b8\x1b[?25h\x1b[?25l\x1b[?2004h\x1b[?1004h\x1b[?2031h");
        self.title("✳");
    }

    /// The window's title: braille while busy, a star while idle.
    pub fn title(&self, mark: &str) {
        write(&format!("\x1b]0;{mark} Claude Code\x07"));
    }

    /// Adds a line above the box.
    pub fn line(&self, text: &str) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.extend(text.lines().map(str::to_owned));
        let over = lines.len().saturating_sub(20);
        lines.drain(..over);
    }

    /// Redraws everything.
    pub fn draw(&self, text: &str, busy: bool) {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = String::from("\x1b[H\x1b[2J\x1b[1mClaude Code\x1b[0m\r\n");
        for line in lines.iter() {
            out.push_str(&line.chars().take(100).collect::<String>());
            out.push_str("\r\n");
        }
        if busy {
            out.push_str("✻ Thinking… (esc to interrupt)\r\n");
        }
        let rule = "─".repeat(40);
        let shown = if text.len() > SHOWN || text.matches('\n').count() > 2 {
            format!("[Pasted text #1 +{} lines]", text.matches('\n').count())
        } else {
            text.replace('\n', "\r\n  ")
        };
        out.push_str(&format!("{rule}\r\n{PROMPT}{shown}\r\n{rule}\r\n  ? for shortcuts"));
        write(&out);
    }

    /// A dialog that blocks the start.
    pub fn startup_dialog(&self, name: &str) {
        let (title, yes, no) = match name {
            "trust" => ("Accessing workspace", "Yes, I trust this folder", "No, exit"),
            "key" => ("Detected a custom API key in your environment", "No (recommended)", "Yes"),
            "bypass" => (
                "WARNING: Claude Code running in Bypass Permissions mode",
                "No, exit",
                "Yes, I accept",
            ),
            _ => ("Welcome to Claude Code", "Dark mode", "Light mode"),
        };
        write(&format!(
            "\x1b[H\x1b[2J{title}\r\n\r\n❯ 1. {yes}\r\n  2. {no}\r\n\r\nEnter to confirm · Esc to cancel"
        ));
    }

    /// A question about one tool.
    pub fn permission_dialog(&self, title: &str) {
        write(&format!(
            "\x1b[H\x1b[2J{title}\r\nThis command requires approval\r\n\r\nDo you want to proceed?\r\n\
             ❯ 1. Yes\r\n  2. Yes, and don't ask again\r\n  3. No\r\n\r\nEsc to cancel · Tab to amend"
        ));
    }

    /// Writes this many bytes of noise.
    pub fn flood(&self, length: usize) {
        let line = "flood ".repeat(12);
        let mut left = length;
        while left > 0 {
            let piece = &line[..left.min(line.len())];
            write(piece);
            write("\r\n");
            left -= piece.len();
        }
    }
}

fn write(text: &str) {
    let mut stdout = std::io::stdout();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}
