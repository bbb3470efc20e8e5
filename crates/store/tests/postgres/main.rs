//! Properties of PostgreSQL in addition to the contract: row-level security, schema, faults, encryption.
#![allow(clippy::disallowed_methods, reason = "tests make files and processes of their own")]

mod memory;
mod moving;
mod moving_memory;
mod scopes;
mod tls;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hob_domain::session::{
    EventRange, NewEvent, OpenLimits, Permissions, RememberedTurn, Session, SessionId,
    SessionSetup, SessionStore, SessionlessTurn, TurnRange, TurnState, TurnUsage, UsageNote,
};
use hob_domain::{
    AgentName, App, AppFilter, AppName, AppStore, ClusterStore, CommandFilter, DataKey, Lease,
    NodeId, NodeStore, StoreError, Timestamp, Token,
};
use hob_store::{ConnectError, Encryption, PostgresLedger};
use hob_testkit::Postgres;
use serde_json::json;
use tokio::task::JoinSet;

/// The server that all tests share, except for those that stop it.
fn server() -> &'static Postgres {
    static SERVER: OnceLock<Postgres> = OnceLock::new();
    SERVER.get_or_init(Postgres::start_shared)
}

async fn connect(url: &str) -> Result<PostgresLedger, ConnectError> {
    let key = DataKey::from_bytes([7; 32]);
    PostgresLedger::connect(&url.parse().unwrap(), &key, Encryption::On).await
}

