//! The state of a running turn, and its outcome.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use hob_domain::session::{NewEvent, TurnState};
use hob_domain::turn_rules::UnansweredEnd;
use tokio::time::{Instant, sleep_until};

use super::events::cancelled_result;
use super::inbox::{PermissionAnswer, SettingsRequest};
use super::turn_reader::TurnReader;
use hob_agents::client_tools::ToolCall;
use hob_agents::driver::{AgentEvent, AgentExit, StartError, last_line};

/// How long an agent may take to end a cancelled turn before it is stopped.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// How a turn ended.
pub(super) struct TurnOutcome {
    pub state: TurnState,
    pub stop_reason: Option<String>,
    pub error: Option<String>,
    pub reader: TurnReader,
    /// Events that are stored together with the end.
    pub last_events: Vec<NewEvent>,
    /// Whether the prompt reached the agent, so that there is something to remember.
    pub was_prompted: bool,
}

impl TurnOutcome {
    /// Returns the outcome of a turn whose prompt did not reach the agent.
    pub fn failed(state: TurnState, error: impl Into<String>) -> TurnOutcome {
        TurnOutcome {
            state,
            stop_reason: None,
            error: Some(error.into()),
            reader: TurnReader::default(),
            last_events: Vec::new(),
            was_prompted: false,
        }
    }

    /// Returns the outcome of a turn that was stopped before its prompt reached the agent.
    pub fn stopped(cause: StopCause) -> TurnOutcome {
        let mut outcome = TurnOutcome::failed(cause.state(), "");
        (outcome.stop_reason, outcome.error) = cause.stop_reason_and_error();
        outcome
    }

    /// Returns the outcome of a turn whose agent could not be started.
    pub fn start_failed(error: StartError) -> TurnOutcome {
        match error {
            StartError::NotInstalled(text) => TurnOutcome::failed(TurnState::NotInstalled, text),
            StartError::ResumeFailed(text) => TurnOutcome::failed(
                TurnState::ResumeFailed,
                format!("the agent could not resume its conversation: {text}"),
            ),
            StartError::Refused(text) => TurnOutcome::failed(TurnState::Failed, text),
            StartError::Died { message, stderr } => TurnOutcome::failed(
                TurnState::Died,
                match last_line(&stderr) {
                    Some(line) => format!("{message}: {line}"),
                    None => message,
                },
            ),
            StartError::Internal(cause) => {
                tracing::error!(error = cause, "failed to start an agent");
                let text = "the agent could not be started; see Hob's log";
                TurnOutcome::failed(TurnState::Failed, text)
            }
        }
    }
}

/// Why a turn ends before the agent ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopCause {
    Cancelled,
    TimedOut,
    /// Hob is stopping.
    Shutdown,
}

impl StopCause {
    pub fn state(self) -> TurnState {
        match self {
            StopCause::Cancelled => TurnState::Cancelled,
            StopCause::TimedOut => TurnState::TimedOut,
            StopCause::Shutdown => TurnState::Interrupted,
        }
    }

    /// Returns the turn's stop reason and error. A cancelled turn has a reason, any other one an
    /// error.
    pub fn stop_reason_and_error(self) -> (Option<String>, Option<String>) {
        let error = match self {
            StopCause::Cancelled => return (Some("cancelled".to_owned()), None),
            StopCause::TimedOut => "the turn exceeded its time limit (sessions.turn_timeout_secs)",
            StopCause::Shutdown => UnansweredEnd::INTERRUPTED.error,
        };
        (None, Some(error.to_owned()))
    }
}

/// Whether a turn's start was stored.
pub(super) enum TurnStart {
    Started,
    /// The turn was over before it began, or another node runs it.
    Over,
    /// Hob stopped first. The turn waits for the next start.
    Postponed,
}

/// What happens next while an agent works on a turn.
pub(super) enum TurnStep {
    AgentGone,
    Agent(AgentEvent),
    Answered(PermissionAnswer),
    /// The agent called one of the caller's own tools.
    ToolCalled(ToolCall),
    /// A caller wants to read or change the agent's settings.
    SettingsRequested(SettingsRequest),
    RequestExpired(String),
    Stalled,
    LeaseLost,
    Stop(StopCause),
    StopDeadline,
}

