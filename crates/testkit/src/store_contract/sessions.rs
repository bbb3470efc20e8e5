//! The life of sessions.

use hob_domain::session::{
    Accepted, Created, DeleteFilter, EventRange, OpenLimits, Session, SessionFilter, SessionState,
    TurnRange, TurnState, TurnUsage,
};
use hob_domain::{AppName, Timestamp};

use super::{
    Fixture, accept, after, app, at, ending, event, find_turn, id, lease, lease_of, list, make,
    names, node, request, seqs, session, story, usage_on, used, whole_turn,
};

pub async fn session_goes_through_its_states(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (a, one) = (app("a"), id(1));
    let made = Session { last_event: 1, ..session("a", 1, 5) };
    store
        .create_session(&made, event("create", None), &node(), OpenLimits::default())
        .await
        .unwrap();
    assert_eq!(store.session(&a, &one).await.unwrap(), Some(made.clone()));
    assert_eq!(accept(&*store, 1, &request("hello")).await, Some(Accepted::Queued(1)));
    assert_eq!(story(&*store, 1).await, ["create"], "an accepted turn is no event yet");
    let busy = store.session(&a, &one).await.unwrap().unwrap();
    assert_eq!((busy.state(), busy.turn_count), (SessionState::Running, 1));
    store.keep_agent_session(&lease(1), "first name").await.unwrap();
    assert!(store.start_turn(&lease(1), 1, at(11)).await.unwrap());
    assert!(!store.start_turn(&lease(1), 1, at(11)).await.unwrap(), "it runs already");
    let running = store.session(&a, &one).await.unwrap().unwrap();
    assert_eq!(running.agent_session.as_deref(), Some("first name"));
    let said = vec![event("message", Some(1)), event("message", Some(1))];
    let stored = store.append_events(&lease(1), said, at(12)).await.unwrap();
    assert_eq!(seqs(&stored), [2, 3]);
    let ended = store.end_turn(&lease(1), 1, ending(1, TurnState::Finished), at(13)).await.unwrap();
    let ended = ended.unwrap();
    assert_eq!(seqs(&ended), [4]);
    let again = store.end_turn(&lease(1), 1, ending(1, TurnState::Died), at(14)).await.unwrap();
    assert_eq!(again, None, "a turn ends once");
    let turn = find_turn(&*store, &a, &one, 1).await.unwrap();
    assert_eq!((turn.state, turn.text.as_str()), (TurnState::Finished, "done"));
    assert_eq!((turn.prompt.as_str(), turn.usage), ("hello", used()));
    let times = (turn.queued_at, turn.started_at, turn.ended_at);
    assert_eq!(times, (at(10), Some(at(11)), Some(at(13))));
    let idle = store.session(&a, &one).await.unwrap().unwrap();
    assert_eq!((idle.state(), idle.usage), (SessionState::Idle, used()));
    assert_eq!((idle.last_turn_at, idle.agent_session.as_deref()), (Some(at(13)), Some("own")));
    assert_eq!(idle.last_event, 4);
    let told: Vec<_> = stored.into_iter().chain(ended).collect();
    assert_eq!(
        store.events(&a, &one, after(1, 100)).await.unwrap().unwrap(),
        told,
        "as it was returned"
    );
    assert_eq!(store.events(&a, &one, EventRange::Turn(1)).await.unwrap(), Some(told));

    assert!(store.close_session(&one, event("close", None), at(20)).await.unwrap());
    assert!(!store.close_session(&one, event("close", None), at(21)).await.unwrap());
    let closed = store.session(&a, &one).await.unwrap().unwrap();
    assert_eq!((closed.state(), closed.closed_at), (SessionState::Closed, Some(at(20))));
    assert_eq!(accept(&*store, 1, &request("more")).await, Some(Accepted::Closed));
    assert_eq!(story(&*store, 1).await[4..], ["close"]);
}

/// Acknowledged writes are there when the ledger is opened again.
pub async fn acknowledged_writes_survive_a_reopen(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    make(&*store, [1]).await;
    whole_turn(&*store, 1, 20).await;
    let a = app("a");
    let (before, events) = (
        store.session(&a, &id(1)).await.unwrap(),
        store.events(&a, &id(1), after(0, 99)).await.unwrap(),
    );
    drop(store);
    let store = fixture.open().await;
    assert_eq!(store.session(&a, &id(1)).await.unwrap(), before);
    assert_eq!(store.events(&a, &id(1), after(0, 99)).await.unwrap(), events);
    let more = store.append_events(&lease(1), vec![event("message", None)], at(30)).await.unwrap();
    assert_eq!(seqs(&more), [before.unwrap().last_event + 1]);
}

