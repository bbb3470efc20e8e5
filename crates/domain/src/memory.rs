//! What is remembered: turns, their identity, questions asked of them, and the port that stores them.

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use crate::identity::{Identity, RecordId, TurnKey, answer_key, record_key, words_key};
pub use crate::message::Role as TurnRole;
pub use crate::recall::{
    Candidate, CandidateQuery, CandidateSet, DocumentFrequency, QueryTerm, SessionStatistics,
    TermCount,
};
use crate::store_error::StoreError;
pub use crate::turn_source::TurnSource;
pub use crate::vectors::{
    Embedded, KindVector, Unembedded, UnembeddedPage, VectorKind, VectorStore,
};

/// The owner of a part of the memory: the user of this home, or an app. No principal sees what belongs to another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Principal {
    /// The user this home belongs to.
    Owner,
    /// An app, by name.
    App(String),
}

impl Principal {
    /// As the store writes it: the owner is the empty name, which no app can have.
    pub fn as_str(&self) -> &str {
        match self {
            Principal::Owner => "",
            Principal::App(name) => name,
        }
    }
}

/// Where work was done: the repository's common root, and the working tree it was done in. Without a
/// repository both are the folder itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProjectLocation {
    pub project: String,
    pub worktree: String,
}

/// How a turn is remembered: as it was said, or as a fact that stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    #[default]
    Episodic,
    Semantic,
}

impl Tier {
    pub fn as_str(self) -> &'static str {
        match self {
            Tier::Episodic => "episodic",
            Tier::Semantic => "semantic",
        }
    }

    pub fn parse(text: &str) -> Option<Tier> {
        match text {
            "episodic" => Some(Tier::Episodic),
            "semantic" => Some(Tier::Semantic),
            _ => None,
        }
    }
}

/// A turn on its way into the store: masked, analysed and embedded.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTurn {
    pub identity: Identity,
    /// Of the original words.
    pub words: TurnKey,
    pub session: String,
    pub place: ProjectLocation,
    pub role: TurnRole,
    pub tier: Tier,
    /// Without its secrets.
    pub text: String,
    /// The secrets, sealed to the home's public key.
    pub sealed: Option<Vec<u8>>,
    pub cue: Option<String>,
    pub ts: Timestamp,
    /// Where it stands in the order: its time, but never before what it follows.
    pub at: Timestamp,
    /// The program in which the turn was said: `claude`, `codex`, or the name of a configured agent.
    pub client: String,
    pub source: TurnSource,
    /// The terms it is found by, in the index's own spelling, separated by spaces.
    pub terms: String,
    pub vector: Vec<i8>,
    /// The version of the rules its secrets were masked by.
    pub rules: u32,
}

/// What became of a batch of turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stored {
    pub inserted: usize,
    pub duplicates: usize,
    /// Turns that were forgotten once and therefore not stored again.
    pub forgotten: usize,
}

impl std::ops::AddAssign for Stored {
    fn add_assign(&mut self, other: Stored) {
        self.inserted += other.inserted;
        self.duplicates += other.duplicates;
        self.forgotten += other.forgotten;
    }
}

/// A stored turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub id: RecordId,
    /// Grows with every turn stored: what came later is greater.
    pub seq: i64,
    pub session: String,
    pub place: ProjectLocation,
    pub role: TurnRole,
    pub tier: Tier,
    pub text: String,
    pub sealed: Option<Vec<u8>>,
    pub cue: Option<String>,
    pub ts: Timestamp,
    pub client: String,
    pub source: TurnSource,
    pub superseded_by: Option<RecordId>,
    pub supersedes: Option<RecordId>,
}

/// Which turns a question is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scope {
    pub project: Option<String>,
    pub session: Option<String>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

/// A session in outline.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionOutline {
    pub session: String,
    pub client: String,
    pub started: Timestamp,
    pub ended: Timestamp,
    pub turns: usize,
    pub first_prompt: Option<String>,
    pub last_prompt: Option<String>,
    pub last_answer: Option<String>,
    /// Whether the last word was the user's.
    pub unanswered: bool,
}

/// What the memory holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    pub turns: u64,
    pub sessions: u64,
    pub projects: u64,
    pub sealed: u64,
    pub superseded: u64,
    pub forgotten: u64,
    pub last_ts: Option<Timestamp>,
}

/// What one may choose from to look at a part of the memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facets {
    /// Those with the latest turns first.
    pub projects: Vec<ProjectFacet>,
    /// Programs the turns were said in, those with the most turns first.
    pub clients: Vec<(String, u64)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectFacet {
    pub root: String,
    pub turns: u64,
    pub last: Option<Timestamp>,
}

