//! Random calls: a store answers like the simple ledger in memory.

use std::fmt::Debug;
use std::time::Duration;

use hob_domain::session::{
    DeleteFilter, EventRange, IdempotencyKey, NewEvent, OpenLimits, OutboxChange, SessionFilter,
    SessionStore, SessionlessTurn, TurnEnding, TurnRange, TurnRequest, TurnState, TurnUsage,
    UsageNote, turn_event,
};
use hob_domain::{
    App, AppFilter, AppName, Lease, LedgerStore, NodeEvent, NodeId, StoreError, Token,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use super::{
    Fixture, after, app, at, before, find_turn, id, lease, node, remembered, session, turns_before,
};
use crate::memory_ledger::MemoryLedger;

const APPS: [&str; 2] = ["a", "b"];
const SESSIONS: std::ops::RangeInclusive<u8> = 1..=3;
const NODES: std::ops::Range<u8> = 0..2;

/// One call, with small numbers, so that calls meet.
#[derive(Debug, Clone)]
enum Call {
    CreateApp(usize, u8),
    RemoveApp(usize),
    Create(usize, u8, OpenLimits, String),
    Accept(usize, u8, Option<(u8, bool)>, usize, String),
    Keep(Lease, String),
    Start(Lease, u32),
    Append(Lease, Vec<(Option<u32>, String)>),
    End(Lease, u32, TurnState, u64, bool, String),
    Close(u8),
    Take(u8, u8, bool),
    Release(Lease),
    Beat(u8),
    Gone(u8),
    Note(usize, TurnState, u64, bool),
    DeleteClosed,
    DeleteOf(usize),
    Drain(usize),
    Audit(String),
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("plain".to_owned()),
        1 => prop::collection::vec(
            prop::sample::select(vec!["\0", "'", "\u{1a}", "0", "1", "🦀", "\\", "$1"]), 0..4)
            .prop_map(|pieces| pieces.concat()),
        1 => any::<String>(),
    ]
}

/// A hold that may be the latest, or was, or will be.
fn held() -> impl Strategy<Value = Lease> {
    let fence = prop_oneof![6 => Just(1), 3 => Just(2), 1 => 0..5_u64];
    (SESSIONS, fence).prop_map(|(byte, fence)| Lease { fence, ..lease(byte) })
}

fn nobody(byte: u8) -> NodeId {
    NodeId::from_random([byte; 16])
}

fn limits() -> impl Strategy<Value = OpenLimits> {
    let limited = (0..3_usize, 0..3_usize).prop_map(|(app, all)| OpenLimits { app, all });
    prop_oneof![3 => Just(OpenLimits::default()), 1 => limited]
}

fn call() -> impl Strategy<Value = Call> {
    let (which_app, which) = (0..APPS.len(), SESSIONS);
    let turn = 1..5_u32;
    let over: Vec<TurnState> = TurnState::ALL.into_iter().filter(|s| s.is_over()).collect();
    let over = prop::sample::select(over);
    let key = prop::option::of((0..2_u8, any::<bool>()));
    let said = prop::collection::vec((prop::option::of(turn.clone()), text()), 0..4);
    prop_oneof![
        1 => (which_app.clone(), 0..3_u8).prop_map(|(app, token)| Call::CreateApp(app, token)),
        1 => which_app.clone().prop_map(Call::RemoveApp),
        4 => (which_app.clone(), which.clone(), limits(), text())
            .prop_map(|(a, s, limits, t)| Call::Create(a, s, limits, t)),
        8 => (which_app.clone(), which.clone(), key, 0..4_usize, text())
            .prop_map(|(a, s, key, queue, text)| Call::Accept(a, s, key, queue, text)),
        1 => (held(), text()).prop_map(|(s, text)| Call::Keep(s, text)),
        8 => (held(), turn.clone()).prop_map(|(s, turn)| Call::Start(s, turn)),
        6 => (held(), said).prop_map(|(s, said)| Call::Append(s, said)),
        8 => (held(), turn, over.clone(), 0..4_u64, any::<bool>(), text())
            .prop_map(|(s, turn, state, used, out, text)| Call::End(s, turn, state, used, out, text)),
        3 => (which.clone(), NODES, any::<bool>()).prop_map(|(s, n, long)| Call::Take(s, n, long)),
        1 => held().prop_map(Call::Release),
        1 => NODES.prop_map(Call::Beat),
        1 => NODES.prop_map(Call::Gone),
        2 => which.prop_map(Call::Close),
        2 => (which_app.clone(), over, 0..4_u64, any::<bool>())
            .prop_map(|(app, state, used, out)| Call::Note(app, state, used, out)),
        1 => Just(Call::DeleteClosed),
        1 => which_app.prop_map(Call::DeleteOf),
        1 => (0..3_usize).prop_map(Call::Drain),
        1 => text().prop_map(Call::Audit),
    ]
}

/// The number of sequences, unless `PROPTEST_CASES` is set.
const CASES: u32 = 40;

