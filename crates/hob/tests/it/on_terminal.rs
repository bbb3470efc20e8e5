//! Runs a command in a pseudo-terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{Winsize, openpty};

/// Runs a command on a terminal of 80 columns, types `input`, and returns all that the terminal received.
pub fn on_terminal(command: Command, input: &str) -> String {
    dialogue_on_terminal(command, &[("", input)])
}

/// Runs a command on a terminal of 80 columns and returns all that the terminal received. For each step, it waits until
/// the terminal has received the first text since the step before, and types the second.
pub fn dialogue_on_terminal(mut command: Command, steps: &[(&str, &str)]) -> String {
    // A pager waits for keys. A test that wants one names it.
    if !command.get_envs().any(|(name, _)| name == "PAGER") {
        command.env("PAGER", "cat");
    }
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = openpty(&size, None).unwrap();
    // Programs that the command leaves behind must not keep the terminal.
    for end in [&terminal.master, &terminal.slave] {
        fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
    }
    let end = || Stdio::from(terminal.slave.try_clone().unwrap());
    command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm-256color");
    let mut child = command.spawn().unwrap();
    // The command keeps the only other descriptors of this end, so that reading ends with it.
    drop(command);
    drop(terminal.slave);
    let mut master = File::from(terminal.master);
    let mut shown = Vec::new();
    let mut buffer = [0; 4096];
    for (expected, input) in steps {
        let from = shown.len();
        while !contains(&shown[from..], expected.as_bytes()) {
            let count = master.read(&mut buffer).unwrap_or(0);
            assert_ne!(count, 0, "no {expected:?} in {:?}", String::from_utf8_lossy(&shown));
            shown.extend_from_slice(&buffer[..count]);
        }
        master.write_all(input.as_bytes()).unwrap();
    }
    // The end of a terminal whose last process has ended is an error.
    while let Ok(count @ 1..) = master.read(&mut buffer) {
        shown.extend_from_slice(&buffer[..count]);
    }
    child.wait().unwrap();
    String::from_utf8(shown).unwrap()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    part.is_empty() || bytes.windows(part.len()).any(|window| window == part)
}
