//! The projects and clients that the memory can be filtered by.

use hob_domain::memory::{Facets, ProjectFacet};
use rusqlite::Connection;

use super::rows::time;

/// Adds up the sums of the sessions, so that no turn is read.
pub(super) fn facets(connection: &Connection, speaker: &str) -> rusqlite::Result<Facets> {
    let projects = connection
        .prepare_cached(
            "SELECT p.root, sum(s.turns), max(s.ended) FROM sessions s
             JOIN projects p ON p.id = s.project
             WHERE s.speaker = ?1 GROUP BY p.id HAVING sum(s.turns) > 0
             ORDER BY max(s.ended) DESC, p.root",
        )?
        .query_map([speaker], |row| {
            let last: Option<i64> = row.get(2)?;
            Ok(ProjectFacet {
                root: row.get(0)?,
                turns: row.get::<_, i64>(1)? as u64,
                last: last.map(time),
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    let clients = connection
        .prepare_cached(
            "SELECT client, sum(turns) AS count FROM sessions WHERE speaker = ?1
             GROUP BY client HAVING count > 0 ORDER BY count DESC, client",
        )?
        .query_map([speaker], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?
        .collect::<rusqlite::Result<_>>()?;
    Ok(Facets { projects, clients })
}