/// A second session with the same id is refused and stores nothing.
pub async fn duplicate_session_is_refused(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    make(&*store, [1]).await;
    let before = store.session(&app("a"), &id(1)).await.unwrap();
    for other in ["a", "b"] {
        let second = session(other, 1, 99);
        assert!(
            store
                .create_session(&second, event("create", None), &node(), OpenLimits::default())
                .await
                .is_err()
        );
    }
    assert_eq!(store.session(&app("a"), &id(1)).await.unwrap(), before);
    assert_eq!(list(&*store, SessionFilter::All).await.len(), 1);
    assert_eq!(story(&*store, 1).await, ["create"]);
}

/// A session beyond a limit is refused and stores nothing. Closed sessions do not count.
pub async fn limits_refuse_a_session(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let create = async |name, byte, app, all| {
        let new = session(name, byte, 5);
        let limits = OpenLimits { app, all };
        store.create_session(&new, event("create", None), &node(), limits).await.unwrap()
    };
    assert_eq!(create("a", 1, 2, 3).await, Created::Made(lease(1)));
    assert_eq!(create("a", 2, 2, 3).await, Created::Made(lease(2)));
    assert_eq!(create("a", 3, 2, 3).await, Created::AppFull(2));
    assert_eq!(create("b", 4, 2, 3).await, Created::Made(lease_of("b", 4)));
    assert_eq!(create("b", 5, 2, 3).await, Created::Full(3));
    assert_eq!(create("a", 3, 1, 1).await, Created::AppFull(2), "the app's limit comes first");
    assert_eq!(names(&list(&*store, SessionFilter::All).await), [id(1), id(2), id(4)]);
    let made = Created::Made(lease_of("b", 5));
    assert_eq!(create("b", 5, 2, 0).await, made, "zero is no limit");
    for closed in [id(1), id(4)] {
        store.close_session(&closed, event("close", None), at(9)).await.unwrap();
    }
    assert_eq!(create("a", 3, 2, 3).await, Created::Made(lease(3)));
}

/// A deleted session accepts nothing.
pub async fn unknown_session_accepts_nothing(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    assert!(store.append_events(&lease(1), vec![event("message", None)], at(9)).await.is_err());
    assert!(!store.close_session(&id(1), event("close", None), at(9)).await.unwrap());
    assert!(store.start_turn(&lease(1), 1, at(9)).await.is_err());
    assert!(store.keep_agent_session(&lease(1), "name").await.is_err());
    assert_eq!(accept(&*store, 1, &request("x")).await, None);
    let ended = store.end_turn(&lease(1), 1, ending(1, TurnState::Finished), at(9)).await;
    assert!(ended.is_err());
    assert!(store.outbox(10, &[]).await.unwrap().is_empty());
    assert_eq!(store.usage(at(0), None, None).await.unwrap(), []);
    assert_eq!(store.turns(&app("a"), &id(1), TurnRange::Queued).await.unwrap(), None);
    // The session exists, but not the turn.
    make(&*store, [1]).await;
    assert!(!store.start_turn(&lease(1), 7, at(9)).await.unwrap());
    let ended = store.end_turn(&lease(1), 7, ending(7, TurnState::Finished), at(9)).await.unwrap();
    assert_eq!(ended, None);
    assert!(store.outbox(10, &[]).await.unwrap().is_empty());
    assert_eq!(story(&*store, 1).await, ["create"]);
    assert_eq!(store.append_events(&lease(1), Vec::new(), at(9)).await.unwrap(), []);
}

