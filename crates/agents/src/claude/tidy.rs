//! After a person has typed into a session's terminal.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::error::BackendError;
use super::live::{ESCAPE_AGAIN, LiveSession, POLL, SETTLED};
use super::screen::{self, View};

/// After so long a turn that a person has asked for is under way, and the screen says so.
const BEGUN: Duration = Duration::from_secs(1);

impl LiveSession {
    /// Makes the box ready after a person has typed: what they asked is answered first, and what they
    /// left in the box, or opened above it, is put away. `false` when that was interrupted.
    pub(super) async fn tidy_up(
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
            // What was typed takes a moment to be seen, and a moment more to be begun with.
            let touched = self.terminal.touched();
            // Whoever types on has to be cleared away after, once more.
            cleared &= touched <= pressed;
            let settled = long_ago(pressed, SETTLED) && long_ago(touched, BEGUN);
            let again = long_ago(pressed, ESCAPE_AGAIN) && long_ago(touched, BEGUN);
            match view {
                _ if busy => {}
                View::Prompt { .. } if cleared && settled => {
                    self.tidied = touched;
                    return Ok(true);
                }
                // Whatever the box shows: what was typed may not be on the screen yet, but it comes before
                // this key. In an empty box it only says how to leave.
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
                () = tokio::time::sleep(POLL) => {}
                () = interrupt.cancelled() => return Ok(false),
            }
        }
    }
}
