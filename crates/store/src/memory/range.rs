//! The part of the memory that a query may search.

use hob_domain::Timestamp;
use hob_domain::memory::Scope;

/// A scope in terms of the store: numbers of projects and sessions, and times in microseconds.
pub(super) struct SearchRange {
    /// In order.
    pub(super) projects: Vec<i64>,
    pub(super) session: Option<i64>,
    /// The first and the last time asked for.
    pub(super) times: Option<(i64, i64)>,
    /// All turns of the session and the times asked for, in order. `None` if every turn of the
    /// projects is allowed, or if the turns are too many to list.
    pub(super) allowed: Option<Vec<i64>>,
}

impl SearchRange {
    pub(super) fn new(mut projects: Vec<i64>, session: Option<i64>, scope: &Scope) -> SearchRange {
        projects.sort_unstable();
        SearchRange { projects, session, times: time_bounds(scope), allowed: None }
    }

    /// Returns whether the scope asks for less than whole projects.
    pub(super) fn is_narrow(&self) -> bool {
        self.session.is_some() || self.times.is_some()
    }

    /// Returns whether the scope is narrow and its turns are not listed.
    pub(super) fn is_unlisted(&self) -> bool {
        self.is_narrow() && self.allowed.is_none()
    }

    /// Returns whether the list allows a turn. Without a list every turn is allowed.
    pub(super) fn allows(&self, seq: i64) -> bool {
        self.allowed.as_ref().is_none_or(|all| all.binary_search(&seq).is_ok())
    }

    pub(super) fn has_project(&self, project: i64) -> bool {
        self.projects.binary_search(&project).is_ok()
    }

    pub(super) fn has_time(&self, ts: i64) -> bool {
        self.times.is_none_or(|(since, until)| (since..=until).contains(&ts))
    }
}

/// Returns the first and the last time of a scope, in microseconds.
pub(super) fn time_bounds(scope: &Scope) -> Option<(i64, i64)> {
    if scope.since.is_none() && scope.until.is_none() {
        return None;
    }
    Some((
        scope.since.map_or(i64::MIN, Timestamp::as_microsecond),
        scope.until.map_or(i64::MAX, Timestamp::as_microsecond),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_allows_what_its_list_has_and_everything_without_one() {
        let scope = Scope { since: Timestamp::from_microsecond(10).ok(), ..Scope::default() };
        let mut range = SearchRange::new(vec![9, 2, 5], None, &scope);
        assert!(range.is_narrow() && range.is_unlisted() && range.allows(7));
        assert!(range.has_project(5) && !range.has_project(6));
        assert!(range.has_time(10) && range.has_time(i64::MAX) && !range.has_time(9));
        range.allowed = Some(vec![3, 7]);
        assert!(!range.is_unlisted() && range.allows(7) && !range.allows(8));
    }
}
