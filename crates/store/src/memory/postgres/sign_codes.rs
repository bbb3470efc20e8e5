//! The signs of all vectors as they lie in `memory_codes`: many to a row, in the order of turns. New ones wait in
//! `memory_vectors` until there are some. Rows grow as the digits of a number do: a new one takes in those before it
//! that are no larger, so that however few come at a time there are few rows, and each code is written a few times.

use std::collections::BTreeMap;

use hob_index::merge_policy::absorbs_group;
use hob_index::sign_codes::TABLE_BYTES;
use tokio_postgres::Error;

use super::cipher::Bits;
use super::rows::ask;
use crate::postgres::connections::{Client, Values};

/// So many codes are in a row at most.
const FULL: usize = if cfg!(test) { 8 } else { 4096 };
/// So many turns wait at least, and so many are packed in one go.
const WAITING: i64 = if cfg!(test) { 3 } else { 1024 };
const STEP: i64 = if cfg!(test) { 6 } else { 8192 };
/// A turn's number, and its code.
pub(super) const ENTRY: usize = 8 + TABLE_BYTES;

/// Packs codes of turns behind `coded`, where enough of them wait. Returns up to which turn they are packed then.
/// `memory_merge` must be locked, and no other row of this table has this stamp.
pub(super) async fn pack(
    client: &Client,
    coded: i64,
    newest: i64,
    stamp: i64,
) -> Result<i64, Error> {
    if newest - coded < WAITING {
        return Ok(coded);
    }
    let to = newest.min(coded + STEP);
    let sql = "SELECT project, seq, code FROM hob.memory_vectors
         WHERE seq BETWEEN $1 AND $2 AND code IS NOT NULL ORDER BY seq";
    let mut new: BTreeMap<i64, Vec<u8>> = BTreeMap::new();
    for row in ask(client, sql, &[&(coded + 1), &to]).await? {
        let code: Bits = row.get(2);
        put(new.entry(row.get(0)).or_default(), row.get(1), &code);
    }
    let projects: Vec<i64> = new.keys().copied().collect();
    let taken = taken_in(client, &new).await?;
    let mut rows = Rows::default();
    for project in projects {
        let mut codes = taken.get(&project).cloned().unwrap_or_default();
        codes.extend(new.remove(&project).unwrap_or_default());
        for part in codes.chunks(FULL * ENTRY) {
            rows.add(project, number(part), part.to_vec());
        }
    }
    rows.put(client, stamp).await?;
    Ok(to)
}

/// The codes of the last rows of each project, as far as the new ones take them in. They are in no row then.
async fn taken_in(
    client: &Client,
    new: &BTreeMap<i64, Vec<u8>>,
) -> Result<BTreeMap<i64, Vec<u8>>, Error> {
    let projects: Vec<i64> = new.keys().copied().collect();
    // More rows than these are full, or were taken in by others.
    let sql = "SELECT u.project, c.first, c.size FROM unnest($1::bigint[]) u (project),
         LATERAL (SELECT first, octet_length(codes) AS size FROM hob.memory_codes c
             WHERE c.project = u.project ORDER BY first DESC LIMIT 20) c ORDER BY 1, 2 DESC";
    let (mut of, mut firsts): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
    let mut sizes: BTreeMap<i64, Option<usize>> =
        new.iter().map(|(project, codes)| (*project, Some(codes.len()))).collect();
    for row in ask(client, sql, &[&projects]).await? {
        let (project, first): (i64, i64) = (row.get(0), row.get(1));
        let before = row.get::<_, i32>(2).max(0) as usize;
        let Some(known) = sizes.get_mut(&project) else { continue };
        *known = known.filter(|size| absorbs_group(*size, before, FULL * ENTRY));
        if let Some(size) = known {
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

/// Gives turns other codes, or none: their projects and numbers. The runs must be locked.
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
        let entries = row.get::<_, &[u8]>(2).chunks_exact(ENTRY);
        let entries = entries.map(|entry| (number(entry), entry.to_vec())).collect();
        codes.insert((row.get(0), row.get(1)), entries);
    }
    let mut rows = Rows::default();
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

/// The number of the turn that entries begin with.
pub(super) fn number(entries: &[u8]) -> i64 {
    entries.first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes))
}

#[derive(Default)]
struct Rows {
    projects: Vec<i64>,
    firsts: Vec<i64>,
    codes: Vec<Vec<u8>>,
}

impl Rows {
    fn add(&mut self, project: i64, first: i64, codes: Vec<u8>) {
        self.projects.push(project);
        self.firsts.push(first);
        self.codes.push(codes);
    }

    /// They belong to whom their projects belong to.
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