async fn open(url: &str) -> PostgresLedger {
    connect(url).await.unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn id(byte: u8) -> SessionId {
    SessionId::from_random([byte; 16])
}

fn node() -> NodeId {
    NodeId::from_random([1; 16])
}

fn lease(byte: u8) -> Lease {
    Lease { app: AppName::new("a").unwrap(), session: id(byte), fence: 1 }
}

fn event() -> NewEvent {
    NewEvent { kind: "message".into(), turn: None, body: "{}".to_owned() }
}

fn session(app: &str, byte: u8) -> Session {
    Session {
        id: id(byte),
        app: AppName::new(app).unwrap(),
        setup: SessionSetup {
            agent: AgentName::new("claude").unwrap(),
            meta: json!({}),
            cwd: "/w".to_owned(),
            model: None,
            system: None,
            permissions: Permissions::Deny,
            mcp_servers: json!([]),
        },
        created_at: at(1),
        closed_at: None,
        turn_count: 0,
        last_turn_at: None,
        busy: false,
        agent_session: None,
        usage: TurnUsage::default(),
        last_event: 0,
    }
}

/// Returns the statements in `docs/postgresql.md` that begin with this line.
fn guide_example(first_line: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/postgresql.md");
    let text = std::fs::read_to_string(path).unwrap();
    let begin = format!("```sql\n{first_line}\n");
    let (_, rest) = text.split_once(&begin).expect("the guide's example");
    rest.split_once("```").unwrap().0.to_owned()
}

/// Returns the statements for a role of one app from the guide.
fn guide(role: &str, app: &str) -> String {
    let sql = guide_example("-- A role of one app");
    sql.replace("crm_reader", role).replace("'crm'", &format!("'{app}'"))
}

/// A role that is limited to one app sees that app's rows, whatever it asks, sets or claims to be.
#[tokio::test(flavor = "multi_thread")]
async fn role_of_one_app_sees_only_its_rows() {
    let server = server();
    let url = server.database();
    let ledger = open(&url).await;
    for (byte, app) in [(1, "mine"), (2, "theirs")] {
        let own = App { name: AppName::new(app).unwrap(), created_at: at(1) };
        ledger.create_app(&own, Token::from_random([byte; 32]).hash()).await.unwrap();
        ledger
            .create_session(&session(app, byte), event(), &node(), OpenLimits::default())
            .await
            .unwrap();
        let noted = Some(RememberedTurn {
            session_id: "s".to_owned(),
            turn_index: 1,
            cwd: "/w".to_owned(),
            agent: "claude".to_owned(),
            prompt: "words".to_owned(),
            answers: Vec::new(),
            asked_at: at(1),
            ended_at: at(1),
        });
        let (usage, state) = (TurnUsage::default(), TurnState::Finished);
        let turn = SessionlessTurn { app: own.name, state, usage, outbox: noted };
        ledger.note_usage(&UsageNote::SessionlessTurn(turn), at(1)).await.unwrap();
    }
    server.sql(&url, &guide("limited", "mine"));
    // More than the guide grants: row-level security still limits the role.
    server.sql(&url, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA hob TO limited");
    let name = url.rsplit('/').next().unwrap();
    let limited = server.url_of("limited", name);
    for (table, column) in [
        ("apps", "name"),
        ("sessions", "app"),
        ("heads", "app"),
        ("events", "app"),
        ("usage", "app"),
        ("outbox", "app"),
    ] {
        let seen = server.sql(&limited, &format!("SELECT {column} FROM hob.{table}"));
        assert_eq!(seen, "mine", "of {table}");
        let tricks = "SET hob.app = 'theirs'; SET hob.scope = 'all'; SET row_security = on";
        let seen = server.sql(&limited, &format!("{tricks}; SELECT {column} FROM hob.{table}"));
        assert_eq!(seen, "mine", "of {table}");
    }
    assert_eq!(server.sql(&limited, "SELECT count(*) FROM hob.audit"), "0");
    assert_eq!(server.sql(&limited, "SELECT count(*) FROM hob.app_roles"), "0");
    for refused in [
        "INSERT INTO hob.outbox (app, body) VALUES ('theirs', 'x')",
        "INSERT INTO hob.app_roles VALUES ('limited', 'theirs')",
        "UPDATE hob.outbox SET app = 'theirs'",
        "UPDATE hob.heads SET app = 'theirs'",
        "INSERT INTO hob.events VALUES ('02020202020202020202020202020202', 9, 0, 0, 'theirs', '', '')",
        "SET ROLE hob",
        "SET row_security = off; SELECT * FROM hob.sessions",
        "ALTER TABLE hob.sessions DISABLE ROW LEVEL SECURITY",
        "CREATE OR REPLACE FUNCTION hob.app_of_role() RETURNS text LANGUAGE sql AS 'SELECT ''theirs'''",
        "TRUNCATE hob.events",
    ] {
        assert!(server.try_sql(&limited, refused).is_err(), "{refused}");
    }
    server.sql(&limited, "DELETE FROM hob.outbox; UPDATE hob.heads SET last_event = 77");
    let left = ledger.outbox(9, &[]).await.unwrap();
    assert_eq!(left.iter().map(|item| item.app.as_str()).collect::<Vec<_>>(), ["theirs"]);
    assert_eq!(server.sql(&url, "SELECT app FROM hob.heads WHERE last_event = 77"), "mine");
    // A role that stands for no app sees nothing.
    server.sql(&url, "DELETE FROM hob.app_roles");
    assert_eq!(server.sql(&limited, "SELECT count(*) FROM hob.sessions"), "0");
}

/// Several nodes come to an empty database at once: the schema is made once. One of a newer Hob is left alone.
#[tokio::test(flavor = "multi_thread")]
async fn the_schema_is_made_once_and_a_newer_one_is_left_alone() {
    let server = server();
    let url = server.database();
    let nothing = PostgresLedger::look(&url.parse().unwrap()).await.unwrap();
    assert_eq!(nothing.schema, None);
    let mut nodes = JoinSet::new();
    for _ in 0..6 {
        let url = url.clone();
        nodes.spawn(async move { open(&url).await.apps(AppFilter::All).await.unwrap().len() });
    }
    assert_eq!(nodes.join_all().await, [0; 6]);
    let state = PostgresLedger::look(&url.parse().unwrap()).await.unwrap();
    assert_eq!(state.schema, Some(state.known));
    assert!(state.version.starts_with(|c: char| c.is_ascii_digit()));
    server.sql(&url, "INSERT INTO hob.migrations (step) VALUES (1000)");
    let newer = connect(&url).await;
    assert!(matches!(newer, Err(ConnectError::Newer { found: 1000, .. })));
}

/// Makes a database of the last schema before the migrations were squashed, from its fixture.
fn old_database(server: &Postgres) -> String {
    let url = server.database();
    let fixture = include_str!("../fixtures/postgres_6.sql");
    let migrations = "CREATE SCHEMA hob;
        CREATE TABLE hob.migrations (step integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());
        INSERT INTO hob.migrations (step) SELECT generate_series(1, 6);";
    server.try_sql_as_named(&url, &format!("{migrations}\n{fixture}")).unwrap();
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn database_of_the_last_schema_is_imported_with_its_rows() {
    let server = server();
    let url = old_database(server);
    server.sql(
        &url,
        "INSERT INTO hob.sessions (id, created_at, app, agent, meta, cwd, permissions, mcp_servers)
             VALUES ('01010101-0101-0101-0101-010101010101', 1000000, 'a', 'claude', '{}', '/w', 'deny', '[]');
         INSERT INTO hob.heads (session, last_event, turn_count, app, fence, holder)
             VALUES ('01010101-0101-0101-0101-010101010101', 1, 1, 'a', 1, repeat('01', 16));
         INSERT INTO hob.turns (session, number, queued_at, app, state, prompt)
             VALUES ('01010101-0101-0101-0101-010101010101', 1, 2000000, 'a', 'queued', 'ask');
         INSERT INTO hob.events (session, seq, at, app, kind, body, fence)
             VALUES ('01010101-0101-0101-0101-010101010101', 1, 1000000, 'a', 'create', '{}', 1);
         INSERT INTO hob.nodes (id, beat_at, address) VALUES (repeat('01', 16), clock_timestamp(), '');
         INSERT INTO hob.errands (id, app, session, body)
             VALUES ('e', 'a', '01010101-0101-0101-0101-010101010101', '{}');",
    );
    let ledger = open(&url).await;
    let app = AppName::new("a").unwrap();
    let imported = ledger.session(&app, &id(1)).await.unwrap().unwrap();
    assert_eq!((imported.turn_count, imported.last_event, imported.busy), (1, 1, true));
    let turns = ledger.turns(&app, &id(1), TurnRange::One(1)).await.unwrap().unwrap();
    assert_eq!((turns.len(), turns[0].prompt.as_str()), (1, "ask"));
    assert_eq!(ledger.nodes().await.unwrap()[0].id, node());
    let pending = CommandFilter::Pending(node());
    assert_eq!(ledger.commands(&pending).await.unwrap()[0].id, "e");
    assert!(ledger.start_turn(&lease(1), 1, at(3)).await.unwrap(), "its lease still holds");
    let columns = "SELECT string_agg(table_name || '.' || column_name || ' ' || data_type, ','
             ORDER BY table_name, column_name)
         FROM information_schema.columns WHERE table_schema = 'hob'";
    let new = server.database();
    open(&new).await;
    assert_eq!(server.sql(&url, columns), server.sql(&new, columns));
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_of_older_schemas_are_refused() {
    let server = server();
    let url = old_database(server);
    server.sql(&url, "DELETE FROM hob.migrations WHERE step > 5");
    let refused = connect(&url).await;
    assert!(matches!(refused, Err(ConnectError::Older { found: 5, .. })));
    // A row that was stored before schema 6 has no sealed digest of its words.
    let url = old_database(server);
    let row = "INSERT INTO hob.memory_forgotten (speaker, session, words) VALUES ('', '', '')";
    server.sql(&url, row);
    let refused = connect(&url).await.err().unwrap().to_string();
    assert!(refused.contains("sealed digests"), "{refused}");
}

/// Errors of an address name the cause, and never the password.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_not_there_is_told_without_the_password() {
    let server = server();
    let folder = server.socket().parent().unwrap().display().to_string().replace('/', "%2F");
    for (url, word) in [
        (format!("postgres://hob:s3cret@{folder}/nowhere"), "nowhere"),
        (format!("postgres://nobody_knows:s3cret@{folder}/postgres"), "nobody_knows"),
        ("postgres://hob:s3cret@%2Fno%2Fsuch%2Ffolder/x".to_owned(), "/no/such/folder"),
        ("postgres://hob:s3cret@127.0.0.1:1/x".to_owned(), "127.0.0.1:1"),
        (
            format!(
                "postgres://hob:s3cret@{folder}/postgres?sslmode=verify-full&sslrootcert=/none"
            ),
            "cert",
        ),
    ] {
        let error = connect(&url).await.err().expect(&url);
        let text = format!("{error} {error:?}");
        assert!(text.contains(word) && !text.contains("s3cret"), "{text}");
    }
    let latin = "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0";
    server.sql(&server.url(), latin);
    let url = server.url_of("hob", "latin");
    let latin = connect(&url).await;
    assert!(matches!(latin, Err(ConnectError::Encoding { .. })));
}

/// The server crashes under writers and comes back: what was acknowledged is there under its number, no number is
/// missing, and the ledger goes on by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_loses_nothing_that_was_told() {
    let mut server = Postgres::start();
    let url = server.database();
    let ledger = open(&url).await;
    let mut writers = JoinSet::new();
    for byte in 1..=4 {
        ledger
            .create_session(&session("a", byte), event(), &node(), OpenLimits::default())
            .await
            .unwrap();
        let ledger = ledger.clone();
        writers.spawn(async move {
            let (mut told, mut refused) = (Vec::new(), 0);
            let until = std::time::Instant::now() + Duration::from_millis(2500);
            while std::time::Instant::now() < until {
                let body = format!("{{\"n\":{}}}", told.len() + refused);
                let said = NewEvent { body, ..event() };
                match ledger.append_events(&lease(byte), vec![said], at(2)).await {
                    Ok(stored) => told.extend(stored),
                    Err(StoreError::Unavailable(_)) => refused += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            (byte, told)
        });
    }
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        tokio::task::block_in_place(|| {
            server.crash();
            server.start_again();
        });
    }
    let reader = ledger.apps(AppFilter::All).await.unwrap();
    assert!(reader.is_empty(), "reads go on by themselves");
    let app = AppName::new("a").unwrap();
    for (byte, told) in writers.join_all().await {
        assert!(told.len() > 10, "only {} were told", told.len());
        let all = EventRange::After { after: 0, limit: usize::MAX };
        let found = ledger.events(&app, &id(byte), all).await.unwrap().unwrap();
        assert!(found.iter().map(|event| event.seq).eq(1..=found.len() as u64), "without a gap");
        for event in &told {
            assert_eq!(found[event.seq as usize - 1], *event);
        }
        assert!(told.is_sorted_by(|a, b| a.seq < b.seq));
    }
}

/// A caller that goes away in the middle leaves no transaction open behind it, and no lock.
#[tokio::test(flavor = "multi_thread")]
async fn who_goes_away_leaves_no_lock() {
    let url = server().database();
    let ledger = Arc::new(open(&url).await);
    ledger.create_session(&session("a", 1), event(), &node(), OpenLimits::default()).await.unwrap();
    let app = AppName::new("a").unwrap();
    for wait in 0..40 {
        let request = hob_domain::session::TurnRequest {
            prompt: "p".to_owned(),
            files: Vec::new(),
            idempotency: None,
            queue: 1000,
        };
        let ledger = ledger.clone();
        let (app, one) = (app.clone(), id(1));
        let asked = async move { ledger.accept_turn(&app, &one, &request, at(2)).await };
        let _ = tokio::time::timeout(Duration::from_micros(wait * 50), asked).await;
    }
    let one = id(1);
    let close = ledger.close_session(&one, event(), at(3));
    assert!(tokio::time::timeout(Duration::from_secs(5), close).await.unwrap().unwrap());
    let open = "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    hob_testkit::wait_until("no transaction is left open", || {
        (server().sql(&url, open) == "0").then_some(())
    });
}

