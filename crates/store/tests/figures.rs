//! Figures of the ledger, not checks:
//! `cargo test --release -p hob-store --test figures -- --ignored --nocapture --test-threads 1`

use std::time::{Duration, Instant};

use hob_domain::session::{
    NewEvent, OpenLimits, Permissions, Session, SessionId, SessionSetup, SessionStore, TurnUsage,
};
use hob_domain::{
    AgentName, App, AppFilter, AppName, AppStore, DataKey, Lease, NodeId, Timestamp, Token,
};
use hob_store::Ledger;
use serde_json::json;
use tokio::task::JoinSet;

fn ledger(folder: &tempfile::TempDir) -> Ledger {
    Ledger::open(&folder.path().join("hob.db"), &DataKey::from_bytes([7; 32])).unwrap()
}

fn node() -> NodeId {
    NodeId::from_random([1; 16])
}

fn app() -> AppName {
    AppName::new("a").unwrap()
}

fn session(id: SessionId) -> Session {
    Session {
        id,
        app: app(),
        setup: SessionSetup {
            agent: AgentName::new("claude").unwrap(),
            meta: json!({"purpose": "figures"}),
            cwd: "/w".to_owned(),
            model: None,
            system: None,
            permissions: Permissions::Deny,
            mcp_servers: json!([]),
        },
        created_at: Timestamp::UNIX_EPOCH,
        closed_at: None,
        turn_count: 0,
        last_turn_at: None,
        busy: false,
        agent_session: None,
        usage: TurnUsage::default(),
        last_event: 0,
    }
}

async fn sessions(ledger: &Ledger, count: u8) -> Vec<SessionId> {
    let mut ids = Vec::new();
    for byte in 1..=count {
        let id = SessionId::from_random([byte.wrapping_mul(37); 16]);
        ledger
            .create_session(
                &session(id.clone()),
                event("create", 0),
                &node(),
                OpenLimits::default(),
            )
            .await
            .unwrap();
        ids.push(id);
    }
    ids
}

fn event(kind: &str, size: usize) -> NewEvent {
    let body = json!({"text": "x".repeat(size)}).to_string();
    NewEvent { kind: kind.into(), turn: Some(1), body }
}

fn quantiles(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    format!("p50 {:.1?}, p99 {:.1?}, most {:.1?}", at(0.5), at(0.99), at(1.0))
}

/// Appends this many events in batches of 1 to 5, one after the other, with a pause between them.
async fn append(ledger: Ledger, id: SessionId, count: usize, pause: Duration) -> Vec<Duration> {
    let mut times = Vec::new();
    let mut left = count;
    while left > 0 {
        let size = (times.len() % 5 + 1).min(left);
        let events = vec![event("message", 300); size];
        let lease = Lease { app: app(), session: id.clone(), fence: 1 };
        let began = Instant::now();
        ledger.append_events(&lease, events, Timestamp::UNIX_EPOCH).await.unwrap();
        times.push(began.elapsed());
        left -= size;
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
    times
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn appends() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(&folder);
    let ids = sessions(&ledger, 200).await;
    let alone = append(ledger.clone(), ids[0].clone(), 1000, Duration::ZERO).await;
    println!("one session alone: {}", quantiles(alone));
    for pause in [0, 50] {
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        for id in ids.clone() {
            tasks.spawn(append(ledger.clone(), id, 250, Duration::from_millis(pause)));
        }
        let times = tasks.join_all().await.concat();
        let rate = 50_000.0 / began.elapsed().as_secs_f64();
        println!(
            "200 sessions at once, {pause} ms apart: {rate:.0} events/s; {}",
            quantiles(times)
        );
    }
}

#[tokio::test]
#[ignore = "a measurement"]
async fn opens() {
    let folder = tempfile::tempdir().unwrap();
    let id = sessions(&ledger(&folder), 1).await.remove(0);
    let mut times = Vec::new();
    for _ in 0..200 {
        let began = Instant::now();
        append(ledger(&folder), id.clone(), 1, Duration::ZERO).await;
        times.push(began.elapsed());
    }
    println!("open, one write, close: {}", quantiles(times));
}

/// What `GET` of a session asks, from 8 tasks; then the same while a session is written to.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn reads() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(&folder);
    let token = Token::from_random([9; 32]).hash();
    let owner = App { name: app(), created_at: Timestamp::UNIX_EPOCH };
    ledger.create_app(&owner, token).await.unwrap();
    let ids = sessions(&ledger, 200).await;
    for written in [0, 1] {
        let mut writers = JoinSet::new();
        for id in &ids[..written] {
            writers.spawn(append(ledger.clone(), id.clone(), usize::MAX, Duration::ZERO));
        }
        let began = Instant::now();
        let mut readers = JoinSet::new();
        for task in 0..8 {
            let (ledger, ids) = (ledger.clone(), ids.clone());
            readers.spawn(async move {
                let mut times = Vec::new();
                while began.elapsed() < Duration::from_secs(3) {
                    let id = &ids[(times.len() + task * 25) % ids.len()];
                    let asked = Instant::now();
                    let app = ledger.apps(AppFilter::Token(token)).await.unwrap().pop().unwrap();
                    ledger.session(&app.name, id).await.unwrap().unwrap();
                    times.push(asked.elapsed());
                }
                times
            });
        }
        let times = readers.join_all().await.concat();
        let rate = times.len() as f64 / began.elapsed().as_secs_f64();
        println!("{written} writing: {rate:.0} pairs of reads/s; {}", quantiles(times));
        writers.shutdown().await;
    }
}