pub async fn random_calls_match_the_in_memory_ledger(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let wanted = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let config =
        Config { cases: wanted.unwrap_or(CASES), failure_persistence: None, ..Config::default() };
    let runtime = Handle::current();
    let played = block_in_place(|| {
        let sequences = prop::collection::vec(call(), 1..50);
        TestRunner::new(config).run(&sequences, |calls| {
            runtime.block_on(play(&*store, &calls)).map_err(TestCaseError::fail)
        })
    });
    if let Err(error) = played {
        panic!("{error}");
    }
}

/// Plays a sequence on the store and on the simple ledger. The error names the first difference.
async fn play(store: &dyn LedgerStore, calls: &[Call]) -> Result<(), String> {
    empty(store).await.map_err(|error| error.to_string())?;
    let simple = MemoryLedger::default();
    let mut second = 24 * 60 * 60 - 20;
    for call in calls {
        // On two days.
        second += 1;
        let call = &as_callers_do(&simple, call).await;
        let (found, expected) =
            (answer(store, call, second).await, answer(&simple, call, second).await);
        same(&format!("the answer to {call:?}"), &found, &expected)?;
    }
    let (found, expected) = (all(store, second).await, all(&simple, second).await);
    for (found, expected) in found.iter().zip(&expected) {
        same("what is there", found, expected)?;
    }
    Ok(())
}

/// A lease names the app of its session. A turn that was not started says nothing: what is said in its name is said in
/// none.
async fn as_callers_do(simple: &MemoryLedger, call: &Call) -> Call {
    let mut call = call.clone();
    if let Call::Keep(lease, _)
    | Call::Start(lease, _)
    | Call::Append(lease, _)
    | Call::End(lease, ..)
    | Call::Release(lease) = &mut call
    {
        let found = simple.sessions(&SessionFilter::Id(lease.session.clone())).await;
        if let Some(session) = found.ok().and_then(|mut found| found.pop()) {
            lease.app = session.app;
        }
    }
    if let Call::Append(lease, said) = &mut call {
        for (turn, _) in said {
            let Some(number) = *turn else { continue };
            let known = find_turn(simple, &lease.app, &lease.session, number).await;
            if known.is_none_or(|turn| turn.started_at.is_none()) {
                *turn = None;
            }
        }
    }
    call
}

fn same<T: PartialEq + Debug>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{what} is\n  {found:?}\nand should be\n  {expected:?}")),
    }
}

/// Removes what an earlier sequence has left.
async fn empty(store: &dyn LedgerStore) -> Result<(), StoreError> {
    for name in APPS {
        store.remove_app(&app(name)).await?;
        store.delete_sessions(&DeleteFilter::App(app(name))).await?;
    }
    for by in NODES {
        store.note_node(&nobody(by), NodeEvent::Left).await?;
    }
    Ok(())
}

/// Makes a call and returns the answer as text. Error messages and the numbers of the outbox may differ.
async fn answer(store: &dyn LedgerStore, call: &Call, second: i64) -> String {
    let now = at(second);
    let name = |index: &usize| app(APPS[*index]);
    match call.clone() {
        Call::CreateApp(index, byte) => {
            let new = App { name: name(&index), created_at: now };
            told(store.create_app(&new, Token::from_random([byte; 32]).hash()).await)
        }
        Call::RemoveApp(index) => told(store.remove_app(&name(&index)).await),
        Call::Create(index, byte, limits, text) => {
            let mut new = session(APPS[index], byte, second);
            new.setup.system = Some(text.clone());
            new.setup.meta = json!({ text: [1, null] });
            let event = NewEvent { kind: "create".into(), turn: None, body: "{}".into() };
            told(store.create_session(&new, event, &node(), limits).await)
        }
        Call::Accept(index, byte, key, queue, prompt) => {
            let idempotency = key.map(|(key, other)| IdempotencyKey {
                key: key.to_string(),
                digest: other.to_string(),
            });
            let request = TurnRequest { prompt, files: Vec::new(), idempotency, queue };
            told(store.accept_turn(&name(&index), &id(byte), &request, now).await)
        }
        Call::Keep(lease, text) => told(store.keep_agent_session(&lease, &text).await),
        Call::Start(lease, turn) => told(store.start_turn(&lease, turn, now).await),
        Call::Append(lease, said) => {
            let event = |(turn, body)| NewEvent { kind: "message".into(), turn, body };
            let events = said.into_iter().map(event).collect();
            told(store.append_events(&lease, events, now).await)
        }
        Call::End(lease, turn, state, used, out, text) => {
            let ending = TurnEnding {
                state,
                text: text.clone(),
                stop_reason: out.then(|| text.clone()),
                error: (!out).then(|| text.clone()),
                usage: usage(used),
                events: vec![turn_event(turn, state, None)],
                agent_session: out.then(|| text.clone()),
                outbox: out.then(|| remembered(&text)),
            };
            told(store.end_turn(&lease, turn, ending, now).await)
        }
        Call::Close(byte) => {
            let event = NewEvent { kind: "close".into(), turn: None, body: "{}".into() };
            told(store.close_session(&id(byte), event, now).await)
        }
        Call::Take(byte, by, long) => {
            // Either every node with a heartbeat is alive, or none is.
            let lease_timeout = if long { Duration::from_secs(600) } else { Duration::ZERO };
            told(store.acquire_lease(&id(byte), &nobody(by), lease_timeout, now).await)
        }
        Call::Release(lease) => told(store.release_lease(&lease).await),
        Call::Beat(by) => told(store.note_node(&nobody(by), NodeEvent::Heartbeat).await),
        Call::Gone(by) => told(store.note_node(&nobody(by), NodeEvent::Left).await),
        Call::Note(index, state, used, out) => {
            let outbox = out.then(|| remembered("noted"));
            let usage = usage(used);
            let turn = SessionlessTurn { app: name(&index), state, usage, outbox };
            told(store.note_usage(&UsageNote::SessionlessTurn(turn), now).await)
        }
        Call::DeleteClosed => told(
            store.delete_sessions(&DeleteFilter::ClosedBefore(at(second - 5))).await.map(sorted),
        ),
        Call::DeleteOf(index) => {
            told(store.delete_sessions(&DeleteFilter::App(name(&index))).await.map(sorted))
        }
        Call::Drain(count) => match store.outbox(count, &[]).await {
            Ok(items) => {
                let ids = items.iter().map(|item| item.id).collect();
                let turns: Vec<_> = items.iter().map(|item| (&item.app, &item.turn)).collect();
                format!("{turns:?} {}", told(store.change_outbox(ids, OutboxChange::Stored).await))
            }
            Err(error) => kind(&error).to_owned(),
        },
        Call::Audit(text) => {
            let written = store.append_audit(now, &text, &text, &json!({ "x": text })).await;
            match (written, store.list_audit(1, None).await) {
                (Ok(id), Ok(list)) => {
                    let last = &list[0];
                    let own = last.id == id;
                    format!("{own} {:?} {:?} {}", last.action, last.target, last.detail)
                }
                (written, list) => format!("{written:?} {list:?}"),
            }
        }
    }
}