/// The state of a turn while the agent works on it.
pub(super) struct TurnProgress {
    pub turn: u32,
    pub reader: TurnReader,
    /// Messages that are stored together with the end.
    pub last_events: Vec<NewEvent>,
    /// Permission requests that the caller may still answer, with their deadlines.
    pub asks: HashMap<String, Instant>,
    /// The calls of the caller's own tools that were put to the caller.
    pub tool_calls: HashSet<String>,
    /// Why the turn was told to stop, if it was.
    pub stop: Option<StopCause>,
    /// When an agent that was told to stop is stopped by force.
    pub stop_deadline: Instant,
    stall_after: Duration,
    /// When the turn counts as stalled unless the agent says something.
    pub stalls_at: Instant,
    pub has_stalled: bool,
    /// Whether the agent has said anything in this turn.
    pub has_output: bool,
}

/// The agent ended before it received the prompt, so nothing has happened yet.
pub(super) struct NotPrompted;

impl TurnProgress {
    pub fn new(turn: u32, stall_after: Duration) -> TurnProgress {
        let now = Instant::now();
        TurnProgress {
            turn,
            reader: TurnReader::default(),
            last_events: Vec::new(),
            asks: HashMap::new(),
            tool_calls: HashSet::new(),
            stop: None,
            stop_deadline: now,
            stall_after,
            stalls_at: now + stall_after,
            has_stalled: false,
            has_output: false,
        }
    }

    /// Restarts the stall timer: the agent has done something.
    pub fn note_activity(&mut self) {
        self.stalls_at = Instant::now() + self.stall_after;
        self.has_stalled = false;
    }

    /// Records why the turn has to stop, and gives the agent a little time to do so.
    pub fn request_stop(&mut self, cause: StopCause) {
        self.stop = Some(cause);
        self.stop_deadline = Instant::now() + CANCEL_TIMEOUT;
    }

    /// Returns whether the stall timer counts. An agent that waits for an answer does not stall,
    /// and a stall is reported once.
    pub fn can_stall(&self) -> bool {
        !self.has_stalled && !self.stall_after.is_zero() && self.asks.is_empty()
    }

    /// Returns the next permission request whose deadline passes; pends forever if there is none.
    pub async fn next_expiry(&self) -> String {
        match self.asks.iter().min_by_key(|(_, deadline)| **deadline) {
            Some((ask, deadline)) => {
                sleep_until(*deadline).await;
                ask.clone()
            }
            None => std::future::pending().await,
        }
    }

    /// Ends the turn and moves what was read of it into the outcome.
    pub fn take_outcome(
        &mut self,
        state: TurnState,
        stop_reason: Option<String>,
        error: Option<String>,
    ) -> TurnOutcome {
        TurnOutcome {
            state,
            stop_reason,
            error,
            reader: std::mem::take(&mut self.reader),
            last_events: std::mem::take(&mut self.last_events),
            was_prompted: true,
        }
    }

    /// Ends a turn that was told to stop, and to which the agent gave no result.
    pub fn take_stopped(&mut self, cause: StopCause) -> TurnOutcome {
        let (stop_reason, error) = cause.stop_reason_and_error();
        if cause == StopCause::Cancelled {
            self.last_events.push(cancelled_result(self.turn));
        }
        self.take_outcome(cause.state(), stop_reason, error)
    }

    /// Ends a turn that the agent ended, with its stop reason or its error.
    pub fn take_ended(&mut self, result: Result<String, String>) -> TurnOutcome {
        match (result, self.stop) {
            (Ok(reason), Some(StopCause::TimedOut)) if reason == "cancelled" => {
                let (_, error) = StopCause::TimedOut.stop_reason_and_error();
                self.take_outcome(TurnState::TimedOut, Some(reason), error)
            }
            (Ok(reason), _) if reason == "cancelled" => {
                self.take_outcome(TurnState::Cancelled, Some(reason), None)
            }
            (Ok(reason), _) => self.take_outcome(TurnState::Finished, Some(reason), None),
            // The agent was told to stop, and answered with an error.
            (Err(_), Some(cause)) => self.take_stopped(cause),
            (Err(message), None) => self.take_outcome(TurnState::Failed, None, Some(message)),
        }
    }

    /// Ends a turn whose agent's process ended.
    pub fn take_died(&mut self, gone: &AgentExit) -> TurnOutcome {
        if let Some(cause) = self.stop {
            return self.take_stopped(cause);
        }
        let text = match last_line(&gone.stderr) {
            Some(line) => format!("the agent ended with {}: {line}", gone.status),
            None => format!("the agent ended with {}", gone.status),
        };
        self.take_outcome(TurnState::Died, None, Some(text))
    }
}
