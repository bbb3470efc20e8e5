//! What every store of sessions must hold to, whatever it is made of. Today it meets SQLite.

use hob_domain::session::{
    Accepted, NewEvent, Permissions, Session, SessionId, SessionSetup, SessionState, SessionStore,
    TurnEnding, TurnRequest, TurnState, TurnUsage, turn_event,
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
        usage: TurnUsage::default(),
        last_event: 0,
    }
}

fn event(kind: &str, turn: Option<u32>) -> NewEvent {
    NewEvent { kind: kind.to_owned(), turn, body: json!({"of": kind}).to_string() }
}

fn request(prompt: &str) -> TurnRequest {
    TurnRequest { prompt: prompt.to_owned(), idempotency: None, queue: 2 }
}

fn usage() -> TurnUsage {
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
        usage: usage(),
        events: vec![turn_event(index, state, Some("end_turn"))],
        agent_session: Some("own".to_owned()),
        outbox: Some("remember".to_owned()),
    }
}

/// A whole turn in a session of `a`.
async fn turn(ledger: &Ledger, byte: u8, second: i64) {
    let Some(Accepted::Queued(index)) = accept(ledger, byte, &request("hello")).await else {
        panic!("the turn was not taken")
    };
    assert!(ledger.start_turn(&id(byte), index, at(second)).await.unwrap());
    let ending = ending(index, TurnState::Finished);
    assert!(ledger.end_turn(&id(byte), index, ending, at(second)).await.unwrap().is_some());
}

async fn accept(ledger: &Ledger, byte: u8, request: &TurnRequest) -> Option<Accepted> {
    ledger.accept_turn(&app("a"), &id(byte), request, at(10)).await.unwrap()
}

async fn numbers(ledger: &Ledger, after: u64) -> Vec<u64> {
    let events = ledger.events(&app("a"), &id(1), after, 100).await.unwrap().unwrap();
    events.iter().map(|event| event.seq).collect()
}

/// The events of the first session: their kinds, turns and, for a turn's end, its state.
async fn story(ledger: &Ledger) -> Vec<String> {
    let events = ledger.events(&app("a"), &id(1), 0, 100).await.unwrap().unwrap();
    assert!(events.iter().map(|event| event.seq).eq(1..=events.len() as u64), "without a gap");
    let word = |event: &NewEvent| {
        let body: serde_json::Value = serde_json::from_str(&event.body).unwrap();
        match event.turn {
            Some(turn) => format!("{} {turn} {}", event.kind, body["state"].as_str().unwrap()),
            None => event.kind.clone(),
        }
    };
    events.iter().map(|event| word(&event.event)).collect()
}

fn names(sessions: &[Session]) -> Vec<SessionId> {
    sessions.iter().map(|session| session.id.clone()).collect()
}

#[tokio::test]
async fn a_session_lives_through_its_turns() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(&folder);
    let made = Session { last_event: 1, ..session("a", 1, 5) };
    ledger.create_session(&made, event("create", None)).await.unwrap();
    assert_eq!(ledger.session(&app("a"), &id(1)).await.unwrap(), Some(made.clone()));
    assert_eq!(accept(&ledger, 1, &request("hello")).await, Some(Accepted::Queued(1)));
    assert_eq!(numbers(&ledger, 0).await, [1], "a turn that is taken in is no event yet");
    let busy = ledger.session(&app("a"), &id(1)).await.unwrap().unwrap();
    assert_eq!((busy.state(), busy.turn_count), (SessionState::Running, 1));
    ledger.keep_agent_session(&id(1), "first name").await.unwrap();
    assert!(ledger.start_turn(&id(1), 1, at(11)).await.unwrap());
    assert!(!ledger.start_turn(&id(1), 1, at(11)).await.unwrap(), "it runs already");
    let running = ledger.session(&app("a"), &id(1)).await.unwrap().unwrap();
    assert_eq!(running.agent_session.as_deref(), Some("first name"));
    let said = vec![event("message", Some(1)), event("message", Some(1))];
    let stored = ledger.append_events(&id(1), said, at(12)).await.unwrap();
    assert_eq!(stored.iter().map(|event| event.seq).collect::<Vec<_>>(), [2, 3]);
    let ended = ledger.end_turn(&id(1), 1, ending(1, TurnState::Finished), at(13)).await.unwrap();
    assert_eq!(ended.unwrap()[0].seq, 4);
    let again = ledger.end_turn(&id(1), 1, ending(1, TurnState::Died), at(14)).await.unwrap();
    assert_eq!(again, None, "a turn ends once");
    let turn = ledger.turn(&app("a"), &id(1), 1).await.unwrap().unwrap();
    assert_eq!((turn.state, turn.text.as_str()), (TurnState::Finished, "done"));
    assert_eq!(turn.usage, usage());
    let after = ledger.session(&app("a"), &id(1)).await.unwrap().unwrap();
    assert_eq!((after.state(), after.usage), (SessionState::Idle, usage()));
    assert_eq!((after.last_turn_at, after.agent_session.as_deref()), (Some(at(13)), Some("own")));
    assert_eq!(numbers(&ledger, 0).await, [1, 2, 3, 4]);
    assert_eq!(numbers(&ledger, 3).await, [4]);
    let of_turn = ledger.turn_events(&id(1), 1).await.unwrap();
    assert_eq!(of_turn.iter().map(|event| event.seq).collect::<Vec<_>>(), [2, 3, 4]);

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
    assert_eq!(numbers(&ledger, 4).await, [5]);
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
    assert_eq!(ledger.queued_turns(&id(1)).await.unwrap(), [1, 2]);
    ledger.start_turn(&id(1), 1, at(11)).await.unwrap();
    assert_eq!(accept(&ledger, 1, &request("z")).await, Some(Accepted::Queued(3)));
    assert_eq!(ledger.queued_turns(&id(1)).await.unwrap(), [2, 3]);
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
    assert_eq!(names(&ledger.sessions(&other).await.unwrap()), [id(2)]);
    assert!(ledger.queued_turns(&id(2)).await.unwrap().is_empty());
    ledger.start_turn(&id(1), 1, at(9)).await.unwrap();
    ledger.end_turn(&id(1), 1, ending(1, TurnState::Finished), at(9)).await.unwrap();
    assert_eq!(ledger.usage_on(&other, at(9)).await.unwrap(), TurnUsage::default());
}

