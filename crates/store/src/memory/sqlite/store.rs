//! The storage port of the memory over a SQLite file.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hob_domain::memory::{
    CandidateQuery, CandidateSet, Counts, Embedded, Facets, Forgetting, ImportMark,
    MAX_MAINTENANCE_EVENTS, MaintenanceEvent, MemoryStore, NewTurn, PageFilter, Principal, Record,
    RecordId, Remask, Scope, SessionOutline, Stored, Superseded, TurnSelection, UnembeddedPage,
    VectorKind, VectorStore,
};
use hob_domain::{DataKey, StoreError};
use rusqlite::{named_params, params};

use super::cache::IndexCache;
use super::candidates::{Caches, candidates};
use super::facets::facets;
use super::merge::Merging;
use super::rows::{latest_sessions, page, select, time};
use super::sign_codes::CodeCaches;
use super::{forget, remask, store_turns, vectors};
use crate::sqlite::{
    Database, EarlierSchema, OpenError, Reading, failed, migrations, set_cache_share,
};

/// The page cache of a connection to a large file, in KiB.
const MAX_PAGE_CACHE_KIB: u64 = 32_000;
const READING: Reading = Reading { readers: 4, max_cache_kib: MAX_PAGE_CACHE_KIB };
/// A caller that stores this many turns at once will store more, and will touch pages all over the
/// indexes.
const LARGE_BATCH_TURNS: usize = 100;

/// The memory in `memory.db`. Clones share it.
#[derive(Clone)]
pub struct Memory {
    pub(super) database: Database,
    codes: Arc<CodeCaches>,
    index: Arc<IndexCache>,
    pub(super) merging: Arc<Merging>,
}

impl Memory {
    /// Opens the memory, creates the file if there is none, and migrates its schema. A call waits
    /// at most `busy` for another process that is writing. This blocks for a few milliseconds.
    pub fn open(path: &Path, key: &DataKey, busy: Duration) -> Result<Memory, OpenError> {
        Memory::open_with(path, key, busy, EarlierSchema::Migrate)
    }

    /// Opens the memory like [`Memory::open`]. Fails with [`OpenError::Earlier`] instead of migrating the schema.
    pub fn open_current(path: &Path, key: &DataKey, busy: Duration) -> Result<Memory, OpenError> {
        Memory::open_with(path, key, busy, EarlierSchema::Refuse)
    }

    fn open_with(
        path: &Path,
        key: &DataKey,
        busy: Duration,
        earlier: EarlierSchema,
    ) -> Result<Memory, OpenError> {
        let schema = &migrations::MEMORY;
        Ok(Memory::on(Database::open(path, key, schema, busy, READING, earlier)?))
    }

    /// Opens a memory that exists in a folder that cannot be written.
    pub fn open_read_only(path: &Path, key: &DataKey, busy: Duration) -> Result<Memory, OpenError> {
        Ok(Memory::on(Database::open_read_only(path, key, &migrations::MEMORY, busy, READING)?))
    }

    fn on(database: Database) -> Memory {
        Memory { database, codes: Arc::default(), index: Arc::default(), merging: Arc::default() }
    }
}

#[async_trait]
impl MemoryStore for Memory {
    async fn store_turns(
        &self,
        principal: &Principal,
        turns: Vec<NewTurn>,
        marks: Vec<ImportMark>,
    ) -> Result<Stored, StoreError> {
        let (principal, merging) = (principal.clone(), self.merging.clone());
        let stored = self
            .database
            .write(move |transaction| {
                if turns.len() >= LARGE_BATCH_TURNS {
                    set_cache_share(transaction, MAX_PAGE_CACHE_KIB).map_err(failed)?;
                }
                store_turns::store(transaction, principal.as_str(), &turns, &marks, &merging)
            })
            .await;
        let (stored, newest) = stored?;
        self.merging.is_committed(newest);
        Ok(stored)
    }

    async fn supersede(
        &self,
        principal: &Principal,
        old: &RecordId,
        turn: NewTurn,
    ) -> Result<Superseded, StoreError> {
        let (principal, old) = (principal.clone(), old.clone());
        self.database
            .write(move |transaction| {
                store_turns::supersede(transaction, principal.as_str(), &old, &turn)
            })
            .await
    }

