//! The storage port of the memory over a PostgreSQL database. A node keeps nothing that is not in
//! the database, so any number of nodes may come and go.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hob_domain::memory::{
    CandidateQuery, CandidateSet, Counts, Facets, Forgetting, ImportMark, MAX_MAINTENANCE_EVENTS,
    MaintenanceEvent, MemoryStore, NewTurn, PageFilter, Principal, ProjectFacet, Record, RecordId,
    Remask, Scope, SessionOutline, Stored, Superseded, TurnSelection,
};
use hob_domain::{DataKey, StoreError};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_postgres::Row;

use super::batch::lock;
use super::cache::CodeCache;
use super::candidates::CandidateSearch;
use super::cipher::{Body, Cipher, Name};
use super::exclusive_lock::{self, ExclusiveLock};
use super::names::{CaptureOutcome, record_id};
use super::rows::{COLUMNS, LATEST_SESSIONS, TABLES, ask, outline, records, when};
use super::{forget, merge, remask, rows, store_turns};
use crate::memory::hidden::HiddenTurn;
use crate::memory::standing::{is_fact_of_agent, is_in_force};
use crate::postgres::connections::{
    Again, Connections, Limits, MAX_MEMORY_CONNECTIONS, PlanCache, Scoped, Trouble, Values,
};
use crate::postgres::row_scope::RowScope;
use crate::postgres::text::{put, take};
use crate::postgres::{ConnectError, Encryption, StoreUrl, connect, connect_failed};
use crate::values::{damaged, time};

/// After a batch of this many turns the merge runs while the next batch is stored.
const LARGE_BATCH_TURNS: usize = 100;

/// The memory in a PostgreSQL database, in a schema named `hob`. Clones share it.
#[derive(Clone)]
pub struct PostgresMemory {
    pub(super) connections: Connections,
    pub(super) cipher: Arc<Cipher>,
    codes: Arc<CodeCache>,
    /// The step of a merge that runs in the background: at most one.
    merging: Arc<Mutex<JoinSet<()>>>,
}

/// The part of a memory in a migration.
struct MigrationState {
    /// A migration into the memory has begun and has not ended.
    is_partial: bool,
    /// A migration is running.
    is_running: bool,
}

impl PostgresMemory {
    /// Connects and migrates the schema. A server that cannot be reached within `timeout` makes the
    /// store unavailable.
    pub async fn connect(
        url: &StoreUrl,
        key: &DataKey,
        encryption: Encryption,
        timeout: Duration,
    ) -> Result<PostgresMemory, ConnectError> {
        let (memory, state) = PostgresMemory::reach(url, key, encryption, timeout).await?;
        if state.is_running {
            return Err(ConnectError::BeingMoved { url: url.to_string() });
        }
        if state.is_partial {
            return Err(ConnectError::HalfMoved { url: url.to_string() });
        }
        Ok(memory)
    }

    /// Connects to the target of a migration, which may be partially migrated.
    pub async fn connect_partially_migrated(
        url: &StoreUrl,
        key: &DataKey,
        encryption: Encryption,
        timeout: Duration,
    ) -> Result<PostgresMemory, ConnectError> {
        Ok(PostgresMemory::reach(url, key, encryption, timeout).await?.0)
    }

    async fn reach(
        url: &StoreUrl,
        key: &DataKey,
        encryption: Encryption,
        timeout: Duration,
    ) -> Result<(PostgresMemory, MigrationState), ConnectError> {
        let usual = Limits::default();
        let acquire_timeout = timeout.min(usual.acquire_timeout);
        let limits = Limits {
            max_connections: MAX_MEMORY_CONNECTIONS,
            acquire_timeout,
            plan_cache: PlanCache::Never,
            ..usual
        };
        let connections = connect(url, limits).await?;
        let cipher = Cipher::new(key, encryption);
        let client = connections.one().await.map_err(|trouble| connect_failed(url, &trouble))?;
        // The first process that comes decides about the encryption.
        let insert = "INSERT INTO hob.memory_state (id, encrypted, key_check) VALUES (1, $1, $2)
             ON CONFLICT (id) DO NOTHING";
        let select = format!(
            "SELECT encrypted, key_check, moving, {} FROM hob.memory_state WHERE id = 1",
            exclusive_lock::IS_LOCKED
        );
        let is_encrypted = encryption == Encryption::On;
        let begin = format!("BEGIN; {}", RowScope::Shared.for_transaction());
        let agree = async {
            client.batch_execute(&begin).await?;
            client.execute(insert, &[&is_encrypted, &&cipher.check()[..]]).await?;
            let row = client.query_one(&select, &[]).await?;
            client.batch_execute("COMMIT").await.map(|()| row)
        };
        let row = agree.await.map_err(|error| connect_failed(url, &Trouble::of(&error)))?;
        drop(client);
        if row.get::<_, &[u8]>(1) != cipher.check() {
            return Err(ConnectError::OtherKey { url: url.to_string() });
        }
        let encrypted: bool = row.get(0);
        if encrypted != is_encrypted {
            return Err(ConnectError::OtherEncryption { url: url.to_string(), encrypted });
        }
        let state = MigrationState { is_partial: row.get(2), is_running: row.get(3) };
        let memory = PostgresMemory {
            connections,
            cipher: Arc::new(cipher),
            codes: Arc::default(),
            merging: Arc::default(),
        };
        Ok((memory, state))
    }