#[tokio::test]
async fn the_owner_sees_all() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(&folder);
    for (name, byte, second) in [("a", 1, 7), ("b", 2, 6), ("a", 3, 5)] {
        ledger.create_session(&session(name, byte, second), event("create", None)).await.unwrap();
    }
    assert_eq!(names(&ledger.all_sessions().await.unwrap()), [id(3), id(2), id(1)]);
    assert_eq!(names(&ledger.sessions(&app("a")).await.unwrap()), [id(3), id(1)]);
    ledger.close_session(&id(2), event("close", None), at(8)).await.unwrap();
    assert_eq!(names(&ledger.all_sessions().await.unwrap()), [id(3), id(2), id(1)]);
    assert_eq!(names(&ledger.open_sessions().await.unwrap()), [id(3), id(1)]);
    assert_eq!(ledger.app_of(&id(2)).await.unwrap(), Some(app("b")));
    assert_eq!(ledger.app_of(&id(9)).await.unwrap(), None);
}

#[tokio::test]
async fn what_ran_is_interrupted_what_waited_still_waits_and_old_sessions_go() {
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
    let files = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 1, "a ledger that was dropped holds nothing open");
    let ledger = self::ledger(&folder);
    assert_eq!(ledger.interrupt_turns(at(50)).await.unwrap(), 1);
    assert_eq!(ledger.interrupt_turns(at(51)).await.unwrap(), 0);
    let turn = ledger.turn(&app("a"), &id(1), 1).await.unwrap().unwrap();
    assert_eq!((turn.state, turn.ended_at), (TurnState::Interrupted, Some(at(50))));
    assert!(turn.error.is_some());
    assert_eq!(story(&ledger).await, ["create", "turn 1 interrupted"]);
    assert_eq!(ledger.queued_turns(&id(1)).await.unwrap(), [2]);
    let found = ledger.session(&app("a"), &id(1)).await.unwrap().unwrap();
    assert_eq!((found.state(), found.usage), (SessionState::Running, TurnUsage::default()));
    assert_eq!(ledger.usage_on(&app("a"), at(50)).await.unwrap(), TurnUsage::default());
    assert!(ledger.start_turn(&id(1), 2, at(52)).await.unwrap(), "it can go on");
    assert_eq!(ledger.idle_since(at(8)).await.unwrap().len(), 2);
    ledger.close_session(&id(2), event("sweep_close", None), at(60)).await.unwrap();
    assert_eq!(ledger.delete_closed(at(60)).await.unwrap(), []);
    assert_eq!(ledger.delete_closed(at(61)).await.unwrap(), [id(2)]);
    assert_eq!(ledger.events(&app("a"), &id(2), 0, 10).await.unwrap(), None);
}

