//! One live `claude` in its terminal: started, asked, interrupted, ended.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hob_child::{
    Child, ChildSpec, Children, Confinement, Output, Size, SpawnError, StopLadder, Streams,
};
use hob_transcript::claude::{Event, TurnOutcome, TurnReader, TurnResult};
use tokio_util::sync::CancellationToken;

use super::error::BackendError;
use super::input;
use super::screen::{self, Screen, View};
use super::tail::{Tail, Watch};
use hob_terminal::{Entered, Entering, Typing};

/// The terminal's size. The transcript does not depend on it.
pub(super) const SIZE: Size = Size { rows: 40, cols: 120 };
/// How long the box may take to show a paste before Enter is pressed all the same.
const PASTE_SHOWN: Duration = Duration::from_secs(3);
/// Enter is pressed again when the box still holds the text after this.
const ENTER_AGAIN: Duration = Duration::from_millis(1500);
/// A prompt whose record has not come by then was not taken.
const TAKEN: Duration = Duration::from_secs(20);
/// Without notifications, how often the transcript is looked at.
pub(super) const POLL: Duration = Duration::from_millis(100);
/// A dialog that is still there after this is one.
const DIALOG_STAYS: Duration = Duration::from_millis(200);
/// An interrupt that is not seen through by then has failed.
const INTERRUPTED: Duration = Duration::from_secs(8);
/// The prompt must be back in the box for so long: a key pressed earlier meets a turn that is still
/// being broken off.
pub(super) const SETTLED: Duration = Duration::from_millis(300);
/// A key that had no effect by then is pressed again.
pub(super) const ESCAPE_AGAIN: Duration = Duration::from_millis(1500);
/// After the last word, how long the record of the turn's end may take.
const LAST_WORD: Duration = Duration::from_secs(3);

/// What to start.
pub struct Launch {
    pub command: Vec<String>,
    pub arguments: Vec<String>,
    pub environment: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
    /// Whose conversation it is.
    pub app: String,
    pub session_id: String,
    pub transcript: PathBuf,
    pub watch: Watch,
    pub confinement: Option<Confinement>,
    /// As what people find its terminal.
    pub entering: Entering,
}

/// How a turn came to its end.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnEnd {
    Finished(TurnResult),
    /// It was interrupted, and the session is proven clean: the prompt is there and the box is empty.
    Interrupted,
}

/// Limits of a turn.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub ready: Duration,
    pub turn: Duration,
    pub stall: Duration,
}

/// A live process between or in turns. Dropping it ends its tree.
pub struct LiveSession {
    pub(super) child: Child,
    pub(super) terminal: Entered,
    pub(super) screen: Screen,
    watch: Watch,
    transcript: PathBuf,
    session_id: String,
    turns: u32,
    /// The last touch of a person's after which the box was made ready.
    pub(super) tidied: Option<Instant>,
}

/// A turn's part of the transcript, as it comes.
struct Reading {
    tail: Tail,
    turn: TurnReader,
}

impl Reading {
    /// Begins at the transcript's present end.
    fn begin(transcript: PathBuf) -> Reading {
        Reading { tail: Tail::at_end(transcript), turn: TurnReader::default() }
    }

    /// Takes what is new. `false` when nothing is.
    fn advance(&mut self, emit: &mut impl FnMut(Event, &str)) -> Result<bool, BackendError> {
        let records = self.tail.read();
        let records = records.map_err(|error| BackendError::Internal(error.to_string()))?;
        let any = !records.is_empty();
        self.turn.push(records).into_iter().for_each(|(event, raw)| emit(event, &raw));
        Ok(any)
    }
}

/// A child, or why there is none in the words of the backend.
pub fn spawned(child: Result<Child, SpawnError>) -> Result<Child, BackendError> {
    child.map_err(|error| match error {
        SpawnError::NotFound(_) | SpawnError::NotRunnable { .. } => {
            BackendError::NotInstalled(error.to_string())
        }
        SpawnError::Closing => BackendError::Closed,
        error => BackendError::Internal(error.to_string()),
    })
}

impl LiveSession {
    /// Starts the process and waits until it shows its prompt.
    pub async fn start(
        children: &Children,
        launch: Launch,
        limits: Limits,
    ) -> Result<LiveSession, BackendError> {
        let mut command = launch.command.iter();
        let program = command.next().cloned().unwrap_or_default();
        let args = command.chain(&launch.arguments).map(OsString::from).collect();
        let spec = ChildSpec {
            program: program.into(),
            args,
            env: launch.environment,
            cwd: launch.cwd.clone(),
            streams: Streams::Terminal { size: SIZE },
            owner: Some(launch.app.clone()),
            confinement: launch.confinement,
        };
        let child = spawned(children.spawn(spec).await)?;
        let terminal = launch.entering.enter(&child, SIZE, launch.app, launch.cwd);
        let screen = Screen::new(terminal.clone());
        let mut session = LiveSession {
            child,
            terminal,
            screen,
            watch: launch.watch,
            transcript: launch.transcript,
            session_id: launch.session_id,
            turns: 0,
            tidied: None,
        };
        match session.wait_for_prompt(limits.ready).await {
            Ok(()) => Ok(session),
            Err(error) => {
                session.end().await;
                Err(error)
            }
        }
    }

