//! Sign codes in `memory_codes`: many to a row, in the order of their turns.
//!
//! New codes wait in `memory_vectors` until there are enough of them, and are then packed into
//! rows. A new row takes in the rows before it that are not much larger (see [`absorbs_group`]), so
//! that there are few rows however few codes come at a time. A row that changes gets a new stamp,
//! by which caches notice it.

use std::collections::BTreeMap;

use hob_index::merge_policy::absorbs_group;
use hob_index::sign_codes::TABLE_BYTES;
use tokio_postgres::Error;

use super::cipher::Bits;
use super::rows::ask;
use crate::postgres::connections::{Client, Values};

/// The codes of a row.
const MAX_ROW_CODES: usize = if cfg!(test) { 8 } else { 4096 };
/// Codes are packed when this many turns wait.
const MIN_WAITING_TURNS: i64 = if cfg!(test) { 3 } else { 1024 };
/// The turns whose codes are packed at once.
const MAX_PACKED_TURNS: i64 = if cfg!(test) { 6 } else { 8192 };
/// The size of an entry: a turn's number and its code.
pub(super) const ENTRY_BYTES: usize = 8 + TABLE_BYTES;

/// Packs the codes of turns after `coded`, if enough of them wait. Returns the turn up to which
/// codes are packed. The caller has locked `memory_merge`, and has taken a stamp that no other row
/// has.
pub(super) async fn pack(
    client: &Client,
    coded: i64,
    newest: i64,
    stamp: i64,
) -> Result<i64, Error> {
    if newest - coded < MIN_WAITING_TURNS {
        return Ok(coded);
    }
    let to = newest.min(coded + MAX_PACKED_TURNS);
    let sql = "SELECT project, seq, code FROM hob.memory_vectors
         WHERE seq BETWEEN $1 AND $2 AND code IS NOT NULL ORDER BY seq";
    let mut new: BTreeMap<i64, Vec<u8>> = BTreeMap::new();
    for row in ask(client, sql, &[&(coded + 1), &to]).await? {
        let code: Bits = row.get(2);
        put(new.entry(row.get(0)).or_default(), row.get(1), &code);
    }
    let projects: Vec<i64> = new.keys().copied().collect();
    let taken = absorb_rows(client, &new).await?;
    let mut rows = CodeRows::default();
    for project in projects {
        let mut codes = taken.get(&project).cloned().unwrap_or_default();
        codes.extend(new.remove(&project).unwrap_or_default());
        for part in codes.chunks(MAX_ROW_CODES * ENTRY_BYTES) {
            rows.add(project, entry_seq(part), part.to_vec());
        }
    }
    rows.put(client, stamp).await?;
    Ok(to)
}

/// Deletes the last rows of each project that the new one takes in, and returns their codes by
/// project.
async fn absorb_rows(
    client: &Client,
    new: &BTreeMap<i64, Vec<u8>>,
) -> Result<BTreeMap<i64, Vec<u8>>, Error> {
    let projects: Vec<i64> = new.keys().copied().collect();
    // Sizes double from row to row, so twenty rows reach back to a full one.
    let sql = "SELECT u.project, c.first, c.size FROM unnest($1::bigint[]) u (project),
         LATERAL (SELECT first, octet_length(codes) AS size FROM hob.memory_codes c
             WHERE c.project = u.project ORDER BY first DESC LIMIT 20) c ORDER BY 1, 2 DESC";
    let (mut of, mut firsts): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
    let mut sizes: BTreeMap<i64, Option<usize>> =
        new.iter().map(|(project, codes)| (*project, Some(codes.len()))).collect();
    for row in ask(client, sql, &[&projects]).await? {
        let (project, first): (i64, i64) = (row.get(0), row.get(1));
        let before = row.get::<_, i32>(2).max(0) as usize;
        let Some(total) = sizes.get_mut(&project) else { continue };
        *total = total.filter(|size| absorbs_group(*size, before, MAX_ROW_CODES * ENTRY_BYTES));
        if let Some(size) = total {
            *size += before;
            of.push(project);
            firsts.push(first);
        }
    }
    let sql =
        "DELETE FROM hob.memory_codes c USING unnest($1::bigint[], $2::bigint[]) u (project, first)
         WHERE c.project = u.project AND c.first = u.first RETURNING c.project, c.first, c.codes";
    let mut gone: BTreeMap<(i64, i64), Vec<u8>> = BTreeMap::new();
    if !of.is_empty() {
        for row in ask(client, sql, &[&of, &firsts]).await? {
            gone.insert((row.get(0), row.get(1)), row.get(2));
        }
    }
    let mut taken: BTreeMap<i64, Vec<u8>> = BTreeMap::new();
    for ((project, _), codes) in gone {
        taken.entry(project).or_default().extend(codes);
    }
    Ok(taken)
}

