//! The memory in PostgreSQL. Nothing that counts is held in a node: any number of them may come and go.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hob_domain::memory::{
    CandidateQuery, CandidateSet, Counts, Facets, Forget, ImportMark, MaintenanceEvent,
    MemoryStore, NewTurn, Principal, ProjectFacet, Record, RecordId, Remask, Scope, SessionOutline,
    Stored, Superseded, Window,
};
use hob_domain::{DataKey, StoreError, Timestamp};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_postgres::Row;

use super::cache::Held;
use super::cipher::{Body, Cipher, Name};
use super::names::{Outcome, record_id};
use super::rows::{COLUMNS, LATEST_SESSIONS, TABLES, ask, outline, record, records, when};
use super::{candidates, exclusive_lock, forget, merge, rows, store_turns};
use crate::postgres::connections::{Again, Connections, Limits, Trouble, Values};
use crate::postgres::text::{put, take};
use crate::postgres::{ConnectError, StoreUrl, connect, connect_failed};
use crate::values::time;

/// How many statements of the memory run at once.
const MOST: usize = 8;
/// After so many turns at once merging goes on beside what comes next.
const BESIDE: usize = 100;

/// The memory in a PostgreSQL database, in a schema named `hob`. Cloning shares it.
#[derive(Clone)]
pub struct PostgresMemory {
    pub(super) connections: Connections,
    pub(super) cipher: Arc<Cipher>,
    pub(super) held: Arc<Held>,
    /// What is merged beside the storing: one step at most.
    merging: Arc<Mutex<JoinSet<()>>>,
}

/// Why a memory can't be used now.
struct State {
    /// A move into it has begun and not ended.
    is_half_moved: bool,
    /// Somebody is at it.
    is_being_moved: bool,
}

impl PostgresMemory {
    /// Connects, and brings the schema up to date where needed. With `encrypts` nothing that was said can be read in
    /// the database. A server that is not there after `patience` makes the store unavailable.
    pub async fn connect(
        url: &StoreUrl,
        key: &DataKey,
        encrypts: bool,
        patience: Duration,
    ) -> Result<PostgresMemory, ConnectError> {
        let url_text = || url.to_string();
        match PostgresMemory::reach(url, key, encrypts, patience).await? {
            (_, State { is_being_moved: true, .. }) => {
                Err(ConnectError::BeingMoved { url: url_text() })
            }
            (_, State { is_half_moved: true, .. }) => {
                Err(ConnectError::HalfMoved { url: url_text() })
            }
            (memory, _) => Ok(memory),
        }
    }

    /// The same for whoever moves a memory there, also where that was broken off.
    pub async fn connect_half_moved(
        url: &StoreUrl,
        key: &DataKey,
        encrypts: bool,
        patience: Duration,
    ) -> Result<PostgresMemory, ConnectError> {
        Ok(PostgresMemory::reach(url, key, encrypts, patience).await?.0)
    }

    /// Also says whether it can be used.
    async fn reach(
        url: &StoreUrl,
        key: &DataKey,
        encrypts: bool,
        patience: Duration,
    ) -> Result<(PostgresMemory, State), ConnectError> {
        let usual = Limits::default();
        let patience = patience.min(usual.patience);
        let limits = Limits { most: MOST, patience, plans_anew: true, ..usual };
        let connections = connect(url, limits).await?;
        let cipher = Cipher::new(key, encrypts);
        let client = connections.one().await.map_err(|trouble| connect_failed(url, &trouble))?;
        // The first one that comes says how it is to be.
        let first = "INSERT INTO hob.memory_state (id, encrypted, key_check) VALUES (1, $1, $2)
             ON CONFLICT (id) DO NOTHING";
        let known = format!(
            "SELECT encrypted, key_check, moving, {} FROM hob.memory_state WHERE id = 1",
            exclusive_lock::SOMEBODY_IS
        );
        let agree = async {
            client.execute(first, &[&cipher.encrypts(), &&cipher.check()[..]]).await?;
            client.query_one(&known, &[]).await
        };
        let row = agree.await.map_err(|error| connect_failed(url, &Trouble::of(&error)))?;
        drop(client);
        if row.get::<_, &[u8]>(1) != cipher.check() {
            return Err(ConnectError::OtherKey { url: url.to_string() });
        }
        let encrypted: bool = row.get(0);
        if encrypted != encrypts {
            return Err(ConnectError::OtherEncryption { url: url.to_string(), encrypted });
        }
        let state = State { is_half_moved: row.get(2), is_being_moved: row.get(3) };
        let memory = PostgresMemory {
            connections,
            cipher: Arc::new(cipher),
            held: Arc::default(),
            merging: Arc::default(),
        };
        Ok((memory, state))
    }