#[tokio::test]
async fn closing_cancels_what_waits_and_leaves_what_runs_to_its_caller() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(&folder);
    ledger.create_session(&session("a", 1, 5), event("create", None)).await.unwrap();
    accept(&ledger, 1, &request("running")).await;
    ledger.start_turn(&id(1), 1, at(11)).await.unwrap();
    accept(&ledger, 1, &request("waiting")).await;
    accept(&ledger, 1, &request("waiting too")).await;
    assert!(ledger.close_session(&id(1), event("close", None), at(20)).await.unwrap());
    for index in [2, 3] {
        let turn = ledger.turn(&app("a"), &id(1), index).await.unwrap().unwrap();
        assert_eq!((turn.state, turn.ended_at), (TurnState::Cancelled, Some(at(20))));
        assert_eq!(turn.error.as_deref(), Some("the session was closed"));
        assert!(!ledger.start_turn(&id(1), index, at(21)).await.unwrap(), "it is over");
    }
    assert!(ledger.queued_turns(&id(1)).await.unwrap().is_empty());
    let turn = ledger.turn(&app("a"), &id(1), 1).await.unwrap().unwrap();
    assert_eq!(turn.state, TurnState::Running);
    ledger.end_turn(&id(1), 1, ending(1, TurnState::Cancelled), at(22)).await.unwrap().unwrap();
    let told = ["create", "turn 2 cancelled", "turn 3 cancelled", "close", "turn 1 cancelled"];
    assert_eq!(story(&ledger).await, told);
    assert_eq!(ledger.session(&app("a"), &id(1)).await.unwrap().unwrap().usage, usage());
}

#[tokio::test]
async fn usage_is_summed_by_session_and_by_day() {
    const DAY: i64 = 24 * 60 * 60;
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(&folder);
    for byte in [1, 2] {
        ledger.create_session(&session("a", byte, 5), event("create", None)).await.unwrap();
    }
    for (byte, second) in [(1, DAY - 1), (1, DAY), (2, DAY + 5), (2, 2 * DAY)] {
        turn(&ledger, byte, second).await;
    }
    let twice = TurnUsage {
        input_tokens: 6,
        output_tokens: 8,
        cached_read_tokens: 10,
        cached_write_tokens: 12,
        cost_usd: 1.0,
    };
    for byte in [1, 2] {
        assert_eq!(ledger.session(&app("a"), &id(byte)).await.unwrap().unwrap().usage, twice);
    }
    for (second, used) in [
        (0, usage()),
        (DAY + 7, twice),
        (2 * DAY, usage()),
        (3 * DAY, TurnUsage::default()),
        (-1, TurnUsage::default()),
    ] {
        assert_eq!(ledger.usage_on(&app("a"), at(second)).await.unwrap(), used, "at {second}");
    }
    // What an app has used stays used when its sessions go.
    ledger.close_session(&id(1), event("close", None), at(6)).await.unwrap();
    ledger.delete_closed(at(7)).await.unwrap();
    assert_eq!(ledger.usage_on(&app("a"), at(0)).await.unwrap(), usage());
    let days = ledger.usage_since(at(DAY + 100), None).await.unwrap();
    let days: Vec<_> = days.iter().map(|d| (d.day, d.turns, d.failed, d.usage)).collect();
    assert_eq!(days, [(at(DAY), 2, 0, twice), (at(2 * DAY), 1, 0, usage())]);
    assert_eq!(ledger.usage_since(at(0), Some(&app("b"))).await.unwrap(), []);
}

/// Turns that failed are counted, those that were cancelled are not failures, and each counts once.
#[tokio::test]
async fn turns_are_counted_by_how_they_ended() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(&folder);
    ledger.create_session(&session("a", 1, 5), event("create", None)).await.unwrap();
    for (index, state) in
        [(1, TurnState::Died), (2, TurnState::Cancelled), (3, TurnState::Finished)]
    {
        ledger.accept_turn(&app("a"), &id(1), &request("p"), at(10)).await.unwrap();
        ledger.start_turn(&id(1), index, at(11)).await.unwrap();
        let ended = ledger.end_turn(&id(1), index, ending(index, state), at(12)).await.unwrap();
        assert!(ended.is_some());
        let again = ledger.end_turn(&id(1), index, ending(index, state), at(12)).await.unwrap();
        assert!(again.is_none());
    }
    // One that waits when its session is closed, and one that runs when Hob ends.
    ledger.accept_turn(&app("a"), &id(1), &request("p"), at(13)).await.unwrap();
    ledger.close_session(&id(1), event("close", None), at(14)).await.unwrap();
    ledger.create_session(&session("a", 2, 5), event("create", None)).await.unwrap();
    ledger.accept_turn(&app("a"), &id(2), &request("p"), at(15)).await.unwrap();
    ledger.start_turn(&id(2), 1, at(15)).await.unwrap();
    ledger.interrupt_turns(at(16)).await.unwrap();
    let days = ledger.usage_since(at(0), Some(&app("a"))).await.unwrap();
    assert_eq!(days.len(), 1);
    assert_eq!((days[0].turns, days[0].failed), (5, 2));
}

