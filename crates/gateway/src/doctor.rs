//! The checks of `hob doctor`, as the composition root provides them.

use hob_domain::AgentSpec;
use serde::Serialize;
use utoipa::ToSchema;

/// Checks the home and the machine. Its results contain no secret. Its calls block.
pub trait Doctor: Send + Sync {
    fn checks(&self) -> Vec<Check>;
    /// Returns every setting as the server read it at its start.
    fn settings(&self) -> Vec<SettingRow>;
    /// Returns whether an agent's program is installed.
    fn is_installed(&self, agent: &AgentSpec) -> bool;
}

/// The result of one check.
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
    /// The value's source: `flag`, an environment variable, `config.toml` or `default`.
    pub source: String,
}