    async fn forget(&self, step: Forgetting) -> Result<usize, StoreError> {
        // Erased turns have no codes any more.
        let has_codes = !matches!(step, Forgetting::Erase { .. });
        let count =
            self.database.write(move |transaction| forget::forget(transaction, &step)).await?;
        if has_codes {
            self.codes.clear();
        }
        Ok(count)
    }

    async fn candidates(
        &self,
        principal: &Principal,
        scope: &Scope,
        query: CandidateQuery,
    ) -> Result<CandidateSet, StoreError> {
        let (principal, scope) = (principal.clone(), scope.clone());
        let (index, codes) = (self.index.clone(), self.codes.clone());
        self.database
            .read(move |connection| {
                let caches = Caches { index: &index, codes: &codes };
                candidates(connection, caches, principal.as_str(), &scope, &query).map_err(failed)
            })
            .await
    }

    async fn turns(
        &self,
        principal: &Principal,
        selection: TurnSelection,
    ) -> Result<Vec<Record>, StoreError> {
        let principal = principal.clone();
        self.database
            .read(move |connection| {
                select(connection, principal.as_str(), &selection).map_err(failed)
            })
            .await
    }

    async fn latest_sessions(
        &self,
        principal: &Principal,
        project: &str,
        except: Option<&str>,
        limit: usize,
    ) -> Result<Vec<SessionOutline>, StoreError> {
        let (principal, project) = (principal.clone(), project.to_owned());
        let except = except.unwrap_or_default().to_owned();
        self.database
            .read(move |connection| {
                latest_sessions(connection, principal.as_str(), &project, &except, limit)
                    .map_err(failed)
            })
            .await
    }

    async fn projects_named(
        &self,
        principal: &Principal,
        name: &str,
    ) -> Result<Vec<String>, StoreError> {
        let (principal, name) = (principal.clone(), name.to_owned());
        self.database
            .read(move |connection| {
                let mut statement = connection
                    .prepare_cached("SELECT root FROM projects WHERE speaker = ?1 ORDER BY root")
                    .map_err(failed)?;
                let roots = statement
                    .query_map([principal.as_str()], |row| row.get::<_, String>(0))
                    .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                    .map_err(failed)?;
                let ends = |root: &String| {
                    *root == name || root.rsplit('/').next().is_some_and(|last| last == name)
                };
                Ok(roots.into_iter().filter(ends).collect())
            })
            .await
    }

    async fn page(&self, filter: &PageFilter, limit: usize) -> Result<Vec<Record>, StoreError> {
        let filter = filter.clone();
        self.database.read(move |connection| page(connection, &filter, limit).map_err(failed)).await
    }

    async fn remask(&self, changes: Vec<Remask>) -> Result<(), StoreError> {
        self.database
            .write(move |transaction| remask::remask(transaction, &changes).map_err(failed))
            .await
            .map(|has_other_codes| match has_other_codes {
                true => self.codes.clear(),
                false => self.codes.model.clear(),
            })
    }

    async fn counts(&self, principal: &Principal) -> Result<Counts, StoreError> {
        let principal = principal.clone();
        self.database
            .read(move |connection| {
                connection
                    .prepare_cached(
                        "SELECT (SELECT coalesce(sum(turns), 0) FROM sessions WHERE speaker = :s),
                                (SELECT count(*) FROM sessions WHERE speaker = :s),
                                (SELECT count(*) FROM projects WHERE speaker = :s),
                                (SELECT count(*) FROM turns WHERE speaker = :s AND sealed IS NOT NULL),
                                (SELECT count(*) FROM turns WHERE speaker = :s
                                     AND superseded_by IS NOT NULL),
                                (SELECT count(*) FROM forgotten WHERE speaker = :s),
                                (SELECT max(ended) FROM sessions WHERE speaker = :s)",
                    )
                    .and_then(|mut s| {
                        s.query_row(named_params! {":s": principal.as_str()}, |row| {
                            let last: Option<i64> = row.get(6)?;
                            Ok(Counts {
                                turns: row.get::<_, i64>(0)? as u64,
                                sessions: row.get::<_, i64>(1)? as u64,
                                projects: row.get::<_, i64>(2)? as u64,
                                sealed: row.get::<_, i64>(3)? as u64,
                                superseded: row.get::<_, i64>(4)? as u64,
                                forgotten: row.get::<_, i64>(5)? as u64,
                                last_ts: last.map(time),
                            })
                        })
                    })
                    .map_err(failed)
            })
            .await
    }

