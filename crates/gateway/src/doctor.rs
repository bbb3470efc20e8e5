//! The checks of `hob doctor`, as the composition root provides them.

use hob_domain::AgentSpec;
use serde::Serialize;
use utoipa::ToSchema;

/// Looks at the home and the machine. What it says holds no secret. Its calls block.
pub trait Doctor: Send + Sync {
    fn checks(&self) -> Vec<Check>;
    /// Every setting, as it was read when the server started.
    fn settings(&self) -> Vec<SettingRow>;
    /// Whether an agent's program is there.
    fn is_installed(&self, agent: &AgentSpec) -> bool;
}

/// One check, in words.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Check {
    pub name: String,
    pub status: Verdict,
    /// What was found.
    pub text: String,
    /// What to do about it.
    pub fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// One setting.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SettingRow {
    pub key: String,
    pub value: String,
    /// Where the value comes from: `flag`, a variable, `config.toml` or `default`.
    pub source: String,
}
