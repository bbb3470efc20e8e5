//! One live `claude` in its terminal: start, turns, interrupts and end.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hob_child::{
    Child, ChildSpec, Children, Confinement, Output, Owner, Size, SpawnError, StopLadder, Streams,
};
use hob_transcript::claude::{Event, TurnOutcome, TurnReader, TurnResult};
use tokio_util::sync::CancellationToken;

use super::cost::CostMeter;
use super::error::BackendError;
use super::input;
use super::screen::{self, Screen, View};
use super::transcript_file::TranscriptFile;
use super::transcript_tail::{
    Appended, FolderWatch, MAX_READ_BYTES, SHORT_READ_BYTES, TranscriptTail,
};
use crate::app_permits::PermitsOfApp;
use hob_terminal::{InputLock, TerminalRegistrar, TerminalRegistration};

/// The terminal's size. The transcript does not depend on it.
pub(super) const SIZE: Size = Size { rows: 40, cols: 120 };
/// The smallest terminal in which Claude Code shows everything that Hob looks for. A viewer can make it smaller.
const MIN_READABLE_SIZE: Size = Size { rows: 16, cols: 60 };
/// How long the input box may take to show a paste. Enter is pressed after that in any case.
const PASTE_TIMEOUT: Duration = Duration::from_secs(3);
/// Enter is pressed again if the input box still shows the prompt after this time.
const ENTER_RETRY: Duration = Duration::from_millis(1500);
/// How long the record of the prompt may take to appear in the transcript.
const PROMPT_ACCEPT_TIMEOUT: Duration = Duration::from_secs(20);
/// How often the transcript and the screen are read without a notification.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long a dialog must stay on the screen to count: half a frame can look like one.
const DIALOG_DELAY: Duration = Duration::from_millis(200);
/// How long the prompt must have been back in the input box. A key that is pressed earlier reaches a
/// turn that is still being interrupted.
pub(super) const SETTLE_TIME: Duration = Duration::from_millis(300);
/// A key without effect is pressed again after this time.
pub(super) const KEY_RETRY: Duration = Duration::from_millis(1500);
/// How long the record of the turn's end may take after the last message.
const TURN_END_TIMEOUT: Duration = Duration::from_secs(3);

/// The process to start, and its session.
pub struct Launch {
    pub command: Vec<String>,
    pub arguments: Vec<String>,
    pub environment: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
    /// The app that owns the conversation.
    pub owner: Owner,
    pub session_id: String,
    pub transcript: TranscriptFile,
    pub watch: FolderWatch,
    pub confinement: Option<Confinement>,
    /// The permits for long parts of the app's transcripts.
    pub records: PermitsOfApp,
    /// Registers the terminal.
    pub registrar: TerminalRegistrar,
    /// Reads what a process in a terminal has cost.
    pub cost: CostMeter,
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnEnd {
    Finished(TurnResult),
    /// The turn was interrupted and the session is proven clean: the prompt shows and its box is empty.
    Interrupted,
}

/// The time limits of a turn.
#[derive(Debug, Clone, Copy)]
pub struct TurnTimeouts {
    pub ready: Duration,
    pub turn: Duration,
    pub stall: Duration,
}

/// A live process, in a turn or between turns. Dropping it ends its process tree.
pub struct TerminalSession {
    pub(super) child: Child,
    pub(super) terminal: TerminalRegistration,
    pub(super) screen: Screen,
    watch: FolderWatch,
    transcript: TranscriptFile,
    records: PermitsOfApp,
    session_id: String,
    turns: u32,
    pub(crate) cost: CostMeter,
    /// The time of the last human input after which the input box was cleared.
    pub(super) tidied: Option<Instant>,
}

/// A turn whose prompt has been typed.
struct RunningTurn {
    typed: String,
    limits: TurnTimeouts,
    started: Instant,
    /// When Enter was pressed.
    entered: Instant,
}

/// The growing part of the transcript that belongs to one turn.
pub(super) struct TurnTranscript {
    /// `None` only while it is being read.
    tail: Option<TranscriptTail>,
    permits: PermitsOfApp,
    pub(super) turn: TurnReader,
}

impl TurnTranscript {
    /// Starts at the current end of the transcript.
    fn begin(transcript: TranscriptFile, permits: PermitsOfApp) -> TurnTranscript {
        let tail = Some(TranscriptTail::at_end(transcript));
        TurnTranscript { tail, permits, turn: TurnReader::default() }
    }

