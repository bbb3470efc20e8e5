//! Tests of the memory in PostgreSQL beyond the contract: row-level security, the key, the extension, merges under
//! queries, and what a reader of the database can see.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hob_domain::DataKey;
use hob_domain::memory::{
    CandidateQuery, Forget, Forgetting, Identity, MemoryStore, NewTurn, PageFilter, Principal,
    ProjectLocation, QueryTerm, Scope, Tier, TurnRole, TurnSource, record_key, words_key,
};
use hob_store::{ConnectError, PostgresMemory};
use tokio::task::JoinSet;

use super::{at, guide, server};

async fn open(url: &str) -> PostgresMemory {
    open_with(url, 5, true).await.unwrap()
}

async fn open_with(url: &str, key: u8, encrypts: bool) -> Result<PostgresMemory, ConnectError> {
    let key = DataKey::from_bytes([key; 32]);
    PostgresMemory::connect(&url.parse().unwrap(), &key, encrypts.into(), Duration::from_secs(10))
        .await
}

fn turn(session: &str, number: usize, text: &str) -> NewTurn {
    let key = record_key(session, &number.to_string(), TurnRole::User, text);
    NewTurn {
        identity: Identity::Record { key, answer: None },
        words: words_key(TurnRole::User, text),
        session: session.to_owned(),
        place: ProjectLocation {
            project: "/harbour".to_owned(),
            worktree: "/harbour/tree".to_owned(),
        },
        role: TurnRole::User,
        tier: Tier::Episodic,
        text: text.to_owned(),
        sealed: None,
        cue: Some("a crane".to_owned()),
        ts: at(number as i64),
        at: at(number as i64),
        client: "claude".to_owned(),
        source: TurnSource::Hook,
        terms: text.to_owned(),
        vector: (0..256).map(|place| ((place * 7 + number * 13) % 200) as i8).collect(),
        rules: 1,
    }
}

fn probe(terms: &[&str]) -> CandidateQuery {
    let one = |term: &&str| QueryTerm { term: (*term).to_owned(), weight: 1.0 };
    CandidateQuery {
        terms: terms.iter().map(one).collect(),
        vector: vec![1; 256],
        model_vector: None,
        limit: 40,
    }
}

const TABLES: [&str; 10] = [
    "projects",
    "sessions",
    "turns",
    "standing",
    "vectors",
    "recent",
    "codes",
    "forgotten",
    "forgotten_sessions",
    "model_vectors",
];

