//! Concurrent writers.

use std::collections::HashSet;

use hob_domain::memory::{Forget, Forgetting, PageFilter, Principal, Scope};
use tokio::task::JoinSet;

use super::{Fixture, add_of, at, found, nth, with_id};

/// A reader that has read up to a number has missed none before it, whatever is written meanwhile.
pub async fn numbers_follow_the_order_of_commits(fixture: &dyn Fixture) {
    const WRITERS: usize = 4;
    const ROUNDS: usize = 12;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = fixture.open().await;
        writers.spawn(async move {
            let speaker = Principal::App(format!("w{}", writer % 2));
            for round in 0..ROUNDS {
                let one = |n: usize| {
                    let number = round * 3 + n;
                    with_id(&format!("s{writer}"), "go on", &number.to_string(), number as i64)
                };
                assert_eq!(add_of(&*store, &speaker, (0..3).map(one).collect()).await, (3, 0, 0));
            }
        });
    }
    let reader = fixture.open().await;
    let (mut last, mut read) = (0, Vec::new());
    while read.len() < WRITERS * ROUNDS * 3 {
        for record in reader.page(&PageFilter::All { after: last }, 7).await.unwrap() {
            assert!(record.seq > last);
            last = record.seq;
            read.push((record.session, record.id));
        }
        tokio::task::yield_now().await;
    }
    writers.join_all().await;
    assert!(reader.page(&PageFilter::All { after: last }, 7).await.unwrap().is_empty());
    let different: HashSet<_> = read.iter().collect();
    assert_eq!(different.len(), WRITERS * ROUNDS * 3, "each was read once");
}

/// Two writers store the same turns at once, by id and by occurrence, while some are forgotten: each turn is stored
/// once, and forgotten ones are not.
pub async fn concurrent_writers_store_each_turn_once(fixture: &dyn Fixture) {
    let mut writers = JoinSet::new();
    for by_id in [true, false, true] {
        let store = fixture.open().await;
        writers.spawn(async move {
            for n in 0..30_u32 {
                let text = format!("step {}", n / 2);
                let one = match by_id {
                    true => with_id("s", &text, &n.to_string(), i64::from(n)),
                    false => nth("s", &text, 1 + n % 2, i64::from(n)),
                };
                add_of(&*store, &Principal::Owner, vec![one]).await;
            }
        });
    }
    let store = fixture.open().await;
    add_of(&*store, &Principal::Owner, vec![with_id("t", "gone", "1", 1)]).await;
    let gone = Forget::Session("t".to_owned());
    assert_eq!(store.forget(Forgetting::hide(&Principal::Owner, &gone, at(99))).await.unwrap(), 1);
    writers.join_all().await;
    assert_eq!(store.counts(&Principal::Owner).await.unwrap().turns, 30);
    assert_eq!(store.page(&PageFilter::All { after: 0 }, 99).await.unwrap().len(), 30);
    let found = found(&*store, &Principal::Owner, &Scope::default(), "step").await;
    assert_eq!(found.len(), 30);
}
