//! Resolving a scope: which projects, which session and which turns a query may search.

use std::collections::HashSet;

use hob_domain::memory::Scope;
use tokio_postgres::Error;

use super::cipher::{Cipher, Name};
use super::rows::{ask, session_id};
use crate::memory::range::SearchRange;
use crate::postgres::connections::{Client, Values};

/// The turns of a narrow scope are listed before anything else is read, if there are at most this
/// many.
const MAX_LISTED_TURNS: i64 = 20_000;
/// Otherwise this many of the best turns are checked first, and then [`MORE_CHECKED_TURNS`] times
/// as many in every round.
const FIRST_CHECKED_TURNS: usize = 512;
const MORE_CHECKED_TURNS: usize = 4;

/// The size of the projects that are searched.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CollectionSums {
    pub(super) turns: u64,
    /// The length of all turns, in terms.
    pub(super) length: u64,
    pub(super) sessions: u64,
    /// About how many turns all principals have together.
    pub(super) all_turns: u64,
}

/// Returns the range of a scope and the size of its projects, or `None` if nothing can match.
pub(super) async fn range(
    client: &Client,
    cipher: &Cipher,
    speaker: &str,
    scope: &Scope,
) -> Result<Option<(SearchRange, CollectionSums)>, Error> {
    let root = scope.project.as_ref().map(|root| cipher.hash_name(Name::Project, root));
    let sql = "SELECT id, turns, length, sessions,
             (SELECT last_seq FROM hob.memory_state WHERE id = 1)
         FROM hob.memory_projects
         WHERE speaker = $1 AND ($2::bytea IS NULL OR root_key = $2) ORDER BY id";
    let rows = ask(client, sql, &[&speaker, &root]).await?;
    let session = match &scope.session {
        None => None,
        Some(name) => match session_id(client, cipher, speaker, name).await? {
            None => return Ok(None),
            found => found,
        },
    };
    let Some(first) = rows.first() else { return Ok(None) };
    let sum = |column: usize| -> u64 {
        rows.iter().map(|row| row.get::<_, i64>(column).max(0) as u64).sum()
    };
    let sums = CollectionSums {
        turns: sum(1),
        length: sum(2),
        sessions: sum(3),
        all_turns: first.get::<_, Option<i64>>(4).unwrap_or_default().max(0) as u64,
    };
    let projects = rows.iter().map(|row| row.get(0)).collect();
    let mut range = SearchRange::new(projects, session, scope);
    if range.is_narrow() {
        range.allowed = list(client, &range).await?;
    }
    Ok(Some((range, sums)))
}

/// Returns all turns of a narrow range in order, or `None` if there are too many.
async fn list(client: &Client, range: &SearchRange) -> Result<Option<Vec<i64>>, Error> {
    let (since, until) = times(range);
    let limit = MAX_LISTED_TURNS + 1;
    let values: Values<'_> = &[&range.projects, &since, &until, &limit, &range.session];
    let sql = match range.session {
        Some(_) => {
            "SELECT seq FROM hob.memory_standing WHERE session = $5 AND project = ANY($1)
             AND ts BETWEEN $2 AND $3 LIMIT $4"
        }
        None => {
            "SELECT seq FROM hob.memory_standing WHERE project = ANY($1)
             AND ts BETWEEN $2 AND $3 AND $5::bigint IS NULL LIMIT $4"
        }
    };
    let rows = ask(client, sql, values).await?;
    let mut seqs: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    seqs.sort_unstable();
    Ok(Some(seqs).filter(|seqs| seqs.len() as i64 <= MAX_LISTED_TURNS))
}

/// Returns the first of these turns that an unlisted range has, at most `limit`.
pub(super) async fn first_allowed(
    client: &Client,
    range: &SearchRange,
    turns: &[i64],
    limit: usize,
) -> Result<Vec<i64>, Error> {
    let (since, until) = times(range);
    let sql = "SELECT seq FROM hob.memory_standing WHERE seq = ANY($1)
         AND ts BETWEEN $2 AND $3 AND ($4::bigint IS NULL OR session = $4)";
    let (mut first, mut rest, mut size) = (Vec::new(), turns, FIRST_CHECKED_TURNS);
    while !rest.is_empty() && first.len() < limit {
        let part;
        (part, rest) = rest.split_at(size.min(rest.len()));
        let rows = ask(client, sql, &[&part, &since, &until, &range.session]).await?;
        let allowed: HashSet<i64> = rows.iter().map(|row| row.get(0)).collect();
        first.extend(part.iter().filter(|seq| allowed.contains(seq)));
        size *= MORE_CHECKED_TURNS;
    }
    first.truncate(limit);
    Ok(first)
}

/// Returns the first and the last time of a range.
pub(super) fn times(range: &SearchRange) -> (i64, i64) {
    range.times.unwrap_or((i64::MIN, i64::MAX))
}
