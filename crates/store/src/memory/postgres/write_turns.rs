//! Writing a batch of turns: a few statements, each for all rows of a table.

use std::collections::BTreeMap;

use hob_domain::memory::ImportMark;
use tokio_postgres::Error;

use super::batch::{BatchSession, InsertedTurn, LastNumbers, ProjectSums, TurnBatch};
use super::cipher::{Bits, Body, Cipher, Name};
use super::names::ExistingRow;
use super::postings::{RecentPostings, TurnNumbers, counts};
use super::rows::body;
use crate::postgres::connections::{Client, Values};
use crate::postgres::text::put;

impl TurnBatch<'_> {
    /// Writes all changes. `before` are the last numbers that were given before this batch.
    pub(super) async fn write(&self, client: &Client, before: LastNumbers) -> Result<(), Error> {
        self.write_claims(client, before).await?;
        self.write_forgotten_claims(client).await?;
        if self.inserted.is_empty() {
            return Ok(());
        }
        let sql = "UPDATE hob.memory_state SET last_seq = $1, last_project = $2, last_session = $3
             WHERE id = 1";
        let last = self.numbers;
        execute(client, sql, &[&last.seq, &last.project, &last.session]).await?;
        self.insert_projects(client).await?;
        add_sums(client, &self.sums).await?;
        self.insert_sessions(client).await?;
        self.update_sessions(client).await?;
        let mut recent = RecentPostings::default();
        self.insert_turns(client, &mut recent).await?;
        self.insert_metadata(client).await?;
        self.insert_vectors(client).await?;
        recent.write(client).await
    }

    async fn insert_projects(&self, client: &Client) -> Result<(), Error> {
        let new: Vec<(&String, i64)> = self
            .projects
            .iter()
            .filter(|(_, project)| project.is_new)
            .map(|(root, project)| (root, project.id))
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        let ids: Vec<i64> = new.iter().map(|(_, id)| *id).collect();
        let key = |(root, _): &(&String, i64)| self.cipher.hash_name(Name::Project, root);
        let name = |(root, _): &(&String, i64)| self.cipher.encrypt_name(Name::Project, root);
        let keys: Vec<Vec<u8>> = new.iter().map(key).collect();
        let names: Vec<Vec<u8>> = new.iter().map(name).collect();
        let sql = "INSERT INTO hob.memory_projects
                 (id, turns, length, sessions, speaker, root_key, root)
             SELECT id, 0, 0, 0, $1, key, name
             FROM unnest($2::bigint[], $3::bytea[], $4::bytea[]) u (id, key, name)";
        execute(client, sql, &[&self.speaker, &ids, &keys, &names]).await
    }

    async fn insert_sessions(&self, client: &Client) -> Result<(), Error> {
        let new: Vec<_> = self.sessions.iter().filter(|(_, session)| session.is_new).collect();
        if new.is_empty() {
            return Ok(());
        }
        let numbers = |of: fn(&BatchSession) -> i64| -> Vec<i64> {
            new.iter().map(|(_, session)| of(session)).collect()
        };
        let keys: Vec<&Vec<u8>> = new.iter().map(|(key, _)| *key).collect();
        let names: Vec<&Vec<u8>> = new.iter().map(|(_, session)| &session.name).collect();
        let clients: Vec<_> = new.iter().map(|(_, session)| put(&session.client)).collect();
        let notes: Vec<bool> = new.iter().map(|(_, session)| session.note).collect();
        let sql = "INSERT INTO hob.memory_sessions
                 (id, project, started, ended, turns, length, note, speaker, client, name_key, name)
             SELECT id, project, started, ended, turns, length, note, $1, client, key, name
             FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
                     $7::bigint[], $8::boolean[], $9::text[], $10::bytea[], $11::bytea[])
                 u (id, project, started, ended, turns, length, note, client, key, name)";
        let values: Values<'_> = &[
            &self.speaker,
            &numbers(|session| session.id),
            &numbers(|session| session.project),
            &numbers(|session| session.started),
            &numbers(|session| session.ended),
            &numbers(|session| session.turns),
            &numbers(|session| session.length),
            &notes,
            &clients,
            &keys,
            &names,
        ];
        execute(client, sql, values).await
    }

    async fn update_sessions(&self, client: &Client) -> Result<(), Error> {
        let changed: Vec<&BatchSession> =
            self.sessions.values().filter(|session| !session.is_new && session.changed).collect();
        if changed.is_empty() {
            return Ok(());
        }
        let numbers = |of: fn(&BatchSession) -> i64| -> Vec<i64> {
            changed.iter().map(|session| of(session)).collect()
        };
        let sql = "UPDATE hob.memory_sessions s SET project = u.project, started = u.started,
                 ended = u.ended, turns = s.turns + u.turns, length = s.length + u.length
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
                     $6::bigint[])
                 u (id, project, started, ended, turns, length) WHERE s.id = u.id";
        let values: Values<'_> = &[
            &numbers(|session| session.id),
            &numbers(|session| session.project),
            &numbers(|session| session.started),
            &numbers(|session| session.ended),
            &numbers(|session| session.turns),
            &numbers(|session| session.length),
        ];
        execute(client, sql, values).await
    }

    /// Returns one value for each new turn.
    fn column<'s, T>(&'s self, of: impl Fn(&'s InsertedTurn<'s>) -> T) -> Vec<T> {
        self.inserted.iter().map(of).collect()
    }

    /// Returns one value for each new turn, of its row: a later turn of the batch may have claimed
    /// a name.
    fn row_column<'s, T>(&'s self, of: impl Fn(&'s ExistingRow) -> T) -> Vec<T> {
        self.inserted.iter().map(|one| of(&self.turns.all[one.place])).collect()
    }

    /// Writes the new turns and adds their terms to the recent postings.
    async fn insert_turns(
        &self,
        client: &Client,
        recent: &mut RecentPostings,
    ) -> Result<(), Error> {
        let terms: Vec<Vec<u8>> = self
            .inserted
            .iter()
            .map(|one| {
                let InsertedTurn { seq, project, session, .. } = *one;
                let numbers = TurnNumbers { seq, project, session };
                recent.add(self.cipher, numbers, &counts(one.turn))
            })
            .collect();
        let body = |one: &InsertedTurn<'_>| {
            let plain = body(&one.turn.place.worktree, one.turn.cue.as_deref(), &one.turn.text);
            self.cipher.seal(Body::Turn(self.speaker, one.seq), &plain)
        };
        let sealed_answer = |one: &InsertedTurn<'_>| {
            let has_answer = self.turns.all[one.place].turn.names.answer.is_some();
            has_answer.then(|| one.names.sealed.answer.clone()).flatten()
        };
        let sql = "INSERT INTO hob.memory_turns (seq, session, project, ts, at, nth, chars, rules,
                 speaker, role, tier, client, source, id_key, id, key, answer, words, body, sealed,
                 terms, key_kept, answer_kept, words_kept)
             SELECT u.seq, u.session, u.project, u.ts, u.at, u.nth, u.chars, u.rules, $1, u.role,
                 u.tier, u.client, u.source, u.id_key, u.id, u.key, u.answer, u.words, u.body,
                 u.sealed, u.terms, u.key_kept, u.answer_kept, u.words_kept
             FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
                 $7::bigint[], $8::integer[], $9::integer[], $10::text[], $11::text[], $12::text[],
                 $13::text[], $14::bytea[], $15::bytea[], $16::bytea[], $17::bytea[], $18::bytea[],
                 $19::bytea[], $20::bytea[], $21::bytea[], $22::bytea[], $23::bytea[], $24::bytea[])
                 u (seq, session, project, ts, at, nth, chars, rules, role, tier, client, source,
                 id_key, id, key, answer, words, body, sealed, terms, key_kept, answer_kept,
                 words_kept)";
        let values: Values<'_> = &[
            &self.speaker,
            &self.column(|one| one.seq),
            &self.column(|one| one.session),
            &self.column(|one| one.project),
            &self.row_column(|row| row.ts),
            &self.row_column(|row| row.turn.at),
            &self.row_column(|row| row.turn.names.nth),
            &self.column(|one| one.turn.text.chars().count() as i32),
            &self.column(|one| one.turn.rules as i32),
            &self.column(|one| one.turn.role.as_str()),
            &self.column(|one| one.turn.tier.as_str()),
            &self.row_column(|row| put(&row.client)),
            &self.column(|one| put(one.turn.source.as_str())),
            &self.column(|one| &*one.names.id_key),
            &self.column(|one| &*one.names.id),
            &self.row_column(|row| row.turn.names.record.as_deref()),
            &self.row_column(|row| row.turn.names.answer.as_deref()),
            &self.column(|one| &*one.names.hashed.words),
            &self.column(body),
            &self.column(|one| one.turn.sealed.as_deref()),
            &terms,
            &self.row_column(|row| row.sealed_record.as_deref()),
            &self.column(sealed_answer),
            &self.column(|one| &*one.names.sealed.words),
        ];
        execute(client, sql, values).await
    }

    /// Writes what a query needs to know of every turn.
    async fn insert_metadata(&self, client: &Client) -> Result<(), Error> {
        let sql = "INSERT INTO hob.memory_standing (seq, session, project, ts, at, length, speaker)
             SELECT u.*, $1 FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
                 $6::bigint[], $7::integer[]) u";
        let values: Values<'_> = &[
            &self.speaker,
            &self.column(|one| one.seq),
            &self.column(|one| one.session),
            &self.column(|one| one.project),
            &self.row_column(|row| row.ts),
            &self.row_column(|row| row.turn.at),
            &self.column(|one| one.length as i32),
        ];
        execute(client, sql, values).await
    }

    async fn insert_vectors(&self, client: &Client) -> Result<(), Error> {
        let seal = |one: &InsertedTurn<'_>| {
            self.cipher.seal_vector(Body::Vector(self.speaker, one.seq), &one.turn.vector)
        };
        let codes: Vec<Option<Bits>> = self.column(|one| self.cipher.table_code(&one.turn.vector));
        let sql =
            "INSERT INTO hob.memory_vectors (seq, session, project, ts, code, vector, speaker)
             SELECT u.seq, u.session, u.project, u.ts, u.code::bit(256), u.vector, $1
             FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::varbit[],
                 $7::bytea[]) u (seq, session, project, ts, code, vector)";
        let values: Values<'_> = &[
            &self.speaker,
            &self.column(|one| one.seq),
            &self.column(|one| one.session),
            &self.column(|one| one.project),
            &self.row_column(|row| row.ts),
            &codes,
            &self.column(seal),
        ];
        execute(client, sql, values).await
    }

    /// Writes the names that were claimed for turns which were stored before this batch.
    async fn write_claims(&self, client: &Client, before: LastNumbers) -> Result<(), Error> {
        let is_claimed = |row: &&ExistingRow| row.is_claimed && row.turn.number <= before.seq;
        let claimed: Vec<&ExistingRow> = self.turns.all.iter().filter(is_claimed).collect();
        if claimed.is_empty() {
            return Ok(());
        }
        let ts: Vec<i64> = claimed.iter().map(|row| row.ts).collect();
        let at: Vec<i64> = claimed.iter().map(|row| row.turn.at).collect();
        let clients: Vec<_> = claimed.iter().map(|row| put(&row.client)).collect();
        let ClaimedNames { numbers: seqs, records, nths, sealed } = ClaimedNames::of(&claimed);
        let sql = "UPDATE hob.memory_turns t SET key = u.key, nth = u.nth, ts = u.ts, at = u.at,
                 client = u.client, key_kept = coalesce(u.kept, t.key_kept)
             FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[],
                 $6::text[], $7::bytea[]) u (seq, key, nth, ts, at, client, kept)
             WHERE t.seq = u.seq";
        execute(client, sql, &[&seqs, &records, &nths, &ts, &at, &clients, &sealed]).await?;
        for table in ["hob.memory_vectors", "hob.memory_model_vectors"] {
            let sql = format!(
                "UPDATE {table} t SET ts = u.ts FROM unnest($1::bigint[], $2::bigint[]) u (seq, ts)
                 WHERE t.seq = u.seq AND t.ts <> u.ts"
            );
            execute(client, &sql, &[&seqs, &ts]).await?;
        }
        let sql = "UPDATE hob.memory_standing t SET ts = u.ts, at = u.at
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) u (seq, ts, at)
             WHERE t.seq = u.seq AND (t.ts, t.at) <> (u.ts, u.at)";
        execute(client, sql, &[&seqs, &ts, &at]).await
    }

    /// Writes the names that were claimed for forgotten turns.
    async fn write_forgotten_claims(&self, client: &Client) -> Result<(), Error> {
        let claimed: Vec<&ExistingRow> =
            self.forgotten.all.iter().filter(|row| row.is_claimed).collect();
        if claimed.is_empty() {
            return Ok(());
        }
        let ClaimedNames { numbers: ids, records, nths, sealed } = ClaimedNames::of(&claimed);
        let sql = "UPDATE hob.memory_forgotten f SET key = u.key, nth = u.nth,
                 key_kept = coalesce(u.kept, f.key_kept)
             FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bytea[])
                 u (id, key, nth, kept)
             WHERE f.id = u.id";
        execute(client, sql, &[&ids, &records, &nths, &sealed]).await
    }
}

