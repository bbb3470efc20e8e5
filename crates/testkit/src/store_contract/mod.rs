//! The contract of every store of the ledger: the prose of the ports in `hob-domain`, as tests. [`every_contract`]
//! passes the names of all tests to a macro, so that each backend runs them all.

pub mod apps;
pub mod at_once;
pub mod audit;
pub mod documents;
pub mod hostile;
pub mod leases;
pub mod lists;
pub mod random;
pub mod sessions;
pub mod turns;
pub mod usage;

use std::sync::Arc;

use async_trait::async_trait;
use hob_domain::session::{
    Accepted, EventRange, IdempotencyKey, NewEvent, OpenLimits, OutboxItem, Permissions,
    RememberedTurn, Session, SessionEvent, SessionFilter, SessionId, SessionSetup, SessionStore,
    SessionTurn, SessionlessTurn, TurnEnding, TurnRange, TurnRequest, TurnState, TurnUsage,
    turn_event,
};
use hob_domain::{AgentName, AppName, Lease, LedgerStore, NodeId, Timestamp};
use serde_json::json;

/// A backend of the ledger for one test.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// Opens the ledger, as another process does.
    async fn open(&self) -> Arc<dyn LedgerStore>;
}

/// Calls a macro with `module: contract contract …;` for every contract. Each is an `async fn(&dyn Fixture)` and needs
/// an empty ledger.
#[macro_export]
macro_rules! every_contract {
    ($run:ident) => {
        $run! {
            apps: app_is_created_listed_and_removed token_belongs_to_one_app;
            at_once: concurrent_appends_leave_no_gap concurrent_turns_never_exceed_the_queue concurrent_repeats_of_a_key_accept_one_turn
                concurrent_starts_and_ends_count_once deleted_session_accepts_nothing concurrent_usage_adds_up_by_day
                concurrent_creates_of_a_name_succeed_once concurrent_creates_never_exceed_a_limit;
            audit: audit_entries_stay_and_are_read_newest_first;
            leases: new_session_is_leased_to_its_creator concurrent_acquires_give_one_lease lost_lease_cannot_write
                takeover_interrupts_the_running_turn_once nodes_are_listed_with_their_last_heartbeat orphans_have_turns_but_no_live_holder released_lease_can_be_acquired;
            hostile: hostile_texts_are_stored_unchanged hostile_app_names_are_only_names large_bodies_are_stored_unchanged;
            lists: admin_list_shows_all_apps lists_of_apps_are_isolated past_events_are_paged_backwards
                turn_events_are_those_that_name_the_turn event_pages_are_bounded_in_bytes session_pages_are_in_order_and_bounded;
            random: random_calls_match_the_in_memory_ledger;
            documents: documents_are_stored_replaced_and_deleted old_documents_and_those_of_removed_apps_are_deleted;
            sessions: session_goes_through_its_states acknowledged_writes_survive_a_reopen
                duplicate_session_is_refused limits_refuse_a_session unknown_session_accepts_nothing
                removed_app_leaves_nothing old_sessions_are_closed_and_deleted times_are_returned_as_stored;
            turns: turns_queue_in_order_and_a_repeat_adds_none
                restart_interrupts_running_and_keeps_queued_turns
                close_cancels_queued_turns_and_keeps_the_running_one
                turn_follows_only_allowed_transitions;
            usage: usage_is_summed_by_session_and_day turns_are_counted_by_their_end
                absurd_usage_still_ends_the_turn turns_outside_sessions_count
                cost_is_added_after_the_end_of_a_turn
                outbox_is_drained_once;
        }
    };
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn app(name: &str) -> AppName {
    AppName::new(name).unwrap()
}

fn id(byte: u8) -> SessionId {
    SessionId::from_random([byte; 16])
}

/// The node of tests that are not about nodes.
fn node() -> NodeId {
    NodeId::from_random([0xaa; 16])
}

/// The lease of the node that created a session of the app `a`.
fn lease(byte: u8) -> Lease {
    lease_of("a", byte)
}

fn lease_of(app_name: &str, byte: u8) -> Lease {
    Lease { app: app(app_name), session: id(byte), fence: 1 }
}

fn session(app_name: &str, byte: u8, second: i64) -> Session {
    Session {
        id: id(byte),
        app: app(app_name),
        setup: SessionSetup {
            agent: AgentName::new("claude").unwrap(),
            meta: json!({"purpose": "test"}),
            cwd: "/w".to_owned(),
            model: Some("m".to_owned()),
            system: None,
            permissions: Permissions::Ask,
            mcp_servers: json!([]),
        },
        created_at: at(second),
        closed_at: None,
        turn_count: 0,
        last_turn_at: None,
        busy: false,
        agent_session: None,
        usage: TurnUsage::default(),
        last_event: 0,
    }
}

/// Creates sessions of the app `a`.
async fn make(store: &dyn LedgerStore, bytes: impl IntoIterator<Item = u8>) {
    for byte in bytes {
        store
            .create_session(
                &session("a", byte, 5),
                event("create", None),
                &node(),
                OpenLimits::default(),
            )
            .await
            .unwrap();
    }
}

fn event(kind: &str, turn: Option<u32>) -> NewEvent {
    NewEvent { kind: kind.into(), turn, body: json!({"of": kind}).to_string() }
}

fn request(prompt: &str) -> TurnRequest {
    TurnRequest { prompt: prompt.to_owned(), files: Vec::new(), idempotency: None, queue: 2 }
}

fn keyed(prompt: &str, key: &str) -> TurnRequest {
    let key = IdempotencyKey { key: key.to_owned(), digest: format!("digest of {prompt}") };
    TurnRequest { idempotency: Some(key), ..request(prompt) }
}

fn used() -> TurnUsage {
    TurnUsage {
        input_tokens: 3,
        output_tokens: 4,
        cached_read_tokens: 5,
        cached_write_tokens: 6,
        cost_usd: 0.5,
    }
}

fn ending(index: u32, state: TurnState) -> TurnEnding {
    TurnEnding {
        state,
        text: "done".to_owned(),
        stop_reason: Some("end_turn".to_owned()),
        error: None,
        usage: used(),
        events: vec![turn_event(index, state, Some("end_turn"))],
        agent_session: Some("own".to_owned()),
        outbox: Some(remembered("remember")),
    }
}

/// A turn outside any session.
fn sessionless(app: &AppName, state: TurnState, outbox: Option<RememberedTurn>) -> SessionlessTurn {
    SessionlessTurn { app: app.clone(), state, usage: used(), outbox }
}

/// A turn for the memory with this prompt.
fn remembered(prompt: &str) -> RememberedTurn {
    RememberedTurn {
        session_id: "s".to_owned(),
        turn_index: 1,
        cwd: "/w".to_owned(),
        agent: "claude".to_owned(),
        prompt: prompt.to_owned(),
        answers: vec![prompt.to_owned()],
        asked_at: at(1),
        ended_at: at(2),
    }
}

/// The prompts of the turns in the outbox.
fn prompts(outbox: &[OutboxItem]) -> Vec<&str> {
    outbox.iter().filter_map(|item| Some(item.turn.as_ref()?.prompt.as_str())).collect()
}

async fn accept(store: &dyn SessionStore, byte: u8, request: &TurnRequest) -> Option<Accepted> {
    store.accept_turn(&app("a"), &id(byte), request, at(10)).await.unwrap()
}

/// Runs a whole turn in a session of the app `a`.
async fn whole_turn(store: &dyn SessionStore, byte: u8, second: i64) {
    let Some(Accepted::Queued(index)) = accept(store, byte, &request("hello")).await else {
        panic!("the turn was not taken")
    };
    assert!(store.start_turn(&lease(byte), index, at(second)).await.unwrap());
    let ending = ending(index, TurnState::Finished);
    assert!(store.end_turn(&lease(byte), index, ending, at(second)).await.unwrap().is_some());
}

/// Returns the events of a session of the app `a`: kind, turn and, for the end of a turn, its state.
async fn story(store: &dyn SessionStore, byte: u8) -> Vec<String> {
    let events = store.events(&app("a"), &id(byte), after(0, 1000)).await.unwrap().unwrap();
    assert!(events.iter().map(|event| event.seq).eq(1..=events.len() as u64), "without a gap");
    let word = |event: &NewEvent| {
        let body: serde_json::Value = serde_json::from_str(&event.body).unwrap();
        match (event.turn, body["state"].as_str()) {
            (Some(turn), Some(state)) => format!("{} {turn} {state}", event.kind),
            (Some(turn), None) => format!("{} {turn}", event.kind),
            (None, _) => event.kind.to_string(),
        }
    };
    events.iter().map(|event| word(&event.event)).collect()
}

/// Returns the sessions that pass a filter.
async fn list(store: &dyn SessionStore, filter: SessionFilter) -> Vec<Session> {
    store.sessions(&filter).await.unwrap()
}

/// Returns the usage of an app on one day.
async fn usage_on(store: &dyn SessionStore, app: &AppName, day: Timestamp) -> TurnUsage {
    let days = store.usage(day, Some(day), Some(app)).await.unwrap();
    assert!(days.len() <= 1 && days.iter().all(|day| day.app == *app), "{days:?}");
    days.first().map(|day| day.usage).unwrap_or_default()
}

/// Returns a turn; `None` if there is no such turn or no such session.
async fn find_turn(
    store: &dyn SessionStore,
    app: &AppName,
    id: &SessionId,
    index: u32,
) -> Option<SessionTurn> {
    let mut turns = store.turns(app, id, TurnRange::One(index)).await.unwrap()?;
    assert!(turns.len() <= 1, "{turns:?}");
    turns.pop()
}

/// Returns the numbers of the queued turns of a session of the app `a`, in order.
async fn queued(store: &dyn SessionStore, id: &SessionId) -> Vec<u32> {
    let turns = store.turns(&app("a"), id, TurnRange::Queued).await.unwrap();
    turns.expect("the session").iter().map(|turn| turn.index).collect()
}

/// The last turns before a number.
fn turns_before(before: u32, limit: usize) -> TurnRange {
    TurnRange::Before { before, limit }
}

/// The first events after a number.
fn after(after: u64, limit: usize) -> EventRange {
    EventRange::After { after, limit }
}

/// The last events before a number.
fn before(before: u64, limit: usize) -> EventRange {
    EventRange::Before { before, limit }
}

fn seqs(events: &[SessionEvent]) -> Vec<u64> {
    events.iter().map(|event| event.seq).collect()
}

fn names(sessions: &[Session]) -> Vec<SessionId> {
    sessions.iter().map(|session| session.id.clone()).collect()
}