    /// Keeps other processes from opening the memory while the lock is held. Those that have opened
    /// it before go on.
    pub async fn lock_exclusively(&self, timeout: Duration) -> Result<ExclusiveLock, StoreError> {
        ExclusiveLock::acquire(&self.connections, timeout).await
    }

    /// Returns the connections for the rows of one principal.
    fn of_principal<'a>(&'a self, principal: &'a Principal) -> Scoped<'a> {
        self.connections.within(RowScope::of_principal(principal.as_str()))
    }

    /// Returns the connections for the rows of all principals.
    pub(super) fn of_all(&self) -> Scoped<'_> {
        self.connections.within(RowScope::All)
    }

    /// Runs a statement for all principals that may be repeated.
    pub(super) async fn write_again(
        &self,
        sql: &str,
        values: Values<'_>,
    ) -> Result<(), StoreError> {
        self.of_all().query(Again::Harmless, sql, values).await.map(drop)
    }

    async fn hidden(&self, principal: &Principal, limit: i64) -> Result<Vec<Record>, StoreError> {
        let (cipher, speaker) = (&*self.cipher, principal.as_str());
        let sql = "SELECT turn, body FROM hob.memory_forgotten
             WHERE speaker = $1 AND body IS NOT NULL LIMIT $2";
        let connections = self.of_principal(principal);
        let rows = connections.query(Again::Harmless, sql, &[&speaker, &limit]).await?;
        rows.iter()
            .map(|row| {
                let body = cipher.open(Body::Hidden(speaker, row.get(0)), row.get(1))?;
                let hidden = HiddenTurn::from_bytes(&body);
                Ok(hidden.ok_or_else(|| damaged("a forgotten turn"))?.into_record())
            })
            .collect()
    }

    async fn read_records(
        &self,
        connections: Scoped<'_>,
        rest: &str,
        values: Values<'_>,
    ) -> Result<Vec<Record>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM {TABLES} {rest}");
        records(&self.cipher, &connections.query(Again::Harmless, &sql, values).await?)
    }

    /// Takes a step of the merge. If it fails, the next one repeats it. After a large batch the
    /// step runs in the background while the next batch is stored. After a small one the caller
    /// waits for it, since the process may end then, but never for the step of another caller.
    pub(super) async fn merge(&self, stored: usize, newest: i64) {
        let connections = self.connections.clone();
        let step = async move {
            let step = connections
                .within(RowScope::All)
                .transaction(|client| async move { merge::step(&client, stored, newest).await });
            let _ = step.await;
        };
        if stored >= LARGE_BATCH_TURNS {
            let mut running = self.merging.lock().await;
            while running.join_next().await.is_some() {}
            running.spawn(step);
        } else if let Ok(mut running) = self.merging.try_lock() {
            while running.try_join_next().is_some() {}
            if running.is_empty() {
                step.await;
            }
        }
    }

    fn project_key(&self, root: &str) -> Vec<u8> {
        self.cipher.hash_name(Name::Project, root)
    }
}

#[async_trait]
impl MemoryStore for PostgresMemory {
    async fn store_turns(
        &self,
        principal: &Principal,
        turns: Vec<NewTurn>,
        marks: Vec<ImportMark>,
    ) -> Result<Stored, StoreError> {
        let (cipher, speaker) = (&*self.cipher, principal.as_str());
        let (turns, marks) = (&turns[..], &marks[..]);
        let (outcomes, newest) = self
            .of_principal(principal)
            .transaction(|client| async move {
                store_turns::store(&client, cipher, speaker, turns, marks).await
            })
            .await?;
        let mut stored = Stored::default();
        for outcome in outcomes {
            match outcome {
                CaptureOutcome::Inserted(_) => stored.inserted += 1,
                CaptureOutcome::Duplicate(_) => stored.duplicates += 1,
                CaptureOutcome::Forgotten => stored.forgotten += 1,
            }
        }
        if stored.inserted > 0 {
            self.merge(stored.inserted, newest).await;
        }
        Ok(stored)
    }

