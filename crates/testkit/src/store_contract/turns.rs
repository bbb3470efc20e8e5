//! The life of turns.

use std::time::Duration;

use hob_domain::LeaseOutcome;
use hob_domain::session::{Accepted, SessionState, TurnState, TurnUsage};

use super::{
    Fixture, accept, app, at, ending, event, find_turn, id, keyed, lease, make, node, queued,
    request, story, usage_on, used,
};

const LEASE: Duration = Duration::from_secs(600);

pub async fn turns_queue_in_order_and_a_repeat_adds_none(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    make(&*store, [1, 2]).await;
    assert_eq!(accept(&*store, 1, &keyed("x", "k")).await, Some(Accepted::Queued(1)));
    assert_eq!(accept(&*store, 1, &keyed("x", "k")).await, Some(Accepted::Repeated(1)));
    assert_eq!(accept(&*store, 1, &keyed("y", "k")).await, Some(Accepted::OtherBody));
    assert_eq!(accept(&*store, 2, &keyed("y", "k")).await, Some(Accepted::Queued(1)));
    assert_eq!(accept(&*store, 1, &request("y")).await, Some(Accepted::Queued(2)));
    assert_eq!(accept(&*store, 1, &request("z")).await, Some(Accepted::QueueFull));
    assert_eq!(accept(&*store, 1, &keyed("x", "k")).await, Some(Accepted::Repeated(1)));
    assert_eq!(queued(&*store, &id(1)).await, [1, 2]);
    store.start_turn(&lease(1), 1, at(11)).await.unwrap();
    assert_eq!(accept(&*store, 1, &request("z")).await, Some(Accepted::Queued(3)));
    assert_eq!(queued(&*store, &id(1)).await, [2, 3]);
    assert_eq!(accept(&*store, 9, &request("z")).await, None);
    // Keys may be long and are compared to the last character.
    let long = "\0'é".repeat(2000);
    assert_eq!(accept(&*store, 2, &keyed("x", &long)).await, Some(Accepted::Queued(2)));
    assert_eq!(accept(&*store, 2, &keyed("x", &long)).await, Some(Accepted::Repeated(2)));
    let longer = format!("{long}.");
    assert_eq!(accept(&*store, 2, &keyed("x", &longer)).await, Some(Accepted::QueueFull));
    // A repeat is recognised also in a closed session.
    store.close_session(&id(2), event("close", None), at(12)).await.unwrap();
    assert_eq!(accept(&*store, 2, &keyed("y", "k")).await, Some(Accepted::Repeated(1)));
    assert_eq!(accept(&*store, 2, &keyed("y", "new")).await, Some(Accepted::Closed));
}

pub async fn restart_interrupts_running_and_keeps_queued_turns(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    make(&*store, 1..=3).await;
    accept(&*store, 1, &request("running")).await;
    accept(&*store, 1, &request("waiting")).await;
    store.start_turn(&lease(1), 1, at(11)).await.unwrap();
    accept(&*store, 3, &request("running too")).await;
    store.start_turn(&lease(3), 1, at(11)).await.unwrap();
    // Hob is killed and opens the ledger again.
    drop(store);
    let store = fixture.open().await;
    let take =
        async |byte, second| match store.acquire_lease(&id(byte), &node(), LEASE, at(second)).await
        {
            Ok(LeaseOutcome::Acquired(lease, interrupted)) => (lease, interrupted),
            other => panic!("{other:?}"),
        };
    for (byte, running) in [(1, &[1][..]), (2, &[]), (3, &[1])] {
        assert_eq!(take(byte, 50).await.1, running);
        assert_eq!(take(byte, 51).await.1, [0; 0]);
    }
    let (held, _) = take(1, 51).await;
    let turn = find_turn(&*store, &app("a"), &id(1), 1).await.unwrap();
    assert_eq!((turn.state, turn.ended_at), (TurnState::Interrupted, Some(at(50))));
    assert!(turn.error.is_some() && turn.stop_reason.is_none());
    assert_eq!(story(&*store, 1).await, ["create", "turn 1 interrupted"]);
    assert_eq!(story(&*store, 2).await, ["create"]);
    assert_eq!(story(&*store, 3).await, ["create", "turn 1 interrupted"]);
    assert_eq!(queued(&*store, &id(1)).await, [2]);
    let found = store.session(&app("a"), &id(1)).await.unwrap().unwrap();
    assert_eq!((found.state(), found.usage), (SessionState::Running, TurnUsage::default()));
    assert_eq!(found.last_turn_at, Some(at(50)));
    assert_eq!(usage_on(&*store, &app("a"), at(50)).await, TurnUsage::default());
    assert!(store.start_turn(&held, 2, at(52)).await.unwrap(), "the session accepts turns again");
    let late = store.end_turn(&held, 1, ending(1, TurnState::Finished), at(53)).await.unwrap();
    assert_eq!(late, None, "it was interrupted");
}

