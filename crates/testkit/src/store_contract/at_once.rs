//! Several callers at once, in two processes on one ledger.

use std::sync::Arc;

use hob_domain::session::{
    Accepted, Created, DeleteFilter, EventRange, OpenLimits, SessionFilter, TurnRequest, TurnState,
    UsageNote,
};
use hob_domain::{App, LedgerStore, StoreError, Token};
use tokio::task::JoinSet;

use super::{
    Fixture, accept, after, app, at, ending, event, id, keyed, lease, list, make, node, queued,
    remembered, request, seqs, session, sessionless, story,
};

/// The same ledger twice, as two nodes have it.
async fn two(fixture: &dyn Fixture) -> [Arc<dyn LedgerStore>; 2] {
    [fixture.open().await, fixture.open().await]
}

/// Does something so many times at once and returns the answers. Each time is told which one it is.
async fn at_once<T, F>(
    stores: &[Arc<dyn LedgerStore>; 2],
    times: usize,
    work: impl Fn(Arc<dyn LedgerStore>, usize) -> F,
) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for time in 0..times {
        tasks.spawn(work(stores[time % 2].clone(), time));
    }
    tasks.join_all().await
}

/// Many callers write to the same sessions; the numbers of each have no gap and no repeat, and the events of one
/// call stand together.
pub async fn concurrent_appends_leave_no_gap(fixture: &dyn Fixture) {
    let stores = two(fixture).await;
    make(&*stores[0], 1..=4).await;
    let told = at_once(&stores, 20, |store, time| async move {
        let byte = time as u8 / 5 + 1;
        let mut told = Vec::new();
        for _ in 0..5 {
            let events = vec![event("message", None), event("message", None)];
            told.push((
                byte,
                seqs(&store.append_events(&lease(byte), events, at(9)).await.unwrap()),
            ));
        }
        told
    })
    .await;
    for byte in 1..=4 {
        let events = stores[1].events(&app("a"), &id(byte), after(0, 100)).await.unwrap().unwrap();
        assert_eq!(seqs(&events), (1..=51).collect::<Vec<_>>());
        let own = told.iter().flatten().filter(|(of, _)| *of == byte);
        let mut own: Vec<u64> = own
            .flat_map(|(_, numbers)| {
                assert_eq!(numbers[0] + 1, numbers[1]);
                numbers.clone()
            })
            .collect();
        own.sort_unstable();
        assert_eq!(own, (2..=51).collect::<Vec<_>>());
        let last = stores[0].session(&app("a"), &id(byte)).await.unwrap().unwrap().last_event;
        assert_eq!(last, 51);
    }
}

pub async fn concurrent_turns_never_exceed_the_queue(fixture: &dyn Fixture) {
    let stores = two(fixture).await;
    make(&*stores[0], [1]).await;
    let answers = at_once(&stores, 12, |store, _| async move {
        accept(&*store, 1, &TurnRequest { queue: 3, ..request("p") }).await.unwrap()
    })
    .await;
    let mut taken: Vec<u32> = answers
        .iter()
        .filter_map(|answer| match answer {
            Accepted::Queued(index) => Some(*index),
            Accepted::QueueFull => None,
            other => panic!("{other:?}"),
        })
        .collect();
    taken.sort_unstable();
    assert_eq!(taken, [1, 2, 3]);
    assert_eq!(queued(&*stores[0], &id(1)).await, [1, 2, 3]);
}

pub async fn concurrent_repeats_of_a_key_accept_one_turn(fixture: &dyn Fixture) {
    let stores = two(fixture).await;
    make(&*stores[0], [1]).await;
    let answers = at_once(&stores, 12, |store, time| async move {
        let prompt = if time < 10 { "same" } else { "other" };
        (time, accept(&*store, 1, &keyed(prompt, "key")).await.unwrap())
    })
    .await;
    let first = answers.iter().filter(|(_, answer)| *answer == Accepted::Queued(1)).count();
    assert_eq!(first, 1, "{answers:?}");
    let others = answers.iter().filter(|(_, answer)| *answer == Accepted::OtherBody).count();
    let repeats = answers.iter().filter(|(_, answer)| *answer == Accepted::Repeated(1)).count();
    assert!(matches!((others, repeats), (2, 9) | (10, 1)), "{answers:?}");
    assert_eq!(stores[1].session(&app("a"), &id(1)).await.unwrap().unwrap().turn_count, 1);
}

/// Of many concurrent creates, as many succeed as the limit allows.
pub async fn concurrent_creates_never_exceed_a_limit(fixture: &dyn Fixture) {
    let stores = two(fixture).await;
    let limits = OpenLimits { app: 3, all: 4 };
    let answers = at_once(&stores, 12, |store, time| async move {
        let new = session(if time < 8 { "a" } else { "b" }, time as u8, 5);
        store.create_session(&new, event("create", None), &node(), limits).await.unwrap()
    })
    .await;
    let made = answers.iter().filter(|answer| matches!(answer, Created::Made(_))).count();
    assert_eq!(made, 4, "{answers:?}");
    let open = list(&*stores[1], SessionFilter::Open).await;
    let of_a = open.iter().filter(|session| session.app == app("a")).count();
    assert!(open.len() == 4 && of_a <= 3 && open.len() - of_a <= 3, "{of_a} of {}", open.len());
}

