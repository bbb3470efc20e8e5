//! Which turns point about the same way: by how many signs of their vectors differ, then more closely. The vectors of the
//! table, which every turn has, are compared one by one by what the node holds of them. Those of a model are compared by the
//! server: one by one in a scope of few turns, in a larger one pgvector's graph says which may be near.

use hob_domain::memory::VectorKind;
use hob_index::sign_codes::{
    DotProductTable, MODEL_BYTES, OVERSAMPLING, TABLE_BYTES, code_words, nearest_by_dot_product,
};
use tokio_postgres::Error;

use super::cache::{self, Held};
use super::candidates::{Range, allowed};
use super::cipher::{Bits, Cipher};
use super::rows::ask;
use crate::postgres::connections::Client;

/// Of no more turns than these the codes are simply read.
const HANDFUL: usize = 1000;
/// In a scope of no more turns than this all are compared; also in one of some more that is so small a part of all turns:
/// the graph knows no scopes, and of what is near little would be inside.
const FEW: u64 = 20_000;
const SOME: u64 = 100_000;
const SMALL_PART: u64 = 50;
/// How far the graph is walked at least, and how far pgvector can.
const WALK: usize = 400;
const LONGEST_WALK: usize = 1000;

/// The nearest turns by the vectors of the table, nearest first.
pub(super) async fn of_table(
    client: &Client,
    (cipher, held): (&Cipher, &Held),
    range: &Range,
    vector: &[i8],
    limit: usize,
) -> Result<Vec<i64>, Error> {
    let Some(code) = cipher.table_code(vector) else { return Ok(Vec::new()) };
    let most = limit.saturating_mul(OVERSAMPLING).max(1);
    let products = DotProductTable::new(vector, TABLE_BYTES / 8);
    let closer = |code: &Bits, seq: i64| {
        (products.dot(&code_words::<{ TABLE_BYTES / 8 }>(&cipher.table_signs(code))), seq)
    };
    let found: Vec<(i32, i64)> = match &range.allowed {
        Some(allowed) if allowed.len() <= HANDFUL => {
            let sql = "SELECT seq, code FROM hob.memory_vectors
                 WHERE seq = ANY($2) AND code IS NOT NULL
                 ORDER BY bit_count(code # $1::varbit::bit(256)), seq LIMIT $3";
            let rows = ask(client, sql, &[&code, allowed, &(most as i64)]).await?;
            rows.iter().map(|row| closer(&row.get(1), row.get(0))).collect()
        }
        among => {
            let all = held.read(client, &range.projects).await?;
            if range.is_open() {
                let near = cache::nearest(&all, &code, None, usize::MAX);
                let seqs = near.iter().map(|near| near.seq).collect();
                let inside = allowed(client, range, seqs, most).await?;
                let inside: std::collections::HashSet<i64> = inside.into_iter().collect();
                let near = near.iter().filter(|near| inside.contains(&near.seq));
                near.map(|near| closer(&near.code, near.seq)).collect()
            } else {
                let near = cache::nearest(&all, &code, among.as_deref(), most);
                near.iter().map(|near| closer(&near.code, near.seq)).collect()
            }
        }
    };
    Ok(nearest_by_dot_product(found, limit))
}

/// The same by the vectors of a model.
pub(super) async fn of_model(
    client: &Client,
    cipher: &Cipher,
    kind: VectorKind,
    range: &Range,
    vector: &[i8],
    limit: usize,
) -> Result<Vec<i64>, Error> {
    let Some(code) = cipher.model_code(vector) else { return Ok(Vec::new()) };
    let most = limit.saturating_mul(OVERSAMPLING).max(1);
    let (count, number) = (most as i64, kind.0);
    let what = "SELECT seq, code FROM hob.memory_model_vectors
         WHERE code IS NOT NULL AND kind = $2";
    let distance = format!("code <~> $1::varbit::bit({})", MODEL_BYTES * 8);
    let rows = match &range.allowed {
        Some(allowed) => {
            let sql = format!("{what} AND seq = ANY($3) ORDER BY ({distance}) + 0, seq LIMIT $4");
            ask(client, &sql, &[&code, &number, allowed, &count]).await?
        }
        None => {
            let (since, until) = range.times.unwrap_or((i64::MIN, i64::MAX));
            let inside = "project = ANY($3) AND ts BETWEEN $4 AND $5
                 AND ($6::bigint IS NULL OR session = $6)";
            let is_small = range.turns <= SOME && range.turns.saturating_mul(SMALL_PART) < range.of;
            let is_exact = range.turns <= FEW || is_small;
            // A sum is in no index: then all are compared.
            let order = match is_exact {
                true => format!("({distance}) + 0, seq"),
                false => distance,
            };
            let sql = format!("{what} AND {inside} ORDER BY {order} LIMIT $7");
            if !is_exact {
                let walk = most.clamp(WALK, LONGEST_WALK);
                let settings = format!(
                    "SET LOCAL hnsw.ef_search = {walk}; SET LOCAL hnsw.iterative_scan = strict_order; \
                     SET LOCAL enable_sort = off"
                );
                client.batch_execute(&settings).await?;
            }
            let rows = ask(
                client,
                &sql,
                &[&code, &number, &range.projects, &since, &until, &range.session, &count],
            )
            .await?;
            if !is_exact {
                client.batch_execute("SET LOCAL enable_sort = on").await?;
            }
            rows
        }
    };
    let products = DotProductTable::new(vector, MODEL_BYTES / 8);
    let closer = |row: &tokio_postgres::Row| {
        let signs = cipher.model_signs(&row.get(1));
        (products.dot(&code_words::<{ MODEL_BYTES / 8 }>(&signs)), row.get::<_, i64>(0))
    };
    Ok(nearest_by_dot_product(rows.iter().map(closer).collect(), limit))
}
