//! Leases of sessions. A node that lost its lease cannot write to the session.

use std::time::Duration;

use hob_domain::session::{EventKind, SessionFilter, SessionId, SessionStore, TurnState};
use hob_domain::{AppName, Lease, LeaseOutcome, LedgerStore, NodeEvent, NodeId, StoreError};
use tokio::task::JoinSet;

use super::{
    Fixture, accept, after, app, at, ending, event, id, lease, list, make, names, node, queued,
    request, seqs, story,
};

/// So long that a node with a recent heartbeat counts as alive on any machine.
const LEASE: Duration = Duration::from_secs(600);

fn other(byte: u8) -> NodeId {
    NodeId::from_random([byte; 16])
}

async fn take(
    store: &dyn SessionStore,
    byte: u8,
    node: &NodeId,
    lease_timeout: Duration,
) -> LeaseOutcome {
    store.acquire_lease(&id(byte), node, lease_timeout, at(50)).await.unwrap()
}

async fn unheld(store: &dyn SessionStore, lease_timeout: Duration) -> Vec<(AppName, SessionId)> {
    let unheld = list(store, SessionFilter::Unleased(lease_timeout)).await;
    let mut unheld: Vec<_> = unheld.into_iter().map(|session| (session.app, session.id)).collect();
    unheld.sort();
    unheld
}

/// The node that creates a session holds its lease while its heartbeats arrive.
pub async fn new_session_is_leased_to_its_creator(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    make(&*store, [1]).await;
    assert_eq!(take(&*store, 9, &other(1), LEASE).await, LeaseOutcome::Missing);
    store.note_node(&node(), NodeEvent::Heartbeat).await.unwrap();
    assert_eq!(take(&*store, 1, &other(1), LEASE).await, LeaseOutcome::HeldBy(node()));
    assert_eq!(unheld(&*store, LEASE).await, []);
    store.append_events(&lease(1), vec![event("message", None)], at(9)).await.unwrap();
    // It is not heard of for the lease.
    assert_eq!(unheld(&*store, Duration::ZERO).await, [(app("a"), id(1))]);
    let taken = take(&*store, 1, &other(1), Duration::ZERO).await;
    assert_eq!(taken, LeaseOutcome::Acquired(Lease { fence: 2, ..lease(1) }, Vec::new()));
    // One that never was heard of is not there, either; it says good-bye and is not there any more.
    assert_eq!(unheld(&*store, LEASE).await, [(app("a"), id(1))]);
    store.note_node(&other(1), NodeEvent::Heartbeat).await.unwrap();
    assert_eq!(take(&*store, 1, &node(), LEASE).await, LeaseOutcome::HeldBy(other(1)));
    store.note_node(&other(1), NodeEvent::Left).await.unwrap();
    let taken = take(&*store, 1, &node(), LEASE).await;
    assert_eq!(taken, LeaseOutcome::Acquired(Lease { fence: 3, ..lease(1) }, Vec::new()));
    // A node may acquire its own lease again, which voids the earlier fencing token.
    let taken = take(&*store, 1, &node(), LEASE).await;
    assert_eq!(taken, LeaseOutcome::Acquired(Lease { fence: 4, ..lease(1) }, Vec::new()));
    // A closed session in which nothing is under way needs nobody.
    store.close_session(&id(1), event("close", None), at(60)).await.unwrap();
    assert_eq!(unheld(&*store, Duration::ZERO).await, []);
}

