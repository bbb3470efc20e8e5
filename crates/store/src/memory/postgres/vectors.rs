//! Models' vectors of turns, which come in addition to those of the built-in table.

use async_trait::async_trait;
use hob_domain::StoreError;
use hob_domain::memory::{Embedded, Unembedded, UnembeddedPage, VectorKind, VectorStore};
use tokio_postgres::Error;

use super::PostgresMemory;
use super::batch::lock;
use super::cipher::{Bits, Body, Cipher};
use super::rows::{Opened, ask};
use crate::postgres::connections::{Again, Client, Values};
use crate::postgres::row_scope::RowScope;
use crate::postgres::text::put;

/// One page of turns without a vector looks at this many turns.
const PAGE_TURNS: i64 = 2048;

#[async_trait]
impl VectorStore for PostgresMemory {
    async fn vector_kind(&self, name: &str, width: usize) -> Result<VectorKind, StoreError> {
        let sql = "INSERT INTO hob.memory_kinds (name, width) VALUES ($1, $2)
             ON CONFLICT (name) DO UPDATE SET width = $2 RETURNING id";
        let values: Values<'_> = &[&put(name), &(width as i64)];
        let connections = self.connections.within(RowScope::Shared);
        let row = connections.query_one(Again::Harmless, sql, values).await?;
        Ok(VectorKind(row.map_or(0, |row| row.get(0))))
    }

    async fn without_vector(
        &self,
        kind: VectorKind,
        below: i64,
        above: i64,
        limit: usize,
    ) -> Result<UnembeddedPage, StoreError> {
        // After the newest turn there is nothing to look at.
        let sql = "SELECT coalesce(max(seq), 0) FROM hob.memory_turns";
        let rows = self.of_all().query(Again::Harmless, sql, &[]).await?;
        let highest: i64 = rows.first().map_or(0, |row| row.get(0));
        let below = below.min(highest.saturating_add(1));
        let from = (below - PAGE_TURNS).max(above.saturating_add(1));
        let sql = "SELECT t.seq, t.speaker, t.body FROM hob.memory_turns t
             WHERE t.seq >= $1 AND t.seq < $2 AND NOT EXISTS
                 (SELECT 1 FROM hob.memory_model_vectors v WHERE v.seq = t.seq AND v.kind = $3)
             ORDER BY t.seq DESC LIMIT $4";
        let values: Values<'_> = &[&from, &below, &kind.0, &(limit as i64)];
        let rows = self.of_all().query(Again::Harmless, sql, values).await?;
        let turn = |row: &tokio_postgres::Row| {
            let seq = row.get(0);
            let Opened { text, cue, .. } = Opened::new(&self.cipher, row.get(1), seq, row.get(2))?;
            Ok(Unembedded { seq, text, cue })
        };
        let turns: Vec<Unembedded> = rows.iter().map(turn).collect::<Result<_, StoreError>>()?;
        let seen = match turns.last() {
            Some(last) if turns.len() >= limit => last.seq,
            _ => from,
        };
        let below = Some(seen).filter(|seen| *seen > above.saturating_add(1));
        Ok(UnembeddedPage { turns, below })
    }

    async fn save_vectors(
        &self,
        kind: VectorKind,
        vectors: Vec<(i64, Vec<i8>)>,
    ) -> Result<(), StoreError> {
        let (cipher, vectors) = (&*self.cipher, &vectors[..]);
        self.of_all()
            .transaction(|client| async move { save(&client, cipher, kind, vectors).await })
            .await
    }

    async fn embedded(&self, kind: VectorKind) -> Result<Embedded, StoreError> {
        let sql = "SELECT coalesce((SELECT embedded FROM hob.memory_kinds WHERE id = $1), 0),
                 (SELECT coalesce(sum(turns), 0)::bigint FROM hob.memory_projects),
                 (SELECT coalesce(max(seq), 0) FROM hob.memory_turns)";
        let rows = self.of_all().query(Again::Harmless, sql, &[&kind.0]).await?;
        let Some(row) = rows.first() else { return Ok(Embedded::default()) };
        let count = |column: usize| row.get::<_, i64>(column).max(0) as u64;
        Ok(Embedded { done: count(0), turns: count(1), newest: row.get(2) })
    }

