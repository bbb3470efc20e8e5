//! Lists: which app sees what, and in which order.

use super::{
    Fixture, accept, after, app, at, before, ending, event, find_turn, id, lease, list, make,
    names, node, request, seqs, session, turns_before, usage_on, whole_turn,
};
use hob_domain::AppName;
use hob_domain::session::{
    DeleteFilter, EventRange, MAX_EVENT_PAGE_BYTES, MAX_SESSION_PAGE_BYTES, NewEvent, OpenLimits,
    SessionFilter, SessionId, SessionPage, TurnRange, TurnState, TurnUsage,
};
use serde_json::json;

pub async fn lists_of_apps_are_isolated(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    make(&*store, [1]).await;
    store
        .create_session(&session("b", 2, 6), event("create", None), &node(), OpenLimits::default())
        .await
        .unwrap();
    accept(&*store, 1, &request("hello")).await;
    let other = app("b");
    assert_eq!(store.session(&other, &id(1)).await.unwrap(), None);
    assert_eq!(find_turn(&*store, &other, &id(1), 1).await, None);
    assert_eq!(store.events(&other, &id(1), after(0, 10)).await.unwrap(), None);
    assert_eq!(store.events(&other, &id(1), before(9, 10)).await.unwrap(), None);
    assert_eq!(store.turns(&other, &id(1), turns_before(9, 10)).await.unwrap(), None);
    let taken = store.accept_turn(&other, &id(1), &request("x"), at(9)).await.unwrap();
    assert_eq!(taken, None);
    assert_eq!(names(&list(&*store, SessionFilter::App(other.clone())).await), [id(2)]);
    assert_eq!(store.turns(&other, &id(2), TurnRange::Queued).await.unwrap(), Some(Vec::new()));
    store.start_turn(&lease(1), 1, at(9)).await.unwrap();
    store.end_turn(&lease(1), 1, ending(1, TurnState::Finished), at(9)).await.unwrap();
    assert_eq!(usage_on(&*store, &other, at(9)).await, TurnUsage::default());
    assert_eq!(store.usage(at(0), None, Some(&other)).await.unwrap(), []);
    assert_eq!(store.delete_sessions(&DeleteFilter::App(other)).await.unwrap(), [id(2)]);
    assert_eq!(names(&list(&*store, SessionFilter::All).await), [id(1)]);
}

pub async fn admin_list_shows_all_apps(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    for (name, byte, second) in [("a", 1, 7), ("b", 2, 6), ("a", 3, 5), ("a", 9, 6)] {
        store
            .create_session(
                &session(name, byte, second),
                event("create", None),
                &node(),
                OpenLimits::default(),
            )
            .await
            .unwrap();
    }
    let all = [id(3), id(2), id(9), id(1)];
    assert_eq!(names(&list(&*store, SessionFilter::All).await), all, "oldest first, then by name");
    assert_eq!(names(&list(&*store, SessionFilter::App(app("a"))).await), [id(3), id(9), id(1)]);
    store.close_session(&id(2), event("close", None), at(8)).await.unwrap();
    assert_eq!(names(&list(&*store, SessionFilter::All).await), all);
    assert_eq!(names(&list(&*store, SessionFilter::Open).await), [id(3), id(9), id(1)]);
    let found = list(&*store, SessionFilter::Id(id(2))).await;
    assert_eq!((found.len(), &found[0].app, &found[0].id), (1, &app("b"), &id(2)));
    assert_eq!(list(&*store, SessionFilter::Id(id(8))).await, []);
}

/// A list of sessions is read page by page. A page ends before it gets too long.
pub async fn session_pages_are_in_order_and_bounded(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let create = async |name: &str, byte: u8, second: i64, length: usize| {
        let mut session = session(name, byte, second);
        session.setup.meta = json!({"a": "x".repeat(length)});
        store
            .create_session(&session, event("create", None), &node(), OpenLimits::default())
            .await
            .unwrap();
    };
    for (name, byte, second) in [("a", 1, 7), ("b", 2, 6), ("a", 3, 5), ("a", 9, 6), ("a", 4, 6)] {
        create(name, byte, second, 10).await;
    }
    let all = async |app: Option<AppName>, limit: usize| {
        let (mut pages, mut after) = (Vec::new(), None);
        loop {
            let page = SessionPage { app: app.clone(), after: after.take(), limit };
            let found = list(&*store, SessionFilter::Page(page)).await;
            let Some(last) = found.last() else { return pages };
            after = Some((last.created_at, last.id.clone()));
            pages.push(names(&found));
        }
    };
    let of_a = [id(3), id(4), id(9), id(1)];
    assert_eq!(all(Some(app("a")), 100).await, [of_a.to_vec()]);
    assert_eq!(all(Some(app("a")), 3).await, [of_a[..3].to_vec(), of_a[3..].to_vec()]);
    assert_eq!(all(Some(app("c")), 3).await, Vec::<Vec<SessionId>>::new());
    let of_all = [id(3), id(2), id(4), id(9), id(1)];
    assert_eq!(all(None, 2).await.concat(), of_all, "oldest first, then by id");
    let long = MAX_SESSION_PAGE_BYTES / 2;
    for (byte, length) in [(5, long), (6, long), (7, 3 * long), (8, 10)] {
        create("d", byte, i64::from(byte), length).await;
    }
    let pages = all(Some(app("d")), 100).await;
    assert_eq!(pages, [[id(5)], [id(6)], [id(7)], [id(8)]]);
}

