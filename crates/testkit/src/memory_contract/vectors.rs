//! Vectors of a chosen model beside those of the table: who has one, who is proposed by them, and what becomes of them
//! when turns or models go.

use std::sync::Arc;

use hob_domain::Timestamp;
use hob_domain::memory::{
    CandidateQuery, CandidateSet, Forget, Forgetting, KindVector, MemoryStore, NewTurn, PageFilter,
    Principal, Record, Remask, Scope, VectorKind,
};

use super::{Fixture, forget_everything, with_id};

fn turn(session: &str, number: i64) -> NewTurn {
    let text = format!("turn {number}");
    let turn = with_id(session, &text, &format!("id-{number}"), number);
    NewTurn { cue: Some("a cue".to_owned()), ..turn }
}

/// A store with turns 1 to `count`, each in a session of its own, so that none stands beside another.
async fn filled(fixture: &dyn Fixture, speaker: &Principal, count: i64) -> Arc<dyn MemoryStore> {
    let store = fixture.open().await;
    let turns = (1..=count).map(|number| turn(&format!("s{number}"), number)).collect();
    store.store_turns(speaker, turns, Vec::new()).await.unwrap();
    store
}

/// Points along one of four ways.
fn along(way: i64) -> Vec<i8> {
    (0..8).map(|place| if place / 2 == way.rem_euclid(4) { 100 } else { -30 }).collect()
}

async fn near(store: &dyn MemoryStore, kind: VectorKind, way: i64, limit: usize) -> CandidateSet {
    let finer = Some(KindVector { kind, vector: along(way) });
    let probe =
        CandidateQuery { terms: Vec::new(), vector: vec![0; 4], model_vector: finer, limit };
    store.candidates(&Principal::Owner, &Scope::default(), probe).await.unwrap()
}

fn seqs(proposal: &CandidateSet) -> Vec<i64> {
    proposal.candidates.iter().map(|candidate| candidate.seq).collect()
}

pub async fn embedding_goes_from_the_newest_to_the_oldest(fixture: &dyn Fixture) {
    let store = filled(fixture, &Principal::Owner, 10).await;
    let kind = store.vector_kind("one", 8).await.unwrap();
    assert_eq!(store.vector_kind("one", 8).await.unwrap(), kind);
    let page = store.without_vector(kind, i64::MAX, 0, 3).await.unwrap();
    let numbers: Vec<i64> = page.turns.iter().map(|turn| turn.seq).collect();
    assert_eq!((numbers, page.below), (vec![10, 9, 8], Some(8)));
    assert_eq!(page.turns[0].text, "turn 10");
    assert_eq!(page.turns[0].cue.as_deref(), Some("a cue"));
    store.save_vectors(kind, vec![(9, along(0)), (5, along(1)), (77, along(1))]).await.unwrap();
    let page = store.without_vector(kind, i64::MAX, 3, 50).await.unwrap();
    let numbers: Vec<i64> = page.turns.iter().map(|turn| turn.seq).collect();
    assert_eq!((numbers, page.below), (vec![10, 8, 7, 6, 4], None));
    let all = store.embedded(kind).await.unwrap();
    assert_eq!((all.done, all.turns, all.newest), (2, 10, 10), "77 was never there");
    // A vector that is stored twice is one vector.
    store.save_vectors(kind, vec![(9, along(2))]).await.unwrap();
    assert_eq!(store.embedded(kind).await.unwrap().done, 2);
    assert!(store.without_vector(kind, 3, 3, 50).await.unwrap().turns.is_empty());
}

pub async fn candidates_come_from_vectors_of_the_same_model(fixture: &dyn Fixture) {
    let store = filled(fixture, &Principal::Owner, 8).await;
    let (one, two) =
        (store.vector_kind("one", 8).await.unwrap(), store.vector_kind("two", 8).await.unwrap());
    // The oldest come last: earlier reads must not hide them.
    store.save_vectors(one, vec![(8, along(0)), (7, along(1))]).await.unwrap();
    assert_eq!(seqs(&near(&*store, one, 0, 1).await), [8]);
    store.save_vectors(one, vec![(2, along(3)), (1, along(2))]).await.unwrap();
    store.save_vectors(two, vec![(3, along(2))]).await.unwrap();
    let found = near(&*store, one, 2, 1).await;
    assert_eq!((seqs(&found), found.candidates[0].model_vector.clone()), (vec![1], along(2)));
    let found = near(&*store, two, 2, 5).await;
    assert_eq!((seqs(&found), found.candidates[0].model_vector.clone()), (vec![3], along(2)));
    assert_eq!(seqs(&near(&*store, one, 2, 50).await), [1, 2, 7, 8]);
    // Opening the store again changes nothing.
    drop(store);
    let store = fixture.open().await;
    assert_eq!(seqs(&near(&*store, one, 2, 1).await), [1]);
    // The vectors of the other model are removed in small steps.
    let mut steps = 0;
    while store.drop_other_vectors(two, 3).await.unwrap() > 0 {
        steps += 1;
    }
    assert_eq!(steps, 2);
    let found = near(&*store, one, 2, 50).await;
    assert!(found.candidates.iter().all(|candidate| candidate.model_vector.is_empty()));
    assert_eq!(seqs(&near(&*store, two, 2, 50).await), [3]);
    let again = store.vector_kind("one", 8).await.unwrap();
    assert_eq!(store.embedded(again).await.unwrap().done, 0);
}

pub async fn vectors_are_removed_with_their_turns(fixture: &dyn Fixture) {
    let store = filled(fixture, &Principal::Owner, 4).await;
    let app = Principal::App("app".to_owned());
    store.store_turns(&app, vec![turn("s", 9)], Vec::new()).await.unwrap();
    let kind = store.vector_kind("one", 8).await.unwrap();
    let all = (1..=5).map(|seq| (seq, along(seq))).collect();
    store.save_vectors(kind, all).await.unwrap();
    assert_eq!(seqs(&near(&*store, kind, 1, 50).await), [1, 2, 3, 4], "not the app's");
    let now = Timestamp::from_second(100).unwrap();
    store
        .forget(Forgetting::hide(&Principal::Owner, &Forget::Session("s2".to_owned()), now))
        .await
        .unwrap();
    assert_eq!(seqs(&near(&*store, kind, 1, 50).await), [1, 3, 4]);
    store.save_vectors(kind, vec![(2, along(2))]).await.unwrap();
    assert_eq!(store.embedded(kind).await.unwrap().done, 4, "what is forgotten gets none");
    forget_everything(&*store, &app).await;
    assert_eq!(store.embedded(kind).await.unwrap().done, 3);
    // A turn with a changed text has to be embedded again.
    let page: Vec<Record> = store.page(&PageFilter::All { after: 0 }, 1).await.unwrap();
    let change = Remask {
        seq: page[0].seq,
        text: "another text".to_owned(),
        sealed: None,
        cue: None,
        terms: "another text".to_owned(),
        vector: vec![1; 4],
        rules: 2,
    };
    store.remask(vec![change]).await.unwrap();
    assert_eq!(seqs(&near(&*store, kind, 1, 50).await), [3, 4]);
    let left = store.without_vector(kind, i64::MAX, 0, 50).await.unwrap();
    assert_eq!(left.turns.iter().map(|turn| turn.seq).collect::<Vec<_>>(), [1]);
}