pub async fn removed_app_leaves_nothing(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    for (name, byte) in [("a", 1), ("a", 2), ("b", 3)] {
        store
            .create_session(
                &session(name, byte, 5),
                event("create", None),
                &node(),
                OpenLimits::default(),
            )
            .await
            .unwrap();
        let taken = store.accept_turn(&app(name), &id(byte), &request("hello"), at(9)).await;
        assert_eq!(taken.unwrap(), Some(Accepted::Queued(1)));
        store.start_turn(&lease_of(name, byte), 1, at(9)).await.unwrap();
        let end = ending(1, TurnState::Finished);
        store.end_turn(&lease_of(name, byte), 1, end, at(9)).await.unwrap();
    }
    let mut deleted = store.delete_sessions(&DeleteFilter::App(app("a"))).await.unwrap();
    deleted.sort();
    assert_eq!(deleted, [id(1), id(2)]);
    assert_eq!(store.delete_sessions(&DeleteFilter::App(app("a"))).await.unwrap(), []);
    assert_eq!(store.events(&app("a"), &id(1), EventRange::Turn(1)).await.unwrap(), None);
    assert_eq!(find_turn(&*store, &app("a"), &id(1), 1).await, None);
    assert_eq!(usage_on(&*store, &app("a"), at(9)).await, TurnUsage::default());

    assert_eq!(names(&list(&*store, SessionFilter::All).await), [id(3)]);
    let left = store.events(&app("b"), &id(3), EventRange::Turn(1)).await.unwrap();
    assert_eq!(left.unwrap().len(), 1);
    assert_eq!(usage_on(&*store, &app("b"), at(9)).await, used());
    let outbox = store.outbox(10, &[]).await.unwrap();
    assert_eq!(outbox.iter().map(|item| item.app.as_str()).collect::<Vec<_>>(), ["b"]);

    // The next app of this name starts empty.
    make(&*store, [1]).await;
    assert_eq!(story(&*store, 1).await, ["create"]);
    assert_eq!(accept(&*store, 1, &request("x")).await, Some(Accepted::Queued(1)));
}

pub async fn old_sessions_are_closed_and_deleted(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    make(&*store, 1..=3).await;
    store
        .create_session(
            &Session { app: AppName::owner(), ..session("b", 4, 7) },
            event("x", None),
            &node(),
            OpenLimits::default(),
        )
        .await
        .unwrap();
    accept(&*store, 1, &request("busy")).await;
    let idle = async |then| {
        let mut idle = names(&list(&*store, SessionFilter::IdleSince(then)).await);
        idle.sort();
        idle
    };
    assert_eq!(idle(at(5)).await, []);
    assert_eq!(idle(at(6)).await, [id(2), id(3)]);
    let mut all = idle(at(100)).await;
    all.sort();
    assert_eq!(all, [id(2), id(3), id(4)], "a busy session is not idle, however old");
    let idle_sessions = list(&*store, SessionFilter::IdleSince(at(100))).await;
    let is_owned = |session: &Session| session.app == AppName::owner() && session.id == id(4);
    assert!(idle_sessions.iter().any(is_owned), "the owner's as well");
    store.close_session(&id(2), event("sweep_close", None), at(60)).await.unwrap();
    assert_eq!(idle(at(6)).await, [id(3)]);
    assert_eq!(store.delete_sessions(&DeleteFilter::ClosedBefore(at(60))).await.unwrap(), []);
    assert_eq!(store.delete_sessions(&DeleteFilter::ClosedBefore(at(61))).await.unwrap(), [id(2)]);
    assert_eq!(store.events(&app("a"), &id(2), after(0, 10)).await.unwrap(), None);
    assert_eq!(list(&*store, SessionFilter::All).await.len(), 3);
}

/// Times are stored to the microsecond, and a write returns the time that is read later. Times before 1970 are valid.
pub async fn times_are_returned_as_stored(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let fine: Timestamp = "1969-12-31T23:59:59.123456789Z".parse().unwrap();
    let kept: Timestamp = "1969-12-31T23:59:59.123456Z".parse().unwrap();
    let kept = if kept.as_microsecond() == fine.as_microsecond() {
        kept
    } else {
        Timestamp::from_microsecond(fine.as_microsecond()).unwrap()
    };
    let made = Session { created_at: fine, ..session("a", 1, 0) };
    store
        .create_session(&made, event("create", None), &node(), OpenLimits::default())
        .await
        .unwrap();
    assert_eq!(store.session(&app("a"), &id(1)).await.unwrap().unwrap().created_at, kept);
    let told = store.append_events(&lease(1), vec![event("message", None)], fine).await.unwrap();
    let read = store.events(&app("a"), &id(1), after(1, 9)).await.unwrap().unwrap();
    assert_eq!((told[0].at, &read), (kept, &told));
}
