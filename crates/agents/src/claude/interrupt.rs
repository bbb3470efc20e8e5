//! Interrupting a running turn with the Escape key.

use std::time::{Duration, Instant};

use hob_transcript::claude::{Event, TurnOutcome};

use super::error::BackendError;
use super::screen::{self, View};
use super::terminal_session::{KEY_RETRY, SETTLE_TIME, TerminalSession, TurnTranscript};

/// How long an interrupt may take until the session is proven clean.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(8);

impl TerminalSession {
    /// Presses Escape and waits until the interrupt is confirmed: by the transcript, or by the prompt
    /// being back in the input box, from which it is cleared. Fails unless the session is proven clean.
    pub(super) async fn interrupt(
        &mut self,
        reading: &mut TurnTranscript,
        typed: &str,
        emit: &mut impl FnMut(Event, &str),
    ) -> Result<TurnOutcome, BackendError> {
        let until = Instant::now() + INTERRUPT_TIMEOUT;
        let mut escaped = Instant::now();
        let mut restored = Instant::now();
        self.write(b"\x1b").await?;
        let end = loop {
            reading.advance(emit).await?;
            if let Some(end) = reading.turn.end() {
                break end.clone();
            }
            self.screen.update();
            let view = self.screen.view();
            let busy = screen::is_busy(self.screen.contents());
            if !screen::box_shows(&view, typed) || busy {
                restored = Instant::now();
            } else if restored.elapsed() > SETTLE_TIME {
                break TurnOutcome::Interrupted;
            }
            if !self.child.is_running() {
                return Err(self.died().await);
            }
            if Instant::now() > until {
                return Err(BackendError::NotClean(self.screen.summary()));
            }
            if escaped.elapsed() > KEY_RETRY && (busy || view.is_dialog()) {
                escaped = Instant::now();
                self.write(b"\x1b").await?;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        // Text that is left in the box would be sent with the next prompt.
        let mut cleared = None;
        loop {
            self.screen.update();
            let view = self.screen.view();
            let busy = screen::is_busy(self.screen.contents());
            let shows = screen::box_shows(&view, typed);
            if matches!(view, View::Prompt { .. }) && !shows && !busy {
                return Ok(end);
            }
            if Instant::now() > until {
                return Err(BackendError::NotClean(self.screen.summary()));
            }
            if shows && cleared.is_none_or(|at: Instant| at.elapsed() > KEY_RETRY) {
                cleared = Some(Instant::now());
                self.write(b"\x03").await?;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
