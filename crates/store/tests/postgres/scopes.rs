//! Row-level security binds Hob's own role: a transaction sees and changes the rows of its scope, and none without one.

use hob_domain::{AppFilter, AppStore};
use hob_store::{ConnectError, PostgresLedger};

use super::{connect, guide_example, open, server};

/// Rows of one app in every table that has apps. `:app` is its name, and `:n` a number of its own.
const ROWS_OF_APP: &str = "
    INSERT INTO hob.apps VALUES (':app', 'hash :n', '2026-01-01T00:00:00Z');
    INSERT INTO hob.sessions (id, created_at, app, agent, meta, cwd, permissions, mcp_servers)
        VALUES (lpad(':n', 32, '0')::uuid, 1, ':app', 'claude', '{}', '/w', 'deny', '[]');
    INSERT INTO hob.heads (session, last_event, turn_count, app)
        VALUES (lpad(':n', 32, '0')::uuid, 1, 1, ':app');
    INSERT INTO hob.turns (session, number, queued_at, app, state, prompt)
        VALUES (lpad(':n', 32, '0')::uuid, 1, 1, ':app', 'queued', 'p');
    INSERT INTO hob.events (session, seq, at, app, kind, body)
        VALUES (lpad(':n', 32, '0')::uuid, 1, 1, ':app', 'message', '{}');
    INSERT INTO hob.usage VALUES (':app', 1, 1, 0, 0, 0, 0, 0, 1, 0);
    INSERT INTO hob.outbox (app, body) VALUES (':app', '{}');
    INSERT INTO hob.commands (id, app, session, body)
        VALUES (':n', ':app', lpad(':n', 32, '0')::uuid, '{}');
    INSERT INTO hob.pace VALUES (':app', now());
    INSERT INTO hob.files (app, id, part, last, name, bytes)
        VALUES (':app', 'f', 0, true, 'n', '');
    INSERT INTO hob.documents (app, id, created_at, input, body)
        VALUES (':app', 'd', 1, '', '{}');";

/// Rows of one principal in every table of the memory that has principals.
const ROWS_OF_PRINCIPAL: &str = "
    INSERT INTO hob.memory_projects VALUES (:n, 1, 1, 1, ':app', '\\x0:n', '');
    INSERT INTO hob.memory_sessions
        VALUES (:n, :n, 1, 1, 1, 1, false, ':app', 'c', '\\x0:n', '');
    INSERT INTO hob.memory_turns (seq, session, project, ts, at, chars, rules, speaker, role, tier,
            client, source, id_key, id, words, body, terms)
        VALUES (:n, :n, :n, 1, 1, 1, 1, ':app', 'user', 'episodic', 'c', 's', '\\x0:n', '', '', '',
            '');
    INSERT INTO hob.memory_standing VALUES (:n, :n, :n, 1, 1, 1, ':app');
    INSERT INTO hob.memory_vectors (seq, project, session, ts, speaker, vector)
        VALUES (:n, :n, :n, 1, ':app', '');
    INSERT INTO hob.memory_codes VALUES (:n, 1, 1, ':app', '');
    INSERT INTO hob.memory_runs VALUES (:n, 1, 1, ':app', '');
    INSERT INTO hob.memory_recent VALUES (:n, 1, 1, ':app', '');
    INSERT INTO hob.memory_forgotten (speaker, session, words) VALUES (':app', '', '');
    INSERT INTO hob.memory_forgotten_sessions (speaker, session, until) VALUES (':app', '', 1);
    INSERT INTO hob.memory_model_vectors (seq, kind, project, session, ts, speaker, vector)
        VALUES (:n, 1, :n, :n, 1, ':app', '');";

/// Rows of tables that have no apps. `memory_merge` has one from the start.
const OTHER_ROWS: &str = "
    INSERT INTO hob.nodes VALUES ('n', now());
    INSERT INTO hob.audit (at, action, target, detail) VALUES (1, 'a', 't', '{}');
    INSERT INTO hob.app_roles VALUES ('nobody', 'mine');
    INSERT INTO hob.memory_state (id, encrypted, key_check) VALUES (1, true, '');
    INSERT INTO hob.memory_kinds (name, width) VALUES ('m', 384);
    INSERT INTO hob.memory_imports (path, size, modified) VALUES ('', 1, 1);
    INSERT INTO hob.memory_events (at, kind, detail) VALUES (1, 'k', '');";

