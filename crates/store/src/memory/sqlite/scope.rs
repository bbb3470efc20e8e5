//! Resolving a scope: which projects, which session and which turns a query may search.

use hob_domain::memory::Scope;
use rusqlite::{Connection, OptionalExtension, params};

use super::cache::CachedIndex;
use super::rows::session_id;
use crate::memory::range::SearchRange;

/// Returns the range of a scope, or `None` if nothing can match.
pub(super) fn range(
    connection: &Connection,
    cached: &CachedIndex,
    speaker: &str,
    scope: &Scope,
) -> rusqlite::Result<Option<SearchRange>> {
    let projects: Vec<i64> = connection
        .prepare_cached("SELECT id FROM projects WHERE speaker = ?1 AND (?2 IS NULL OR root = ?2)")?
        .query_map(params![speaker, scope.project], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let session = match &scope.session {
        None => None,
        Some(name) => match session_id(connection, speaker, name)? {
            None => return Ok(None),
            found => found,
        },
    };
    if projects.is_empty() {
        return Ok(None);
    }
    let mut range = SearchRange::new(projects, session, scope);
    if range.is_narrow() {
        let allowed = cached.select(|turn| {
            session.is_none_or(|session| session == i64::from(turn.session))
                && range.has_time(turn.ts)
        });
        range.allowed = Some(allowed);
    }
    Ok(Some(range))
}

/// The size of the projects that are searched.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CollectionSums {
    pub(super) turns: u64,
    /// The length of all turns, in terms.
    pub(super) length: u64,
    pub(super) sessions: u64,
}

impl CollectionSums {
    pub(super) fn read(
        connection: &Connection,
        projects: &[i64],
    ) -> rusqlite::Result<CollectionSums> {
        let mut sums = CollectionSums::default();
        for project in projects {
            let row: Option<(i64, i64)> = connection
                .prepare_cached("SELECT turns, length FROM index_projects WHERE project = ?1")?
                .query_row([project], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            let sessions: i64 = connection
                .prepare_cached("SELECT count(*) FROM sessions WHERE project = ?1")?
                .query_row([project], |row| row.get(0))?;
            let (turns, length) = row.unwrap_or_default();
            sums.turns += turns as u64;
            sums.length += length as u64;
            sums.sessions += sessions as u64;
        }
        Ok(sums)
    }
}
