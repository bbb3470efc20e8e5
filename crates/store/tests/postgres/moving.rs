//! Migrating a ledger to PostgreSQL and back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use hob_domain::session::{
    Accepted, IdempotencyKey, OpenLimits, SessionFilter, SessionStore, TurnRequest,
};
use hob_domain::{AppName, DataKey, LedgerStore};
use hob_store::{
    Ledger, MigrateError, MigratedTable, MigrationProgress, PostgresLedger, ReportProgress,
    ledger_to_postgres, ledger_to_sqlite,
};
use hob_testkit::store_contract::{Fixture, audit, hostile, lists, random, usage};

use super::{at, event, id, lease, node, open, server, session};

fn file(path: &Path) -> Ledger {
    Ledger::open(path, &DataKey::from_bytes([7; 32])).unwrap()
}

struct Sqlite(std::path::PathBuf);

#[async_trait]
impl Fixture for Sqlite {
    async fn open(&self) -> Arc<dyn LedgerStore> {
        Arc::new(file(&self.0))
    }
}

fn key(key: &str) -> IdempotencyKey {
    IdempotencyKey { key: key.to_owned(), digest: "digest".to_owned() }
}

fn silent(_: MigrationProgress) {}

async fn move_to_postgres(
    from: &Ledger,
    to: &PostgresLedger,
    tell: ReportProgress<'_>,
) -> Result<Vec<MigratedTable>, MigrateError> {
    ledger_to_postgres(from, to).run(tell).await
}

async fn move_to_sqlite(
    from: &PostgresLedger,
    to: &Ledger,
    tell: ReportProgress<'_>,
) -> Result<Vec<MigratedTable>, MigrateError> {
    ledger_to_sqlite(from, to).run(tell).await
}

fn rows(moved: &[MigratedTable], table: &str) -> u64 {
    moved.iter().find(|moved| moved.table == table).unwrap().rows
}

/// Whatever a ledger may hold comes to the other side and back, and is the same.
#[tokio::test(flavor = "multi_thread")]
async fn everything_moves_there_and_back() {
    macro_rules! check {
        ($($contract:path)*) => {$({
            let folder = tempfile::tempdir().unwrap();
            let (first, second) = (folder.path().join("first.db"), folder.path().join("second.db"));
            $contract(&Sqlite(first.clone())).await;
            let source = file(&first);
            let target = open(&server().database()).await;
            let there = move_to_postgres(&source, &target, &silent).await.unwrap();
            let back = file(&second);
            assert_eq!(move_to_sqlite(&target, &back, &silent).await.unwrap(), there);
            assert_eq!(back.sessions(&SessionFilter::All).await.unwrap(), source.sessions(&SessionFilter::All).await.unwrap());
            assert_eq!(target.sessions(&SessionFilter::All).await.unwrap(), source.sessions(&SessionFilter::All).await.unwrap());
            // Once more it finds everything there.
            assert_eq!(move_to_postgres(&source, &target, &silent).await.unwrap(), there);
            there
        })*};
    }
    let moved = check!(hostile::hostile_texts_are_stored_unchanged);
    assert!(rows(&moved, "sessions") > 5 && rows(&moved, "outbox") > 5);
    check!(hostile::large_bodies_are_stored_unchanged);
    assert!(rows(&check!(audit::audit_entries_stay_and_are_read_newest_first), "audit") > 1);
    assert!(rows(&check!(usage::usage_is_summed_by_session_and_day), "usage") > 0);
    check!(lists::turn_events_are_those_that_name_the_turn);
    check!(random::random_calls_match_the_in_memory_ledger);
}

/// Broken off in the middle it goes on; keys of requests are known on both sides; turns go on counting.
#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_was_broken_off_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let source = file(&folder.path().join("first.db"));
    let a = AppName::new("a").unwrap();
    for byte in 1..4 {
        source
            .create_session(&session("a", byte), event(), &node(), OpenLimits::default())
            .await
            .unwrap();
        for _ in 0..3 {
            source.append_events(&lease(byte), vec![event(); 1000], at(2)).await.unwrap();
        }
    }
    let asked = TurnRequest {
        prompt: "p".into(),
        files: Vec::new(),
        idempotency: Some(key("the key")),
        queue: 9,
    };
    source.accept_turn(&a, &id(2), &asked, at(3)).await.unwrap();
    let url = server().database();
    let target = open(&url).await;
    let (half, told) = (AtomicBool::new(false), tokio::sync::Notify::new());
    let tell = |progress: MigrationProgress| {
        if progress.table == "events" && progress.done >= 4000 && !progress.comparing {
            half.store(true, Ordering::Relaxed);
            told.notify_one();
        }
    };
    tokio::select! {
        moved = move_to_postgres(&source, &target, &tell) => panic!("it was too fast: {moved:?}"),
        () = told.notified() => {}
    }
    assert!(half.load(Ordering::Relaxed));
    let some: u64 = server().sql(&url, "SELECT count(*) FROM hob.events").parse().unwrap();
    assert!((2000..9003).contains(&some), "{some}");
    let moved = move_to_postgres(&source, &target, &silent).await.unwrap();
    assert_eq!((rows(&moved, "events"), rows(&moved, "sessions")), (9003, 3));
    let repeated = Some(Accepted::Repeated(1));
    assert_eq!(target.accept_turn(&a, &id(2), &asked, at(4)).await.unwrap(), repeated);
    let taken =
        target.acquire_lease(&id(2), &node(), std::time::Duration::ZERO, at(4)).await.unwrap();
    assert!(
        matches!(taken, hob_domain::LeaseOutcome::Acquired(lease, _) if lease.fence == 2),
        "nobody has it"
    );

    let back = file(&folder.path().join("second.db"));
    move_to_sqlite(&target, &back, &silent).await.unwrap();
    assert_eq!(back.accept_turn(&a, &id(2), &asked, at(4)).await.unwrap(), repeated);
    let other = TurnRequest { idempotency: Some(key("other")), ..asked };
    let second = Some(Accepted::Queued(2));
    assert_eq!(back.accept_turn(&a, &id(2), &other, at(4)).await.unwrap(), second);
}

/// What is there of somebody else is not mixed with what comes.
#[tokio::test(flavor = "multi_thread")]
async fn an_occupied_house_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let source = file(&folder.path().join("first.db"));
    source.create_session(&session("a", 1), event(), &node(), OpenLimits::default()).await.unwrap();
    let target = open(&server().database()).await;
    target.create_session(&session("b", 2), event(), &node(), OpenLimits::default()).await.unwrap();
    let checked = ledger_to_postgres(&source, &target).check().await;
    assert!(matches!(checked, Err(MigrateError::Occupied { .. })), "{checked:?}");
    let moved = move_to_postgres(&source, &target, &silent).await;
    assert!(matches!(moved, Err(MigrateError::Occupied { table: "sessions" })), "{moved:?}");
    assert_eq!(target.sessions(&SessionFilter::All).await.unwrap().len(), 1);
}
