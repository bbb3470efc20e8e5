//! Pseudo-terminals: opening a pair whose ends never leak into other children, and their size.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::fcntl::OFlag;
use nix::pty::{PtyMaster, Winsize, grantpt, posix_openpt, ptsname_r, unlockpt};

/// A terminal's size in character cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub rows: u16,
    pub cols: u16,
}

impl Default for Size {
    fn default() -> Size {
        Size { rows: 40, cols: 120 }
    }
}

/// Opens a terminal of the given size: the owner's end (non-blocking) and the child's end.
#[allow(clippy::disallowed_methods, reason = "a terminal that nobody else can have replaced")]
pub(crate) fn open(size: Size) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let master: PtyMaster = posix_openpt(flags)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let slave = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlag::O_NOCTTY.bits())
        .open(ptsname_r(&master)?)?;
    let master: OwnedFd = master.into();
    resize(&master, size)?;
    Ok((master, slave.into()))
}

nix::ioctl_read_bad!(get_window_size, nix::libc::TIOCGWINSZ, Winsize);
nix::ioctl_write_ptr_bad!(set_window_size, nix::libc::TIOCSWINSZ, Winsize);

/// Sets the size. The child's foreground group gets SIGWINCH if it changed.
pub(crate) fn resize(master: &impl AsFd, size: Size) -> io::Result<()> {
    let winsize = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the descriptor is open for the whole call and `winsize` is a live, initialised struct
    // of the type TIOCSWINSZ reads.
    unsafe { set_window_size(master.as_fd().as_raw_fd(), &winsize) }?;
    Ok(())
}

/// Returns the size of a terminal. Fails for any other descriptor.
pub fn size_of(terminal: &impl AsFd) -> io::Result<Size> {
    let mut winsize = Winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the descriptor is open for the whole call and `winsize` is a live struct of the type
    // TIOCGWINSZ writes.
    unsafe { get_window_size(terminal.as_fd().as_raw_fd(), &mut winsize) }?;
    Ok(Size { rows: winsize.ws_row, cols: winsize.ws_col })
}
