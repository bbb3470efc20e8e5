//! Remembered turns, and the port that stores them.

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

/// The beginning of the name of a session that holds notes and no conversation.
pub const NOTE_SESSION: &str = "note:";

/// The owner of a part of the memory: the user of this home, or an app. No principal sees what
/// belongs to another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Principal {
    /// The user this home belongs to.
    Owner,
    /// An app, by name.
    App(String),
}

impl Principal {
    /// Returns the name that the store uses: empty for the owner, which no app can be called.
    pub fn as_str(&self) -> &str {
        match self {
            Principal::Owner => "",
            Principal::App(name) => name,
        }
    }
}

/// Where work was done: the repository's common root, and the working tree it was done in. Without
/// a repository both are the folder itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProjectLocation {
    pub project: String,
    pub worktree: String,
}

/// How a turn is remembered: as something that was said, or as a fact that holds.
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

/// A turn that is ready to be stored: masked, analysed and embedded.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTurn {
    pub identity: Identity,
    /// The key of the original words, before masking.
    pub words: TurnKey,
    pub session: String,
    pub place: ProjectLocation,
    pub role: TurnRole,
    pub tier: Tier,
    /// The text without its secrets.
    pub text: String,
    /// The secrets, sealed to the home's public key.
    pub sealed: Option<Vec<u8>>,
    pub cue: Option<String>,
    pub ts: Timestamp,
    /// The place in its session: its time, but never before the turn that it follows.
    pub at: Timestamp,
    /// The program in which the turn was said: `claude`, `codex`, or the name of a configured
    /// agent.
    pub client: String,
    pub source: TurnSource,
    /// The terms that the turn is indexed by, in the index's own spelling, separated by spaces.
    pub terms: String,
    pub vector: Vec<i8>,
    /// The version of the masking rules.
    pub rules: u32,
}

impl NewTurn {
    /// Returns the id that the turn gets when it is stored: it follows from the name it was
    /// captured under.
    pub fn record_id(&self) -> RecordId {
        match self.identity {
            Identity::Record { key, .. } => key.record_id(),
            Identity::Answer(place) => place.record_id(),
            Identity::Nth(n) => {
                let words = self.words.to_hex();
                TurnKey::of(&["nth", &self.session, &words, &n.to_string()]).record_id()
            }
        }
    }
}

/// The outcome of storing a batch of turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stored {
    pub inserted: usize,
    pub duplicates: usize,
    /// Turns that were forgotten once, and are not stored again.
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
    /// A number that grows with every stored turn.
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

/// The turns that a query is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scope {
    pub project: Option<String>,
    pub session: Option<String>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

/// The outline of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionOutline {
    pub session: String,
    pub client: String,
    pub started: Timestamp,
    pub ended: Timestamp,
    pub turns: usize,
    pub first_prompt: Option<OutlinedTurn>,
    pub last_prompt: Option<OutlinedTurn>,
    pub last_answer: Option<OutlinedTurn>,
    /// Whether the user's last prompt has no answer.
    pub unanswered: bool,
}

/// A turn in the outline of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct OutlinedTurn {
    pub text: String,
    pub source: TurnSource,
}

/// The size of a principal's memory.
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

/// The projects and clients that the memory can be filtered by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facets {
    /// The project with the latest turn first.
    pub projects: Vec<ProjectFacet>,
    /// The programs in which turns were said, with their numbers of turns; the greatest first.
    pub clients: Vec<(String, u64)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectFacet {
    pub root: String,
    pub turns: u64,
    pub last: Option<Timestamp>,
}

/// The most maintenance events that are kept; the oldest are removed.
pub const MAX_MAINTENANCE_EVENTS: i64 = 1000;

/// Something that happened to the memory and that its owner should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaintenanceEvent {
    pub at: Timestamp,
    pub kind: String,
    pub detail: String,
}

/// The turns to forget, or to restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forget {
    Record(RecordId),
    Session(String),
}

impl Forget {
    /// Returns the turns of a request that names a record or a session; `None` unless it names exactly one.
    pub fn named(record_id: Option<&str>, session_id: Option<&str>) -> Option<Forget> {
        match (record_id, session_id) {
            (Some(id), None) => Some(Forget::Record(RecordId::new(id))),
            (None, Some(session)) => Some(Forget::Session(session.to_owned())),
            _ => None,
        }
    }

    /// Returns the id of the record or the session.
    pub fn target(&self) -> &str {
        match self {
            Forget::Record(id) => id.as_str(),
            Forget::Session(session) => session,
        }
    }
}

/// A step of forgetting. Turns are hidden first, and erased later; until then they can be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forgetting {
    /// Removes turns from the index and from everything that is read. They are not stored again.
    Hide { principal: Principal, turns: Forget, now: Timestamp },
    /// Restores turns that were hidden at this time or later. They have no terms, no vector and the
    /// rules version 0 until the next rescan. A session may have refused turns of imports meanwhile, so the owner's
    /// imports are not done any more.
    Restore { principal: Principal, turns: Forget, hidden_since: Timestamp },
    /// Erases the texts of all turns that were hidden before this time.
    Erase { hidden_before: Timestamp },
    /// Removes everything that a principal has, including the names of forgotten turns.
    RemovePrincipal(Principal),
}