/// Something that happened to the memory and that its owner should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaintenanceEvent {
    pub at: Timestamp,
    pub kind: String,
    pub detail: String,
}

/// What is forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forget {
    Record(RecordId),
    Session(String),
}

/// What became of a correction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Superseded {
    By(RecordId),
    /// There is no such record.
    Missing,
    /// The new turn was forgotten once.
    Forgotten,
}

/// Which turns [`MemoryStore::timeline`] lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    pub scope: Scope,
    pub around: Option<Around>,
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Around {
    Record(RecordId),
    Time(Timestamp),
}

/// How far a transcript has been imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportMark {
    pub path: TurnKey,
    pub size: u64,
    pub modified: i64,
}

/// Storage of the memory.
///
/// Contract: a call that returned `Ok` is durable. Each call is atomic, also against other processes
/// on the same store. Nothing of one principal is visible to another. A stored turn can be found by
/// its terms as soon as `store_turns` has returned.
#[async_trait]
pub trait MemoryStore: VectorStore {
    /// Stores turns in order, each once (see [`Identity`]), and marks imports as done, in one
    /// transaction.
    async fn store_turns(
        &self,
        principal: &Principal,
        turns: Vec<NewTurn>,
        marks: Vec<ImportMark>,
    ) -> Result<Stored, StoreError>;

    /// Stores a turn that takes the place of another, which stays and is marked.
    async fn supersede(
        &self,
        principal: &Principal,
        old: &RecordId,
        turn: NewTurn,
    ) -> Result<Superseded, StoreError>;

    /// Removes turns from the store and its index for good; they are not stored again. Returns how
    /// many there were.
    async fn forget(
        &self,
        principal: &Principal,
        what: &Forget,
        now: Timestamp,
    ) -> Result<usize, StoreError>;

    /// Removes everything of a principal.
    async fn forget_principal(&self, principal: &Principal) -> Result<usize, StoreError>;

    async fn record(
        &self,
        principal: &Principal,
        id: &RecordId,
    ) -> Result<Option<Record>, StoreError>;

    /// The most promising turns in scope, with those beside them and what there is to weigh them by.
    async fn candidates(
        &self,
        principal: &Principal,
        scope: &Scope,
        probe: CandidateQuery,
    ) -> Result<CandidateSet, StoreError>;

    /// The turns with these numbers, in their order; those that are gone by now are left out.
    async fn records(
        &self,
        principal: &Principal,
        seqs: Vec<i64>,
    ) -> Result<Vec<Record>, StoreError>;

    /// Turns in the order they were said.
    async fn timeline(
        &self,
        principal: &Principal,
        window: &Window,
    ) -> Result<Vec<Record>, StoreError>;

    /// The latest sessions of a project, newest first, without `except`.
    async fn latest_sessions(
        &self,
        principal: &Principal,
        project: &str,
        except: Option<&str>,
        limit: usize,
    ) -> Result<Vec<SessionOutline>, StoreError>;

    /// The latest short prompts of a project, newest first.
    async fn latest_prompts(
        &self,
        principal: &Principal,
        project: &str,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError>;

    /// Standing facts and corrections of a project, newest first.
    async fn standing(
        &self,
        principal: &Principal,
        project: &str,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError>;

    /// All projects that are named so or end in a folder of that name.
    async fn projects_named(
        &self,
        principal: &Principal,
        name: &str,
    ) -> Result<Vec<String>, StoreError>;

    /// Turns with a greater `seq`, in order of it: for exports and rescans.
    async fn page(
        &self,
        principal: Option<&Principal>,
        after: i64,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError>;

    /// Turns that were masked by older rules, at most so many.
    async fn masked_before(&self, rules: u32, limit: usize) -> Result<Vec<Record>, StoreError>;

    /// Replaces what a rescan has made anew.
    async fn remask(&self, changes: Vec<Remask>) -> Result<(), StoreError>;

    async fn counts(&self, principal: &Principal) -> Result<Counts, StoreError>;

    /// All projects and clients there are turns of.
    async fn facets(&self, principal: &Principal) -> Result<Facets, StoreError>;

    /// Which of these imports are already done.
    async fn imported(&self, marks: Vec<ImportMark>) -> Result<Vec<ImportMark>, StoreError>;

    async fn note_event(&self, event: MaintenanceEvent) -> Result<(), StoreError>;

    /// The latest events, newest first.
    async fn events(&self, limit: usize) -> Result<Vec<MaintenanceEvent>, StoreError>;
}

/// One row's change by a rescan.
#[derive(Debug, Clone, PartialEq)]
pub struct Remask {
    pub seq: i64,
    pub text: String,
    pub sealed: Option<Vec<u8>>,
    pub cue: Option<String>,
    pub terms: String,
    pub vector: Vec<i8>,
    pub rules: u32,
}