/// Replaces or removes the codes of turns, given with their projects. The caller has locked
/// `memory_merge`.
pub(super) async fn change(
    client: &Client,
    changes: &[(i64, i64, Option<Bits>)],
) -> Result<(), Error> {
    let sql = "UPDATE hob.memory_merge SET stamp = stamp + 1 WHERE id = 1 RETURNING coded, stamp";
    let state = client.query_one(&client.prepare_cached(sql).await?, &[]).await?;
    let (coded, stamp): (i64, i64) = (state.get(0), state.get(1));
    let changes: BTreeMap<(i64, i64), &Option<Bits>> = changes
        .iter()
        .filter(|(_, seq, _)| *seq <= coded)
        .map(|(project, seq, code)| ((*project, *seq), code))
        .collect();
    if changes.is_empty() {
        return Ok(());
    }
    let (projects, seqs): (Vec<i64>, Vec<i64>) = changes.keys().copied().unzip();
    let sql =
        "SELECT u.project, u.seq, c.first FROM unnest($1::bigint[], $2::bigint[]) u (project, seq)
         LEFT JOIN LATERAL (SELECT first FROM hob.memory_codes c WHERE c.project = u.project
             AND c.first <= u.seq ORDER BY c.first DESC LIMIT 1) c ON true";
    let mut places: BTreeMap<(i64, i64), Vec<i64>> = BTreeMap::new();
    for row in ask(client, sql, &[&projects, &seqs]).await? {
        let (project, seq): (i64, i64) = (row.get(0), row.get(1));
        let first = row.get::<_, Option<i64>>(2).unwrap_or(seq);
        places.entry((project, first)).or_default().push(seq);
    }
    let (of, firsts): (Vec<i64>, Vec<i64>) = places.keys().copied().unzip();
    let sql =
        "DELETE FROM hob.memory_codes c USING unnest($1::bigint[], $2::bigint[]) u (project, first)
         WHERE c.project = u.project AND c.first = u.first RETURNING c.project, c.first, c.codes";
    let mut codes: BTreeMap<(i64, i64), BTreeMap<i64, Vec<u8>>> = BTreeMap::new();
    for row in ask(client, sql, &[&of, &firsts]).await? {
        let entries = row.get::<_, &[u8]>(2).chunks_exact(ENTRY_BYTES);
        let entries = entries.map(|entry| (entry_seq(entry), entry.to_vec())).collect();
        codes.insert((row.get(0), row.get(1)), entries);
    }
    let mut rows = CodeRows::default();
    for ((project, first), seqs) in places {
        let mut entries = codes.remove(&(project, first)).unwrap_or_default();
        for seq in seqs {
            entries.remove(&seq);
            if let Some(code) = changes[&(project, seq)] {
                put(entries.entry(seq).or_default(), seq, code);
            }
        }
        if !entries.is_empty() {
            rows.add(project, first, entries.into_values().flatten().collect());
        }
    }
    rows.put(client, stamp).await
}

fn put(entries: &mut Vec<u8>, seq: i64, code: &Bits) {
    entries.extend(seq.to_be_bytes());
    entries.extend(code.bytes());
}

/// Returns the turn of the first entry.
pub(super) fn entry_seq(entries: &[u8]) -> i64 {
    entries.first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes))
}

#[derive(Default)]
struct CodeRows {
    projects: Vec<i64>,
    firsts: Vec<i64>,
    codes: Vec<Vec<u8>>,
}

impl CodeRows {
    fn add(&mut self, project: i64, first: i64, codes: Vec<u8>) {
        self.projects.push(project);
        self.firsts.push(first);
        self.codes.push(codes);
    }

    /// Inserts the rows. They belong to the principals of their projects.
    async fn put(&self, client: &Client, stamp: i64) -> Result<(), Error> {
        if self.projects.is_empty() {
            return Ok(());
        }
        let sql = "INSERT INTO hob.memory_codes (project, first, stamp, speaker, codes)
             SELECT u.project, u.first, $1, p.speaker, u.codes
             FROM unnest($2::bigint[], $3::bigint[], $4::bytea[]) u (project, first, codes)
             JOIN hob.memory_projects p ON p.id = u.project";
        let values: Values<'_> = &[&stamp, &self.projects, &self.firsts, &self.codes];
        ask(client, sql, values).await.map(drop)
    }
}
