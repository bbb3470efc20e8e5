//! Arguments and results of the tools. The tools' schemas are generated from these types and their doc
//! comments.

use std::collections::BTreeMap;

use hob_domain::memory::{Principal, Record, Tier, TurnRole, TurnSource};
use hob_memory::{ModelProgress, ModelState, RecallHit};
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Number;

/// The largest `limit` of a call. The schemas of the arguments name it, too.
const MAX_LIMIT: usize = 500;

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecallArguments {
    /// What to search for: a question, names, paths or an error message.
    pub cue: String,
    /// Approximate token budget of all hits together.
    #[serde(default = "default_budget", deserialize_with = "whole_number")]
    #[schemars(range(min = 1))]
    pub budget_tokens: usize,
    /// Maximum number of hits.
    #[serde(default = "default_limit", deserialize_with = "whole_number")]
    #[schemars(range(min = 1, max = 500))]
    pub limit: usize,
    /// Folder or name of a project, or "*" for all projects. Default: the project of the working folder.
    pub project: Option<String>,
    /// Search this session only.
    pub session_id: Option<String>,
    /// Only turns from this date or time on, such as 2026-05-01T00:00:00Z.
    pub since: Option<String>,
    /// Only turns up to this date or time.
    pub until: Option<String>,
    /// Lowest score of a hit, from 0 to 1. 0 also shows turns that hardly match. Not in the schema that agents see.
    #[schemars(skip)]
    pub min_score: Option<f64>,
    /// Show the features that each hit was ranked by. Not in the schema that agents see.
    #[serde(default)]
    #[schemars(skip)]
    pub explain: bool,
}

pub(crate) fn default_budget() -> usize {
    1500
}

pub(crate) fn default_limit() -> usize {
    20
}

/// Checks the `limit` of a call. The error names the argument and says what is expected.
pub(crate) fn limit(limit: usize) -> Result<usize, String> {
    match limit {
        1..=MAX_LIMIT => Ok(limit),
        _ => Err(format!("limit: must be between 1 and {MAX_LIMIT}, not {limit}")),
    }
}

/// Reads a number without a fraction. JSON has one type of numbers, and some clients write 5 as 5.0. All such arguments
/// start at 1.
fn whole_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let number = Number::deserialize(deserializer)?;
    let is_whole =
        |number: &f64| number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(number);
    let whole =
        number.as_u64().or_else(|| number.as_f64().filter(is_whole).map(|number| number as u64));
    let whole = whole.and_then(|whole| usize::try_from(whole).ok());
    whole.ok_or_else(|| D::Error::custom(format!("{number} is not a whole number of 1 or more")))
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RecallResult {
    pub hits: Vec<Hit>,
    /// Approximate number of tokens of the hits.
    pub budget_used: usize,
    /// Number of matches that are not among the hits.
    pub omitted: usize,
    /// True if some captured turns are not searchable yet.
    pub partial: bool,
}

/// A turn that answers the cue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hit {
    pub record_id: String,
    /// The turn, or the passage of a long turn that answers.
    pub text: String,
    /// True if the text is only a passage. `memory_timeline` around the record shows all of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    pub role: String,
    /// Whose words these are: "user", "agent", "note" for a note of an agent, "note of APP", or "import" for turns of a past transcript.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub origin: String,
    pub session_id: String,
    pub project: String,
    pub ts: String,
    /// Probability that the turn answers the cue, from 0 to 1.
    pub score: f64,
    pub reason: String,
    /// With `explain`: what the hit was ranked by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub features: BTreeMap<String, f64>,
    /// Working tree of the turn, if it is not the project's root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worktree: Option<String>,
    /// Record that corrects this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<String>,
}

/// Returns whose words a record of a principal has. A note may be an agent's own words, whatever its role.
fn origin(record: &Record, principal: &Principal) -> String {
    match (&record.source, principal, record.role) {
        (TurnSource::Mcp, Principal::App(app), _) => format!("note of {app}"),
        (TurnSource::Mcp, Principal::Owner, _) => "note".to_owned(),
        (TurnSource::Import | TurnSource::Repository, ..) => "import".to_owned(),
        (TurnSource::Agent, ..) => "agent".to_owned(),
        (TurnSource::Owner, ..) => "user".to_owned(),
        (_, _, TurnRole::User) => "user".to_owned(),
        (_, _, TurnRole::Assistant) => "agent".to_owned(),
    }
}