/// Of many concurrent acquires one gets the lease, and the others learn its holder.
pub async fn concurrent_acquires_give_one_lease(fixture: &dyn Fixture) {
    let stores = [fixture.open().await, fixture.open().await];
    for round in 1..=3_u8 {
        make(&*stores[0], [round]).await;
        accept(&*stores[0], round, &request("p")).await;
        stores[0].start_turn(&lease(round), 1, at(11)).await.unwrap();
        let mut tasks = JoinSet::new();
        for taker in 1..=6_u8 {
            let store = stores[usize::from(taker) % 2].clone();
            tasks.spawn(async move {
                store.note_node(&other(taker), NodeEvent::Heartbeat).await.unwrap();
                (other(taker), take(&*store, round, &other(taker), LEASE).await)
            });
        }
        let answers = tasks.join_all().await;
        let held: Vec<_> = answers
            .iter()
            .filter_map(|(by, answer)| match answer {
                LeaseOutcome::Acquired(lease, interrupted) => Some((by, lease, interrupted)),
                _ => None,
            })
            .collect();
        let [(winner, lease, interrupted)] = &held[..] else { panic!("{answers:?}") };
        assert_eq!((lease.fence, interrupted.as_slice()), (2, &[1][..]));
        for (by, answer) in &answers {
            assert!(
                by == *winner || *answer == LeaseOutcome::HeldBy((*winner).clone()),
                "{answer:?}"
            );
        }
        assert_eq!(story(&*stores[1], round).await, ["create", "turn 1 interrupted"]);
    }
}

async fn all_lost(store: &dyn LedgerStore, lease: &Lease) {
    let lost = |what: &str, answer: Result<(), StoreError>| {
        assert!(matches!(answer, Err(StoreError::Lost)), "{what}: {answer:?}");
    };
    let said = vec![event("message", Some(1))];
    lost("events", store.append_events(lease, said, at(70)).await.map(drop));
    lost("no events", store.append_events(lease, Vec::new(), at(70)).await.map(drop));
    lost("a beginning", store.start_turn(lease, 2, at(70)).await.map(drop));
    for index in [1, 2, 9] {
        let end = ending(index, TurnState::Cancelled);
        lost("an end", store.end_turn(lease, index, end, at(70)).await.map(drop));
    }
    lost("a name", store.keep_agent_session(lease, "mine").await);
    lost("giving it back", store.release_lease(lease).await);
}

/// No write succeeds with a lost lease, with a guessed one, or with one of another app.
pub async fn lost_lease_cannot_write(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    make(&*store, [1]).await;
    accept(&*store, 1, &request("running")).await;
    accept(&*store, 1, &request("waiting")).await;
    store.start_turn(&lease(1), 1, at(11)).await.unwrap();
    let LeaseOutcome::Acquired(held, _) = take(&*store, 1, &other(1), LEASE).await else {
        panic!("not taken")
    };
    let before = store.session(&app("a"), &id(1)).await.unwrap();
    for fence in [0, 1, 3, u64::MAX] {
        all_lost(&*store, &Lease { fence, ..lease(1) }).await;
    }
    all_lost(&*store, &lease(9)).await;
    all_lost(&*store, &Lease { app: app("b"), ..held.clone() }).await;
    assert_eq!(store.session(&app("a"), &id(1)).await.unwrap(), before);
    assert_eq!(story(&*store, 1).await, ["create", "turn 1 interrupted"]);
    assert_eq!(queued(&*store, &id(1)).await, [2]);
    assert!(store.outbox(9, &[]).await.unwrap().is_empty());
    // The lease holder continues.
    assert!(store.start_turn(&held, 2, at(71)).await.unwrap());
    let said = store.append_events(&held, vec![event("message", Some(2))], at(72)).await.unwrap();
    assert_eq!(seqs(&said), [3]);
    assert!(
        store.end_turn(&held, 2, ending(2, TurnState::Finished), at(73)).await.unwrap().is_some()
    );
}

