//! Migrations of the memory to PostgreSQL and back.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hob_domain::DataKey;
use hob_domain::memory::{
    CandidateQuery, Forget, Forgetting, Identity, MaintenanceEvent, MemoryStore, NewTurn,
    PageFilter, Principal, ProjectLocation, QueryTerm, Scope, Tier, TurnRole, TurnSource,
    VectorStore, answer_key, record_key, words_key,
};
use hob_store::{
    Analyse, Analysed, ConnectError, Encryption, Memory, MigrateError, MigratedTable,
    MigrationProgress, PostgresMemory, memory_to_postgres, memory_to_sqlite,
};
use hob_testkit::memory_contract::{Fixture, hostile, same, turns, vectors};

use super::{at, server};

const BUSY: Duration = Duration::from_secs(5);

fn key() -> DataKey {
    DataKey::from_bytes([5; 32])
}

fn file(path: &Path) -> Memory {
    Memory::open(path, &key(), BUSY).unwrap()
}

async fn connect(url: &str) -> Result<PostgresMemory, ConnectError> {
    PostgresMemory::connect(&url.parse().unwrap(), &key(), Encryption::On, BUSY).await
}

async fn connect_target(url: &str, encrypts: bool) -> PostgresMemory {
    let url = url.parse().unwrap();
    PostgresMemory::connect_partially_migrated(&url, &key(), encrypts.into(), BUSY).await.unwrap()
}

struct Sqlite(PathBuf);

#[async_trait]
impl Fixture for Sqlite {
    async fn open(&self) -> Arc<dyn MemoryStore> {
        Arc::new(file(&self.0))
    }
}

fn analyse() -> Analyse {
    Arc::new(|text, cue| {
        let (terms, vector) = same::analysed(text, cue);
        Analysed { terms, vector }
    })
}

fn silent(_: MigrationProgress) {}

async fn there(from: &Memory, to: &PostgresMemory) -> Result<Vec<MigratedTable>, MigrateError> {
    let all = memory_to_postgres(from, to, analyse());
    all.check().await?;
    all.run(&silent).await
}

async fn back(from: &PostgresMemory, to: &Memory) -> Result<Vec<MigratedTable>, MigrateError> {
    let all = memory_to_sqlite(from, to, analyse());
    all.check().await?;
    all.run(&silent).await
}

fn rows(moved: &[MigratedTable], table: &str) -> u64 {
    moved.iter().find(|moved| moved.table == table).unwrap().rows
}

/// Everything that a memory may hold is the same after a migration there and back.
#[tokio::test(flavor = "multi_thread")]
async fn everything_migrates_there_and_back() {
    macro_rules! check {
        ($encrypts:expr, $contract:path) => {{
            let folder = tempfile::tempdir().unwrap();
            let (first, second) = (folder.path().join("first.db"), folder.path().join("second.db"));
            $contract(&Sqlite(first.clone())).await;
            let source = file(&first);
            let url = server().database();
            let target = connect_target(&url, $encrypts).await;
            let moved = there(&source, &target).await.unwrap();
            let returned = file(&second);
            assert_eq!(back(&target, &returned).await.unwrap(), moved);
            let all = source.page(&PageFilter::All { after: 0 }, 10_000).await.unwrap();
            assert_eq!(returned.page(&PageFilter::All { after: 0 }, 10_000).await.unwrap(), all);
            assert_eq!(target.page(&PageFilter::All { after: 0 }, 10_000).await.unwrap(), all);
            for speaker in [Principal::Owner, Principal::App("shop".into())] {
                let counts = source.counts(&speaker).await.unwrap();
                assert_eq!(target.counts(&speaker).await.unwrap(), counts);
                assert_eq!(returned.counts(&speaker).await.unwrap(), counts);
            }
            // A second migration finds everything there, and changes nothing.
            assert_eq!(there(&source, &target).await.unwrap(), moved);
            moved
        }};
    }
    check!(true, hostile::hostile_texts_are_stored_unchanged);
    check!(false, hostile::hostile_texts_are_stored_unchanged);
    let moved = check!(true, turns::forgotten_turns_stay_forgotten);
    assert!(rows(&moved, "memory_forgotten") > 0);
    assert!(rows(&moved, "memory_forgotten_sessions") > 0);
    check!(false, turns::forgotten_turns_stay_forgotten);
    let moved = check!(true, turns::other_state_is_stored_and_removed);
    assert!(rows(&moved, "memory_imports") > 0 && rows(&moved, "memory_events") > 0);
    check!(true, turns::captures_in_any_order_store_each_turn_once);
    check!(true, turns::answer_and_its_record_are_one_turn);
    check!(true, turns::windows_corrections_and_outlines_are_read);
    check!(true, turns::principals_and_projects_are_isolated);
    check!(true, vectors::candidates_come_from_vectors_of_the_same_model);
}

