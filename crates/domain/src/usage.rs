//! What turns use.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::app::AppName;

/// What a turn used. Agents count from the beginning of their process; these are the turn's own.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct TurnUsage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cached_read_tokens: u64,
    pub cached_write_tokens: u64,
    pub cost_usd: f64,
}

impl TurnUsage {
    /// Tokens of every kind.
    pub fn tokens(&self) -> u64 {
        self.input_tokens + self.output_tokens + self.cached_read_tokens + self.cached_write_tokens
    }
}

/// What an app's turns of one day used.
#[derive(Debug, Clone, PartialEq)]
pub struct UsageDay {
    pub app: AppName,
    /// The day's beginning, UTC.
    pub day: Timestamp,
    /// Turns that ended, and those of them that failed.
    pub turns: u64,
    pub failed: u64,
    pub usage: TurnUsage,
}