    pub fn pid(&self) -> i32 {
        self.child.pid()
    }

    pub fn turns(&self) -> u32 {
        self.turns
    }

    pub fn output(&self) -> &Output {
        self.child.output()
    }

    /// Whether a person has typed into it, so that its conversation may be another.
    pub fn is_touched(&self) -> bool {
        self.terminal.touched().is_some()
    }

    /// Whether it can be asked again: it runs, and no dialog is in the way.
    pub fn healthy(&mut self) -> bool {
        self.screen.update();
        self.child.is_running() && matches!(self.screen.view(), View::Prompt { .. })
    }

    /// Waits until it has ended by itself, and says how.
    pub async fn exited(&self) -> String {
        self.child.exited().await.to_string()
    }

    /// Ends the whole tree.
    pub async fn end(mut self) {
        self.child.stop(StopLadder::AT_ONCE).await;
    }

    /// Types a prompt and reads the turn. Events go to `emit` as they come, with the line they were read
    /// from, but the result: that is returned. After an error the session must not be used again. When `interrupt` is cancelled the
    /// turn is broken off and the session kept.
    pub async fn turn(
        &mut self,
        prompt: &str,
        limits: Limits,
        interrupt: &CancellationToken,
        mut emit: impl FnMut(Event, &str),
    ) -> Result<TurnEnd, BackendError> {
        self.terminal.set_busy(true, self.turns);
        let end = self.whole_turn(prompt, limits, interrupt, &mut emit).await;
        self.terminal.set_busy(false, self.turns);
        end
    }

    async fn whole_turn(
        &mut self,
        prompt: &str,
        limits: Limits,
        interrupt: &CancellationToken,
        mut emit: impl FnMut(Event, &str),
    ) -> Result<TurnEnd, BackendError> {
        let typed = input::typed(prompt)
            .ok_or_else(|| BackendError::Invalid("the prompt is empty".to_owned()))?;
        let started = Instant::now();
        // Somebody may have made it small, and watches, or has left it so.
        self.terminal.make_room(SIZE);
        if self.terminal.touched() > self.tidied && !self.tidy_up(limits.turn, interrupt).await? {
            return Ok(TurnEnd::Interrupted);
        }
        self.wait_for_prompt(limits.ready).await?;
        let mut reading = Reading::begin(self.transcript.clone());
        self.type_prompt(&typed).await?;
        let entered = Instant::now();
        let mut enters = 1;
        let mut last_sign = Instant::now();
        let mut stalled = false;
        let end = loop {
            // Noted before reading, so that a change meanwhile is not missed.
            let mut changed = self.watch.changed();
            changed.mark_unchanged();
            if reading.advance(&mut emit)? {
                last_sign = Instant::now();
                stalled = false;
            }
            if let Some(end) = reading.turn.end() {
                break end.clone();
            }
            if reading.turn.has_final_message() && last_sign.elapsed() > LAST_WORD {
                reading.turn.finish();
                continue;
            }
            if !self.child.is_running() {
                // What it wrote before it ended may still be unread.
                reading.advance(&mut emit)?;
                match reading.turn.end() {
                    Some(end) => break end.clone(),
                    None => return Err(self.died().await),
                }
            }
            if started.elapsed() > limits.turn {
                let screen = self.screen.summary();
                return Err(BackendError::TimedOut { limit: limits.turn, screen });
            }
            self.screen.update();
            let view = self.screen.view();
            self.check_dialog(&view)?;
            if !reading.turn.began() {
                let waited = entered.elapsed();
                if waited > TAKEN {
                    return Err(BackendError::InputNotTaken(self.screen.summary()));
                }
                if waited > ENTER_AGAIN * enters && screen::box_shows(&view, &typed) {
                    enters += 1;
                    self.write(b"\r").await?;
                }
            }
            if !stalled && last_sign.elapsed() > limits.stall {
                stalled = true;
                emit(Event::Stalled { screen: self.screen.summary() }, "");
            }
            tokio::select! {
                _ = changed.changed() => {}
                _ = self.child.exited() => {}
                () = tokio::time::sleep(POLL) => {}
                () = interrupt.cancelled() => {
                    break self.interrupt(&mut reading, &typed, &mut emit).await?;
                }
            }
        };
        match end {
            TurnOutcome::Finished { stop_reason, usage } => {
                self.turns += 1;
                Ok(TurnEnd::Finished(TurnResult {
                    subtype: "success".to_owned(),
                    duration_ms: started.elapsed().as_millis() as u64,
                    num_turns: self.turns,
                    session_id: self.session_id.clone(),
                    stop_reason,
                    usage,
                    cost_usd: 0.0,
                }))
            }
            TurnOutcome::ApiError { kind, status, message } => {
                Err(BackendError::Api { status, kind, message })
            }
            TurnOutcome::Interrupted if interrupt.is_cancelled() => {
                self.turns += 1;
                Ok(TurnEnd::Interrupted)
            }
            TurnOutcome::Interrupted => Err(BackendError::Interrupted),
        }
    }

