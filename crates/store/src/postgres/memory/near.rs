//! Which turns point about the same way: by how many signs of their vectors differ, then more closely. In a scope of few
//! turns all are compared; in a larger one pgvector's graph says which may be near.

use hob_domain::memory::VectorKind;
use tokio_postgres::Error;

use super::cipher::{Bits, Cipher};
use super::propose::Range;
use super::rows::ask;
use crate::index::{CLOSER, MODEL_BYTES, TABLE_BYTES, agreement, words};
use crate::postgres::connections::Client;

/// In a scope of no more turns than this all are compared; also in one of some more that is so small a part of all turns:
/// the graph knows no scopes, and of what is near little would be inside.
const FEW: u64 = 20_000;
const SOME: u64 = 100_000;
const SMALL_PART: u64 = 50;
/// How far the graph is walked at least, and how far pgvector can.
const WALK: usize = 400;
const LONGEST_WALK: usize = 1000;

/// Of which vectors.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Table,
    Model(VectorKind),
}

/// The nearest turns, nearest first.
pub(super) async fn nearest(
    client: &Client,
    cipher: &Cipher,
    kind: Kind,
    range: &Range,
    vector: &[i8],
    limit: usize,
) -> Result<Vec<i64>, Error> {
    let (code, table, width, number) = match kind {
        Kind::Table => (cipher.table_code(vector), "hob.memory_vectors", TABLE_BYTES * 8, -1),
        Kind::Model(kind) => {
            (cipher.model_code(vector), "hob.memory_model_vectors", MODEL_BYTES * 8, kind.0)
        }
    };
    let Some(code) = code else { return Ok(Vec::new()) };
    let of_kind = match kind {
        Kind::Table => "$2::bigint < 0",
        Kind::Model(_) => "kind = $2",
    };
    let most = limit.saturating_mul(CLOSER).max(1);
    let count = most as i64;
    let what = format!("SELECT seq, code FROM {table} WHERE code IS NOT NULL AND {of_kind}");
    let distance = format!("code <~> $1::varbit::bit({width})");
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
    let closer = |row: &tokio_postgres::Row| {
        let stored: Bits = row.get(1);
        let near = match kind {
            Kind::Table => {
                agreement(vector, &words::<{ TABLE_BYTES / 8 }>(&cipher.table_signs(&stored)))
            }
            Kind::Model(_) => {
                agreement(vector, &words::<{ MODEL_BYTES / 8 }>(&cipher.model_signs(&stored)))
            }
        };
        (near, row.get::<_, i64>(0))
    };
    let mut found: Vec<(i32, i64)> = rows.iter().map(closer).collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found.into_iter().take(limit).map(|(_, seq)| seq).collect())
}