    pub(super) async fn read(&self, sql: &str, values: Values<'_>) -> Result<Vec<Row>, StoreError> {
        self.connections.query(Again::Harmless, sql, values).await
    }

    /// A statement that may be done twice.
    pub(super) async fn write_again(
        &self,
        sql: &str,
        values: Values<'_>,
    ) -> Result<(), StoreError> {
        self.read(sql, values).await.map(drop)
    }

    async fn read_records(
        &self,
        rest: &str,
        values: Values<'_>,
    ) -> Result<Vec<Record>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM {TABLES} {rest}");
        records(&self.cipher, &self.read(&sql, values).await?)
    }

    /// Merges some. What goes wrong here is done by whoever comes next. After many turns this goes on while the next ones
    /// are stored, one step at a time. After few it is waited for, since the process may end with them; others who bring few
    /// don't wait for that.
    pub(super) async fn merge(&self, stored: usize, newest: i64) {
        let connections = self.connections.clone();
        let step = async move {
            let step = connections
                .transaction(|client| async move { merge::step(&client, stored, newest).await });
            let _ = step.await;
        };
        if stored >= BESIDE {
            let mut under_way = self.merging.lock().await;
            while under_way.join_next().await.is_some() {}
            under_way.spawn(step);
        } else if let Ok(mut under_way) = self.merging.try_lock() {
            while under_way.try_join_next().is_some() {}
            if under_way.is_empty() {
                step.await;
            }
        }
    }

    fn project_key(&self, root: &str) -> Vec<u8> {
        self.cipher.name_key(Name::Project, root)
    }
}

#[async_trait]
impl MemoryStore for PostgresMemory {
    async fn store_turns(
        &self,
        speaker: &Principal,
        turns: Vec<NewTurn>,
        marks: Vec<ImportMark>,
    ) -> Result<Stored, StoreError> {
        let (cipher, speaker) = (&*self.cipher, speaker.as_str());
        let (turns, marks) = (&turns[..], &marks[..]);
        let (outcomes, newest) = self
            .connections
            .transaction(|client| async move {
                store_turns::store(&client, cipher, speaker, turns, marks).await
            })
            .await?;
        let mut stored = Stored::default();
        for outcome in outcomes {
            match outcome {
                Outcome::Inserted(_) => stored.inserted += 1,
                Outcome::Duplicate(_) => stored.duplicates += 1,
                Outcome::Forgotten => stored.forgotten += 1,
            }
        }
        if stored.inserted > 0 {
            self.merge(stored.inserted, newest).await;
        }
        Ok(stored)
    }

    async fn supersede(
        &self,
        speaker: &Principal,
        old: &RecordId,
        turn: NewTurn,
    ) -> Result<Superseded, StoreError> {
        let (cipher, speaker) = (&*self.cipher, speaker.as_str());
        let (old_name, old_key) =
            (&cipher.record_name(old), &cipher.name_key(Name::Turn, old.as_str()));
        let turns = &[turn][..];
        let outcome = self
            .connections
            .transaction(|client| async move {
                store_turns::lock(&client).await?;
                let sql = "SELECT 1 FROM hob.memory_turns WHERE speaker = $1 AND id_key = $2";
                if ask(&client, sql, &[&speaker, old_key]).await?.is_empty() {
                    return Ok(None);
                }
                let (mut outcomes, _) =
                    store_turns::store(&client, cipher, speaker, turns, &[]).await?;
                let outcome = outcomes.pop();
                if let Some(Outcome::Inserted(new) | Outcome::Duplicate(new)) = &outcome
                    && new != old_name
                {
                    let sql = "UPDATE hob.memory_turns SET superseded_by = $3
                         WHERE speaker = $1 AND id_key = $2";
                    ask(&client, sql, &[&speaker, old_key, new]).await?;
                    let id = cipher.unnamed(Name::Turn, new).unwrap_or_default();
                    let new_key = cipher.name_key(Name::Turn, &id);
                    let sql = "UPDATE hob.memory_turns SET supersedes = $3
                         WHERE speaker = $1 AND id_key = $2";
                    ask(&client, sql, &[&speaker, &new_key, old_name]).await?;
                }
                Ok(outcome)
            })
            .await?;
        match outcome {
            None => Ok(Superseded::Missing),
            Some(Outcome::Forgotten) => Ok(Superseded::Forgotten),
            Some(Outcome::Inserted(id) | Outcome::Duplicate(id)) => {
                Ok(Superseded::By(record_id(cipher, &id)?))
            }
        }
    }

