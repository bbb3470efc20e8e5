//! The PostgreSQL endpoint of a migration of the memory.

use async_trait::async_trait;
use hob_domain::StoreError;
use hob_domain::memory::VectorKind;
use tokio_postgres::{Error, Row as SqlRow};

use super::migrate_rows::{decrypt_row, put_rows};
use super::rows::ask;
use super::{PostgresMemory, migrate_turns, vectors};
use crate::migrate::{Analyse, Cell, Cells, Endpoint, MemoryPart, MigratedTurn, Row, TargetState};
use crate::postgres::connections::{Again, Client};

/// A memory in a database, and the function that analyses the turns that arrive.
pub(crate) struct MemoryOnServer {
    pub(crate) memory: PostgresMemory,
    pub(crate) analyse: Analyse,
}

/// Returns how a part is read: its columns, its table, and its key, which it is ordered by.
fn reading(part: MemoryPart) -> (&'static str, &'static str, &'static str) {
    match part {
        MemoryPart::Projects => ("id, speaker, root", "hob.memory_projects", "id"),
        MemoryPart::Sessions => {
            ("id, speaker, name, client, project, started, ended", "hob.memory_sessions", "id")
        }
        MemoryPart::Kinds => ("id, name, width", "hob.memory_kinds", "id"),
        MemoryPart::Turns => (
            "seq, id, speaker, session, project, body, key, key_kept, answer, answer_kept, nth, words,
                 words_kept, role, tier, sealed, ts, at, client, source, superseded_by, supersedes, rules",
            "hob.memory_turns",
            "seq",
        ),
        MemoryPart::ModelVectors => {
            ("seq, kind, vector, speaker", "hob.memory_model_vectors", "seq, kind")
        }
        MemoryPart::Forgotten => (
            "id, speaker, name, words, words_kept, key, key_kept, answer, answer_kept, nth",
            "hob.memory_forgotten",
            "id",
        ),
        MemoryPart::ForgottenSessions => {
            ("speaker, name, until", "hob.memory_forgotten_sessions", "speaker, session")
        }
        // Marks without a digest are left out: those transcripts are read again, and their turns
        // are recognised.
        MemoryPart::Imports => (
            "path, path_kept, size, modified",
            "(SELECT * FROM hob.memory_imports WHERE path_kept IS NOT NULL) i",
            "path",
        ),
        MemoryPart::Events => ("id, at, kind, detail", "hob.memory_events", "id"),
        MemoryPart::Numbers => (
            "name, last",
            "(SELECT 'projects' AS name, last_project AS last FROM hob.memory_state
              UNION ALL SELECT 'sessions', last_session FROM hob.memory_state
              UNION ALL SELECT 'turns', last_seq FROM hob.memory_state) n",
            "name",
        ),
    }
}

#[async_trait]
impl Endpoint<MemoryPart> for MemoryOnServer {
    async fn page(
        &self,
        part: MemoryPart,
        after: Option<Row>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        if part.is_whole() && after.is_some() {
            return Ok(Vec::new());
        }
        let (columns, table, key) = reading(part);
        let mut after_values = Vec::new();
        for cell in after.into_iter().flatten() {
            after_values.push(Cells::of(vec![cell]).number()?);
        }
        let condition = match after_values.len() {
            0 => String::new(),
            1 => format!("WHERE {key} > $1"),
            _ => format!("WHERE ({key}) > ($1, $2)"),
        };
        let limit = if part.is_whole() { "ALL".to_owned() } else { limit.to_string() };
        let sql = format!("SELECT {columns} FROM {table} {condition} ORDER BY {key} LIMIT {limit}");
        let values: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> =
            after_values.iter().map(|value| value as _).collect();
        let found = self.memory.of_all().query(Again::Harmless, &sql, &values).await?;
        let cipher = &self.memory.cipher;
        let mut rows = found
            .iter()
            .map(|row| decrypt_row(cipher, part, row))
            .collect::<Result<Vec<Row>, _>>()?;
        if part.is_whole() {
            rows.sort_by_cached_key(sortable);
        }
        Ok(rows)
    }

    async fn put(&self, part: MemoryPart, rows: Vec<Row>) -> Result<(), StoreError> {
        match part {
            MemoryPart::Turns => self.put_turns(rows).await,
            MemoryPart::ModelVectors => self.put_vectors(rows).await,
            _ => put_rows(&self.memory, part, rows).await,
        }
    }

    async fn last(&self, part: MemoryPart) -> Result<Option<Row>, StoreError> {
        if part.is_whole() {
            return Ok(None);
        }
        let (_, table, key) = reading(part);
        let order = key.replace(", ", " DESC, ");
        let sql = format!("SELECT {key} FROM {table} ORDER BY {order} DESC LIMIT 1");
        let found = self.memory.of_all().query(Again::Harmless, &sql, &[]).await?;
        let cells = |row: &SqlRow| {
            (0..row.len()).map(|column| Cell::Number(row.get(column))).collect::<Row>()
        };
        Ok(found.first().map(cells))
    }