    async fn drop_other_vectors(
        &self,
        kind: VectorKind,
        limit: usize,
    ) -> Result<usize, StoreError> {
        self.of_all()
            .transaction(|client| async move { drop_others(&client, kind, limit).await })
            .await
    }
}

/// Stores vectors. Turns that were forgotten meanwhile are left out.
pub(super) async fn save(
    client: &Client,
    cipher: &Cipher,
    kind: VectorKind,
    vectors: &[(i64, Vec<i8>)],
) -> Result<(), Error> {
    // No other process forgets or stores turns meanwhile.
    lock(client).await?;
    let last: std::collections::BTreeMap<i64, &[i8]> =
        vectors.iter().map(|(seq, vector)| (*seq, &vector[..])).collect();
    let seqs: Vec<i64> = last.keys().copied().collect();
    let sql = "SELECT t.seq, t.speaker FROM hob.memory_turns t
         JOIN hob.memory_kinds k ON k.id = $2 WHERE t.seq = ANY($1)";
    let there = ask(client, sql, &[&seqs, &kind.0]).await?;
    let seqs: Vec<i64> = there.iter().map(|row| row.get(0)).collect();
    let vector = |row: &tokio_postgres::Row| last[&row.get::<_, i64>(0)];
    let codes: Vec<Option<Bits>> = there.iter().map(|row| cipher.model_code(vector(row))).collect();
    let seal = |row: &tokio_postgres::Row| {
        cipher.seal_vector(Body::ModelVector(row.get(1), row.get(0), kind.0), vector(row))
    };
    let sealed: Vec<Vec<u8>> = there.iter().map(seal).collect();
    let sql = "WITH kept AS (
             INSERT INTO hob.memory_model_vectors
                 (seq, kind, project, session, ts, speaker, code, vector)
             SELECT t.seq, $1, t.project, t.session, t.ts, t.speaker, u.code::bit(384), u.vector
             FROM unnest($2::bigint[], $3::varbit[], $4::bytea[]) u (seq, code, vector)
             JOIN hob.memory_turns t ON t.seq = u.seq
             ON CONFLICT (seq, kind) DO UPDATE SET code = excluded.code, vector = excluded.vector
             RETURNING xmax = 0 AS is_new)
         UPDATE hob.memory_kinds SET embedded = embedded + (SELECT count(*) FROM kept WHERE is_new)
         WHERE id = $1";
    ask(client, sql, &[&kind.0, &seqs, &codes, &sealed]).await.map(drop)
}

/// Removes at most `limit` vectors of other kinds, and the kinds themselves when no vector is left.
async fn drop_others(client: &Client, kind: VectorKind, limit: usize) -> Result<usize, Error> {
    lock(client).await?;
    let sql = "SELECT 1 FROM hob.memory_kinds WHERE id <> $1";
    if ask(client, sql, &[&kind.0]).await?.is_empty() {
        return Ok(0);
    }
    let sql =
        "WITH others AS (SELECT seq, kind FROM hob.memory_model_vectors WHERE kind <> $1 LIMIT $2),
         gone AS (DELETE FROM hob.memory_model_vectors v USING others s
             WHERE v.seq = s.seq AND v.kind = s.kind RETURNING v.kind),
         sums AS (SELECT kind, count(*) AS fewer FROM gone GROUP BY kind),
         less AS (UPDATE hob.memory_kinds k SET embedded = k.embedded - s.fewer FROM sums s
             WHERE k.id = s.kind)
         SELECT count(*) FROM gone";
    let rows = ask(client, sql, &[&kind.0, &(limit as i64)]).await?;
    let gone: i64 = rows.first().map_or(0, |row| row.get(0));
    if gone == 0 {
        ask(client, "DELETE FROM hob.memory_kinds WHERE id <> $1", &[&kind.0]).await?;
    }
    Ok(gone as usize)
}