/// What is asked thousands of times a second goes straight to its rows, in a ledger of some size.
#[tokio::test(flavor = "multi_thread")]
async fn quick_questions_look_at_no_more_than_they_need() {
    let server = server();
    let url = server.database();
    let ledger = open(&url).await;
    for byte in 1..=50 {
        ledger
            .create_session(&session("a", byte), event(), &node(), OpenLimits::default())
            .await
            .unwrap();
        ledger.append_events(&lease(byte), vec![event(); 200], at(2)).await.unwrap();
    }
    let one = id(7).to_string();
    for (what, sql) in [
        (
            "a page",
            format!(
                "SELECT seq, body FROM hob.events WHERE session = '{one}' AND seq > 3 ORDER BY seq LIMIT 9"
            ),
        ),
        (
            "the last page",
            format!(
                "SELECT seq, body FROM hob.events WHERE session = '{one}' AND seq < 99 ORDER BY seq DESC LIMIT 9"
            ),
        ),
        (
            "a head",
            format!("UPDATE hob.heads SET last_event = last_event + 1 WHERE session = '{one}'"),
        ),
        (
            "what waits",
            format!(
                "SELECT number FROM hob.turns WHERE session = '{one}' AND state IN ('queued', 'running')"
            ),
        ),
        ("a token", "SELECT name FROM hob.apps WHERE token_hash = 'x'".to_owned()),
    ] {
        let settings = "ANALYZE; SET enable_seqscan = off; SET hob.scope = 'app:a'";
        let plan = server.try_sql_as_named(&url, &format!("{settings}; EXPLAIN {sql}")).unwrap();
        assert!(plan.contains("Index") && !plan.contains("Seq Scan"), "{what}: {plan}");
    }
    // An event changes the session's head on its own page and in no index.
    ledger.append_events(&lease(7), vec![event()], at(3)).await.unwrap();
    let hot = "SELECT pg_stat_force_next_flush(); SELECT n_tup_hot_upd * 10 > n_tup_upd * 8
         FROM pg_stat_user_tables WHERE schemaname = 'hob' AND relname = 'heads'";
    hob_testkit::wait_until("changes of heads stay on their page", || {
        server.sql(&url, hot).ends_with('t').then_some(())
    });
}

/// Not a check: `cargo test --release -p hob-store --test postgres -- --ignored --nocapture figures`
#[tokio::test(flavor = "multi_thread")]
#[ignore = "figures, not a check"]
async fn figures() {
    let url = server().database();
    let ledger = open(&url).await;
    let mut byte = 0;
    for (writers, size) in [(1, 1), (16, 1), (64, 1), (16, 10_u8)] {
        let mut tasks = JoinSet::new();
        let until = std::time::Instant::now() + Duration::from_secs(3);
        for _ in 0..writers {
            byte += 1;
            let byte = byte;
            ledger
                .create_session(&session("a", byte), event(), &node(), OpenLimits::default())
                .await
                .unwrap();
            let ledger = ledger.clone();
            tasks.spawn(async move {
                let said = NewEvent { body: "x".repeat(300), ..event() };
                let mut stored = 0_u64;
                while std::time::Instant::now() < until {
                    let events = vec![said.clone(); usize::from(size)];
                    ledger.append_events(&lease(byte), events, at(2)).await.unwrap();
                    stored += u64::from(size);
                }
                stored
            });
        }
        let stored: u64 = tasks.join_all().await.into_iter().sum();
        println!("{writers} sessions, {size} at a time: {} events/s", stored / 3);
    }
}
