//! The contract of every store of the memory: the prose of the ports in `hob-domain`, as tests.
//! [`every_memory_contract`] passes the names of all tests to a macro, so that each backend runs them all.

pub mod at_once;
pub mod hidden;
pub mod hostile;
pub mod same;
pub mod turns;
pub mod vectors;

use std::sync::Arc;

use async_trait::async_trait;
use hob_domain::Timestamp;
use hob_domain::memory::{
    CandidateQuery, CandidateSet, Forgetting, Identity, MemoryStore, NewTurn, PageFilter,
    Principal, ProjectLocation, QueryTerm, Record, RecordId, Scope, Tier, TurnRole, TurnSelection,
    TurnSource, Window, record_key, words_key,
};

/// A backend of the memory for one test.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// Opens the memory, as another process does.
    async fn open(&self) -> Arc<dyn MemoryStore>;
}

/// Calls a macro with `module: contract contract …;` for every contract. Each is an `async fn(&dyn Fixture)` and needs an
/// empty memory.
#[macro_export]
macro_rules! every_memory_contract {
    ($run:ident) => {
        $run! {
            at_once: numbers_follow_the_order_of_commits concurrent_writers_store_each_turn_once;
            hidden: hidden_turns_are_restored_as_they_were erased_turns_are_not_restored
                restored_session_takes_new_turns restored_turns_keep_their_links_and_stay_single;
            hostile: hostile_texts_are_stored_unchanged hostile_texts_are_only_texts;
            turns: turn_is_stored_once_with_and_without_its_id answer_and_its_record_are_one_turn
                numbered_turns_may_come_in_any_order captures_in_any_order_store_each_turn_once
                forgotten_turns_stay_forgotten principals_and_projects_are_isolated
                windows_corrections_and_outlines_are_read corrections_by_agents_leave_turns_in_force index_counts_match_the_stored_turns
                scopes_limit_sessions_and_times other_state_is_stored_and_removed;
            vectors: embedding_goes_from_the_newest_to_the_oldest
                candidates_come_from_vectors_of_the_same_model vectors_are_removed_with_their_turns;
        }
    };
}

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn turn(session: &str, text: &str, identity: Identity, second: i64) -> NewTurn {
    NewTurn {
        identity,
        words: words_key(TurnRole::User, text),
        session: session.to_owned(),
        place: ProjectLocation { project: "/p".to_owned(), worktree: "/p".to_owned() },
        role: TurnRole::User,
        tier: Tier::Episodic,
        text: text.to_owned(),
        sealed: None,
        cue: None,
        ts: at(second),
        at: at(second),
        client: "claude".to_owned(),
        source: TurnSource::Hook,
        terms: text.to_lowercase(),
        vector: vec![1; 4],
        rules: 1,
    }
}

fn with_id(session: &str, text: &str, id: &str, second: i64) -> NewTurn {
    let key = record_key(session, id, TurnRole::User, text);
    turn(session, text, Identity::Record { key, answer: None }, second)
}

fn nth(session: &str, text: &str, n: u32, second: i64) -> NewTurn {
    turn(session, text, Identity::Nth(n), second)
}

async fn add(store: &dyn MemoryStore, turns: Vec<NewTurn>) -> (usize, usize, usize) {
    add_of(store, &Principal::Owner, turns).await
}

async fn add_of(
    store: &dyn MemoryStore,
    speaker: &Principal,
    turns: Vec<NewTurn>,
) -> (usize, usize, usize) {
    let stored = store.store_turns(speaker, turns, Vec::new()).await.unwrap();
    (stored.inserted, stored.duplicates, stored.forgotten)
}

fn probe(term: &str) -> CandidateQuery {
    let terms = term.split(' ').map(|term| QueryTerm { term: term.to_owned(), weight: 1.0 });
    CandidateQuery { terms: terms.collect(), vector: vec![0; 4], model_vector: None, limit: 50 }
}

/// The texts of what is proposed for its own sake, in order.
async fn texts(
    store: &dyn MemoryStore,
    speaker: &Principal,
    proposal: &CandidateSet,
) -> Vec<String> {
    let own = |c: &&hob_domain::memory::Candidate| c.in_scope && !c.counts.is_empty();
    let seqs = proposal.candidates.iter().filter(own).map(|candidate| candidate.seq).collect();
    let records = store.turns(speaker, TurnSelection::Numbers(seqs)).await.unwrap();
    records.into_iter().map(|record| record.text).collect()
}

async fn found(
    store: &dyn MemoryStore,
    speaker: &Principal,
    scope: &Scope,
    term: &str,
) -> Vec<String> {
    let proposal = store.candidates(speaker, scope, probe(term)).await.unwrap();
    texts(store, speaker, &proposal).await
}

/// Reads the turn with this id.
async fn record(store: &dyn MemoryStore, principal: &Principal, id: &RecordId) -> Option<Record> {
    store.turns(principal, TurnSelection::Id(id.clone())).await.unwrap().pop()
}

async fn timeline(store: &dyn MemoryStore, principal: &Principal, window: &Window) -> Vec<Record> {
    store.turns(principal, TurnSelection::Window(window.clone())).await.unwrap()
}

async fn facts(store: &dyn MemoryStore, principal: &Principal, project: &str) -> Vec<Record> {
    let mut all = Vec::new();
    for of_agents in [false, true] {
        let selection = TurnSelection::Facts { project: project.to_owned(), of_agents, limit: 10 };
        let found = store.turns(principal, selection).await.unwrap();
        assert!(found.iter().all(|fact| fact.source.is_of_agent() == of_agents), "{found:?}");
        all.extend(found);
    }
    all
}

async fn latest_prompts(
    store: &dyn MemoryStore,
    principal: &Principal,
    project: &str,
    limit: usize,
) -> Vec<Record> {
    let project = project.to_owned();
    let selection = TurnSelection::LatestPrompts { project, max_chars: 2000, limit };
    store.turns(principal, selection).await.unwrap()
}

/// Removes everything of a principal.
/// Chooses the turns that were masked by rules before a version.
fn masked_before(rules: u32) -> PageFilter {
    PageFilter::MaskedBefore { rules, without: Vec::new() }
}

async fn forget_everything(store: &dyn MemoryStore, principal: &Principal) -> usize {
    store.forget(Forgetting::RemovePrincipal(principal.clone())).await.unwrap()
}