pub async fn close_cancels_queued_turns_and_keeps_the_running_one(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    make(&*store, [1]).await;
    accept(&*store, 1, &request("running")).await;
    store.start_turn(&lease(1), 1, at(11)).await.unwrap();
    accept(&*store, 1, &request("waiting")).await;
    accept(&*store, 1, &request("waiting too")).await;
    assert!(store.close_session(&id(1), event("close", None), at(20)).await.unwrap());
    for index in [2, 3] {
        let turn = find_turn(&*store, &app("a"), &id(1), index).await.unwrap();
        assert_eq!((turn.state, turn.ended_at), (TurnState::Cancelled, Some(at(20))));
        assert_eq!(turn.error.as_deref(), Some("the session was closed"));
        assert_eq!(turn.stop_reason.as_deref(), Some("cancelled"));
        assert!(!store.start_turn(&lease(1), index, at(21)).await.unwrap(), "it is over");
    }
    assert!(queued(&*store, &id(1)).await.is_empty());
    let turn = find_turn(&*store, &app("a"), &id(1), 1).await.unwrap();
    assert_eq!(turn.state, TurnState::Running);
    store.end_turn(&lease(1), 1, ending(1, TurnState::Cancelled), at(22)).await.unwrap().unwrap();
    let told = ["create", "turn 2 cancelled", "turn 3 cancelled", "close", "turn 1 cancelled"];
    assert_eq!(story(&*store, 1).await, told);
    assert_eq!(store.session(&app("a"), &id(1)).await.unwrap().unwrap().usage, used());
}

/// From every state to every state: the domain says which transitions are allowed, and others change nothing.
pub async fn turn_follows_only_allowed_transitions(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    make(&*store, [1]).await;
    let a = app("a");
    for (running, from) in [(false, TurnState::Queued), (true, TurnState::Running)] {
        for to in TurnState::ALL.into_iter().filter(|state| state.is_over()) {
            let Some(Accepted::Queued(index)) = accept(&*store, 1, &request("p")).await else {
                panic!("not taken")
            };
            if running {
                assert!(store.start_turn(&lease(1), index, at(11)).await.unwrap());
            }
            let before = story(&*store, 1).await.len();
            let ended = store.end_turn(&lease(1), index, ending(index, to), at(12)).await.unwrap();
            assert_eq!(ended.is_some(), from.may_become(to), "{from:?} to {to:?}");
            let turn = find_turn(&*store, &a, &id(1), index).await.unwrap();
            assert_eq!(turn.state, if ended.is_some() { to } else { from });
            let after = story(&*store, 1).await.len();
            assert_eq!(after - before, usize::from(ended.is_some()));
            if ended.is_none() {
                let end = ending(index, TurnState::Cancelled);
                store.end_turn(&lease(1), index, end, at(12)).await.unwrap().unwrap();
            }
            for next in TurnState::ALL.into_iter().filter(|state| state.is_over()) {
                let end = ending(index, next);
                assert_eq!(store.end_turn(&lease(1), index, end, at(13)).await.unwrap(), None);
            }
            assert!(!store.start_turn(&lease(1), index, at(13)).await.unwrap());
        }
    }
}