    async fn supersede(
        &self,
        principal: &Principal,
        old: &RecordId,
        turn: NewTurn,
    ) -> Result<Superseded, StoreError> {
        let (cipher, speaker) = (&*self.cipher, principal.as_str());
        let (old_name, old_key) =
            (&cipher.encrypt_id(old), &cipher.hash_name(Name::Turn, old.as_str()));
        let turns = &[turn][..];
        let (newer, outcome) = self
            .of_principal(principal)
            .transaction(|client| async move {
                lock(&client).await?;
                let sql =
                    "SELECT superseded_by FROM hob.memory_turns WHERE speaker = $1 AND id_key = $2";
                let found = ask(&client, sql, &[&speaker, old_key]).await?;
                let newer: Option<Option<Vec<u8>>> = found.first().map(|row| row.get(0));
                match newer {
                    None => return Ok((None, None)),
                    Some(Some(newer)) => return Ok((Some(newer), None)),
                    Some(None) => {}
                }
                let (mut outcomes, _) =
                    store_turns::store(&client, cipher, speaker, turns, &[]).await?;
                let outcome = outcomes.pop();
                if let Some(CaptureOutcome::Inserted(new) | CaptureOutcome::Duplicate(new)) =
                    &outcome
                    && new != old_name
                {
                    let sql = "UPDATE hob.memory_turns SET superseded_by = $3
                         WHERE speaker = $1 AND id_key = $2";
                    ask(&client, sql, &[&speaker, old_key, new]).await?;
                    let id = cipher.decrypt_name(Name::Turn, new).unwrap_or_default();
                    let new_key = cipher.hash_name(Name::Turn, &id);
                    let sql = "UPDATE hob.memory_turns SET supersedes = $3
                         WHERE speaker = $1 AND id_key = $2";
                    ask(&client, sql, &[&speaker, &new_key, old_name]).await?;
                }
                Ok((None, outcome))
            })
            .await?;
        if let Some(newer) = newer {
            return Ok(Superseded::Already(record_id(cipher, &newer)?));
        }
        match outcome {
            None => Ok(Superseded::Missing),
            Some(CaptureOutcome::Forgotten) => Ok(Superseded::Forgotten),
            Some(CaptureOutcome::Inserted(id) | CaptureOutcome::Duplicate(id)) => {
                Ok(Superseded::By(record_id(cipher, &id)?))
            }
        }
    }

    async fn forget(&self, step: Forgetting) -> Result<usize, StoreError> {
        let (cipher, step) = (&*self.cipher, &step);
        let connections = match step {
            Forgetting::Hide { principal, .. }
            | Forgetting::Restore { principal, .. }
            | Forgetting::RemovePrincipal(principal) => self.of_principal(principal),
            Forgetting::Erase { .. } => self.of_all(),
        };
        connections
            .long_transaction(|client| async move { forget::forget(&client, cipher, step).await })
            .await?
    }

    async fn candidates(
        &self,
        principal: &Principal,
        scope: &Scope,
        query: CandidateQuery,
    ) -> Result<CandidateSet, StoreError> {
        let (cipher, codes, speaker) = (&*self.cipher, &*self.codes, principal.as_str());
        let query = &query;
        self.of_principal(principal)
            .snapshot(|client| async move {
                let search = CandidateSearch { client: &client, cipher, codes, speaker, query };
                search.candidates(scope).await
            })
            .await?
    }

