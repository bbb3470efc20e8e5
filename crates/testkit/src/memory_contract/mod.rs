//! What every store of the memory must hold to, whatever it is made of: the prose of the ports in `hob-domain`, as tests.
//! [`every_memory_contract`] hands the names of all of them to a macro, so that a backend runs them all.

pub mod at_once;
pub mod hostile;
pub mod same;
pub mod turns;
pub mod vectors;

use std::sync::Arc;

use async_trait::async_trait;
use hob_domain::Timestamp;
use hob_domain::memory::{
    CandidateQuery, CandidateSet, Identity, MemoryStore, NewTurn, Principal, ProjectLocation,
    QueryTerm, Scope, Tier, TurnRole, TurnSource, record_key, words_key,
};

/// Where a memory is kept.
#[async_trait]
pub trait Place: Send + Sync {
    /// Opens the memory there, as another process would do it.
    async fn open(&self) -> Arc<dyn MemoryStore>;
}

/// Calls a macro with `module: contract contract …;` for every contract. Each is an `async fn(&dyn Place)` and wants a
/// place where nothing was kept before.
#[macro_export]
macro_rules! every_memory_contract {
    ($run:ident) => {
        $run! {
            at_once: numbers_come_in_the_order_of_commits two_writers_store_each_turn_once;
            hostile: what_was_stored_comes_back nothing_in_a_text_is_a_statement;
            turns: a_turn_is_stored_once_with_and_without_its_id an_answer_and_its_record_are_one_turn
                numbers_may_come_in_any_order any_mixture_of_ways_gives_each_turn_once
                what_is_forgotten_stays_forgotten speakers_and_projects_are_apart
                windows_corrections_and_outlines the_index_counts_what_is_there
                scopes_keep_to_their_sessions_and_times what_else_is_kept;
            vectors: the_way_goes_from_the_newest_to_the_oldest
                turns_are_proposed_by_their_own_kind_only vectors_go_with_their_turns;
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
    let records = store.records(speaker, seqs).await.unwrap();
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
