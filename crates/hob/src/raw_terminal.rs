//! The person's own terminal, lent to another screen and always given back as it was.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use hob_child::{Size, size_of};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

/// Everything that may have been changed, as it is where nobody has changed it.
const PLAIN: &[u8] = b"\x1b[?2026l\x1b[?2004l\x1b[?1l\x1b>\x1b[?6l\x1b[r\x1b[0 q\x1b[m\x1b[?25h";
const OTHER_SCREEN: &[u8] = b"\x1b[?1049h\x1b[H\x1b[2J";
const OWN_SCREEN: &[u8] = b"\x1b[?1049l";

/// The terminal while it is lent. Dropping it gives it back; so does a panic, before it is told.
pub struct RawTerminal {
    keeper: Arc<Keeper>,
}

struct Keeper {
    /// As it was; `None` once it is so again.
    settings: Mutex<Option<Termios>>,
    other_screen: bool,
}

impl RawTerminal {
    /// Whether there is one to lend.
    pub fn is_there() -> bool {
        io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    /// Every key comes as it is. With `other_screen`, what is on the screen now is back at the end.
    pub fn lend(other_screen: bool) -> io::Result<RawTerminal> {
        let stdin = io::stdin();
        let settings = tcgetattr(stdin.as_fd())?;
        let mut raw = settings.clone();
        cfmakeraw(&mut raw);
        tcsetattr(stdin.as_fd(), SetArg::TCSADRAIN, &raw)?;
        let keeper = Keeper { settings: Mutex::new(Some(settings)), other_screen };
        let terminal = RawTerminal { keeper: Arc::new(keeper) };
        if other_screen {
            write(OTHER_SCREEN)?;
        }
        let keeper = terminal.keeper.clone();
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |what| {
            keeper.give_back();
            before(what);
        }));
        Ok(terminal)
    }

    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        write(bytes)
    }

    /// One line at the bottom, until something else is drawn there.
    pub fn say(&self, text: &str) -> io::Result<()> {
        let size = size();
        let text: String = text.chars().take(usize::from(size.cols).saturating_sub(2)).collect();
        write(format!("\x1b7\x1b[{};1H\x1b[7m {text} \x1b[m\x1b[K\x1b8", size.rows).as_bytes())
    }
}

/// The terminal's size now.
pub fn size() -> Size {
    size_of(&io::stdout()).ok().filter(|size| size.rows > 0 && size.cols > 0).unwrap_or_default()
}

impl Keeper {
    fn give_back(&self) {
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(settings) = settings else { return };
        let _ = write(PLAIN);
        if self.other_screen {
            let _ = write(OWN_SCREEN);
        }
        let _ = tcsetattr(io::stdin().as_fd(), SetArg::TCSANOW, &settings);
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        self.keeper.give_back();
    }
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}