    async fn turns(
        &self,
        principal: &Principal,
        selection: TurnSelection,
    ) -> Result<Vec<Record>, StoreError> {
        let (cipher, speaker) = (&*self.cipher, principal.as_str());
        let connections = self.of_principal(principal);
        let in_project = "WHERE t.project =
             (SELECT id FROM hob.memory_projects WHERE speaker = $1 AND root_key = $2)";
        match selection {
            TurnSelection::Id(id) => {
                let key = cipher.hash_name(Name::Turn, id.as_str());
                let rest = "WHERE t.speaker = $1 AND t.id_key = $2";
                self.read_records(connections, rest, &[&speaker, &key]).await
            }
            TurnSelection::Numbers(seqs) => {
                let rest = "JOIN unnest($2::bigint[]) WITH ORDINALITY u (seq, place)
                         ON u.seq = t.seq
                     WHERE t.speaker = $1 ORDER BY u.place";
                self.read_records(connections, rest, &[&speaker, &seqs]).await
            }
            TurnSelection::Window(window) => {
                let window = &window;
                let rows = connections
                    .snapshot(|client| async move {
                        rows::timeline(&client, cipher, speaker, window).await
                    })
                    .await?;
                records(cipher, &rows)
            }
            TurnSelection::LatestPrompts { project, max_chars, limit } => {
                let rest = format!(
                    "{in_project} AND t.role = 'user' AND {} AND t.chars <= $4::bigint
                     ORDER BY t.at DESC, t.seq DESC LIMIT $3",
                    is_in_force("hob.memory_turns")
                );
                let key = self.project_key(&project);
                let (limit, max_chars) = (limit as i64, max_chars as i64);
                let values: Values<'_> = &[&speaker, &key, &limit, &max_chars];
                self.read_records(connections, &rest, values).await
            }
            TurnSelection::Facts { project, of_agents, limit } => {
                let rest = format!(
                    "{in_project} AND t.tier = 'semantic' AND {} AND {} = $4
                     ORDER BY t.ts DESC, t.seq DESC LIMIT $3",
                    is_in_force("hob.memory_turns"),
                    is_fact_of_agent()
                );
                let key = self.project_key(&project);
                let values: Values<'_> = &[&speaker, &key, &(limit as i64), &of_agents];
                self.read_records(connections, &rest, values).await
            }
        }
    }

    async fn latest_sessions(
        &self,
        principal: &Principal,
        project: &str,
        except: Option<&str>,
        limit: usize,
    ) -> Result<Vec<SessionOutline>, StoreError> {
        let speaker = principal.as_str();
        let except = self.cipher.hash_name(Name::Session, except.unwrap_or_default());
        let values: Values<'_> = &[&speaker, &self.project_key(project), &except, &(limit as i64)];
        let connections = self.of_principal(principal);
        let rows = connections.query(Again::Harmless, LATEST_SESSIONS, values).await?;
        rows.iter().map(|row| outline(&self.cipher, speaker, row)).collect()
    }

