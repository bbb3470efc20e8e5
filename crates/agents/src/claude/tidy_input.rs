//! Cleaning the input box after a person has typed into a session's terminal.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::error::BackendError;
use super::screen::{self, View};
use super::terminal_session::{KEY_RETRY, POLL_INTERVAL, SETTLE_TIME, TerminalSession};

/// How long a turn that a person started may take to show on the screen.
const TURN_START_DELAY: Duration = Duration::from_secs(1);

impl TerminalSession {
    /// Prepares the input box after a person has typed: waits for the turn that they started, then clears
    /// the text and dialogs that they left. Returns `false` if `interrupt` was cancelled meanwhile.
    pub(super) async fn clear_human_input(
        &mut self,
        limit: Duration,
        interrupt: &CancellationToken,
    ) -> Result<bool, BackendError> {
        let until = Instant::now() + limit;
        let mut pressed: Option<Instant> = None;
        let mut cleared = false;
        loop {
            self.screen.update();
            let view = self.screen.view();
            let busy = screen::is_busy(self.screen.contents());
            let long_ago = |at: Option<Instant>, after| at.is_none_or(|at| at.elapsed() > after);
            // Typed text takes a moment to show, and a turn a moment more to start.
            let typed_at = self.terminal.last_input_at();
            // Text that was typed after the clearing key must be cleared again.
            cleared &= typed_at <= pressed;
            let settled = long_ago(pressed, SETTLE_TIME) && long_ago(typed_at, TURN_START_DELAY);
            let again = long_ago(pressed, KEY_RETRY) && long_ago(typed_at, TURN_START_DELAY);
            match view {
                _ if busy => {}
                View::Prompt { .. } if cleared && settled => {
                    self.tidied = typed_at;
                    return Ok(true);
                }
                // The key is pressed whatever the box shows: typed text may not be on the screen yet, but
                // the program reads it before this key. In an empty box the key only shows a hint.
                View::Prompt { .. } if !cleared && settled => {
                    (cleared, pressed) = (true, Some(Instant::now()));
                    self.write(b"\x03").await?;
                }
                View::Dialog(_) | View::Unknown if again => {
                    pressed = Some(Instant::now());
                    self.write(b"\x1b").await?;
                }
                _ => {}
            }
            if !self.child.is_running() {
                return Err(self.died().await);
            }
            if Instant::now() > until {
                return Err(BackendError::NotClean(self.screen.summary()));
            }
            tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                () = interrupt.cancelled() => return Ok(false),
            }
        }
    }
}
