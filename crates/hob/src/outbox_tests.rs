use futures_util::FutureExt;
use hob_domain::DataKey;
use hob_domain::session::{
    RememberedTurn, SessionStore, SessionlessTurn, TurnState, TurnUsage, UsageNote,
};
use hob_memory::{OpeningKey, OpeningKeys};
use hob_testkit::{MemoryLedger, SteeredMemory, wait_until};

use super::*;

/// Times that are long enough for turns that are stored, and short enough for tests.
const TIMES: OutboxTimes = OutboxTimes {
    locate: Duration::from_secs(5),
    together: Duration::from_millis(500),
    alone: Duration::from_millis(500),
    retry: Duration::from_millis(5),
};

const HOUR: Duration = Duration::from_secs(3600);

struct Setup {
    ledger: Arc<MemoryLedger>,
    memory: Arc<SteeredMemory>,
}

impl Setup {
    fn new() -> Setup {
        Setup { ledger: Arc::default(), memory: Arc::default() }
    }

    fn outbox(&self, times: OutboxTimes) -> Outbox {
        let keys = OpeningKeys::from(OpeningKey::of(&DataKey::from_bytes([3; 32])));
        let engine = Engine::new(self.memory.clone(), keys, Duration::ZERO);
        Outbox::new(self.ledger.clone(), engine, times)
    }

    async fn add(&self, prompt: &str) {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let turn = RememberedTurn {
            session_id: prompt.to_owned(),
            turn_index: 1,
            cwd: "/nowhere".to_owned(),
            agent: "claude".to_owned(),
            prompt: prompt.to_owned(),
            answers: Vec::new(),
            asked_at: now,
            ended_at: now,
        };
        let turn = SessionlessTurn {
            app: AppName::stored("a").unwrap(),
            state: TurnState::Finished,
            usage: TurnUsage::default(),
            outbox: Some(turn),
        };
        self.ledger.note_usage(&UsageNote::SessionlessTurn(turn), now).await.unwrap();
    }

    /// Returns the prompts that wait in the outbox, with their attempts.
    fn waiting(&self) -> Vec<(String, u32)> {
        // This ledger answers at once.
        let items = self.ledger.outbox(99, &[]).now_or_never().unwrap().unwrap();
        items.into_iter().map(|item| (item.turn.unwrap().prompt, item.attempts)).collect()
    }
}

/// Runs an outbox until a condition holds, as a server that is then killed.
async fn run_until(outbox: Outbox, what: &str, is_done: impl Fn() -> bool) {
    let running = tokio::spawn(outbox.drain(CancellationToken::new()));
    wait_until(what, || is_done().then_some(()));
    running.abort();
    let _ = running.await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_that_fail_again_and_again_are_set_aside_for_good_and_hold_no_others_back() {
    let setup = Setup::new();
    for prompt in ["one", "[[hang]]", "two", "[[refuse]]", "three"] {
        setup.add(prompt).await;
    }
    let memory = setup.memory.clone();
    run_until(setup.outbox(TIMES), "the bad turns are set aside", || setup.waiting().is_empty())
        .await;
    let mut stored = memory.stored();
    stored.sort();
    assert_eq!(stored, ["one", "three", "two"]);
    let mut events = memory.events_of("set_aside");
    events.sort();
    assert!(events[0].contains("turn 2") && events[0].contains("takes too long"), "{events:?}");
    assert!(events[1].contains("turn 4") && events[1].contains("refused"), "{events:?}");

    // The next server stores what is new, and does not try them again.
    let calls = memory.calls().len();
    setup.add("four").await;
    let times = OutboxTimes { together: HOUR, ..TIMES };
    run_until(setup.outbox(times), "the next turn is stored", || {
        memory.stored().contains(&"four".to_owned())
    })
    .await;
    assert_eq!(memory.calls()[calls..], [1]);
    assert_eq!(memory.events_of("set_aside").len(), 2);
}

/// A turn that ends the server is found after some starts, although no attempt comes to its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turn_at_which_servers_end_is_set_aside() {
    let setup = Setup::new();
    setup.add("[[hang]]").await;
    let times = OutboxTimes { together: HOUR, alone: HOUR, ..TIMES };
    let memory = setup.memory.clone();
    for start in 1..=MAX_ATTEMPTS {
        let calls = memory.calls().len();
        run_until(setup.outbox(times), "an attempt has begun", || memory.calls().len() > calls)
            .await;
        assert_eq!(setup.waiting(), [("[[hang]]".to_owned(), start)]);
    }
    setup.add("good").await;
    let calls = memory.calls().len();
    run_until(setup.outbox(times), "the others are stored, and it is set aside", || {
        !memory.stored().is_empty() && memory.events_of("set_aside").len() == 1
    })
    .await;
    assert_eq!(memory.stored(), ["good"]);
    assert_eq!(memory.calls().len(), calls + 1, "it was tried again");
    assert!(memory.events_of("set_aside")[0].contains("the server ended"));
}

/// A store that cannot be used says nothing about a turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_wait_for_a_busy_or_damaged_store() {
    for prompt in ["[[busy]]", "[[damaged]]"] {
        let setup = Setup::new();
        setup.add(prompt).await;
        let memory = setup.memory.clone();
        run_until(setup.outbox(TIMES), "many attempts were made", || memory.calls().len() > 12)
            .await;
        assert_eq!(memory.events_of("set_aside"), [""; 0]);
        let waiting = setup.waiting();
        assert!(waiting.len() == 1 && waiting[0].1 <= 2, "{waiting:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempt_that_a_stop_ends_does_not_count() {
    let setup = Setup::new();
    setup.add("[[hang]]").await;
    let stopping = CancellationToken::new();
    let outbox = setup.outbox(OutboxTimes { alone: HOUR, ..TIMES });
    let running = tokio::spawn(outbox.drain(stopping.clone()));
    wait_until("it is tried alone", || (setup.waiting()[0].1 == 2).then_some(()));
    stopping.cancel();
    running.await.unwrap();
    assert_eq!(setup.waiting(), [("[[hang]]".to_owned(), 1)]);
}