/// Writers under an old hold and a taker race: what the old one was told is stored, and nothing of it comes after.
pub async fn takeover_interrupts_the_running_turn_once(fixture: &dyn Fixture) {
    let stores = [fixture.open().await, fixture.open().await];
    make(&*stores[0], [1]).await;
    accept(&*stores[0], 1, &request("running")).await;
    stores[0].start_turn(&lease(1), 1, at(11)).await.unwrap();
    let mut writers = JoinSet::new();
    for _ in 0..3 {
        let store = stores[0].clone();
        writers.spawn(async move {
            let mut told = Vec::new();
            loop {
                match store.append_events(&lease(1), vec![event("message", Some(1))], at(12)).await
                {
                    Ok(stored) => told.extend(seqs(&stored)),
                    Err(StoreError::Lost) => return told,
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    // Once all writers have started.
    while stores[1].session(&app("a"), &id(1)).await.unwrap().unwrap().last_event < 20 {
        tokio::task::yield_now().await;
    }
    let LeaseOutcome::Acquired(held, interrupted) = take(&*stores[1], 1, &other(1), LEASE).await
    else {
        panic!("not taken")
    };
    assert_eq!(interrupted, [1]);
    let told: Vec<u64> = writers.join_all().await.into_iter().flatten().collect();
    let events = stores[1].events(&app("a"), &id(1), after(0, usize::MAX)).await.unwrap().unwrap();
    let end = events.iter().position(|event| event.event.kind == EventKind::Turn).expect("its end");
    assert_eq!(end + 1, events.len(), "nothing comes after the end");
    assert_eq!(told.len() + 2, events.len(), "the log has exactly the acknowledged events");
    let LeaseOutcome::Acquired(_, again) = take(&*stores[0], 1, &other(1), LEASE).await else {
        panic!("not taken again")
    };
    assert_eq!(again, [0; 0]);
    all_lost(&*stores[1], &held).await;
}

pub async fn nodes_are_listed_with_their_last_heartbeat(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    assert_eq!(store.nodes().await.unwrap(), []);
    store.note_node(&other(2), NodeEvent::Heartbeat).await.unwrap();
    store.note_node(&other(1), NodeEvent::Heartbeat).await.unwrap();
    store.note_node(&other(2), NodeEvent::Heartbeat).await.unwrap();
    let nodes = fixture.open().await.nodes().await.unwrap();
    let known: Vec<_> = nodes.iter().map(|node| node.id.clone()).collect();
    assert_eq!(known, [other(1), other(2)]);
    assert!(nodes.iter().all(|node| node.age < LEASE), "{nodes:?}");
    let before = nodes[0].age;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let after = store.nodes().await.unwrap();
    assert!(after[0].age > before, "time goes by");
    store.note_node(&other(1), NodeEvent::Left).await.unwrap();
    store.note_node(&other(1), NodeEvent::Left).await.unwrap();
    assert_eq!(store.nodes().await.unwrap().len(), 1);
}

/// A session is orphaned while one of its turns is queued or running and no live node holds its lease.
pub async fn orphans_have_turns_but_no_live_holder(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    make(&*store, 1..=3).await;
    store.note_node(&node(), NodeEvent::Heartbeat).await.unwrap();
    let orphans = async |timeout| names(&list(&*store, SessionFilter::Orphaned(timeout)).await);
    accept(&*store, 1, &request("queued")).await;
    accept(&*store, 2, &request("running")).await;
    store.start_turn(&lease(2), 1, at(11)).await.unwrap();
    assert_eq!(orphans(LEASE).await, []);
    assert_eq!(orphans(Duration::ZERO).await, [id(1), id(2)], "an idle session is none");
    // The turn that runs when its session is closed keeps the session under way.
    store.close_session(&id(2), event("close", None), at(12)).await.unwrap();
    assert_eq!(orphans(Duration::ZERO).await, [id(1), id(2)]);
    store.end_turn(&lease(2), 1, ending(1, TurnState::Cancelled), at(13)).await.unwrap();
    assert_eq!(orphans(Duration::ZERO).await, [id(1)]);
    store.release_lease(&lease(1)).await.unwrap();
    assert_eq!(orphans(LEASE).await, [id(1)]);
}

pub async fn released_lease_can_be_acquired(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    make(&*store, [1]).await;
    store.note_node(&node(), NodeEvent::Heartbeat).await.unwrap();
    store.release_lease(&lease(1)).await.unwrap();
    assert_eq!(unheld(&*store, LEASE).await, [(app("a"), id(1))]);
    let taken = take(&*store, 1, &other(1), LEASE).await;
    assert_eq!(taken, LeaseOutcome::Acquired(Lease { fence: 2, ..lease(1) }, Vec::new()));
    all_lost(&*store, &lease(1)).await;
}