    async fn projects_named(
        &self,
        principal: &Principal,
        name: &str,
    ) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT root FROM hob.memory_projects WHERE speaker = $1";
        let connections = self.of_principal(principal);
        let rows = connections.query(Again::Harmless, sql, &[&principal.as_str()]).await?;
        let root = |row: &Row| self.cipher.decrypt_name(Name::Project, row.get(0));
        let mut roots: Vec<String> = rows.iter().map(root).collect::<Result<_, _>>()?;
        roots.retain(|root| root == name || root.rsplit('/').next() == Some(name));
        roots.sort_unstable();
        Ok(roots)
    }

    async fn page(&self, filter: &PageFilter, limit: usize) -> Result<Vec<Record>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (connections, speaker, after) = match filter {
            PageFilter::All { after } => (self.of_all(), None, after),
            PageFilter::Of { principal, after } => {
                (self.of_principal(principal), Some(principal.as_str()), after)
            }
            PageFilter::MaskedBefore { rules, without } => {
                let rest = "WHERE t.rules < $1 AND NOT (t.seq = ANY ($3::bigint[])) LIMIT $2";
                let values: Values<'_> = &[&(*rules as i32), &limit, without];
                return self.read_records(self.of_all(), rest, values).await;
            }
            PageFilter::Hidden { principal } => return self.hidden(principal, limit).await,
        };
        let rest = "WHERE t.seq > $1 AND ($2::text IS NULL OR t.speaker = $2)
             ORDER BY t.seq LIMIT $3";
        self.read_records(connections, rest, &[after, &speaker, &limit]).await
    }

    async fn remask(&self, changes: Vec<Remask>) -> Result<(), StoreError> {
        let (cipher, all) = (&*self.cipher, &changes[..]);
        let newest = self
            .of_all()
            .transaction(|client| async move { remask::remask(&client, cipher, all).await })
            .await?;
        self.merge(changes.len(), newest).await;
        Ok(())
    }

    async fn counts(&self, principal: &Principal) -> Result<Counts, StoreError> {
        let sql = "SELECT coalesce(sum(turns), 0)::bigint, count(*), max(ended),
                 (SELECT count(*) FROM hob.memory_projects WHERE speaker = $1),
                 (SELECT count(*) FROM hob.memory_turns WHERE speaker = $1 AND sealed IS NOT NULL),
                 (SELECT count(*) FROM hob.memory_turns
                      WHERE speaker = $1 AND superseded_by IS NOT NULL),
                 (SELECT count(*) FROM hob.memory_forgotten WHERE speaker = $1)
             FROM hob.memory_sessions WHERE speaker = $1";
        let connections = self.of_principal(principal);
        let rows = connections.query(Again::Harmless, sql, &[&principal.as_str()]).await?;
        let Some(row) = rows.first() else { return Ok(Counts::default()) };
        let count = |column: usize| row.get::<_, i64>(column).max(0) as u64;
        Ok(Counts {
            turns: count(0),
            sessions: count(1),
            projects: count(3),
            sealed: count(4),
            superseded: count(5),
            forgotten: count(6),
            last_ts: when(row.get(2)),
        })
    }

    async fn facets(&self, principal: &Principal) -> Result<Facets, StoreError> {
        let (connections, speaker) = (self.of_principal(principal), principal.as_str());
        let sql = "SELECT p.root, sum(s.turns)::bigint, max(s.ended) FROM hob.memory_sessions s
             JOIN hob.memory_projects p ON p.id = s.project WHERE s.speaker = $1
             GROUP BY p.id, p.root HAVING sum(s.turns) > 0";
        let facet = |row: &Row| {
            Ok(ProjectFacet {
                root: self.cipher.decrypt_name(Name::Project, row.get(0))?,
                turns: row.get::<_, i64>(1) as u64,
                last: when(row.get(2)),
            })
        };
        let rows = connections.query(Again::Harmless, sql, &[&speaker]).await?;
        let mut projects: Vec<ProjectFacet> = rows.iter().map(facet).collect::<Result<_, _>>()?;
        projects.sort_by(|a, b| b.last.cmp(&a.last).then_with(|| a.root.cmp(&b.root)));
        let sql = "SELECT client, sum(turns)::bigint FROM hob.memory_sessions WHERE speaker = $1
             GROUP BY client HAVING sum(turns) > 0";
        let rows = connections.query(Again::Harmless, sql, &[&speaker]).await?;
        let mut clients: Vec<(String, u64)> =
            rows.iter().map(|row| (take(row.get(0)), row.get::<_, i64>(1) as u64)).collect();
        clients.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Ok(Facets { projects, clients })
    }

    async fn imported(&self, marks: Vec<ImportMark>) -> Result<Vec<ImportMark>, StoreError> {
        let paths: Vec<Vec<u8>> =
            marks.iter().map(|mark| self.cipher.hash_key(&mark.path)).collect();
        let sql = "SELECT path, size, modified FROM hob.memory_imports WHERE path = ANY($1)";
        let connections = self.connections.within(RowScope::Shared);
        let rows = connections.query(Again::Harmless, sql, &[&paths]).await?;
        let known: std::collections::HashSet<(Vec<u8>, i64, i64)> =
            rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
        let is_done = |(mark, path): &(ImportMark, Vec<u8>)| {
            known.contains(&(path.clone(), mark.size as i64, mark.modified))
        };
        Ok(marks.into_iter().zip(paths).filter(is_done).map(|(mark, _)| mark).collect())
    }

    async fn note_event(&self, event: MaintenanceEvent) -> Result<(), StoreError> {
        let detail = self.cipher.seal(Body::Event, event.detail.as_bytes());
        // The history is kept short.
        let sql = "WITH noted AS (INSERT INTO hob.memory_events (at, kind, detail)
                 VALUES ($1, $2, $3) RETURNING id)
             DELETE FROM hob.memory_events WHERE id <= (SELECT id FROM noted) - $4::bigint";
        let (at, kind) = (event.at.as_microsecond(), put(&event.kind));
        let values: Values<'_> = &[&at, &kind, &detail, &MAX_MAINTENANCE_EVENTS];
        self.of_all().query(Again::Never, sql, values).await.map(drop)
    }

    async fn events(&self, limit: usize) -> Result<Vec<MaintenanceEvent>, StoreError> {
        let sql = "SELECT at, kind, detail FROM hob.memory_events ORDER BY id DESC LIMIT $1";
        let event = |row: &Row| {
            let detail = self.cipher.open(Body::Event, row.get(2))?;
            let detail = String::from_utf8_lossy(&detail).into_owned();
            Ok(MaintenanceEvent { at: time(row.get(0)), kind: take(row.get(1)), detail })
        };
        let rows = self.of_all().query(Again::Harmless, sql, &[&(limit as i64)]).await?;
        rows.iter().map(event).collect()
    }
}
