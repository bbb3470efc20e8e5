//! What goes into each tool and what comes out. The declared schemas are made from these.

use hob_domain::memory::{Record, Tier, TurnRole};
use hob_memory::{Found, UpgradeProgress, UpgradeState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecallArguments {
    /// What to look for: a question, names, paths, an error text.
    pub cue: String,
    /// About how many tokens the hits may have together.
    #[serde(default = "default_budget")]
    #[schemars(range(min = 1))]
    pub budget_tokens: usize,
    /// The most hits.
    #[serde(default = "default_limit")]
    #[schemars(range(min = 1, max = 500))]
    pub limit: usize,
    /// A folder or a project's name; "*" for all. Default: the project of the working folder.
    pub project: Option<String>,
    /// Only this session.
    pub session_id: Option<String>,
    /// Not before: a date or a time such as 2026-05-01T00:00:00Z.
    pub since: Option<String>,
    /// Not after: a date or a time.
    pub until: Option<String>,
}

pub(crate) fn default_budget() -> usize {
    1500
}

pub(crate) fn default_limit() -> usize {
    20
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RecallResult {
    pub hits: Vec<Hit>,
    /// About how many tokens the hits have.
    pub budget_used: usize,
    /// Matches that are not among the hits.
    pub omitted: usize,
    /// Whether something captured is not searchable yet.
    pub partial: bool,
}

/// One turn that was found.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Hit {
    pub record_id: String,
    pub text: String,
    pub role: String,
    pub session_id: String,
    pub project: String,
    pub ts: String,
    pub score: f64,
    pub reason: String,
    /// The working tree, where it is not the project's own root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worktree: Option<String>,
    /// The record that corrects this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<String>,
}

impl From<Found> for Hit {
    fn from(found: Found) -> Hit {
        let record = found.record;
        let apart = record.place.worktree != record.place.project;
        Hit {
            record_id: record.id.to_string(),
            text: record.text,
            role: record.role.as_str().to_owned(),
            session_id: record.session,
            worktree: apart.then_some(record.place.worktree),
            project: record.place.project,
            ts: record.ts.to_string(),
            score: (found.score * 10_000.0).round() / 10_000.0,
            reason: found.reason,
            superseded_by: record.superseded_by.map(|id| id.to_string()),
        }
    }
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CaptureArguments {
    /// What to remember, in full sentences.
    pub text: String,
    /// Other words it should be found by.
    pub cue: Option<String>,
    /// Who said it.
    #[serde(default = "default_role")]
    #[schemars(with = "RoleName")]
    pub role: TurnRole,
    /// "semantic" for a fact that stands, "episodic" for something that happened.
    #[serde(default = "default_tier")]
    #[schemars(with = "TierName")]
    pub tier: Tier,
    /// A folder or a project's name. Default: the project of the working folder.
    pub project: Option<String>,
}

fn default_role() -> TurnRole {
    TurnRole::User
}

fn default_tier() -> Tier {
    Tier::Semantic
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[allow(dead_code, reason = "only its schema is used")]
enum RoleName {
    User,
    Assistant,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[allow(dead_code, reason = "only its schema is used")]
enum TierName {
    Episodic,
    Semantic,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct CaptureResult {
    pub record_id: String,
    /// Whether it was remembered already.
    pub duplicate: bool,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CorrectArguments {
    /// The record that is wrong.
    pub record_id: String,
    /// What is right instead.
    pub text: String,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct CorrectResult {
    /// The new record.
    pub record_id: String,
    /// The old one; it stays and ranks below.
    pub superseded: String,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetArguments {
    /// One record.
    pub record_id: Option<String>,
    /// Or a whole session.
    pub session_id: Option<String>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ForgetResult {
    /// How many records are gone.
    pub count: usize,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimelineArguments {
    /// The turns of this session.
    pub session_id: Option<String>,
    /// Or of a project: a folder, a name, or "*". Default: the project of the working folder.
    pub project: Option<String>,
    /// The turns around a record or a time. Default: the latest.
    pub around: Option<String>,
    /// The most turns.
    #[serde(default = "default_limit")]
    #[schemars(range(min = 1, max = 500))]
    pub limit: usize,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct TimelineResult {
    pub turns: Vec<TimelineTurn>,
}

/// One turn in its order.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TimelineTurn {
    pub record_id: String,
    pub text: String,
    pub role: String,
    pub session_id: String,
    pub project: String,
    pub ts: String,
}

impl From<Record> for TimelineTurn {
    fn from(record: Record) -> TimelineTurn {
        TimelineTurn {
            record_id: record.id.to_string(),
            text: record.text,
            role: record.role.as_str().to_owned(),
            session_id: record.session,
            project: record.place.project,
            ts: record.ts.to_string(),
        }
    }
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StatsArguments {}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct StatsResult {
    pub turns: u64,
    pub sessions: u64,
    pub projects: u64,
    /// Turns that hold masked secrets.
    pub sealed: u64,
    pub superseded: u64,
    pub forgotten: u64,
    /// The time of the latest turn.
    pub last_ts: Option<String>,
    /// Captured, not yet stored.
    pub backlog: BacklogResult,
    /// The model that embeds beside the built-in table, where one was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelResult>,
    /// "ok", or what is wrong.
    pub health: String,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ModelResult {
    pub folder: String,
    /// "loading", "embedding", "ready" once all turns have its vectors, or "failed".
    pub state: String,
    /// How many of all turns have its vectors. The others are found by the built-in table.
    pub embedded: u64,
    pub of: u64,
}

impl From<UpgradeProgress> for ModelResult {
    fn from(progress: UpgradeProgress) -> ModelResult {
        let (state, embedded, of) = match progress.state {
            UpgradeState::Loading => ("loading", 0, 0),
            UpgradeState::Failed(_) => ("failed", 0, 0),
            UpgradeState::Ready(all) if all.done < all.turns => ("embedding", all.done, all.turns),
            UpgradeState::Ready(all) => ("ready", all.done, all.turns),
        };
        let folder = progress.folder.display().to_string();
        ModelResult { folder, state: state.to_owned(), embedded, of }
    }
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct BacklogResult {
    pub files: usize,
    pub bytes: u64,
    /// Files that could not be stored and were set aside.
    pub failed: usize,
}
