//! Forgotten turns are hidden, restored and erased.

use std::collections::BTreeSet;

use hob_domain::memory::{
    Forget, Forgetting, Identity, ImportMark, MemoryStore, PageFilter, Principal, Record, RecordId,
    Remask, Scope, Superseded, TurnKey, TurnSource, answer_key,
};

use super::{Fixture, add, add_of, at, facts, found, nth, record, turn, with_id};

const OWNER: Principal = Principal::Owner;

async fn all(store: &dyn MemoryStore) -> Vec<Record> {
    store.page(&PageFilter::Of { principal: OWNER, after: 0 }, 100).await.unwrap()
}

async fn hide(store: &dyn MemoryStore, turns: &Forget, second: i64) -> usize {
    store.forget(Forgetting::hide(&OWNER, turns, at(second))).await.unwrap()
}

async fn restore(store: &dyn MemoryStore, turns: &Forget, since: i64) -> usize {
    store.forget(Forgetting::restore(&OWNER, turns, at(since))).await.unwrap()
}

/// Indexes restored turns, as the engine does.
async fn index_again(store: &dyn MemoryStore) -> usize {
    let changes: Vec<Remask> = store
        .page(&super::masked_before(1), 100)
        .await
        .unwrap()
        .into_iter()
        .map(|record| Remask {
            seq: record.seq,
            terms: record.text.to_lowercase(),
            text: record.text,
            sealed: record.sealed,
            cue: record.cue,
            vector: vec![1; 4],
            rules: 1,
        })
        .collect();
    let count = changes.len();
    store.remask(changes).await.unwrap();
    count
}

/// Everything of a record but its number.
fn without_number(mut record: Record) -> Record {
    record.seq = 0;
    record
}

pub async fn hidden_turns_are_restored_as_they_were(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut secret = with_id("s", "the plan is secret", "1", 3);
    secret.sealed = Some(vec![1, 2, 255]);
    secret.cue = Some("plan".to_owned());
    secret.place.worktree = "/p/tree".to_owned();
    secret.source = TurnSource::Import;
    secret.at = at(4);
    let place = answer_key("s", "ask", 1);
    let answer = turn("s", "the answer", Identity::Answer(place), 5);
    add(&*store, vec![secret.clone(), answer.clone(), nth("s", "go", 2, 6)]).await;
    let before = all(&*store).await;
    for record in &before {
        let what = Forget::Record(record.id.clone());
        assert_eq!(hide(&*store, &what, 100).await, 1);
    }
    assert!(all(&*store).await.is_empty());
    assert_eq!(store.counts(&OWNER).await.unwrap().turns, 0);
    let names: BTreeSet<(RecordId, String)> =
        before.iter().map(|record| (record.id.clone(), record.session.clone())).collect();
    assert_eq!(hidden_names(&*store, &OWNER).await, names);
    // Another principal restores nothing.
    let app = Principal::App("shop".to_owned());
    assert!(hidden_names(&*store, &app).await.is_empty());
    let what = Forget::Record(before[0].id.clone());
    let step = Forgetting::restore(&app, &what, at(0));
    assert_eq!(store.forget(step).await.unwrap(), 0);

    for record in &before {
        let what = Forget::Record(record.id.clone());
        assert_eq!(restore(&*store, &what, 100).await, 1);
        assert_eq!(restore(&*store, &what, 100).await, 0);
    }
    assert!(hidden_names(&*store, &OWNER).await.is_empty());
    assert_eq!(index_again(&*store).await, 3);
    let restored = all(&*store).await;
    let plain = |records: Vec<Record>| records.into_iter().map(without_number).collect::<Vec<_>>();
    assert_eq!(plain(restored), plain(before));
    let texts = found(&*store, &OWNER, &Scope::default(), "secret").await;
    assert_eq!(texts, ["the plan is secret"]);
    let counts = store.counts(&OWNER).await.unwrap();
    assert_eq!((counts.turns, counts.sessions, counts.forgotten), (3, 1, 0));
    // Their names are known again.
    assert_eq!(add(&*store, vec![secret, answer, nth("s", "go", 2, 6)]).await, (0, 3, 0));
}

pub async fn erased_turns_are_not_restored(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    add(&*store, vec![with_id("s", "early", "1", 1), with_id("s", "late", "2", 2)]).await;
    let page = all(&*store).await;
    let what = |place: usize| Forget::Record(page[place].id.clone());
    hide(&*store, &what(0), 100).await;
    hide(&*store, &what(1), 200).await;
    // Too late, though not erased yet.
    assert_eq!(restore(&*store, &what(0), 101).await, 0);
    assert_eq!(store.forget(Forgetting::Erase { hidden_before: at(150) }).await.unwrap(), 1);
    assert_eq!(store.forget(Forgetting::Erase { hidden_before: at(150) }).await.unwrap(), 0);
    let late = (page[1].id.clone(), "s".to_owned());
    assert_eq!(
        hidden_names(&*store, &OWNER).await,
        BTreeSet::from([late]),
        "what is erased has no name any more"
    );
    assert_eq!(restore(&*store, &what(0), 0).await, 0);
    assert_eq!(add(&*store, vec![with_id("s", "early", "1", 1)]).await, (0, 0, 1));
    assert_eq!(restore(&*store, &what(1), 0).await, 1);
    assert_eq!(all(&*store).await.len(), 1);
}

