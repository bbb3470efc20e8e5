//! What every store of sessions must hold to, whatever it is made of. Today it meets SQLite.

use hob_domain::session::{
    Accepted, NewEvent, Permissions, Session, SessionId, SessionSetup, SessionState, SessionStore,
    TurnEnding, TurnRequest, TurnState, TurnUsage,
};
use hob_domain::{AgentName, AppName, DataKey, Timestamp};
use hob_store::Ledger;
use serde_json::json;

fn ledger(folder: &tempfile::TempDir) -> Ledger {
    Ledger::open(&folder.path().join("hob.db"), &DataKey::from_bytes([7; 32])).unwrap()
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
    }
}

fn event(kind: &str, turn: Option<u32>) -> NewEvent {
    NewEvent { kind: kind.to_owned(), turn, body: json!({"of": kind}).to_string() }
}

fn request(prompt: &str) -> TurnRequest {
    TurnRequest { prompt: prompt.to_owned(), idempotency: None, queue: 2 }
}

fn ending(state: TurnState) -> TurnEnding {
    TurnEnding {
        state,
        text: "done".to_owned(),
        stop_reason: Some("end_turn".to_owned()),
        error: None,
        usage: TurnUsage {
            input_tokens: 3,
            output_tokens: 4,
            cost_usd: 0.5,
            ..TurnUsage::default()
        },
        events: vec![event("message", Some(1))],
        agent_session: Some("own".to_owned()),
        outbox: Some("remember".to_owned()),
    }
}

async fn accept(ledger: &Ledger, byte: u8, request: &TurnRequest) -> Option<Accepted> {
    ledger.accept_turn(&app("a"), &id(byte), request, at(10)).await.unwrap()
}

async fn numbers(ledger: &Ledger, after: u64) -> Vec<u64> {
    let events = ledger.events(&app("a"), &id(1), after, 100).await.unwrap().unwrap();
    events.iter().map(|event| event.seq).collect()
}

#[tokio::test]
async fn a_session_lives_through_its_turns() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(&folder);
    let made = session("a", 1, 5);
    ledger.create_session(&made, event("create", None)).await.unwrap();
    assert_eq!(ledger.session(&app("a"), &id(1)).await.unwrap(), Some(made.clone()));
    assert_eq!(accept(&ledger, 1, &request("hello")).await, Some(Accepted::Queued(1)));
    let busy = ledger.session(&app("a"), &id(1)).await.unwrap().unwrap();
    assert_eq!((busy.state(), busy.turn_count), (SessionState::Running, 1));
    assert!(ledger.start_turn(&id(1), 1, at(11)).await.unwrap());
    assert!(!ledger.start_turn(&id(1), 1, at(11)).await.unwrap(), "it runs already");
    let said = vec![event("message", Some(1)), event("message", Some(1))];
    let stored = ledger.append_events(&id(1), said, at(12)).await.unwrap();
    assert_eq!(stored.iter().map(|event| event.seq).collect::<Vec<_>>(), [3, 4]);
    let ended = ledger.end_turn(&id(1), 1, ending(TurnState::Finished), at(13)).await.unwrap();
    assert_eq!(ended.unwrap()[0].seq, 5);
    let again = ledger.end_turn(&id(1), 1, ending(TurnState::Died), at(14)).await.unwrap();
    assert_eq!(again, None, "a turn ends once");
    let turn = ledger.turn(&app("a"), &id(1), 1).await.unwrap().unwrap();
    assert_eq!((turn.state, turn.text.as_str()), (TurnState::Finished, "done"));
    assert_eq!((turn.usage.output_tokens, turn.usage.cost_usd), (4, 0.5));
    let after = ledger.session(&app("a"), &id(1)).await.unwrap().unwrap();
    assert_eq!(after.state(), SessionState::Idle);
    assert_eq!((after.last_turn_at, after.agent_session.as_deref()), (Some(at(13)), Some("own")));
    assert_eq!(numbers(&ledger, 0).await, [1, 2, 3, 4, 5]);
    assert_eq!(numbers(&ledger, 3).await, [4, 5]);
    assert_eq!(ledger.turn_events(&id(1), 1).await.unwrap().len(), 4);

    // What the memory is to have is there once, in the same transaction as the turn's end.
    let outbox = ledger.outbox(10).await.unwrap();
    assert_eq!(
        (outbox.len(), outbox[0].app.as_str(), outbox[0].body.as_str()),
        (1, "a", "remember")
    );
    ledger.outbox_done(vec![outbox[0].id]).await.unwrap();
    assert!(ledger.outbox(10).await.unwrap().is_empty());

    assert!(ledger.close_session(&id(1), event("close", None), at(20)).await.unwrap());
    assert!(!ledger.close_session(&id(1), event("close", None), at(21)).await.unwrap());
    assert_eq!(accept(&ledger, 1, &request("more")).await, Some(Accepted::Closed));
    assert_eq!(numbers(&ledger, 5).await, [6]);
}