/// Tables without apps whose rows every scope has. The rows of other tables without apps are for the scope `all`.
const SHARED: [&str; 5] =
    ["nodes", "memory_state", "memory_merge", "memory_kinds", "memory_imports"];

/// A table, and its column with the name of an app or principal.
struct Table {
    name: String,
    column: Option<String>,
}

/// A database in which every table has rows, of two apps and of the owner.
struct Filled {
    url: String,
    tables: Vec<Table>,
}

impl Filled {
    /// Makes the database. The schema `public` has copies of all tables, without row-level security.
    async fn new() -> Filled {
        let server = server();
        let url = server.database();
        open(&url).await;
        for (n, app) in [("1", "mine"), ("2", "theirs")] {
            let rows = format!("{ROWS_OF_APP} {ROWS_OF_PRINCIPAL}");
            server.sql(&url, &rows.replace(":app", app).replace(":n", n));
        }
        server.sql(&url, &ROWS_OF_PRINCIPAL.replace(":app", "").replace(":n", "3"));
        server.sql(&url, OTHER_ROWS);
        let sql = "SELECT t.tablename, coalesce(min(c.column_name), '') FROM pg_tables t
             LEFT JOIN information_schema.columns c
                 ON c.table_schema = 'hob' AND c.table_name = t.tablename
                 AND (c.column_name IN ('app', 'speaker') AND t.tablename <> 'app_roles'
                     OR c.column_name = 'name' AND t.tablename = 'apps')
             WHERE t.schemaname = 'hob' AND t.tablename <> 'migrations' GROUP BY 1 ORDER BY 1";
        let listed = server.sql(&url, sql);
        let table = |line: &str| {
            let (name, column) = line.split_once('|').expect("two columns");
            let column = Some(column.to_owned()).filter(|column| !column.is_empty());
            Table { name: name.to_owned(), column }
        };
        let tables: Vec<Table> = listed.lines().map(table).collect();
        for Table { name, .. } in &tables {
            server.sql(&url, &format!("CREATE TABLE public.{name} AS TABLE hob.{name}"));
            let count = server.sql(&url, &format!("SELECT count(*) FROM hob.{name}"));
            assert_ne!(count, "0", "{name} has rows");
        }
        server.sql(&url, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO hob");
        Filled { url, tables }
    }

    /// Runs a statement as Hob's role in a transaction with a scope, and rolls it back. The empty scope is none.
    fn try_within(&self, scope: &str, statement: &str) -> Result<String, String> {
        let set = match scope {
            "" => String::new(),
            scope => format!("SET LOCAL hob.scope = '{scope}';"),
        };
        server().try_sql_as_named(&self.url, &format!("BEGIN; {set} {statement}; ROLLBACK"))
    }

    fn within(&self, scope: &str, statement: &str) -> String {
        let answer = self.try_within(scope, statement);
        answer.unwrap_or_else(|error| panic!("{scope}: {statement}: {error}"))
    }

    fn count(&self, scope: &str, table: &str) -> String {
        self.within(scope, &format!("SELECT count(*) FROM hob.{table}"))
    }

    fn assert_refused(&self, scope: &str, statement: &str) {
        let error = self.try_within(scope, statement).err();
        let error = error.unwrap_or_else(|| panic!("{scope}: {statement}: not refused"));
        assert!(error.contains("row-level security"), "{scope}: {statement}: {error}");
    }
}

/// What every app is limited by holds for new tables, too.
#[tokio::test(flavor = "multi_thread")]
async fn every_table_forces_row_level_security() {
    let server = server();
    let url = server.database();
    open(&url).await;
    let bypassing = "SELECT string_agg(relname, ', ') FROM pg_class c
         WHERE relnamespace = 'hob'::regnamespace AND relkind IN ('r', 'p') AND relname <> 'migrations'
         AND NOT (relrowsecurity AND relforcerowsecurity AND EXISTS (SELECT 1 FROM pg_policy
             WHERE polrelid = c.oid AND polname = 'scope' AND polroles = ARRAY['hob'::regrole::oid]))";
    assert_eq!(server.sql(&url, bypassing), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn hobs_role_sees_and_inserts_nothing_without_a_scope() {
    let filled = Filled::new().await;
    for Table { name, .. } in &filled.tables {
        assert_eq!(filled.count("", name), "0", "{name}");
        let insert = format!(
            "INSERT INTO hob.{name} OVERRIDING SYSTEM VALUE SELECT * FROM public.{name} LIMIT 1"
        );
        filled.assert_refused("", &insert);
    }
    // A scope ends with its transaction.
    let later = "BEGIN; SET LOCAL hob.scope = 'all'; SELECT count(*) FROM hob.apps; COMMIT;
         SELECT count(*) FROM hob.apps";
    assert_eq!(server().try_sql_as_named(&filled.url, later).unwrap(), "2\n0");
}

#[tokio::test(flavor = "multi_thread")]
async fn scope_of_an_app_has_no_rows_of_another() {
    let filled = Filled::new().await;
    let mut with_apps = 0;
    for Table { name, column } in &filled.tables {
        let Some(column) = column else { continue };
        with_apps += 1;
        for (scope, own) in [("app:mine", "mine"), ("app:theirs", "theirs"), ("owner", "")] {
            if own.is_empty() && !name.starts_with("memory_") {
                assert_eq!(filled.count(scope, name), "0", "{name}");
                continue;
            }
            let read = format!("SELECT string_agg(DISTINCT {column}, ',') FROM hob.{name}");
            let update = format!(
                "WITH changed AS (UPDATE hob.{name} SET {column} = {column} RETURNING {column})
                 SELECT string_agg(DISTINCT {column}, ',') FROM changed"
            );
            let delete = format!(
                "WITH gone AS (DELETE FROM hob.{name} RETURNING {column})
                 SELECT string_agg(DISTINCT {column}, ',') FROM gone"
            );
            for statement in [read, update, delete] {
                assert_eq!(filled.within(scope, &statement), own, "{statement}");
            }
            // The owner's name is empty, so that the rows are counted, too.
            assert_eq!(filled.count(scope, name), "1", "{name}");
        }
        filled.assert_refused("app:mine", &format!("UPDATE hob.{name} SET {column} = 'theirs'"));
        let insert = format!(
            "INSERT INTO hob.{name} OVERRIDING SYSTEM VALUE
             SELECT * FROM public.{name} WHERE {column} = 'theirs'"
        );
        filled.assert_refused("app:mine", &insert);
        filled.assert_refused("shared", &insert);
        assert_eq!(filled.count("shared", name), "0", "{name}");
        assert_eq!(filled.count("app:all", name), "0", "{name}");
        assert_ne!(filled.count("all", name), "0", "{name}");
    }
    assert_eq!(with_apps, 22, "tables with apps");
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_without_apps_are_shared_or_the_owners() {
    let filled = Filled::new().await;
    for Table { name, .. } in filled.tables.iter().filter(|table| table.column.is_none()) {
        let seen = if SHARED.contains(&name.as_str()) { "1" } else { "0" };
        for scope in ["app:mine", "owner", "shared"] {
            assert_eq!(filled.count(scope, name), seen, "{scope}: {name}");
        }
        assert_eq!(filled.count("all", name), "1", "{name}");
    }
}

/// Tables that another role owns are useless to it until the policies name it.
#[tokio::test(flavor = "multi_thread")]
async fn role_without_policies_is_refused() {
    let server = server();
    let url = server.database();
    open(&url).await;
    let name = url.rsplit('/').next().unwrap();
    let heir = format!("heir_{name}");
    server.sql(&url, &format!("CREATE ROLE {heir} LOGIN; GRANT USAGE ON SCHEMA hob TO {heir}"));
    server.sql(&url, &format!("GRANT SELECT ON ALL TABLES IN SCHEMA hob TO {heir}"));
    let own = server.url_of(&heir, name);
    let error = connect(&own).await.err().unwrap();
    assert!(matches!(error, ConnectError::OtherRole { .. }), "{error}");
    server.sql(&url, &guide_example("-- Another role for Hob").replace("new_role", &heir));
    let ledger = connect(&own).await.unwrap();
    assert_eq!(ledger.apps(AppFilter::All).await.unwrap(), []);
    let state = PostgresLedger::look(&own.parse().unwrap()).await.unwrap();
    assert!(!state.bypasses_row_security);
    server.sql(&url, &format!("ALTER ROLE {heir} BYPASSRLS"));
    let state = PostgresLedger::look(&own.parse().unwrap()).await.unwrap();
    assert!(state.bypasses_row_security);
}