    async fn count(&self, part: MemoryPart) -> Result<u64, StoreError> {
        let (_, table, _) = reading(part);
        let rows = self.query_slowly(&format!("SELECT count(*) FROM {table}")).await?;
        Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0) as u64))
    }

    async fn target_state(&self) -> Result<TargetState, StoreError> {
        let used = [
            "turns",
            "sessions",
            "projects",
            "forgotten",
            "forgotten_sessions",
            "imports",
            "events",
        ]
        .map(|table| format!("EXISTS (SELECT 1 FROM hob.memory_{table})"));
        let sql = format!("SELECT moving, {} FROM hob.memory_state", used.join(" OR "));
        let rows = self.memory.of_all().query(Again::Harmless, &sql, &[]).await?;
        let state = rows.first().map(|row| (row.get::<_, bool>(0), row.get::<_, bool>(1)));
        Ok(match state {
            Some((true, _)) => TargetState::PartiallyMigrated,
            Some((false, true)) => TargetState::InUse,
            _ => TargetState::Unknown,
        })
    }

    /// An empty memory may have been in use before, so its numbers and its merge state are reset.
    async fn begin(&self) -> Result<(), StoreError> {
        if self.target_state().await? != TargetState::Unknown {
            return Ok(());
        }
        self.memory
            .of_all()
            .long_transaction(|client| async move {
                ask(&client, "UPDATE hob.memory_state SET moving = true", &[]).await?;
                clear(&client).await
            })
            .await
    }

    async fn clear(&self) -> Result<(), StoreError> {
        self.memory.of_all().long_transaction(|client| async move { clear(&client).await }).await
    }

    /// Sets the sequences, so that new rows get numbers after those that have arrived.
    async fn finish(&self) -> Result<(), StoreError> {
        for table in ["memory_forgotten", "memory_events", "memory_kinds"] {
            let sql = format!(
                "SELECT setval(pg_get_serial_sequence('hob.{table}', 'id'),
                     (SELECT coalesce(max(id), 0) + 1 FROM hob.{table}), false)"
            );
            self.memory.write_again(&sql, &[]).await?;
        }
        Ok(())
    }

    async fn complete(&self) -> Result<(), StoreError> {
        self.memory
            .of_all()
            .long_transaction(|client| async move {
                // The first queries need statistics for good plans.
                for table in memory_tables(&client).await? {
                    client.batch_execute(&format!("ANALYZE hob.{table}")).await?;
                }
                ask(&client, "UPDATE hob.memory_state SET moving = false", &[]).await.map(drop)
            })
            .await
    }
}

/// Returns the tables of the memory and its index.
async fn memory_tables(client: &Client) -> Result<Vec<String>, Error> {
    let sql = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'hob'
         AND tablename LIKE 'memory\\_%' AND tablename NOT IN ('memory_state', 'memory_merge')";
    Ok(ask(client, sql, &[]).await?.iter().map(|row| row.get(0)).collect())
}

async fn clear(client: &Client) -> Result<(), Error> {
    let state = ask(client, "SELECT moving FROM hob.memory_state FOR UPDATE", &[]).await?;
    // A memory that is in use is never cleared.
    if !state.first().is_some_and(|row| row.get(0)) {
        return Ok(());
    }
    let tables =
        memory_tables(client).await?.iter().map(|name| format!("hob.{name}")).collect::<Vec<_>>();
    let sql = format!(
        "TRUNCATE {}; UPDATE hob.memory_state SET last_seq = 0, last_project = 0, last_session = 0;
         DELETE FROM hob.memory_merge;
         INSERT INTO hob.memory_merge (id, merged, next, done_project, done_term, changed)
             VALUES (1, 0, 0, 0, 0, 0)",
        tables.join(", ")
    );
    client.batch_execute(&sql).await
}

impl MemoryOnServer {
    /// Runs a query that may read all rows.
    async fn query_slowly(&self, sql: &str) -> Result<Vec<SqlRow>, StoreError> {
        self.memory
            .of_all()
            .long_transaction(|client| async move { ask(&client, sql, &[]).await })
            .await
    }

    async fn put_turns(&self, rows: Vec<Row>) -> Result<(), StoreError> {
        let mut turns = Vec::new();
        for row in rows {
            let turn = MigratedTurn::of(row)?;
            let analysed = (self.analyse)(&turn.text, turn.cue.as_deref());
            turns.push(migrate_turns::Arrived::new(turn, analysed)?);
        }
        let (cipher, turns) = (&*self.memory.cipher, &turns[..]);
        let newest = self
            .memory
            .of_all()
            .long_transaction(
                |client| async move { migrate_turns::put(&client, cipher, turns).await },
            )
            .await?;
        self.memory.merge(turns.len(), newest).await;
        Ok(())
    }

    async fn put_vectors(&self, rows: Vec<Row>) -> Result<(), StoreError> {
        let mut kinds: std::collections::BTreeMap<i64, Vec<(i64, Vec<i8>)>> = Default::default();
        for row in rows {
            let mut cells = Cells::of(row);
            let (seq, kind, vector) = (cells.number()?, cells.number()?, cells.bytes()?);
            let vector = vector.into_iter().map(u8::cast_signed).collect();
            kinds.entry(kind).or_default().push((seq, vector));
        }
        let (cipher, kinds) = (&*self.memory.cipher, &kinds);
        self.memory
            .of_all()
            .long_transaction(|client| async move {
                for (kind, vectors) in kinds {
                    vectors::save(&client, cipher, VectorKind(*kind), vectors).await?;
                }
                Ok(())
            })
            .await
    }
}

/// Returns the sort key of a row of an unkeyed part, in the order that SQLite uses.
fn sortable(row: &Row) -> Vec<Vec<u8>> {
    let bytes = |cell: &Cell| match cell {
        Cell::Text(text) => text.as_bytes().to_vec(),
        Cell::Bytes(bytes) => bytes.clone(),
        _ => Vec::new(),
    };
    row.iter().take(2).map(bytes).collect()
}