impl Forgetting {
    pub fn hide(principal: &Principal, turns: &Forget, now: Timestamp) -> Forgetting {
        Forgetting::Hide { principal: principal.clone(), turns: turns.clone(), now }
    }

    pub fn restore(principal: &Principal, turns: &Forget, hidden_since: Timestamp) -> Forgetting {
        Forgetting::Restore { principal: principal.clone(), turns: turns.clone(), hidden_since }
    }
}

/// The outcome of a correction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Superseded {
    By(RecordId),
    /// This record supersedes it already. Nothing was stored.
    Already(RecordId),
    /// The record to correct does not exist.
    Missing,
    /// The new turn was forgotten once, and is not stored again.
    Forgotten,
}

/// A selection of turns to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnSelection {
    /// The turn with this id.
    Id(RecordId),
    /// The turns with these numbers, in this order. Turns that are gone by now are left out.
    Numbers(Vec<i64>),
    /// A part of the timeline, in the order the turns were said.
    Window(Window),
    /// The latest prompts of a project that have at most `max_chars` characters and are in force, newest first. A turn
    /// is in force unless a correction supersedes it. Corrections by agents alone leave in force what no agent wrote.
    LatestPrompts { project: String, max_chars: usize, limit: usize },
    /// The facts of a project that are in force, newest first: those that agents wrote, or all others. Imported facts
    /// are those of agents' memory files.
    Facts { project: String, of_agents: bool, limit: usize },
}

/// A choice of turns to go through page by page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageFilter {
    /// The turns of all principals after this number, in the order of their numbers.
    All { after: i64 },
    /// The turns of this principal after this number, in the order of their numbers.
    Of { principal: Principal, after: i64 },
    /// The turns of all principals that were masked by rules before this version, without those of these numbers, in any
    /// order.
    MaskedBefore { rules: u32, without: Vec<i64> },
    /// The turns of this principal that are hidden and not erased yet, in any order. They have no numbers: theirs are 0.
    Hidden { principal: Principal },
}

/// A part of the timeline.
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
/// Contract: a call that has returned `Ok` is durable. Each call is atomic, also against other
/// processes on the same store. Nothing of one principal is visible to another. A stored turn can
/// be found by its terms as soon as `store_turns` has returned.
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

    /// Stores a turn that corrects another. The other stays, and is marked as superseded. Every turn is superseded at
    /// most once, so that of several corrections only the last is in force.
    async fn supersede(
        &self,
        principal: &Principal,
        old: &RecordId,
        turn: NewTurn,
    ) -> Result<Superseded, StoreError>;

    /// Hides, restores or erases turns. Returns how many.
    async fn forget(&self, step: Forgetting) -> Result<usize, StoreError>;

    /// Returns the turns in scope that match a query best, with their neighbours and everything
    /// there is to rank them by.
    async fn candidates(
        &self,
        principal: &Principal,
        scope: &Scope,
        query: CandidateQuery,
    ) -> Result<CandidateSet, StoreError>;

    /// Returns the turns of a selection.
    async fn turns(
        &self,
        principal: &Principal,
        selection: TurnSelection,
    ) -> Result<Vec<Record>, StoreError>;

    /// Returns the latest sessions of a project, newest first, without `except`.
    async fn latest_sessions(
        &self,
        principal: &Principal,
        project: &str,
        except: Option<&str>,
        limit: usize,
    ) -> Result<Vec<SessionOutline>, StoreError>;

    /// Returns the projects with this path, or whose folder has this name.
    async fn projects_named(
        &self,
        principal: &Principal,
        name: &str,
    ) -> Result<Vec<String>, StoreError>;

    /// Returns at most `limit` turns that pass a filter: for exports and rescans.
    async fn page(&self, filter: &PageFilter, limit: usize) -> Result<Vec<Record>, StoreError>;

    /// Replaces the texts of turns that a rescan has masked again.
    async fn remask(&self, changes: Vec<Remask>) -> Result<(), StoreError>;

    /// Counts what is remembered of a principal.
    async fn counts(&self, principal: &Principal) -> Result<Counts, StoreError>;

    /// Returns all projects and clients that have turns.
    async fn facets(&self, principal: &Principal) -> Result<Facets, StoreError>;

    /// Returns those of these imports that are done.
    async fn imported(&self, marks: Vec<ImportMark>) -> Result<Vec<ImportMark>, StoreError>;

    /// Appends a maintenance event.
    async fn note_event(&self, event: MaintenanceEvent) -> Result<(), StoreError>;

    /// Returns the latest maintenance events, newest first.
    async fn events(&self, limit: usize) -> Result<Vec<MaintenanceEvent>, StoreError>;
}

/// What a rescan changes of a turn.
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