/// Row-level security: a role of one app sees that app's rows and no others, whatever it was granted.
#[tokio::test(flavor = "multi_thread")]
async fn role_of_one_app_sees_only_that_apps_memory() {
    let server = server();
    let url = server.database();
    let memory = open(&url).await;
    let kind = memory_kind(&memory).await;
    for (n, speaker) in
        [Principal::App("mine".into()), Principal::App("theirs".into()), Principal::Owner]
            .iter()
            .enumerate()
    {
        let turns = (0..3).map(|turn_number| turn("s", turn_number, "a blue crane")).collect();
        memory.store_turns(speaker, turns, Vec::new()).await.unwrap();
        memory.store_turns(speaker, vec![turn("t", 9, "gone")], Vec::new()).await.unwrap();
        let gone = Forget::Session("t".to_owned());
        assert_eq!(memory.forget(Forgetting::hide(speaker, &gone, at(99))).await.unwrap(), 1);
        let vector = vec![1_i8; 384];
        hob_domain::memory::VectorStore::save_vectors(
            &memory,
            kind,
            vec![(n as i64 * 4 + 1, vector)],
        )
        .await
        .unwrap();
    }
    // Sign codes are packed when there are many.
    let codes =
        "INSERT INTO hob.memory_codes SELECT id, 1, 1, speaker, '' FROM hob.memory_projects";
    server.sql(&url, codes);
    server.sql(&url, &guide("reader", "mine"));
    server.sql(&url, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA hob TO reader");
    let name = url.rsplit('/').next().unwrap();
    let limited = server.url_of("reader", name);
    for table in TABLES {
        let seen =
            server.sql(&limited, &format!("SELECT DISTINCT speaker FROM hob.memory_{table}"));
        assert_eq!(seen, "mine", "of {table}");
    }
    for table in ["state", "merge", "imports", "events", "kinds"] {
        let seen = server.sql(&limited, &format!("SELECT count(*) FROM hob.memory_{table}"));
        assert_eq!(seen, "0", "of {table}");
    }
    for refused in [
        "UPDATE hob.memory_turns SET speaker = 'theirs'",
        "UPDATE hob.memory_turns SET speaker = ''",
        "INSERT INTO hob.memory_forgotten_sessions VALUES ('theirs', '\\x00', 9)",
        "INSERT INTO hob.memory_recent VALUES (1, 1, 1, '', '\\x00')",
    ] {
        assert!(server.try_sql(&limited, refused).is_err(), "{refused}");
    }
    // A role that is mapped to the owner's name sees nothing.
    server.sql(&url, "UPDATE hob.app_roles SET app = ''");
    for table in TABLES {
        let seen = server.sql(&limited, &format!("SELECT count(*) FROM hob.memory_{table}"));
        assert_eq!(seen, "0", "of {table}");
    }
}

async fn memory_kind(memory: &PostgresMemory) -> hob_domain::memory::VectorKind {
    hob_domain::memory::VectorStore::vector_kind(memory, "model", 384).await.unwrap()
}

/// The error says what to do, and nothing is changed.
#[tokio::test(flavor = "multi_thread")]
async fn another_key_or_encryption_is_refused() {
    let url = server().database();
    open(&url).await.store_turns(&Principal::Owner, vec![turn("s", 1, "x")], vec![]).await.unwrap();
    let error = open_with(&url, 6, true).await.err().unwrap();
    assert!(matches!(error, ConnectError::OtherKey { .. }), "{error}");
    assert!(error.to_string().contains("copy the file `key`"), "{error}");
    let error = open_with(&url, 5, false).await.err().unwrap();
    assert!(matches!(error, ConnectError::OtherEncryption { encrypted: true, .. }), "{error}");
    assert_eq!(open(&url).await.page(&PageFilter::All { after: 0 }, 9).await.unwrap().len(), 1);
}

/// The error says what is missing, and no part of the schema is created.
#[tokio::test(flavor = "multi_thread")]
async fn server_without_pgvector_is_refused() {
    let server = server();
    let url = server.database();
    let name = url.rsplit('/').next().unwrap();
    server.sql(&url, "DROP EXTENSION vector");
    // Only a superuser may create the extension.
    let role = format!("plain_{name}");
    server.sql(&url, &format!("CREATE ROLE {role} LOGIN; ALTER DATABASE {name} OWNER TO {role}"));
    let own = server.url_of(&role, name);
    let error = open_with(&own, 5, true).await.err().unwrap();
    assert!(matches!(error, ConnectError::NoVector { .. }), "{error}");
    assert!(error.to_string().contains("CREATE EXTENSION vector"), "{error}");
    assert_eq!(server.sql(&url, "SELECT to_regclass('hob.migrations') IS NULL"), "t");
    server.sql(&url, "CREATE EXTENSION vector");
    let memory = open_with(&own, 5, true).await.unwrap();
    memory.store_turns(&Principal::Owner, vec![turn("s", 1, "x")], vec![]).await.unwrap();
}

/// Texts, names, terms and vectors are in the database neither in plain nor as plain digests.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_readable_in_the_database() {
    let server = server();
    let url = server.database();
    let memory = open(&url).await;
    let said = turn("session-of-mine", 1, "a bluebottle crane");
    let digests = [said.words.to_hex(), record_id(&said)];
    let vector: Vec<u8> = said.vector[..16].iter().map(|value| *value as u8).collect();
    memory.store_turns(&Principal::Owner, vec![said], vec![]).await.unwrap();
    let dump = TABLES
        .map(|table| server.sql(&url, &format!("SELECT row_to_json(t) FROM hob.memory_{table} t")));
    let dump = dump.join("\n");
    assert!(dump.contains("\"body\""));
    let mut secrets: Vec<String> =
        ["bluebottle", "crane", "harbour", "session-of-mine", "tree"].map(str::to_owned).to_vec();
    secrets.extend(secrets.clone().iter().map(|word| hex(word.as_bytes())));
    secrets.extend(
        digests
            .iter()
            .flat_map(|digest| [digest[..24.min(digest.len())].to_owned(), hex(digest.as_bytes())]),
    );
    secrets.push(hex(&vector));
    for secret in secrets {
        assert!(!dump.contains(&secret), "{secret}");
    }
}

fn record_id(turn: &NewTurn) -> String {
    let Identity::Record { key, .. } = turn.identity else { panic!("it has one") };
    key.record_id().as_str().to_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// While thousands of turns are stored and merged, a term that all turns have is always in as many turns as the memory
/// has.
#[tokio::test(flavor = "multi_thread")]
async fn queries_during_a_merge_count_each_posting_once() {
    let url = server().database();
    let memory = Arc::new(open(&url).await);
    let done = Arc::new(AtomicBool::new(false));
    let mut readers = JoinSet::new();
    for _ in 0..2 {
        let (memory, done) = (memory.clone(), done.clone());
        readers.spawn(async move {
            let mut asked = 0;
            while !done.load(Ordering::Relaxed) {
                let scope = Scope::default();
                let terms = probe(&["all", "odd", "none"]);
                let found = memory.candidates(&Principal::Owner, &scope, terms).await.unwrap();
                if found.turns > 0 {
                    assert_eq!(found.document_frequencies[0].turns, found.turns);
                    assert_eq!(found.document_frequencies[1].turns, found.turns / 2);
                }
                asked += 1;
            }
            asked
        });
    }
    let two = open(&url).await;
    for batch in 0..28 {
        let one = |n: usize| {
            let number = batch * 200 + n;
            let text = if number.is_multiple_of(2) { "all even" } else { "all odd" };
            turn(&format!("s{}", number / 50), number, &format!("{text} n{number}"))
        };
        let turns = (0..200).map(one).collect();
        let store: &PostgresMemory = if batch % 2 == 0 { &memory } else { &two };
        let stored = store.store_turns(&Principal::Owner, turns, vec![]).await.unwrap();
        assert_eq!(stored.inserted, 200);
    }
    done.store(true, Ordering::Relaxed);
    assert!(readers.join_all().await.into_iter().sum::<usize>() > 10, "questions were asked");
    let runs = "SELECT count(*) > 0 FROM hob.memory_runs WHERE first > 0";
    assert_eq!(server().sql(&url, runs), "t", "something was merged");
    let waiting = "SELECT count(DISTINCT first) < 5600 FROM hob.memory_recent";
    assert_eq!(server().sql(&url, waiting), "t", "not all of it waits");
}
