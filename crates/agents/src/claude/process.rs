//! A live `claude` process with either transport.

use hob_child::Output;
use hob_transcript::claude::{Event, TurnResult};
use tokio_util::sync::CancellationToken;

use super::cost::CostMeter;
use super::error::BackendError;
use super::stream_session::StreamSession;
use super::terminal_session::{TerminalSession, TurnEnd, TurnTimeouts};

/// A live process, in a turn or between turns. Dropping it ends its process tree.
pub enum ClaudeProcess {
    Terminal(Box<TerminalSession>),
    Stream(StreamSession),
}

impl ClaudeProcess {
    pub fn pid(&self) -> i32 {
        match self {
            ClaudeProcess::Terminal(session) => session.pid(),
            ClaudeProcess::Stream(session) => session.pid(),
        }
    }

    pub fn turns(&self) -> u32 {
        match self {
            ClaudeProcess::Terminal(session) => session.turns(),
            ClaudeProcess::Stream(session) => session.turns(),
        }
    }

    pub fn output(&self) -> &Output {
        match self {
            ClaudeProcess::Terminal(session) => session.output(),
            ClaudeProcess::Stream(session) => session.output(),
        }
    }

    /// Returns the meter of costs that become known after the result of a turn.
    pub fn late_cost(&self) -> Option<CostMeter> {
        match self {
            ClaudeProcess::Terminal(session) => Some(session.cost.clone()),
            ClaudeProcess::Stream(_) => None,
        }
    }

    /// Returns whether a person has typed, so that the conversation may have diverged.
    pub fn has_human_input(&self) -> bool {
        match self {
            ClaudeProcess::Terminal(session) => session.has_human_input(),
            ClaudeProcess::Stream(_) => false,
        }
    }

    /// Returns whether the process accepts another prompt.
    pub fn is_healthy(&mut self) -> bool {
        match self {
            ClaudeProcess::Terminal(session) => session.is_healthy(),
            ClaudeProcess::Stream(session) => session.is_healthy(),
        }
    }

    /// Ends the process tree.
    pub async fn end(self) {
        match self {
            ClaudeProcess::Terminal(session) => session.end().await,
            ClaudeProcess::Stream(session) => session.end().await,
        }
    }

    /// Sends a prompt and reads the turn. After an error the process must not be used again.
    pub async fn turn(
        &mut self,
        prompt: &str,
        limits: TurnTimeouts,
        mut emit: impl FnMut(Event),
    ) -> Result<TurnResult, BackendError> {
        match self {
            ClaudeProcess::Terminal(session) => {
                // Only sessions interrupt a turn and keep the process; here a cancelled turn ends it.
                let never = CancellationToken::new();
                match session.turn(prompt, limits, &never, |event, _| emit(event)).await? {
                    TurnEnd::Finished(result) => Ok(result),
                    TurnEnd::Interrupted => Err(BackendError::Interrupted),
                }
            }
            ClaudeProcess::Stream(session) => session.turn(prompt, limits, emit).await,
        }
    }
}