/// The names of claimed rows, as columns.
struct ClaimedNames<'a> {
    numbers: Vec<i64>,
    records: Vec<Option<&'a [u8]>>,
    nths: Vec<Option<i64>>,
    sealed: Vec<Option<&'a [u8]>>,
}

impl<'a> ClaimedNames<'a> {
    fn of(rows: &[&'a ExistingRow]) -> ClaimedNames<'a> {
        ClaimedNames {
            numbers: rows.iter().map(|row| row.turn.number).collect(),
            records: rows.iter().map(|row| row.turn.names.record.as_deref()).collect(),
            nths: rows.iter().map(|row| row.turn.names.nth).collect(),
            sealed: rows.iter().map(|row| row.sealed_record.as_deref()).collect(),
        }
    }
}

/// Adds to the sums of projects.
pub(super) async fn add_sums(
    client: &Client,
    sums: &BTreeMap<i64, ProjectSums>,
) -> Result<(), Error> {
    let ids: Vec<i64> = sums.keys().copied().collect();
    let column = |of: fn(&ProjectSums) -> i64| -> Vec<i64> { sums.values().map(of).collect() };
    let sql = "UPDATE hob.memory_projects p SET turns = p.turns + u.turns,
             length = p.length + u.length, sessions = p.sessions + u.sessions
         FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[])
             u (id, turns, length, sessions) WHERE p.id = u.id";
    let values: Values<'_> =
        &[&ids, &column(|sum| sum.turns), &column(|sum| sum.length), &column(|sum| sum.sessions)];
    execute(client, sql, values).await
}

/// Marks imports as done.
pub(super) async fn save_marks(
    client: &Client,
    cipher: &Cipher,
    marks: &[ImportMark],
) -> Result<(), Error> {
    if marks.is_empty() {
        return Ok(());
    }
    // Of two marks of one path the last counts.
    let last: BTreeMap<Vec<u8>, &ImportMark> =
        marks.iter().map(|mark| (cipher.hash_key(&mark.path), mark)).collect();
    let paths: Vec<&Vec<u8>> = last.keys().collect();
    let encrypted: Vec<Vec<u8>> =
        last.values().map(|mark| cipher.encrypt_key(&mark.path)).collect();
    let sizes: Vec<i64> = last.values().map(|mark| mark.size as i64).collect();
    let modified: Vec<i64> = last.values().map(|mark| mark.modified).collect();
    let sql = "INSERT INTO hob.memory_imports (path, size, modified, path_kept)
         SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bytea[])
         ON CONFLICT (path) DO UPDATE SET size = excluded.size, modified = excluded.modified,
             path_kept = excluded.path_kept";
    execute(client, sql, &[&paths, &sizes, &modified, &encrypted]).await
}

async fn execute(client: &Client, sql: &str, values: Values<'_>) -> Result<(), Error> {
    client.execute(&client.prepare_cached(sql).await?, values).await.map(drop)
}