    /// Reads new records and emits their events. Returns whether there were any.
    pub(super) async fn advance(
        &mut self,
        emit: &mut impl FnMut(Event, &str),
    ) -> Result<bool, BackendError> {
        let mut any = false;
        loop {
            let (appended, permit) = match self.read(SHORT_READ_BYTES).await? {
                Appended::Long => {
                    let permit = self.permits.acquire().await;
                    (self.read(MAX_READ_BYTES).await?, Some(permit))
                }
                appended => (appended, None),
            };
            let Appended::Records(records) = appended else { return Ok(any) };
            any |= !records.is_empty();
            self.turn.push(records).into_iter().for_each(|(event, raw)| emit(event, &raw));
            if permit.is_some() {
                // The receiver of the events passes them on before the next part is read.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Reads and parses on a blocking thread.
    async fn read(&mut self, limit: usize) -> Result<Appended, BackendError> {
        let Some(mut tail) = self.tail.take() else { return Ok(Appended::Nothing) };
        let reading = tokio::task::spawn_blocking(move || (tail.read(limit), tail));
        let failed = |error: String| BackendError::Internal(error);
        let (appended, tail) = reading.await.map_err(|error| failed(error.to_string()))?;
        self.tail = Some(tail);
        appended.map_err(|error| failed(error.to_string()))
    }
}

/// Converts the error of a failed spawn.
pub fn spawned(child: Result<Child, SpawnError>) -> Result<Child, BackendError> {
    child.map_err(|error| match error {
        SpawnError::NotFound(_) | SpawnError::NotRunnable { .. } => {
            BackendError::NotInstalled(error.to_string())
        }
        SpawnError::Closing => BackendError::Closed,
        error => BackendError::Internal(error.to_string()),
    })
}

impl TerminalSession {
    /// Starts the process and waits until it shows its prompt.
    pub async fn start(
        children: &Children,
        launch: Launch,
        limits: TurnTimeouts,
    ) -> Result<TerminalSession, BackendError> {
        let mut command = launch.command.iter();
        let program = command.next().cloned().unwrap_or_default();
        let args = command.chain(&launch.arguments).map(OsString::from).collect();
        let spec = ChildSpec {
            program: program.into(),
            args,
            env: launch.environment,
            cwd: launch.cwd.clone(),
            streams: Streams::Terminal { size: SIZE },
            owner: Some(launch.owner.clone()),
            confinement: launch.confinement,
        };
        let child = spawned(children.spawn(spec).await)?;
        let terminal = launch.registrar.register(&child, SIZE, launch.owner.app, launch.cwd);
        let screen = Screen::new(terminal.clone());
        let mut session = TerminalSession {
            child,
            terminal,
            screen,
            watch: launch.watch,
            transcript: launch.transcript,
            records: launch.records,
            session_id: launch.session_id,
            turns: 0,
            cost: launch.cost,
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

    /// Returns whether a person has typed, so that the conversation may have diverged.
    pub fn has_human_input(&self) -> bool {
        self.terminal.last_input_at().is_some()
    }

    /// Returns whether the process accepts a prompt: it runs and shows no dialog.
    pub fn is_healthy(&mut self) -> bool {
        self.screen.update();
        self.child.is_running() && matches!(self.screen.view(), View::Prompt { .. })
    }

    /// Waits until the process ends by itself. Returns its exit status in words.
    pub async fn exited(&self) -> String {
        self.child.exited().await.to_string()
    }

    /// Ends the process tree.
    pub async fn end(mut self) {
        self.child.stop(StopLadder::AT_ONCE).await;
    }

    /// Types a prompt and reads the turn. Events go to `emit` as they arrive, each with the line it was
    /// read from; the result is returned. After an error the session must not be used again. Cancelling
    /// `interrupt` interrupts the turn and keeps the session.
    pub async fn turn(
        &mut self,
        prompt: &str,
        limits: TurnTimeouts,
        interrupt: &CancellationToken,
        mut emit: impl FnMut(Event, &str),
    ) -> Result<TurnEnd, BackendError> {
        self.terminal.turn_started();
        let end = self.run_turn(prompt, limits, interrupt, &mut emit).await;
        self.terminal.turn_ended(self.turns);
        self.cost.note_turn_end();
        end
    }

    async fn run_turn(
        &mut self,
        prompt: &str,
        limits: TurnTimeouts,
        interrupt: &CancellationToken,
        mut emit: impl FnMut(Event, &str),
    ) -> Result<TurnEnd, BackendError> {
        let typed = input::typed(prompt)
            .ok_or_else(|| BackendError::Invalid("prompt: must not be empty".to_owned()))?;
        let started = Instant::now();
        // A viewer may have made the terminal too small.
        self.terminal.ensure_size(MIN_READABLE_SIZE, SIZE);
        let has_new_input = self.terminal.last_input_at() > self.tidied;
        if has_new_input && !self.clear_human_input(limits.turn, interrupt).await? {
            return Ok(TurnEnd::Interrupted);
        }
        self.wait_for_prompt(limits.ready).await?;
        if interrupt.is_cancelled() {
            return Ok(TurnEnd::Interrupted);
        }
        let mut reading = TurnTranscript::begin(self.transcript.clone(), self.records.clone());
        self.type_prompt(&typed).await?;
        let turn = RunningTurn { typed, limits, started, entered: Instant::now() };
        let end = self.follow_turn(&turn, &mut reading, interrupt, &mut emit).await?;
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
                    cost_usd: self.cost.growth().await,
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

    /// Reads the transcript and watches the screen until the turn ends.
    async fn follow_turn(
        &mut self,
        turn: &RunningTurn,
        reading: &mut TurnTranscript,
        interrupt: &CancellationToken,
        emit: &mut impl FnMut(Event, &str),
    ) -> Result<TurnOutcome, BackendError> {
        let mut enters = 1;
        let mut last_activity = Instant::now();
        let mut stalled = false;
        loop {
            // Marked before reading, so that no change in between is missed.
            let mut changed = self.watch.changed();
            changed.mark_unchanged();
            self.cost.note_beginning().await;
            if reading.advance(emit).await? {
                last_activity = Instant::now();
                stalled = false;
            }
            if let Some(end) = reading.turn.end() {
                return Ok(end.clone());
            }
            if reading.turn.has_final_message() && last_activity.elapsed() > TURN_END_TIMEOUT {
                reading.turn.finish();
                continue;
            }
            if !self.child.is_running() {
                // Records that were written before the exit may still be unread.
                reading.advance(emit).await?;
                return match reading.turn.end() {
                    Some(end) => Ok(end.clone()),
                    None => Err(self.died().await),
                };
            }
            if turn.started.elapsed() > turn.limits.turn {
                let screen = self.screen.summary();
                return Err(BackendError::TimedOut { limit: turn.limits.turn, screen });
            }
            self.screen.update();
            let view = self.screen.view();
            self.check_dialog(&view)?;
            if !reading.turn.began() {
                self.ensure_accepted(turn, &view, &mut enters).await?;
            }
            // Before the prompt is accepted, Escape only disturbs: it and the Enter before it may be read
            // together, and later ones are then ignored.
            let accepted = reading.turn.began() || screen::is_busy(self.screen.contents());
            if !stalled && last_activity.elapsed() > turn.limits.stall {
                stalled = true;
                emit(Event::Stalled { screen: self.screen.summary() }, "");
            }
            tokio::select! {
                _ = changed.changed() => {}
                _ = self.child.exited() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                () = interrupt.cancelled(), if accepted => {
                    return self.interrupt(reading, &turn.typed, emit).await;
                }
            }
        }
    }

    /// Presses Enter again while the input box still shows the prompt. Fails if the prompt is not accepted
    /// in time.
    async fn ensure_accepted(
        &mut self,
        turn: &RunningTurn,
        view: &View,
        enters: &mut u32,
    ) -> Result<(), BackendError> {
        let waited = turn.entered.elapsed();
        if waited > PROMPT_ACCEPT_TIMEOUT {
            return Err(BackendError::InputNotTaken(self.screen.summary()));
        }
        if waited > ENTER_RETRY * *enters && screen::box_shows(view, &turn.typed) {
            *enters += 1;
            self.write(b"\r").await?;
        }
        Ok(())
    }

    /// Pastes the prompt, waits until the input box shows it, then presses Enter. Sent together they would
    /// be one paste and the Enter would be lost. The input lock keeps viewers from typing in between.
    async fn type_prompt(&mut self, typed: &str) -> Result<(), BackendError> {
        let terminal = self.screen.terminal.clone();
        let typing = terminal.lock_input().await;
        self.write_with(&typing, &input::paste(typed)).await?;
        // A long paste takes longer to show.
        let limit = PASTE_TIMEOUT + Duration::from_millis(typed.len() as u64 / 50);
        let until = Instant::now() + limit;
        while Instant::now() < until {
            self.screen.update();
            let view = self.screen.view();
            if screen::box_begins_with(&view, typed) {
                break;
            }
            self.check_dialog(&view)?;
            if !self.child.is_running() {
                return Err(self.died().await);
            }
            self.screen_changes(until).await;
        }
        let view = self.screen.view();
        if screen::box_shows(&view, typed) && !screen::box_begins_with(&view, typed) {
            // The box holds text of an earlier prompt, which Enter would send with this one.
            return Err(BackendError::NotClean(self.screen.summary()));
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

    /// Fails once a dialog has stayed on the screen for [`DIALOG_DELAY`].
    fn check_dialog(&mut self, view: &View) -> Result<(), BackendError> {
        let View::Dialog(dialog) = view else {
            self.screen.dialog_since = None;
            return Ok(());
        };
        let since = *self.screen.dialog_since.get_or_insert_with(Instant::now);
        if since.elapsed() < DIALOG_DELAY {
            return Ok(());
        }
        Err(BackendError::Dialog { name: dialog.name.clone(), advice: dialog.advice.clone() })
    }

    /// Returns when there is more output, the process has ended, or the deadline is reached.
    async fn screen_changes(&self, until: Instant) {
        let output = self.child.output().clone();
        tokio::select! {
            _ = output.grows_past(self.screen.position) => {}
            _ = self.child.exited() => {}
            () = tokio::time::sleep_until(until.into()) => {}
            // A dialog writes nothing more, so its delay needs a timer.
            () = tokio::time::sleep(DIALOG_DELAY) => {}
        }
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        let terminal = self.screen.terminal.clone();
        self.write_with(&terminal.lock_input().await, bytes).await
    }

    async fn write_with(
        &mut self,
        typing: &InputLock<'_>,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        match typing.write(bytes).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.died().await),
        }
    }

    /// Builds the error for a process that has ended, with the last text on its screen.
    pub(super) async fn died(&mut self) -> BackendError {
        let exit = self.child.gone().await;
        self.screen.update();
        BackendError::Died { how: exit.to_string(), said: self.screen.summary() }
    }
}

#[cfg(test)]
#[path = "terminal_session_tests.rs"]
mod tests;
