//! Usage of turns, and the outbox to the memory.

use std::time::Duration;

use hob_domain::session::{
    CostTarget, DeleteFilter, OutboxChange, TurnEnding, TurnRange, TurnState, TurnUsage, UsageNote,
};
use hob_domain::{AppName, LeaseOutcome, StoreError};

use super::{
    Fixture, accept, app, at, ending, event, id, lease, make, node, prompts, remembered, request,
    sessionless, usage_on, used, whole_turn,
};

const DAY: i64 = 24 * 60 * 60;

fn twice() -> TurnUsage {
    TurnUsage {
        input_tokens: 6,
        output_tokens: 8,
        cached_read_tokens: 10,
        cached_write_tokens: 12,
        cost_usd: 1.0,
    }
}

pub async fn usage_is_summed_by_session_and_day(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    make(&*store, [1, 2]).await;
    for (byte, second) in [(1, DAY - 1), (1, DAY), (2, DAY + 5), (2, 2 * DAY)] {
        whole_turn(&*store, byte, second).await;
    }
    for byte in [1, 2] {
        assert_eq!(store.session(&app("a"), &id(byte)).await.unwrap().unwrap().usage, twice());
    }
    for (second, used) in [
        (0, used()),
        (DAY + 7, twice()),
        (2 * DAY, used()),
        (3 * DAY, TurnUsage::default()),
        (-1, TurnUsage::default()),
    ] {
        assert_eq!(usage_on(&*store, &app("a"), at(second)).await, used, "at {second}");
    }
    // The usage of an app stays when its sessions are deleted.
    store.close_session(&id(1), event("close", None), at(6)).await.unwrap();
    store.delete_sessions(&DeleteFilter::ClosedBefore(at(7))).await.unwrap();
    assert_eq!(usage_on(&*store, &app("a"), at(0)).await, used());
    let days = store.usage(at(DAY + 100), None, None).await.unwrap();
    let days: Vec<_> = days.iter().map(|d| (d.day, d.turns, d.failed, d.usage)).collect();
    assert_eq!(days, [(at(DAY), 2, 0, twice()), (at(2 * DAY), 1, 0, used())]);
    assert_eq!(store.usage(at(0), None, Some(&app("b"))).await.unwrap(), []);
}

/// Failed turns are counted, cancelled turns are no failures, and each turn counts once.
pub async fn turns_are_counted_by_their_end(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    make(&*store, [1]).await;
    for (index, state) in
        [(1, TurnState::Died), (2, TurnState::Cancelled), (3, TurnState::Finished)]
    {
        accept(&*store, 1, &request("p")).await;
        store.start_turn(&lease(1), index, at(11)).await.unwrap();
        let ended = store.end_turn(&lease(1), index, ending(index, state), at(12)).await.unwrap();
        assert!(ended.is_some());
        let again = store.end_turn(&lease(1), index, ending(index, state), at(12)).await.unwrap();
        assert!(again.is_none());
    }
    // A turn that is queued when its session is closed, and one that runs when Hob ends.
    accept(&*store, 1, &request("p")).await;
    store.close_session(&id(1), event("close", None), at(14)).await.unwrap();
    make(&*store, [2]).await;
    accept(&*store, 2, &request("p")).await;
    store.start_turn(&lease(2), 1, at(15)).await.unwrap();
    store.acquire_lease(&id(2), &node(), Duration::ZERO, at(16)).await.unwrap();
    let days = store.usage(at(0), None, Some(&app("a"))).await.unwrap();
    assert_eq!(days.len(), 1);
    assert_eq!((days[0].turns, days[0].failed), (5, 2));
}

/// An agent reports its usage. Its turn ends whatever it reports.
pub async fn absurd_usage_still_ends_the_turn(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    make(&*store, [1]).await;
    for (index, cost_usd) in [(1, f64::NAN), (2, f64::INFINITY), (3, -1.0)] {
        accept(&*store, 1, &request("hello")).await;
        store.start_turn(&lease(1), index, at(11)).await.unwrap();
        let most = u64::MAX;
        let used = TurnUsage { input_tokens: most, output_tokens: most, cost_usd, ..used() };
        let ending = TurnEnding { usage: used, ..ending(index, TurnState::Finished) };
        assert!(store.end_turn(&lease(1), index, ending, at(12)).await.unwrap().is_some());
    }
    let used = usage_on(&*store, &app("a"), at(12)).await;
    assert!(used.tokens() > 1 << 40 && used.cost_usd.is_finite() && used.cost_usd > 0.0);
}

pub async fn turns_outside_sessions_count(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (a, owner) = (app("a"), AppName::owner());
    for (app, state, outbox, second) in [
        (&a, TurnState::Finished, Some(remembered("one")), 1),
        (&a, TurnState::Died, None, 2),
        (&owner, TurnState::Finished, Some(remembered("two")), 3),
        (&a, TurnState::Finished, None, -1),
    ] {
        store
            .note_usage(&UsageNote::SessionlessTurn(sessionless(app, state, outbox)), at(second))
            .await
            .unwrap();
    }
    assert_eq!(usage_on(&*store, &a, at(5)).await, twice());
    let days = store.usage(at(-DAY), None, None).await.unwrap();
    let days: Vec<_> = days.iter().map(|d| (d.day, d.app.as_str(), d.turns, d.failed)).collect();
    let expected = [(at(-DAY), "a", 1, 0), (at(0), "@owner", 1, 0), (at(0), "a", 2, 1)];
    assert_eq!(days, expected, "by day, then by app");
    let outbox = store.outbox(10, &[]).await.unwrap();
    let apps: Vec<_> = outbox.iter().map(|item| item.app.as_str()).collect();
    assert_eq!((apps, prompts(&outbox)), (vec!["a", "@owner"], vec!["one", "two"]));
}

