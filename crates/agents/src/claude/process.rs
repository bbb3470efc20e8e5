//! A live process, whichever way it is talked to.

use hob_child::Output;
use hob_transcript::claude::{Event, TurnResult};
use tokio_util::sync::CancellationToken;

use super::error::BackendError;
use super::live::{Limits, LiveSession, TurnEnd};
use super::stream::StreamSession;

/// A live process between or in turns. Dropping it ends its tree.
pub enum Process {
    Terminal(Box<LiveSession>),
    Stream(StreamSession),
}

impl Process {
    pub fn pid(&self) -> i32 {
        match self {
            Process::Terminal(session) => session.pid(),
            Process::Stream(session) => session.pid(),
        }
    }

    pub fn turns(&self) -> u32 {
        match self {
            Process::Terminal(session) => session.turns(),
            Process::Stream(session) => session.turns(),
        }
    }

    pub fn output(&self) -> &Output {
        match self {
            Process::Terminal(session) => session.output(),
            Process::Stream(session) => session.output(),
        }
    }

    /// Whether a person has typed into it, so that its conversation may be another.
    pub fn is_touched(&self) -> bool {
        match self {
            Process::Terminal(session) => session.is_touched(),
            Process::Stream(_) => false,
        }
    }

    /// Whether it can be asked again.
    pub fn healthy(&mut self) -> bool {
        match self {
            Process::Terminal(session) => session.healthy(),
            Process::Stream(session) => session.healthy(),
        }
    }

    /// Ends the whole tree.
    pub async fn end(self) {
        match self {
            Process::Terminal(session) => session.end().await,
            Process::Stream(session) => session.end().await,
        }
    }

    /// Asks and reads the turn. After an error it must not be used again.
    pub async fn turn(
        &mut self,
        prompt: &str,
        limits: Limits,
        mut emit: impl FnMut(Event),
    ) -> Result<TurnResult, BackendError> {
        match self {
            Process::Terminal(session) => {
                // Interrupting and keeping is the sessions' way; here a cancelled turn ends its process.
                let never = CancellationToken::new();
                match session.turn(prompt, limits, &never, |event, _| emit(event)).await? {
                    TurnEnd::Finished(result) => Ok(result),
                    TurnEnd::Interrupted => Err(BackendError::Interrupted),
                }
            }
            Process::Stream(session) => session.turn(prompt, limits, emit).await,
        }
    }
}