pub async fn restored_session_takes_new_turns(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let session = Forget::Session("s".to_owned());
    add(&*store, vec![with_id("s", "one", "1", 1), with_id("s", "two", "2", 2)]).await;
    add_of(&*store, &Principal::App("shop".to_owned()), vec![with_id("s", "theirs", "1", 1)]).await;
    assert_eq!(hide(&*store, &session, 100).await, 2);
    let mark = ImportMark { path: TurnKey::of(&["/t"]), size: 1, modified: 1 };
    let late = vec![with_id("s", "three", "3", 3)];
    let stored = store.store_turns(&OWNER, late, vec![mark.clone()]).await.unwrap();
    assert_eq!((stored.inserted, stored.forgotten), (0, 1));
    assert_eq!(restore(&*store, &session, 100).await, 2);
    assert!(store.imported(vec![mark]).await.unwrap().is_empty(), "its turn is missing");
    assert_eq!(add(&*store, vec![with_id("s", "three", "3", 3)]).await, (1, 0, 0));
    index_again(&*store).await;
    let counts = store.counts(&OWNER).await.unwrap();
    assert_eq!((counts.turns, counts.sessions, counts.projects), (3, 1, 1));
    // Forgetting the session again, also at an earlier time, does not keep its turns from coming back.
    for second in [120, 130, 110] {
        hide(&*store, &session, second).await;
    }
    assert_eq!(restore(&*store, &session, 0).await, 3);
    index_again(&*store).await;
    // A turn that was forgotten alone does not come back with its session.
    let alone = Forget::Record(all(&*store).await[0].id.clone());
    hide(&*store, &alone, 150).await;
    hide(&*store, &session, 160).await;
    assert_eq!(restore(&*store, &session, 0).await, 2);
    assert_eq!(restore(&*store, &alone, 0).await, 1);
    index_again(&*store).await;
    // One turn of a forgotten session can be restored alone. The session stays forgotten.
    let page = all(&*store).await;
    hide(&*store, &session, 200).await;
    assert_eq!(restore(&*store, &Forget::Record(page[0].id.clone()), 0).await, 1);
    assert_eq!(add(&*store, vec![with_id("s", "four", "4", 4)]).await, (0, 0, 1));
    assert_eq!(all(&*store).await.len(), 1);
}

pub async fn restored_turns_keep_their_links_and_stay_single(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    add(&*store, vec![with_id("s", "use npm", "1", 1)]).await;
    let old = all(&*store).await[0].id.clone();
    let mut newer = with_id("n", "use pnpm", "2", 2);
    newer.tier = hob_domain::memory::Tier::Semantic;
    let new = match store.supersede(&OWNER, &old, newer.clone()).await.unwrap() {
        Superseded::By(id) => id,
        other => panic!("{other:?}"),
    };
    let what = Forget::Record(new.clone());
    hide(&*store, &what, 100).await;
    assert_eq!(record(&*store, &OWNER, &old).await.unwrap().superseded_by, None);
    assert_eq!(restore(&*store, &what, 0).await, 1);
    let linked = record(&*store, &OWNER, &old).await.unwrap();
    assert_eq!(linked.superseded_by, Some(new.clone()));
    assert_eq!(record(&*store, &OWNER, &new).await.unwrap().supersedes, Some(old.clone()));
    assert_eq!(facts(&*store, &OWNER, "/p").await.len(), 1);

    // Of two linked turns that were both hidden, the links come back with the second, in any order.
    let pair = [&old, &new];
    for (hidden, restored) in
        [([0, 1], [0, 1]), ([0, 1], [1, 0]), ([1, 0], [0, 1]), ([1, 0], [1, 0])]
    {
        for place in hidden {
            assert_eq!(hide(&*store, &Forget::Record(pair[place].clone()), 101).await, 1);
        }
        for place in restored {
            assert_eq!(restore(&*store, &Forget::Record(pair[place].clone()), 0).await, 1);
        }
        let linked = record(&*store, &OWNER, &old).await.unwrap();
        assert_eq!(linked.superseded_by, Some(new.clone()), "{hidden:?} {restored:?}");
        let linked = record(&*store, &OWNER, &new).await.unwrap();
        assert_eq!(linked.supersedes, Some(old.clone()), "{hidden:?} {restored:?}");
    }
    assert_eq!(all(&*store).await.len(), 2);

    // Without the correction in the middle, the first turn is still superseded by the last.
    let last = with_id("n", "use bun", "3", 3);
    let Superseded::By(last) = store.supersede(&OWNER, &new, last).await.unwrap() else { panic!() };
    assert_eq!(hide(&*store, &what, 102).await, 1);
    let first = record(&*store, &OWNER, &old).await.unwrap();
    assert_eq!(first.superseded_by, Some(last.clone()));
    assert_eq!(record(&*store, &OWNER, &last).await.unwrap().supersedes, Some(old.clone()));
    assert_eq!(restore(&*store, &what, 0).await, 1);
    let middle = record(&*store, &OWNER, &new).await.unwrap();
    assert_eq!((middle.supersedes, middle.superseded_by), (Some(old.clone()), Some(last)));
    assert_eq!(record(&*store, &OWNER, &old).await.unwrap().superseded_by, Some(new));
}

/// Returns the ids and the sessions of the hidden turns.
async fn hidden_names(
    store: &dyn MemoryStore,
    principal: &Principal,
) -> BTreeSet<(RecordId, String)> {
    let filter = PageFilter::Hidden { principal: principal.clone() };
    let hidden = store.page(&filter, 100).await.unwrap();
    hidden.into_iter().map(|record| (record.id, record.session)).collect()
}