impl Hit {
    /// Returns a hit in the memory of a principal.
    pub(crate) fn new(hit: RecallHit, principal: &Principal) -> Hit {
        let origin = origin(&hit.record, principal);
        let record = hit.record;
        let in_other_worktree = record.place.worktree != record.place.project;
        Hit {
            record_id: record.id.to_string(),
            text: record.text,
            cut: hit.is_cut,
            role: record.role.as_str().to_owned(),
            origin,
            session_id: record.session,
            worktree: in_other_worktree.then_some(record.place.worktree),
            project: record.place.project,
            ts: record.ts.to_string(),
            score: (hit.score * 10_000.0).round() / 10_000.0,
            reason: hit.reason,
            features: hit
                .features
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            superseded_by: record.superseded_by.map(|id| id.to_string()),
        }
    }
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CaptureArguments {
    /// What to remember, in full sentences.
    pub text: String,
    /// Other words by which to find it.
    pub cue: Option<String>,
    /// Who said it.
    #[serde(default = "default_role")]
    #[schemars(with = "RoleName")]
    pub role: TurnRole,
    /// "semantic" for a lasting fact, "episodic" for an event.
    #[serde(default = "default_tier")]
    #[schemars(with = "TierName")]
    pub tier: Tier,
    /// Folder or name of a project. Default: the project of the working folder.
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
    /// True if it was stored before.
    pub duplicate: bool,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CorrectArguments {
    /// The wrong record.
    pub record_id: String,
    /// The correct text.
    pub text: String,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct CorrectResult {
    /// The new record.
    pub record_id: String,
    /// The old record.
    pub superseded: String,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetArguments {
    /// The record to forget.
    pub record_id: Option<String>,
    /// The session to forget, in place of a record.
    pub session_id: Option<String>,
    /// Restore it instead, if it was forgotten less than a day ago. For the owner's memory only the owner can do that.
    #[serde(default)]
    pub undo: bool,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ForgetResult {
    /// Number of forgotten or restored records.
    pub count: usize,
    /// The request that now waits for the owner, who confirms it with `hob forget --confirm`. Nothing is forgotten before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimelineArguments {
    /// List the turns of this session.
    pub session_id: Option<String>,
    /// List the turns of a project: its folder or name, or "*" for all. Default: the project of the working folder.
    pub project: Option<String>,
    /// A record or a time; its neighbouring turns are listed. Default: the latest turns.
    pub around: Option<String>,
    /// Maximum number of turns.
    #[serde(default = "default_limit", deserialize_with = "whole_number")]
    #[schemars(range(min = 1, max = 500))]
    pub limit: usize,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct TimelineResult {
    pub turns: Vec<TimelineTurn>,
}

/// A turn.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TimelineTurn {
    pub record_id: String,
    pub text: String,
    pub role: String,
    pub session_id: String,
    pub project: String,
    pub ts: String,
    /// Record that corrects this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<String>,
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
            superseded_by: record.superseded_by.map(|id| id.to_string()),
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
    /// Turns with masked secrets.
    pub sealed: u64,
    pub superseded: u64,
    pub forgotten: u64,
    /// Time of the latest turn.
    pub last_ts: Option<String>,
    /// Captures that are not stored yet.
    pub backlog: BacklogResult,
    /// Configured sentence model, used in addition to the built-in table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelResult>,
    /// "ok", or a description of the problems.
    pub health: String,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ModelResult {
    pub folder: String,
    /// "loading", "embedding", "ready" once all turns are embedded, or "failed".
    pub state: String,
    /// Number of turns with a vector of the model. The others are found by the built-in table.
    pub embedded: u64,
    pub of: u64,
}

impl From<ModelProgress> for ModelResult {
    fn from(progress: ModelProgress) -> ModelResult {
        let (state, embedded, of) = match progress.state {
            ModelState::Loading => ("loading", 0, 0),
            ModelState::Failed(_) => ("failed", 0, 0),
            ModelState::Ready(all) if all.done < all.turns => ("embedding", all.done, all.turns),
            ModelState::Ready(all) => ("ready", all.done, all.turns),
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