/// Starting, ending and closing race; each happens once, and the story is one that could have been told in order.
pub async fn concurrent_starts_and_ends_count_once(fixture: &dyn Fixture) {
    let stores = two(fixture).await;
    for round in 1..=6_u8 {
        make(&*stores[0], [round]).await;
        accept(&*stores[0], round, &request("p")).await;
        let begun = at_once(&stores, 4, move |store, time| async move {
            if time == 3 && round > 3 {
                let end = ending(1, TurnState::Cancelled);
                store.end_turn(&lease(round), 1, end, at(12)).await.unwrap();
                return false;
            }
            store.start_turn(&lease(round), 1, at(11)).await.unwrap()
        })
        .await;
        let begun = begun.into_iter().filter(|begun| *begun).count();
        assert!(begun == 1 || begun == 0 && round > 3);
        let ended = at_once(&stores, 6, move |store, time| async move {
            if time == 5 {
                return store
                    .close_session(&id(round), event("close", None), at(13))
                    .await
                    .unwrap();
            }
            let end = ending(1, TurnState::Finished);
            store.end_turn(&lease(round), 1, end, at(13)).await.unwrap().is_some()
        })
        .await;
        let ended = ended.into_iter().filter(|ended| *ended).count();
        assert!(ended == 2 || ended == 1 && round > 3, "it is closed once and ends once: {ended}");
        let told = story(&*stores[1], round).await;
        let ends = told.iter().filter(|told| told.starts_with("turn 1")).count();
        assert_eq!((ends, told.len()), (1, 3), "{told:?}");
    }
    let turns: u64 =
        stores[0].usage(at(0), None, None).await.unwrap().iter().map(|day| day.turns).sum();
    assert_eq!(turns, 6);
    assert_eq!(stores[0].outbox(99, &[]).await.unwrap().len(), 6);
}

/// A session is deleted under its writers. What they were told is gone, and nothing of it is left.
pub async fn deleted_session_accepts_nothing(fixture: &dyn Fixture) {
    let stores = two(fixture).await;
    make(&*stores[0], [1]).await;
    stores[0].close_session(&id(1), event("close", None), at(6)).await.unwrap();
    at_once(&stores, 6, |store, time| async move {
        if time == 5 {
            assert_eq!(
                store.delete_sessions(&DeleteFilter::ClosedBefore(at(7))).await.unwrap(),
                [id(1)]
            );
            return;
        }
        for _ in 0..10 {
            let said = vec![event("message", Some(1))];
            if store.append_events(&lease(1), said, at(9)).await.is_err() {
                return;
            }
        }
    })
    .await;
    assert_eq!(stores[0].events(&app("a"), &id(1), EventRange::Turn(1)).await.unwrap(), None);
    make(&*stores[0], [1]).await;
    assert_eq!(story(&*stores[1], 1).await, ["create"]);
}

pub async fn concurrent_usage_adds_up_by_day(fixture: &dyn Fixture) {
    let stores = two(fixture).await;
    at_once(&stores, 20, |store, time| async move {
        let state = if time < 5 { TurnState::Died } else { TurnState::Finished };
        let turn = sessionless(&app("a"), state, Some(remembered("x")));
        store.note_usage(&UsageNote::SessionlessTurn(turn), at(9)).await.unwrap();
    })
    .await;
    let days = stores[1].usage(at(0), None, None).await.unwrap();
    assert_eq!((days.len(), days[0].turns, days[0].failed), (1, 20, 5));
    assert_eq!((days[0].usage.input_tokens, days[0].usage.cost_usd), (60, 10.0));
    assert_eq!(stores[0].outbox(99, &[]).await.unwrap().len(), 20);
}

pub async fn concurrent_creates_of_a_name_succeed_once(fixture: &dyn Fixture) {
    let stores = two(fixture).await;
    let made = at_once(&stores, 8, |store, time| async move {
        let own = App { name: app("a"), created_at: at(time as i64) };
        match store.create_app(&own, Token::from_random([time as u8; 32]).hash()).await {
            Ok(()) => true,
            Err(StoreError::Exists(_)) => false,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
    assert_eq!(made.into_iter().filter(|made| *made).count(), 1);
    let made = at_once(&stores, 8, |store, time| async move {
        let own = session("a", 1, time as i64);
        store
            .create_session(&own, event("create", None), &node(), OpenLimits::default())
            .await
            .is_ok()
    })
    .await;
    assert_eq!(made.into_iter().filter(|made| *made).count(), 1);
    assert_eq!(story(&*stores[0], 1).await, ["create"]);
}