/// After a migration in either direction both memories recognise the same turns and answer every query alike.
#[tokio::test(flavor = "multi_thread")]
async fn migrated_memory_behaves_like_its_source() {
    let mut most = (0, 0);
    for seed in 0..8 {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (one, beside) = (file(&path("one.db")), file(&path("beside.db")));
        same::some_steps(seed, 30, &one, &beside).await;
        let url = server().database();
        let target = connect_target(&url, seed % 2 == 0).await;
        erase_forgotten(&one).await;
        let moved = there(&one, &target).await.unwrap();
        most.0 = most.0.max(rows(&moved, "memory_turns"));
        most.1 = most.1.max(rows(&moved, "memory_forgotten"));
        same::some_steps(100 + seed, 15, &one, &target).await;
        let two = file(&path("two.db"));
        erase_forgotten(&target).await;
        back(&target, &two).await.unwrap();
        same::some_steps(200 + seed, 15, &target, &two).await;
    }
    assert!(most.0 > 20 && most.1 > 1, "{most:?}");
}

/// Forgotten turns cannot be restored after a migration, so they are erased before.
async fn erase_forgotten(store: &dyn MemoryStore) {
    store.forget(Forgetting::Erase { hidden_before: at(10_000) }).await.unwrap();
}

fn turn(number: usize) -> NewTurn {
    let session = format!("s{}", number / 40);
    let text = format!("all n{number} {}", if number.is_multiple_of(2) { "even" } else { "odd" });
    let role = if number.is_multiple_of(2) { TurnRole::User } else { TurnRole::Assistant };
    let key = record_key(&session, &number.to_string(), role, &text);
    let answer = (role == TurnRole::Assistant).then(|| answer_key("prompt", &text, number));
    NewTurn {
        identity: Identity::Record { key, answer },
        words: words_key(role, &text),
        session,
        place: ProjectLocation { project: format!("/p{}", number % 3), worktree: "/w".to_owned() },
        role,
        tier: Tier::Episodic,
        sealed: None,
        cue: None,
        ts: at(number as i64),
        at: at(number as i64),
        client: "claude".to_owned(),
        source: TurnSource::Hook,
        terms: text.clone(),
        vector: same::analysed(&text, None).1,
        text,
        rules: 1,
    }
}

async fn fill(store: &dyn MemoryStore, from: usize, to: usize) {
    for begin in (from..to).step_by(500) {
        let turns = (begin..to.min(begin + 500)).map(turn).collect();
        let stored = store.store_turns(&Principal::Owner, turns, Vec::new()).await.unwrap();
        assert_eq!(stored.inserted, to.min(begin + 500) - begin);
    }
}

async fn frequencies(store: &dyn MemoryStore) -> (u64, Vec<u64>) {
    let term = |term: &str| QueryTerm { term: term.to_owned(), weight: 1.0 };
    let terms = vec![term("all"), term("odd"), term("n17")];
    let probe = CandidateQuery { terms, vector: vec![1; 8], model_vector: None, limit: 40 };
    let found = store.candidates(&Principal::Owner, &Scope::default(), probe).await.unwrap();
    (found.turns, found.document_frequencies.iter().map(|spread| spread.turns).collect())
}

/// Migrates until this many turns have arrived, and stops.
async fn interrupted_migration(url: &str, source: &Memory, turns: u64) {
    let target = connect_target(url, true).await;
    let told = tokio::sync::Notify::new();
    let tell = |progress: MigrationProgress| {
        if progress.table == "memory_turns" && progress.done >= turns {
            told.notify_one();
        }
    };
    let all = memory_to_postgres(source, &target, analyse());
    tokio::select! {
        moved = all.run(&tell) => panic!("it was too fast: {moved:?}"),
        () = told.notified() => {}
    }
}

