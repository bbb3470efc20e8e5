//! The user's terminal in raw mode, restored in every case.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use hob_child::{Size, size_of};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

/// Resets every mode that an agent's output may have changed.
const RESET_MODES: &[u8] =
    b"\x1b[?2026l\x1b[?2004l\x1b[?1l\x1b>\x1b[?6l\x1b[r\x1b[0 q\x1b[m\x1b[?25h";
const ENTER_ALTERNATE_SCREEN: &[u8] = b"\x1b[?1049h\x1b[H\x1b[2J";
const LEAVE_ALTERNATE_SCREEN: &[u8] = b"\x1b[?1049l";

/// Which screen of the terminal is drawn on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScreenChoice {
    /// The alternate screen: the user's own screen comes back at the end.
    Alternate,
    /// The user's own screen.
    Shared,
}

/// The terminal in raw mode. Dropping it restores the terminal; a panic does the same before it
/// prints its message.
pub struct RawTerminal {
    saved: Arc<SavedTerminal>,
}

struct SavedTerminal {
    /// The settings before raw mode; `None` once they are restored.
    settings: Mutex<Option<Termios>>,
    screen: ScreenChoice,
}

impl RawTerminal {
    /// Returns whether standard input and output are a terminal.
    pub fn is_available() -> bool {
        io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    /// Enters raw mode: every key arrives at once and unchanged.
    pub fn enter(screen: ScreenChoice) -> io::Result<RawTerminal> {
        let stdin = io::stdin();
        let settings = tcgetattr(stdin.as_fd())?;
        let mut raw = settings.clone();
        cfmakeraw(&mut raw);
        tcsetattr(stdin.as_fd(), SetArg::TCSADRAIN, &raw)?;
        let saved = SavedTerminal { settings: Mutex::new(Some(settings)), screen };
        let terminal = RawTerminal { saved: Arc::new(saved) };
        if screen == ScreenChoice::Alternate {
            write(ENTER_ALTERNATE_SCREEN)?;
        }
        let saved = terminal.saved.clone();
        let previous_hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            saved.restore();
            previous_hook(info);
        }));
        Ok(terminal)
    }

    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        write(bytes)
    }

    /// Shows one line at the bottom, until the agent draws over it.
    pub fn show_notice(&self, text: &str) -> io::Result<()> {
        let size = size();
        let text: String = text.chars().take(usize::from(size.cols).saturating_sub(2)).collect();
        write(format!("\x1b7\x1b[{};1H\x1b[7m {text} \x1b[m\x1b[K\x1b8", size.rows).as_bytes())
    }
}

/// Returns the current size of the terminal.
pub fn size() -> Size {
    size_of(&io::stdout()).ok().filter(|size| size.rows > 0 && size.cols > 0).unwrap_or_default()
}

impl SavedTerminal {
    /// Restores the terminal; a second call does nothing.
    fn restore(&self) {
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(settings) = settings else { return };
        let _ = write(RESET_MODES);
        if self.screen == ScreenChoice::Alternate {
            let _ = write(LEAVE_ALTERNATE_SCREEN);
        }
        let _ = tcsetattr(io::stdin().as_fd(), SetArg::TCSANOW, &settings);
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        self.saved.restore();
    }
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}