/// Past events are read backwards page by page, and each page is in order.
pub async fn past_events_are_paged_backwards(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    make(&*store, [1, 2]).await;
    for _ in 0..3 {
        whole_turn(&*store, 1, 20).await;
    }
    let (a, one) = (app("a"), id(1));
    let all = store.events(&a, &one, after(0, usize::MAX)).await.unwrap().unwrap();
    let last = all.len() as u64;
    let page =
        async |number| seqs(&store.events(&a, &one, before(number, 2)).await.unwrap().unwrap());
    assert_eq!(page(u64::MAX).await, [last - 1, last]);
    assert_eq!(page(last - 1).await, [last - 3, last - 2]);
    assert_eq!(page(2).await, [1]);
    assert_eq!(page(1).await, [0; 0]);
    assert_eq!(page(0).await, [0; 0]);
    let next = async |number, limit| {
        seqs(&store.events(&a, &one, after(number, limit)).await.unwrap().unwrap())
    };
    assert_eq!(next(0, 2).await, [1, 2]);
    assert_eq!(next(2, 2).await, [3, 4]);
    assert_eq!(next(last, 2).await, [0; 0]);
    assert_eq!(next(u64::MAX, 2).await, [0; 0]);
    assert_eq!(next(0, 0).await, [0; 0]);
    let turns = async |number, limit| {
        let turns = store.turns(&a, &one, turns_before(number, limit)).await.unwrap().unwrap();
        turns.iter().map(|turn| turn.index).collect::<Vec<_>>()
    };
    assert_eq!(turns(u32::MAX, 2).await, [2, 3]);
    assert_eq!(turns(3, 9).await, [1, 2]);
    assert_eq!(turns(1, 9).await, [0; 0]);
    assert_eq!(store.turns(&a, &id(2), turns_before(9, 9)).await.unwrap(), Some(Vec::new()));
    assert_eq!(store.turns(&a, &id(3), turns_before(9, 9)).await.unwrap(), None);
    assert_eq!(store.events(&a, &id(3), after(0, 9)).await.unwrap(), None);
}

/// Events are read in pages of bounded size. An event that is larger is a page of its own.
pub async fn event_pages_are_bounded_in_bytes(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    make(&*store, [1]).await;
    let of_size = |bytes: usize| NewEvent {
        body: json!({"text": "x".repeat(bytes)}).to_string(),
        ..event("message", Some(1))
    };
    let half = MAX_EVENT_PAGE_BYTES / 2;
    let sizes = [10, half, half, MAX_EVENT_PAGE_BYTES, 10, 10];
    let events = sizes.map(of_size).to_vec();
    let stored = seqs(&store.append_events(&lease(1), events, at(9)).await.unwrap());
    let read = async |range| seqs(&store.events(&app("a"), &id(1), range).await.unwrap().unwrap());
    let first = stored[0] - 1;
    assert_eq!(read(after(first, 9)).await, stored[..2]);
    assert_eq!(read(EventRange::Turn(1)).await, stored[..2]);
    assert_eq!(read(after(stored[1], 9)).await, stored[2..3]);
    assert_eq!(read(after(stored[2], 9)).await, stored[3..4], "larger than a page");
    assert_eq!(read(after(stored[3], 9)).await, stored[4..]);
    assert_eq!(read(before(stored[5] + 1, 9)).await, stored[4..]);
    assert_eq!(read(before(stored[4], 9)).await, stored[3..4]);
}

/// The events of a turn are all events that name it, also with other events between them.
pub async fn turn_events_are_those_that_name_the_turn(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    make(&*store, [1]).await;
    let say = async |turn| {
        let said =
            store.append_events(&lease(1), vec![event("message", turn)], at(9)).await.unwrap();
        said[0].seq
    };
    let mut own = Vec::new();
    for index in 1..=2 {
        accept(&*store, 1, &request("p")).await;
        store.start_turn(&lease(1), index, at(9)).await.unwrap();
        own.push(vec![say(Some(index)).await]);
        say(None).await;
        own[index as usize - 1].push(say(Some(index)).await);
        let end = ending(index, TurnState::Finished);
        let ended = store.end_turn(&lease(1), index, end, at(9)).await.unwrap().unwrap();
        own[index as usize - 1].extend(seqs(&ended));
    }
    own[0].push(say(Some(1)).await);
    let of_turn = async |byte, index| {
        store.events(&app("a"), &id(byte), EventRange::Turn(index)).await.unwrap()
    };
    for (index, own) in (1..).zip(own) {
        assert_eq!(seqs(&of_turn(1, index).await.unwrap()), own);
    }
    assert_eq!(of_turn(1, 3).await, Some(Vec::new()));
    assert_eq!(of_turn(2, 1).await, None);
}