    /// Presses Escape and sees it through: the transcript says so, or the prompt is back in the box
    /// and is cleared from it. What cannot be proven clean is an error.
    async fn interrupt(
        &mut self,
        reading: &mut Reading,
        typed: &str,
        emit: &mut impl FnMut(Event, &str),
    ) -> Result<TurnOutcome, BackendError> {
        let until = Instant::now() + INTERRUPTED;
        let mut escaped = Instant::now();
        let mut restored = Instant::now();
        self.write(b"\x1b").await?;
        let end = loop {
            reading.advance(emit)?;
            if let Some(end) = reading.turn.end() {
                break end.clone();
            }
            self.screen.update();
            let view = self.screen.view();
            let busy = screen::is_busy(self.screen.contents());
            if !screen::box_shows(&view, typed) || busy {
                restored = Instant::now();
            } else if restored.elapsed() > SETTLED {
                break TurnOutcome::Interrupted;
            }
            if !self.child.is_running() {
                return Err(self.died().await);
            }
            if Instant::now() > until {
                return Err(BackendError::NotClean(self.screen.summary()));
            }
            if escaped.elapsed() > ESCAPE_AGAIN && (busy || view.is_dialog()) {
                escaped = Instant::now();
                self.write(b"\x1b").await?;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        // Whatever is in the box now would be sent with the next prompt.
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
            if shows && cleared.is_none_or(|at: Instant| at.elapsed() > ESCAPE_AGAIN) {
                cleared = Some(Instant::now());
                self.write(b"\x03").await?;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Pastes, waits until the box shows it, presses Enter: together they would be one paste, and
    /// Enter would be lost. Nobody else types meanwhile.
    async fn type_prompt(&mut self, typed: &str) -> Result<(), BackendError> {
        let terminal = self.screen.terminal.clone();
        let typing = terminal.typing().await;
        self.write_with(&typing, &input::paste(typed)).await?;
        // A long paste takes its time.
        let patience = PASTE_SHOWN + Duration::from_millis(typed.len() as u64 / 50);
        let until = Instant::now() + patience;
        while Instant::now() < until {
            self.screen.update();
            let view = self.screen.view();
            if screen::box_shows(&view, typed) {
                break;
            }
            self.check_dialog(&view)?;
            if !self.child.is_running() {
                return Err(self.died().await);
            }
            self.screen_changes(until).await;
        }
        self.write_with(&typing, b"\r").await
    }

    async fn wait_for_prompt(&mut self, limit: Duration) -> Result<(), BackendError> {
        let until = Instant::now() + limit;
        loop {
            self.screen.update();
            let view = self.screen.view();
            if matches!(view, View::Prompt { .. }) {
                return Ok(());
            }
            self.check_dialog(&view)?;
            if !self.child.is_running() {
                return Err(self.died().await);
            }
            if Instant::now() >= until {
                return Err(BackendError::TimedOut { limit, screen: self.screen.summary() });
            }
            self.screen_changes(until).await;
        }
    }

    /// An error once a dialog has been there for a while: half a frame can look like one.
    fn check_dialog(&mut self, view: &View) -> Result<(), BackendError> {
        let View::Dialog(dialog) = view else {
            self.screen.dialog_since = None;
            return Ok(());
        };
        let since = *self.screen.dialog_since.get_or_insert_with(Instant::now);
        if since.elapsed() < DIALOG_STAYS {
            return Ok(());
        }
        Err(BackendError::Dialog { name: dialog.name.clone(), advice: dialog.advice.clone() })
    }

    /// Returns when the terminal has written more, the process has ended, or it is time.
    async fn screen_changes(&self, until: Instant) {
        let output = self.child.output().clone();
        tokio::select! {
            _ = output.grows_past(self.screen.position) => {}
            _ = self.child.exited() => {}
            () = tokio::time::sleep_until(until.into()) => {}
            // A dialog writes nothing more; it counts once it has stayed.
            () = tokio::time::sleep(DIALOG_STAYS) => {}
        }
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        let terminal = self.screen.terminal.clone();
        self.write_with(&terminal.typing().await, bytes).await
    }

    async fn write_with(&mut self, typing: &Typing<'_>, bytes: &[u8]) -> Result<(), BackendError> {
        match typing.write(bytes).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.died().await),
        }
    }

    /// The process has ended: how, and what it said last.
    pub(super) async fn died(&mut self) -> BackendError {
        let exit = self.child.gone().await;
        self.screen.update();
        BackendError::Died { how: exit.to_string(), said: self.screen.summary() }
    }
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