    async fn forget(
        &self,
        speaker: &Principal,
        what: &Forget,
        now: Timestamp,
    ) -> Result<usize, StoreError> {
        let (cipher, speaker) = (&*self.cipher, speaker.as_str());
        self.connections
            .long_transaction(|client| async move {
                forget::forget(&client, cipher, speaker, what, now).await
            })
            .await
    }

    async fn forget_principal(&self, speaker: &Principal) -> Result<usize, StoreError> {
        let speaker = speaker.as_str();
        self.connections
            .long_transaction(
                |client| async move { forget::forget_principal(&client, speaker).await },
            )
            .await
    }

    async fn record(
        &self,
        speaker: &Principal,
        id: &RecordId,
    ) -> Result<Option<Record>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM {TABLES} WHERE t.speaker = $1 AND t.id_key = $2");
        let key = self.cipher.name_key(Name::Turn, id.as_str());
        let rows = self.read(&sql, &[&speaker.as_str(), &key]).await?;
        rows.first().map(|row| record(&self.cipher, row)).transpose()
    }

    async fn candidates(
        &self,
        speaker: &Principal,
        scope: &Scope,
        probe: CandidateQuery,
    ) -> Result<CandidateSet, StoreError> {
        let (here, speaker, probe) = ((&*self.cipher, &*self.held), speaker.as_str(), &probe);
        self.connections
            .snapshot(|client| async move {
                candidates::candidates(&client, here, speaker, scope, probe).await
            })
            .await?
    }

    async fn records(
        &self,
        speaker: &Principal,
        seqs: Vec<i64>,
    ) -> Result<Vec<Record>, StoreError> {
        let rest = "JOIN unnest($2::bigint[]) WITH ORDINALITY u (seq, place) ON u.seq = t.seq
             WHERE t.speaker = $1 ORDER BY u.place";
        self.read_records(rest, &[&speaker.as_str(), &seqs]).await
    }

    async fn timeline(
        &self,
        speaker: &Principal,
        window: &Window,
    ) -> Result<Vec<Record>, StoreError> {
        let (cipher, speaker) = (&*self.cipher, speaker.as_str());
        let rows = self
            .connections
            .snapshot(
                |client| async move { rows::timeline(&client, cipher, speaker, window).await },
            )
            .await?;
        records(cipher, &rows)
    }

    async fn latest_sessions(
        &self,
        speaker: &Principal,
        project: &str,
        except: Option<&str>,
        limit: usize,
    ) -> Result<Vec<SessionOutline>, StoreError> {
        let speaker = speaker.as_str();
        let except = self.cipher.name_key(Name::Session, except.unwrap_or_default());
        let values: Values<'_> = &[&speaker, &self.project_key(project), &except, &(limit as i64)];
        let rows = self.read(LATEST_SESSIONS, values).await?;
        rows.iter().map(|row| outline(&self.cipher, speaker, row)).collect()
    }

    async fn latest_prompts(
        &self,
        speaker: &Principal,
        project: &str,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let rest = "WHERE t.project =
                 (SELECT id FROM hob.memory_projects WHERE speaker = $1 AND root_key = $2)
             AND t.role = 'user' AND t.chars <= 2000 ORDER BY t.at DESC, t.seq DESC LIMIT $3";
        let key = self.project_key(project);
        self.read_records(rest, &[&speaker.as_str(), &key, &(limit as i64)]).await
    }

    async fn standing(
        &self,
        speaker: &Principal,
        project: &str,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let rest = "WHERE t.project =
                 (SELECT id FROM hob.memory_projects WHERE speaker = $1 AND root_key = $2)
             AND t.tier = 'semantic' AND t.superseded_by IS NULL
             ORDER BY t.ts DESC, t.seq DESC LIMIT $3";
        let key = self.project_key(project);
        self.read_records(rest, &[&speaker.as_str(), &key, &(limit as i64)]).await
    }

    async fn projects_named(
        &self,
        speaker: &Principal,
        name: &str,
    ) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT root FROM hob.memory_projects WHERE speaker = $1";
        let rows = self.read(sql, &[&speaker.as_str()]).await?;
        let root = |row: &Row| self.cipher.unnamed(Name::Project, row.get(0));
        let mut roots: Vec<String> = rows.iter().map(root).collect::<Result<_, _>>()?;
        roots.retain(|root| root == name || root.rsplit('/').next() == Some(name));
        roots.sort_unstable();
        Ok(roots)
    }

    async fn page(
        &self,
        speaker: Option<&Principal>,
        after: i64,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let rest = "WHERE t.seq > $1 AND ($2::text IS NULL OR t.speaker = $2)
             ORDER BY t.seq LIMIT $3";
        let speaker = speaker.map(Principal::as_str);
        self.read_records(rest, &[&after, &speaker, &(limit as i64)]).await
    }

    async fn masked_before(&self, rules: u32, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.read_records("WHERE t.rules < $1 LIMIT $2", &[&(rules as i32), &(limit as i64)]).await
    }

    async fn remask(&self, changes: Vec<Remask>) -> Result<(), StoreError> {
        let (cipher, all) = (&*self.cipher, &changes[..]);
        let newest = self
            .connections
            .transaction(|client| async move { forget::remask(&client, cipher, all).await })
            .await?;
        self.merge(changes.len(), newest).await;
        Ok(())
    }

    async fn counts(&self, speaker: &Principal) -> Result<Counts, StoreError> {
        let sql = "SELECT coalesce(sum(turns), 0)::bigint, count(*), max(ended),
                 (SELECT count(*) FROM hob.memory_projects WHERE speaker = $1),
                 (SELECT count(*) FROM hob.memory_turns WHERE speaker = $1 AND sealed IS NOT NULL),
                 (SELECT count(*) FROM hob.memory_turns
                      WHERE speaker = $1 AND superseded_by IS NOT NULL),
                 (SELECT count(*) FROM hob.memory_forgotten WHERE speaker = $1)
             FROM hob.memory_sessions WHERE speaker = $1";
        let rows = self.read(sql, &[&speaker.as_str()]).await?;
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

    async fn facets(&self, speaker: &Principal) -> Result<Facets, StoreError> {
        let speaker = speaker.as_str();
        let sql = "SELECT p.root, sum(s.turns)::bigint, max(s.ended) FROM hob.memory_sessions s
             JOIN hob.memory_projects p ON p.id = s.project WHERE s.speaker = $1
             GROUP BY p.id, p.root HAVING sum(s.turns) > 0";
        let facet = |row: &Row| {
            Ok(ProjectFacet {
                root: self.cipher.unnamed(Name::Project, row.get(0))?,
                turns: row.get::<_, i64>(1) as u64,
                last: when(row.get(2)),
            })
        };
        let rows = self.read(sql, &[&speaker]).await?;
        let mut projects: Vec<ProjectFacet> = rows.iter().map(facet).collect::<Result<_, _>>()?;
        projects.sort_by(|a, b| b.last.cmp(&a.last).then_with(|| a.root.cmp(&b.root)));
        let sql = "SELECT client, sum(turns)::bigint FROM hob.memory_sessions WHERE speaker = $1
             GROUP BY client HAVING sum(turns) > 0";
        let rows = self.read(sql, &[&speaker]).await?;
        let mut clients: Vec<(String, u64)> =
            rows.iter().map(|row| (take(row.get(0)), row.get::<_, i64>(1) as u64)).collect();
        clients.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Ok(Facets { projects, clients })
    }

    async fn imported(&self, marks: Vec<ImportMark>) -> Result<Vec<ImportMark>, StoreError> {
        let paths: Vec<Vec<u8>> = marks.iter().map(|mark| self.cipher.key(&mark.path)).collect();
        let sql = "SELECT path, size, modified FROM hob.memory_imports WHERE path = ANY($1)";
        let rows = self.read(sql, &[&paths]).await?;
        let known: std::collections::HashSet<(Vec<u8>, i64, i64)> =
            rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
        let is_done = |(mark, path): &(ImportMark, Vec<u8>)| {
            known.contains(&(path.clone(), mark.size as i64, mark.modified))
        };
        Ok(marks.into_iter().zip(paths).filter(is_done).map(|(mark, _)| mark).collect())
    }

    async fn note_event(&self, event: MaintenanceEvent) -> Result<(), StoreError> {
        let detail = self.cipher.seal(Body::Event, event.detail.as_bytes());
        // A short history is enough, and it stays one.
        let sql = "WITH noted AS (INSERT INTO hob.memory_events (at, kind, detail)
                 VALUES ($1, $2, $3) RETURNING id)
             DELETE FROM hob.memory_events WHERE id <= (SELECT id FROM noted) - 1000";
        let values: Values<'_> = &[&event.at.as_microsecond(), &put(&event.kind), &detail];
        self.connections.query(Again::Never, sql, values).await.map(drop)
    }

    async fn events(&self, limit: usize) -> Result<Vec<MaintenanceEvent>, StoreError> {
        let sql = "SELECT at, kind, detail FROM hob.memory_events ORDER BY id DESC LIMIT $1";
        let event = |row: &Row| {
            let detail = self.cipher.open(Body::Event, row.get(2))?;
            let detail = String::from_utf8_lossy(&detail).into_owned();
            Ok(MaintenanceEvent { at: time(row.get(0)), kind: take(row.get(1)), detail })
        };
        self.read(sql, &[&(limit as i64)]).await?.iter().map(event).collect()
    }
}