/// A partially migrated memory cannot be opened. The next migration continues, even if the source has changed. There are
/// enough turns for a merge on both sides.
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_migration_continues() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let source = file(&path("first.db"));
    fill(&source, 0, 5000).await;
    let url = server().database();
    interrupted_migration(&url, &source, 2000).await;
    let count =
        || -> u64 { server().sql(&url, "SELECT count(*) FROM hob.memory_turns").parse().unwrap() };
    let some = count();
    assert!((1600..5000).contains(&some), "{some}");
    let refused = connect(&url).await.err().unwrap();
    assert!(matches!(refused, ConnectError::HalfMoved { .. }), "{refused}");
    assert!(refused.to_string().contains("hob store migrate"), "{refused}");

    let target = connect_target(&url, true).await;
    let first = std::sync::Mutex::new(None);
    let tell = |progress: MigrationProgress| {
        if progress.table == "memory_turns" {
            first.lock().unwrap().get_or_insert(progress.done);
        }
    };
    let moved = memory_to_postgres(&source, &target, analyse()).run(&tell).await.unwrap();
    assert!(first.lock().unwrap().unwrap() >= some, "it went on where it was");
    assert_eq!(rows(&moved, "memory_turns"), 5000);
    let expected = (5000, vec![5000, 2500, 1]);
    let target = connect(&url).await.unwrap();
    assert_eq!(frequencies(&target).await, expected);
    let merged = "SELECT count(*) > 0 FROM hob.memory_runs WHERE first > 0";
    assert_eq!(server().sql(&url, merged), "t");
    let again = (100..300).map(turn).collect();
    let stored = target.store_turns(&Principal::Owner, again, Vec::new()).await.unwrap();
    assert_eq!((stored.inserted, stored.duplicates), (0, 200));

    let returned = file(&path("second.db"));
    assert_eq!(back(&target, &returned).await.unwrap(), moved);
    assert_eq!(frequencies(&returned).await, expected);

    // Meanwhile the source has got new turns, and one that has arrived was forgotten there.
    let url = server().database();
    interrupted_migration(&url, &source, 1000).await;
    let gone = source.page(&PageFilter::All { after: 0 }, 1).await.unwrap()[0].id.clone();
    source.forget(Forgetting::hide(&Principal::Owner, &Forget::Record(gone), at(1))).await.unwrap();
    source
        .forget(Forgetting::hide(&Principal::Owner, &Forget::Session("s3".into()), at(1)))
        .await
        .unwrap();
    fill(&source, 5000, 5100).await;
    let target = connect_target(&url, true).await;
    let moved = there(&source, &target).await.unwrap();
    assert_eq!(rows(&moved, "memory_turns"), 5100 - 41);
    assert_eq!(frequencies(&connect(&url).await.unwrap()).await, frequencies(&source).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_texts_arrive_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let source = file(&path("first.db"));
    let texts = [
        "",
        "\0",
        "a\0b\u{1a}c\u{1a}0",
        "'; DROP TABLE hob.turns; --",
        "\u{feff}🦀\r\n",
        "{\"$1\"}",
    ];
    for (n, text) in texts.iter().enumerate() {
        let mut turn = turn(n);
        let odd = |what: &str| format!("{what} {text}");
        (turn.session, turn.client, turn.source) =
            (odd("note:"), odd("client"), odd("source").into());
        turn.place = ProjectLocation { project: odd("/p"), worktree: odd("/w") };
        turn.cue = (n > 0).then(|| odd("cue"));
        turn.sealed = (n > 1).then(|| text.as_bytes().to_vec());
        (turn.text, turn.tier) = ((*text).to_owned(), Tier::Semantic);
        for speaker in [Principal::Owner, Principal::App("shop".into())] {
            let stored = source.store_turns(&speaker, vec![turn.clone()], Vec::new()).await;
            assert_eq!(stored.unwrap().inserted, 1);
        }
        let kind = odd("kind");
        source
            .note_event(MaintenanceEvent { at: at(n as i64), kind, detail: odd("x") })
            .await
            .unwrap();
        let kind = source.vector_kind(&odd("model"), 8).await.unwrap();
        source.save_vectors(kind, vec![(n as i64 + 1, vec![n as i8; 8])]).await.unwrap();
    }
    let gone = Forget::Session(format!("note: {}", texts[2]));
    source.forget(Forgetting::hide(&Principal::App("shop".into()), &gone, at(99))).await.unwrap();
    let target = connect(&server().database()).await.unwrap();
    let moved = there(&source, &target).await.unwrap();
    assert_eq!((rows(&moved, "memory_turns"), rows(&moved, "memory_kinds")), (11, 6));
    assert_eq!(rows(&moved, "memory_model_vectors"), 5, "one went with its turn");
    let returned = file(&path("second.db"));
    assert_eq!(back(&target, &returned).await.unwrap(), moved);
    for store in [&target as &dyn MemoryStore, &returned] {
        let all = source.page(&PageFilter::All { after: 0 }, 99).await.unwrap();
        assert_eq!(store.page(&PageFilter::All { after: 0 }, 99).await.unwrap(), all);
        assert_eq!(store.events(99).await.unwrap(), source.events(99).await.unwrap());
        let facets = source.facets(&Principal::Owner).await.unwrap();
        assert_eq!(store.facets(&Principal::Owner).await.unwrap(), facets);
    }
}