/// Returns the whole state of the store as text.
async fn all(store: &dyn LedgerStore, second: i64) -> Vec<String> {
    let mut all =
        vec![
            told(store.apps(AppFilter::All).await),
            told(store.usage(at(0), None, None).await),
            told(store.usage(at(second), None, Some(&app("a"))).await),
            told(store.outbox(100, &[]).await.map(|items| {
                items.into_iter().map(|item| (item.app, item.turn)).collect::<Vec<_>>()
            })),
        ];
    for filter in [
        SessionFilter::All,
        SessionFilter::Open,
        SessionFilter::IdleSince(at(second - 10)),
        SessionFilter::Unleased(Duration::from_secs(600)),
        SessionFilter::Unleased(Duration::ZERO),
        SessionFilter::Orphaned(Duration::from_secs(600)),
        SessionFilter::Orphaned(Duration::ZERO),
    ] {
        all.push(told(store.sessions(&filter).await));
    }
    for byte in 0..3 {
        all.push(told(store.apps(AppFilter::Token(Token::from_random([byte; 32]).hash())).await));
    }
    for name in APPS.map(app) {
        all.push(told(store.sessions(&SessionFilter::App(name.clone())).await));
        all.push(told(store.usage(at(second), Some(at(second)), Some(&name)).await));
        for byte in SESSIONS {
            all.extend(of_session(store, &name, byte).await);
        }
    }
    all
}

async fn of_session(store: &dyn LedgerStore, name: &AppName, byte: u8) -> Vec<String> {
    let id = id(byte);
    let mut all = vec![
        told(store.sessions(&SessionFilter::Id(id.clone())).await),
        told(store.session(name, &id).await),
        told(store.events(name, &id, after(0, 1000)).await),
        told(store.events(name, &id, after(2, 3)).await),
        told(store.events(name, &id, before(9, 4)).await),
        told(store.turns(name, &id, turns_before(9, 100)).await),
        told(store.turns(name, &id, turns_before(4, 2)).await),
        told(store.turns(name, &id, TurnRange::Queued).await),
    ];
    for turn in 1..5 {
        all.push(told(store.turns(name, &id, TurnRange::One(turn)).await));
        all.push(told(store.events(name, &id, EventRange::Turn(turn)).await));
    }
    all
}

fn usage(n: u64) -> TurnUsage {
    // Sums of quarters are exact in any order.
    TurnUsage { input_tokens: n, cost_usd: n as f64 / 4.0, ..TurnUsage::default() }
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort();
    list
}

fn told<T: Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Ok(value) => format!("{value:?}"),
        Err(error) => kind(&error).to_owned(),
    }
}

fn kind(error: &StoreError) -> &'static str {
    match error {
        StoreError::Exists(_) => "it exists",
        StoreError::Unavailable(_) => "it is unavailable",
        StoreError::Damaged(_) => "it is damaged",
        StoreError::Failed(_) => "it failed",
        StoreError::Lost => "it is lost",
    }
}
