//! Finding the turns with the nearest vectors: first by the Hamming distance of their sign codes,
//! then by dot product.
//!
//! The codes of the built-in table's vectors, which every turn has, are compared in this process
//! (see [`CodeCache`]). The codes of a model's vectors are compared by the server: all of them in a
//! small scope, by pgvector's HNSW graph in a large one.

use std::collections::HashSet;

use hob_domain::memory::KindVector;
use hob_index::sign_codes::{
    DotProductTable, MODEL_BYTES, OVERSAMPLING, TABLE_BYTES, code_words, nearest_by_dot_product,
};
use tokio_postgres::{Error, Row};

use super::cache::{self, CodeCache, NearTurn};
use super::cipher::{Bits, Cipher};
use super::rows::ask;
use super::scope::{CollectionSums, first_allowed, times};
use crate::memory::range::SearchRange;
use crate::postgres::connections::Client;

/// The codes of at most this many listed turns are read from the server for the query.
const MAX_READ_CODES: usize = 1000;
/// In a scope of at most this many turns all codes of a model are compared.
const MAX_SMALL_SCOPE_TURNS: u64 = 20_000;
/// All are also compared in a scope of at most this many turns that is less than one part in
/// [`MIN_SCOPE_PARTS`] of all turns: the graph knows no scopes, and little of what it finds would
/// be inside.
const MAX_MEDIUM_SCOPE_TURNS: u64 = 100_000;
const MIN_SCOPE_PARTS: u64 = 50;
/// The bounds of `hnsw.ef_search`: how many candidates pgvector keeps while it walks the graph. The
/// second is pgvector's own limit.
const MIN_EF_SEARCH: usize = 400;
const MAX_EF_SEARCH: usize = 1000;

/// A search for the nearest turns in a range.
#[derive(Clone, Copy)]
pub(super) struct NearestSearch<'a> {
    pub(super) client: &'a Client,
    pub(super) cipher: &'a Cipher,
    pub(super) range: &'a SearchRange,
    pub(super) limit: usize,
}

/// Returns the nearest turns by the vectors of the built-in table, nearest first.
pub(super) async fn by_table(
    search: NearestSearch<'_>,
    cache: &CodeCache,
    vector: &[i8],
) -> Result<Vec<i64>, Error> {
    let NearestSearch { client, cipher, range, limit } = search;
    let Some(code) = cipher.table_code(vector) else { return Ok(Vec::new()) };
    let oversampled = limit.saturating_mul(OVERSAMPLING).max(1);
    let products = DotProductTable::new(vector, TABLE_BYTES / 8);
    let scored = |code: &Bits, seq: i64| {
        let code = code_words::<{ TABLE_BYTES / 8 }>(&cipher.table_signs(code));
        (products.dot(&code), seq)
    };
    let found: Vec<(i32, i64)> = match &range.allowed {
        Some(allowed) if allowed.len() <= MAX_READ_CODES => {
            let sql = "SELECT seq, code FROM hob.memory_vectors
                 WHERE seq = ANY($2) AND code IS NOT NULL
                 ORDER BY bit_count(code # $1::varbit::bit(256)), seq LIMIT $3";
            let rows = ask(client, sql, &[&code, allowed, &(oversampled as i64)]).await?;
            rows.iter().map(|row| scored(&row.get(1), row.get(0))).collect()
        }
        allowed => {
            let all = cache.read(client, &range.projects).await?;
            let near = match range.is_unlisted() {
                false => cache::nearest(&all, &code, allowed.as_deref(), oversampled),
                true => {
                    let near = cache::nearest(&all, &code, None, usize::MAX);
                    allowed_turns(client, range, near, oversampled).await?
                }
            };
            near.iter().map(|near| scored(&near.code, near.seq)).collect()
        }
    };
    Ok(nearest_by_dot_product(found, limit))
}

/// Returns the first of these turns that an unlisted range has, at most `limit`.
async fn allowed_turns(
    client: &Client,
    range: &SearchRange,
    mut near: Vec<NearTurn>,
    limit: usize,
) -> Result<Vec<NearTurn>, Error> {
    let seqs: Vec<i64> = near.iter().map(|near| near.seq).collect();
    let allowed: HashSet<i64> =
        first_allowed(client, range, &seqs, limit).await?.into_iter().collect();
    near.retain(|near| allowed.contains(&near.seq));
    Ok(near)
}

/// Returns the nearest turns by the vectors of a model, nearest first.
pub(super) async fn by_model(
    search: NearestSearch<'_>,
    sums: CollectionSums,
    KindVector { kind, vector }: &KindVector,
) -> Result<Vec<i64>, Error> {
    let NearestSearch { client, cipher, range, limit } = search;
    let Some(code) = cipher.model_code(vector) else { return Ok(Vec::new()) };
    let oversampled = limit.saturating_mul(OVERSAMPLING).max(1);
    let count = oversampled as i64;
    let select = "SELECT seq, code FROM hob.memory_model_vectors
         WHERE code IS NOT NULL AND kind = $2";
    let distance = format!("code <~> $1::varbit::bit({})", MODEL_BYTES * 8);
    let rows = if let Some(allowed) = &range.allowed {
        let sql = format!("{select} AND seq = ANY($3) ORDER BY ({distance}) + 0, seq LIMIT $4");
        ask(client, &sql, &[&code, &kind.0, allowed, &count]).await?
    } else {
        let is_exact = compares_all(sums);
        // No index has this sum, so PostgreSQL compares all codes.
        let order = match is_exact {
            true => format!("({distance}) + 0, seq"),
            false => distance,
        };
        let sql = format!(
            "{select} AND project = ANY($3) AND ts BETWEEN $4 AND $5
                 AND ($6::bigint IS NULL OR session = $6) ORDER BY {order} LIMIT $7"
        );
        if !is_exact {
            let ef_search = oversampled.clamp(MIN_EF_SEARCH, MAX_EF_SEARCH);
            let settings = format!(
                "SET LOCAL hnsw.ef_search = {ef_search}; \
                 SET LOCAL hnsw.iterative_scan = strict_order; SET LOCAL enable_sort = off"
            );
            client.batch_execute(&settings).await?;
        }
        let (since, until) = times(range);
        let rows = ask(
            client,
            &sql,
            &[&code, &kind.0, &range.projects, &since, &until, &range.session, &count],
        )
        .await?;
        if !is_exact {
            client.batch_execute("SET LOCAL enable_sort = on").await?;
        }
        rows
    };
    let products = DotProductTable::new(vector, MODEL_BYTES / 8);
    let scored = |row: &Row| {
        let code = code_words::<{ MODEL_BYTES / 8 }>(&cipher.model_signs(&row.get(1)));
        (products.dot(&code), row.get::<_, i64>(0))
    };
    Ok(nearest_by_dot_product(rows.iter().map(scored).collect(), limit))
}

/// Decides whether all codes of a scope are compared instead of walking the graph.
fn compares_all(sums: CollectionSums) -> bool {
    let is_small_part = sums.turns <= MAX_MEDIUM_SCOPE_TURNS
        && sums.turns.saturating_mul(MIN_SCOPE_PARTS) < sums.all_turns;
    sums.turns <= MAX_SMALL_SCOPE_TURNS || is_small_part
}