/// A second migration, and a process that opens the memory meanwhile, get an error.
#[tokio::test(flavor = "multi_thread")]
async fn migration_locks_the_memory() {
    let url = server().database();
    let memory = connect(&url).await.unwrap();
    let alone = memory.lock_exclusively(Duration::ZERO).await.unwrap();
    assert!(connect_target(&url, true).await.lock_exclusively(Duration::ZERO).await.is_err());
    let refused = connect(&url).await.err().unwrap();
    assert!(matches!(refused, ConnectError::BeingMoved { .. }), "{refused}");
    // Another database is not affected.
    connect(&server().database()).await.unwrap().lock_exclusively(Duration::ZERO).await.unwrap();
    drop(alone);
    memory.lock_exclusively(BUSY).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_in_use_is_refused_as_target() {
    let folder = tempfile::tempdir().unwrap();
    let source = file(&folder.path().join("first.db"));
    fill(&source, 0, 50).await;
    let url = server().database();
    let target = connect(&url).await.unwrap();
    fill(&target, 60, 70).await;
    let refused = there(&source, &target).await;
    assert!(matches!(refused, Err(MigrateError::Occupied { .. })), "{refused:?}");
    let refused = memory_to_postgres(&source, &target, analyse()).run(&silent).await;
    assert!(matches!(refused, Err(MigrateError::Occupied { .. })), "{refused:?}");
    assert_eq!(
        connect(&url).await.unwrap().page(&PageFilter::All { after: 0 }, 100).await.unwrap().len(),
        10
    );

    // A memory that was used after its migration is in use as well.
    let url = server().database();
    let target = connect(&url).await.unwrap();
    there(&source, &target).await.unwrap();
    fill(&target, 50, 51).await;
    let refused = there(&source, &target).await;
    assert!(matches!(refused, Err(MigrateError::Occupied { .. })), "{refused:?}");
    assert_eq!(
        connect(&url).await.unwrap().page(&PageFilter::All { after: 0 }, 100).await.unwrap().len(),
        51
    );
    // A memory with nothing but forgotten turns is in use, too.
    let url = server().database();
    let target = connect(&url).await.unwrap();
    let session = Forget::Session("s0".to_owned());
    target.forget(Forgetting::hide(&Principal::Owner, &session, at(9))).await.unwrap();
    let refused = there(&source, &target).await;
    assert!(matches!(refused, Err(MigrateError::Occupied { .. })), "{refused:?}");
}

/// A memory from which everything was removed is a valid target, and its numbers start over.
#[tokio::test(flavor = "multi_thread")]
async fn emptied_memory_is_accepted_as_target() {
    let folder = tempfile::tempdir().unwrap();
    let source = file(&folder.path().join("first.db"));
    fill(&source, 0, 50).await;
    let url = server().database();
    let target = connect(&url).await.unwrap();
    let shop = Principal::App("shop".to_owned());
    target.store_turns(&shop, (0..90).map(turn).collect(), Vec::new()).await.unwrap();
    target.vector_kind("model", 8).await.unwrap();
    assert_eq!(target.forget(Forgetting::RemovePrincipal(shop.clone())).await.unwrap(), 90);
    let moved = there(&source, &target).await.unwrap();
    assert_eq!(rows(&moved, "memory_turns"), 50);
    let target = connect(&url).await.unwrap();
    assert_eq!(frequencies(&target).await, frequencies(&source).await);
    fill(&target, 50, 51).await;
    assert_eq!(target.page(&PageFilter::All { after: 50 }, 9).await.unwrap()[0].seq, 51);
}
