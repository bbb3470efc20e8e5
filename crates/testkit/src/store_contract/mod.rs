//! What every store of the ledger must hold to, whatever it is made of: the prose of the ports in `hob-domain`, as
//! tests. [`every_contract`] hands the names of all of them to a macro, so that a backend runs them all.

pub mod apps;
pub mod at_once;
pub mod audit;
pub mod holds;
pub mod hostile;
pub mod lists;
pub mod random;
pub mod sessions;
pub mod turns;
pub mod usage;

use std::sync::Arc;

use async_trait::async_trait;
use hob_domain::session::{
    Accepted, NewEvent, OutboxItem, Permissions, RememberedTurn, Session, SessionEvent, SessionId,
    SessionSetup, SessionStore, TurnEnding, TurnRequest, TurnState, TurnUsage, turn_event,
};
use hob_domain::{AgentName, AppName, Lease, LedgerStore, NodeId, Timestamp};
use serde_json::json;

/// Where a ledger is kept.
#[async_trait]
pub trait Place: Send + Sync {
    /// Opens the ledger there, as another process would do it.
    async fn open(&self) -> Arc<dyn LedgerStore>;
}

/// Calls a macro with `module: contract contract …;` for every contract. Each is an `async fn(&dyn Place)` and wants
/// a place where nothing was kept before.
#[macro_export]
macro_rules! every_contract {
    ($run:ident) => {
        $run! {
            apps: an_app_lives_and_dies a_token_is_one_apps;
            at_once: numbers_have_no_gap a_queue_holds_no_more_than_its_limit a_key_is_used_once
                a_turn_begins_and_ends_once nothing_is_added_to_what_is_deleted days_add_up
                names_are_given_once;
            audit: entries_stay_and_are_read_backwards;
            holds: a_session_is_its_makers two_take_and_one_has_it who_lost_its_hold_writes_nothing
                what_ran_is_interrupted_once nodes_are_known_by_their_beat a_hold_is_given_back;
            hostile: what_was_stored_comes_back names_are_only_names large_bodies_come_back;
            lists: the_owner_sees_all apps_do_not_see_each_other the_past_in_pages
                the_events_of_a_turn;
            random: what_is_done_is_what_a_simple_ledger_does;
            sessions: a_session_lives_through_its_turns what_is_kept_outlives_its_process
                a_session_that_exists_stays_as_it_is nothing_is_told_to_a_session_that_is_not_there
                an_app_goes_with_all_it_had old_sessions_go times_are_told_as_they_are_kept;
            turns: turns_wait_in_line_and_a_repeat_runs_nothing
                what_ran_is_interrupted_and_what_waited_still_waits
                closing_cancels_what_waits_and_leaves_what_runs_to_its_caller
                a_turn_goes_only_where_it_may;
            usage: usage_is_summed_by_session_and_by_day turns_are_counted_by_how_they_ended
                absurd_usage_stops_nothing turns_outside_of_sessions_count
                the_outbox_is_drained_once;
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

/// The node that all of this happens on, where it is not about nodes.
fn node() -> NodeId {
    NodeId::from_random([0xaa; 16])
}

/// A session as its maker holds it.
fn lease(byte: u8) -> Lease {
    Lease { session: id(byte), fence: 1 }
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

/// Makes sessions of `a`.
async fn make(store: &dyn LedgerStore, bytes: impl IntoIterator<Item = u8>) {
    for byte in bytes {
        store.create_session(&session("a", byte, 5), event("create", None), &node()).await.unwrap();
    }
}

fn event(kind: &str, turn: Option<u32>) -> NewEvent {
    NewEvent { kind: kind.to_owned(), turn, body: json!({"of": kind}).to_string() }
}

fn request(prompt: &str) -> TurnRequest {
    TurnRequest { prompt: prompt.to_owned(), idempotency: None, queue: 2 }
}

fn keyed(prompt: &str, key: &str) -> TurnRequest {
    let idempotency = Some((key.to_owned(), format!("digest of {prompt}")));
    TurnRequest { idempotency, ..request(prompt) }
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

/// A whole turn in a session of `a`.
async fn whole_turn(store: &dyn SessionStore, byte: u8, second: i64) {
    let Some(Accepted::Queued(index)) = accept(store, byte, &request("hello")).await else {
        panic!("the turn was not taken")
    };
    assert!(store.start_turn(&lease(byte), index, at(second)).await.unwrap());
    let ending = ending(index, TurnState::Finished);
    assert!(store.end_turn(&lease(byte), index, ending, at(second)).await.unwrap().is_some());
}

/// The events of a session of `a`: their kinds, turns and, for a turn's end, its state.
async fn story(store: &dyn SessionStore, byte: u8) -> Vec<String> {
    let events = store.events(&app("a"), &id(byte), 0, 1000).await.unwrap().unwrap();
    assert!(events.iter().map(|event| event.seq).eq(1..=events.len() as u64), "without a gap");
    let word = |event: &NewEvent| {
        let body: serde_json::Value = serde_json::from_str(&event.body).unwrap();
        match (event.turn, body["state"].as_str()) {
            (Some(turn), Some(state)) => format!("{} {turn} {state}", event.kind),
            (Some(turn), None) => format!("{} {turn}", event.kind),
            (None, _) => event.kind.clone(),
        }
    };
    events.iter().map(|event| word(&event.event)).collect()
}

fn seqs(events: &[SessionEvent]) -> Vec<u64> {
    events.iter().map(|event| event.seq).collect()
}

fn names(sessions: &[Session]) -> Vec<SessionId> {
    sessions.iter().map(|session| session.id.clone()).collect()
}