    async fn facets(&self, principal: &Principal) -> Result<Facets, StoreError> {
        let principal = principal.clone();
        self.database
            .read(move |connection| facets(connection, principal.as_str()).map_err(failed))
            .await
    }

    async fn imported(&self, marks: Vec<ImportMark>) -> Result<Vec<ImportMark>, StoreError> {
        self.database
            .read(move |connection| {
                let mut statement = connection
                    .prepare_cached(
                        "SELECT 1 FROM imports WHERE path = ?1 AND size = ?2 AND modified = ?3",
                    )
                    .map_err(failed)?;
                let mut done = Vec::new();
                for mark in marks {
                    let found = statement
                        .exists(params![mark.path.bytes(), mark.size as i64, mark.modified])
                        .map_err(failed)?;
                    if found {
                        done.push(mark);
                    }
                }
                Ok(done)
            })
            .await
    }

    async fn note_event(&self, event: MaintenanceEvent) -> Result<(), StoreError> {
        self.database
            .write(move |transaction| {
                transaction
                    .execute(
                        "INSERT INTO events (at, kind, detail) VALUES (?1, ?2, ?3)",
                        params![event.at.as_microsecond(), event.kind, event.detail],
                    )
                    .and_then(|_| {
                        // The history is kept short.
                        transaction.execute(
                            "DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?1",
                            [MAX_MAINTENANCE_EVENTS],
                        )
                    })
                    .map_err(failed)?;
                Ok(())
            })
            .await
    }

    async fn events(&self, limit: usize) -> Result<Vec<MaintenanceEvent>, StoreError> {
        self.database
            .read(move |connection| {
                let mut statement = connection
                    .prepare_cached("SELECT at, kind, detail FROM events ORDER BY id DESC LIMIT ?1")
                    .map_err(failed)?;
                statement
                    .query_map([limit as i64], |row| {
                        Ok(MaintenanceEvent {
                            at: time(row.get(0)?),
                            kind: row.get(1)?,
                            detail: row.get(2)?,
                        })
                    })
                    .and_then(Iterator::collect)
                    .map_err(failed)
            })
            .await
    }
}

#[async_trait]
impl VectorStore for Memory {
    async fn vector_kind(&self, name: &str, width: usize) -> Result<VectorKind, StoreError> {
        let name = name.to_owned();
        self.database
            .write(move |transaction| vectors::kind(transaction, &name, width).map_err(failed))
            .await
    }

    async fn without_vector(
        &self,
        kind: VectorKind,
        below: i64,
        above: i64,
        limit: usize,
    ) -> Result<UnembeddedPage, StoreError> {
        self.database
            .read(move |connection| {
                vectors::unembedded(connection, kind, below, above, limit).map_err(failed)
            })
            .await
    }

    async fn save_vectors(
        &self,
        kind: VectorKind,
        vectors: Vec<(i64, Vec<i8>)>,
    ) -> Result<(), StoreError> {
        self.database
            .write(move |transaction| {
                let mut each = vectors.iter();
                each.try_for_each(|(seq, vector)| vectors::save(transaction, kind, *seq, vector))
                    .map_err(failed)
            })
            .await
    }

    async fn embedded(&self, kind: VectorKind) -> Result<Embedded, StoreError> {
        self.database
            .read(move |connection| vectors::embedded(connection, kind).map_err(failed))
            .await
    }

    async fn drop_other_vectors(
        &self,
        kind: VectorKind,
        limit: usize,
    ) -> Result<usize, StoreError> {
        self.database
            .write(move |transaction| {
                vectors::drop_others(transaction, kind, limit).map_err(failed)
            })
            .await
    }
}