/// The past is read backwards, a page at a time, and each page stands in order.
#[tokio::test]
async fn the_past_in_pages() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(&folder);
    ledger.create_session(&session("a", 1, 5), event("create", None)).await.unwrap();
    for _ in 0..3 {
        turn(&ledger, 1, 20).await;
    }
    let all = ledger.events(&app("a"), &id(1), 0, 1000).await.unwrap().unwrap();
    let last = all.len() as u64;
    let (a, one) = (app("a"), id(1));
    let page = |before| ledger.events_before(&a, &one, before, 2);
    let seqs = |events: Option<Vec<hob_domain::session::SessionEvent>>| -> Vec<u64> {
        events.unwrap().iter().map(|event| event.seq).collect()
    };
    assert_eq!(seqs(page(u64::MAX).await.unwrap()), [last - 1, last]);
    assert_eq!(seqs(page(last - 1).await.unwrap()), [last - 3, last - 2]);
    assert_eq!(seqs(page(2).await.unwrap()), [1]);
    assert_eq!(seqs(page(1).await.unwrap()), [0; 0]);
    assert!(ledger.events_before(&app("b"), &id(1), 9, 2).await.unwrap().is_none());
    let turns = ledger.turns_before(&app("a"), &id(1), u32::MAX, 2).await.unwrap().unwrap();
    assert_eq!(turns.iter().map(|turn| turn.index).collect::<Vec<_>>(), [2, 3]);
    assert!(ledger.turns_before(&app("b"), &id(1), 9, 2).await.unwrap().is_none());
}

/// Usage is what an agent says. Whatever that is, its turn ends.
#[tokio::test]
async fn absurd_usage_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(&folder);
    ledger.create_session(&session("a", 1, 5), event("create", None)).await.unwrap();
    for (index, cost_usd) in [(1, f64::NAN), (2, f64::INFINITY), (3, -1.0)] {
        accept(&ledger, 1, &request("hello")).await;
        ledger.start_turn(&id(1), index, at(11)).await.unwrap();
        let most = u64::MAX;
        let used = TurnUsage { input_tokens: most, output_tokens: most, cost_usd, ..usage() };
        let ending = TurnEnding { usage: used, ..ending(index, TurnState::Finished) };
        assert!(ledger.end_turn(&id(1), index, ending, at(12)).await.unwrap().is_some());
    }
    let used = ledger.usage_on(&app("a"), at(12)).await.unwrap();
    assert!(used.tokens() > 1 << 40 && used.cost_usd.is_finite() && used.cost_usd > 0.0);
}

#[tokio::test]
async fn an_app_goes_with_all_it_had() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(&folder);
    for (name, byte) in [("a", 1), ("a", 2), ("b", 3)] {
        ledger.create_session(&session(name, byte, 5), event("create", None)).await.unwrap();
        let taken = ledger.accept_turn(&app(name), &id(byte), &request("hello"), at(9)).await;
        assert_eq!(taken.unwrap(), Some(Accepted::Queued(1)));
        ledger.start_turn(&id(byte), 1, at(9)).await.unwrap();
        ledger.end_turn(&id(byte), 1, ending(1, TurnState::Finished), at(9)).await.unwrap();
    }
    let mut deleted = ledger.delete_sessions_of(&app("a")).await.unwrap();
    deleted.sort();
    assert_eq!(deleted, [id(1), id(2)]);
    assert_eq!(ledger.delete_sessions_of(&app("a")).await.unwrap(), []);
    assert_eq!(ledger.turn_events(&id(1), 1).await.unwrap(), []);
    assert_eq!(ledger.turn(&app("a"), &id(1), 1).await.unwrap(), None);
    assert_eq!(ledger.usage_on(&app("a"), at(9)).await.unwrap(), TurnUsage::default());

    assert_eq!(names(&ledger.all_sessions().await.unwrap()), [id(3)]);
    assert_eq!(ledger.turn_events(&id(3), 1).await.unwrap().len(), 1);
    assert_eq!(ledger.usage_on(&app("b"), at(9)).await.unwrap(), usage());
    let outbox = ledger.outbox(10).await.unwrap();
    assert_eq!(outbox.iter().map(|item| item.app.as_str()).collect::<Vec<_>>(), ["b"]);
}

/// A session that is gone takes nothing in any more.
#[tokio::test]
async fn nothing_is_told_to_a_session_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(&folder);
    assert!(ledger.append_events(&id(1), vec![event("message", None)], at(9)).await.is_err());
    assert!(!ledger.close_session(&id(1), event("close", None), at(9)).await.unwrap());
    let ended = ledger.end_turn(&id(1), 1, ending(1, TurnState::Finished), at(9)).await.unwrap();
    assert_eq!(ended, None);
    assert!(ledger.outbox(10).await.unwrap().is_empty());
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