/// A cost that an agent reports late belongs to its turn, and is no turn of its own. A former lease holder adds none.
pub async fn cost_is_added_after_the_end_of_a_turn(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    make(&*store, [1]).await;
    whole_turn(&*store, 1, 11).await;
    whole_turn(&*store, 1, 12).await;
    let (a, owner) = (app("a"), AppName::owner());
    let target = CostTarget::Turn { lease: lease(1), index: 1 };
    for (cost, second) in [(0.25, 13), (f64::NAN, 14), (-1.0, 15), (0.125, DAY)] {
        store
            .note_usage(&UsageNote::LateCost { target: target.clone(), cost_usd: cost }, at(second))
            .await
            .unwrap();
    }
    let turns = store.turns(&a, &id(1), TurnRange::Before { before: 9, limit: 9 }).await.unwrap();
    let costs: Vec<f64> = turns.unwrap().iter().map(|turn| turn.usage.cost_usd).collect();
    assert_eq!(costs, [0.5 + 0.375, 0.5]);
    let session = store.session(&a, &id(1)).await.unwrap().unwrap();
    assert_eq!(session.usage, TurnUsage { cost_usd: 1.375, ..twice() });
    store
        .note_usage(
            &UsageNote::LateCost { target: CostTarget::Sessionless(owner.clone()), cost_usd: 2.0 },
            at(16),
        )
        .await
        .unwrap();
    let days = store.usage(at(0), None, None).await.unwrap();
    let days: Vec<_> =
        days.iter().map(|d| (d.day, d.app.as_str(), d.turns, d.usage.cost_usd)).collect();
    let expected = [(at(0), "@owner", 0, 2.0), (at(0), "a", 2, 1.25), (at(DAY), "a", 0, 0.125)];
    assert_eq!(days, expected);
    let former = lease(1);
    let newer = store.acquire_lease(&id(1), &node(), Duration::ZERO, at(17)).await.unwrap();
    assert!(matches!(newer, LeaseOutcome::Acquired(..)), "{newer:?}");
    let target = CostTarget::Turn { lease: former, index: 1 };
    let refused = store
        .note_usage(&UsageNote::LateCost { target: target.clone(), cost_usd: 1.0 }, at(18))
        .await;
    assert!(matches!(refused, Err(StoreError::Lost)), "{refused:?}");
    assert_eq!(usage_on(&*store, &a, at(18)).await.cost_usd, 1.25);
}

/// The end of a turn puts it into the outbox, in order, until the memory has acknowledged it.
pub async fn outbox_is_drained_once(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    make(&*store, [1]).await;
    for index in 1..=4 {
        accept(&*store, 1, &request("p")).await;
        store.start_turn(&lease(1), index, at(11)).await.unwrap();
        assert_eq!(store.outbox(99, &[]).await.unwrap().len() as u32, index - 1);
        let outbox = Some(remembered(&format!("the \0 {index}.")));
        let ending = TurnEnding { outbox, ..ending(index, TurnState::Finished) };
        store.end_turn(&lease(1), index, ending.clone(), at(12)).await.unwrap().unwrap();
        assert_eq!(store.end_turn(&lease(1), index, ending, at(12)).await.unwrap(), None);
    }
    let first = store.outbox(2, &[]).await.unwrap();
    assert_eq!(prompts(&first), ["the \0 1.", "the \0 2."]);
    assert_eq!(first[0].app, "a");
    assert_eq!(store.outbox(2, &[]).await.unwrap(), first, "reading takes nothing");
    store.change_outbox(vec![first[1].id], OutboxChange::Stored).await.unwrap();
    store.change_outbox(vec![first[1].id], OutboxChange::Stored).await.unwrap();
    store.change_outbox(Vec::new(), OutboxChange::Stored).await.unwrap();
    let left = store.outbox(99, &[]).await.unwrap();
    assert_eq!(prompts(&left), ["the \0 1.", "the \0 3.", "the \0 4."]);
    // Those with fewer attempts come first. What was set aside is not returned.
    store.change_outbox(vec![left[0].id], OutboxChange::Attempts(2)).await.unwrap();
    let later = store.outbox(99, &[]).await.unwrap();
    assert_eq!(prompts(&later), ["the \0 3.", "the \0 4.", "the \0 1."]);
    assert_eq!(later.iter().map(|item| item.attempts).collect::<Vec<_>>(), [0, 0, 2]);
    assert_eq!(prompts(&store.outbox(1, &[later[0].id]).await.unwrap()), ["the \0 4."]);
    store.change_outbox(vec![later[0].id, first[1].id], OutboxChange::SetAside).await.unwrap();
    store.change_outbox(Vec::new(), OutboxChange::SetAside).await.unwrap();
    let left = store.outbox(99, &[]).await.unwrap();
    assert_eq!(prompts(&left), ["the \0 4.", "the \0 1."]);
    store.change_outbox(vec![left[1].id], OutboxChange::Attempts(0)).await.unwrap();
    assert_eq!(prompts(&store.outbox(99, &[]).await.unwrap()), ["the \0 1.", "the \0 4."]);
    // An item stays when its session is deleted, but not when its app is.
    store.close_session(&id(1), event("close", None), at(13)).await.unwrap();
    store.delete_sessions(&DeleteFilter::ClosedBefore(at(14))).await.unwrap();
    assert_eq!(store.outbox(99, &[]).await.unwrap().len(), 2);
    store.delete_sessions(&DeleteFilter::App(app("a"))).await.unwrap();
    assert_eq!(store.outbox(99, &[]).await.unwrap(), []);
}