#[tokio::test]
async fn turns_wait_in_line_and_a_repeat_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(&folder);
    ledger.create_session(&session("a", 1, 5), event("create", None)).await.unwrap();
    let keyed = |prompt: &str, key: &str| TurnRequest {
        idempotency: Some((key.to_owned(), format!("digest of {prompt}"))),
        ..request(prompt)
    };
    assert_eq!(accept(&ledger, 1, &keyed("x", "k")).await, Some(Accepted::Queued(1)));
    assert_eq!(accept(&ledger, 1, &keyed("x", "k")).await, Some(Accepted::Repeated(1)));
    assert_eq!(accept(&ledger, 1, &keyed("y", "k")).await, Some(Accepted::OtherBody));
    assert_eq!(accept(&ledger, 1, &request("y")).await, Some(Accepted::Queued(2)));
    assert_eq!(accept(&ledger, 1, &request("z")).await, Some(Accepted::QueueFull));
    ledger.start_turn(&id(1), 1, at(11)).await.unwrap();
    assert_eq!(accept(&ledger, 1, &request("z")).await, Some(Accepted::Queued(3)));
    assert_eq!(accept(&ledger, 9, &request("z")).await, None);
}

#[tokio::test]
async fn apps_do_not_see_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(&folder);
    ledger.create_session(&session("a", 1, 5), event("create", None)).await.unwrap();
    ledger.create_session(&session("b", 2, 6), event("create", None)).await.unwrap();
    accept(&ledger, 1, &request("hello")).await;
    let other = app("b");
    assert_eq!(ledger.session(&other, &id(1)).await.unwrap(), None);
    assert_eq!(ledger.turn(&other, &id(1), 1).await.unwrap(), None);
    assert_eq!(ledger.events(&other, &id(1), 0, 10).await.unwrap(), None);
    let taken = ledger.accept_turn(&other, &id(1), &request("x"), at(9)).await.unwrap();
    assert_eq!(taken, None);
    let listed = ledger.sessions(&other).await.unwrap();
    assert_eq!(listed.iter().map(|s| s.id.clone()).collect::<Vec<_>>(), [id(2)]);
}

#[tokio::test]
async fn what_was_under_way_is_interrupted_and_old_sessions_go() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(&folder);
    for byte in 1..=3 {
        ledger.create_session(&session("a", byte, 5), event("create", None)).await.unwrap();
    }
    accept(&ledger, 1, &request("running")).await;
    accept(&ledger, 1, &request("waiting")).await;
    ledger.start_turn(&id(1), 1, at(11)).await.unwrap();
    assert_eq!(
        ledger.idle_since(at(100)).await.unwrap().len(),
        2,
        "a busy session is not idle, however old"
    );
    // Hob is killed and opens the ledger again.
    drop(ledger);
    let ledger = self::ledger(&folder);
    assert_eq!(ledger.interrupt_turns(at(50)).await.unwrap(), 2);
    let turn = ledger.turn(&app("a"), &id(1), 1).await.unwrap().unwrap();
    assert_eq!((turn.state, turn.ended_at), (TurnState::Interrupted, Some(at(50))));
    assert_eq!(ledger.idle_since(at(8)).await.unwrap().len(), 2);
    ledger.close_session(&id(2), event("sweep_close", None), at(60)).await.unwrap();
    assert_eq!(ledger.delete_closed(at(60)).await.unwrap(), []);
    assert_eq!(ledger.delete_closed(at(61)).await.unwrap(), [id(2)]);
    assert_eq!(ledger.events(&app("a"), &id(2), 0, 10).await.unwrap(), None);
}

/// Many sessions write at once; the numbers of each have no gap and no repeat.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_have_no_gap() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(&folder);
    let mut tasks = tokio::task::JoinSet::new();
    for byte in 1..=4_u8 {
        ledger.create_session(&session("a", byte, 5), event("create", None)).await.unwrap();
        for _ in 0..5 {
            let ledger = ledger.clone();
            tasks.spawn(async move {
                for _ in 0..5 {
                    let events = vec![event("message", None), event("message", None)];
                    ledger.append_events(&id(byte), events, at(9)).await.unwrap();
                }
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    for byte in 1..=4 {
        let events = ledger.events(&app("a"), &id(byte), 0, 100).await.unwrap().unwrap();
        let seqs: Vec<u64> = events.iter().map(|event| event.seq).collect();
        assert_eq!(seqs, (1..=51).collect::<Vec<_>>());
    }
}
