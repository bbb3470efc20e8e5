//! Token usage and cost of turns.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::app::AppName;

/// The usage of a turn. Agents count from the start of their process; these numbers are the turn's own.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct TurnUsage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cached_read_tokens: u64,
    pub cached_write_tokens: u64,
    pub cost_usd: f64,
}

/// The most tokens of one kind and the highest cost that a turn is recorded with. The numbers come from an agent and
/// may be anything, but sums over all turns must not overflow.
const MAX_TOKENS: u64 = 1 << 40;
const MAX_COST_USD: f64 = 1e9;

impl TurnUsage {
    /// Returns the usage within the bounds in which it is stored. A cost that is not a number becomes zero.
    pub fn bounded(&self) -> TurnUsage {
        let cost = self.cost_usd;
        TurnUsage {
            input_tokens: self.input_tokens.min(MAX_TOKENS),
            output_tokens: self.output_tokens.min(MAX_TOKENS),
            cached_read_tokens: self.cached_read_tokens.min(MAX_TOKENS),
            cached_write_tokens: self.cached_write_tokens.min(MAX_TOKENS),
            cost_usd: if cost.is_nan() { 0.0 } else { cost.clamp(0.0, MAX_COST_USD) },
        }
    }

    /// Returns the number of tokens of every kind.
    pub fn tokens(&self) -> u64 {
        let cached = self.cached_read_tokens.saturating_add(self.cached_write_tokens);
        self.input_tokens.saturating_add(self.output_tokens).saturating_add(cached)
    }

    /// Adds other numbers of tokens. An agent reports them, so they may be of any size.
    pub fn add_tokens(&mut self, other: &TurnUsage) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cached_read_tokens = self.cached_read_tokens.saturating_add(other.cached_read_tokens);
        self.cached_write_tokens =
            self.cached_write_tokens.saturating_add(other.cached_write_tokens);
    }
}

/// The usage of an app's turns on one day.
#[derive(Debug, Clone, PartialEq)]
pub struct UsageDay {
    pub app: AppName,
    /// The start of the day, UTC.
    pub day: Timestamp,
    /// The number of turns that ended, and how many of them failed.
    pub turns: u64,
    pub failed: u64,
    pub usage: TurnUsage,
}
