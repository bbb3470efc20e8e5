//! A part of a store, and how its rows are identified.

use super::cells::Row;

/// The maximum number of rows per page.
pub(super) const MAX_PAGE_ROWS: usize = 2000;

/// A part of a store that both databases have, such as a table. Its rows have a key, by which they are ordered.
pub(crate) trait Part: Copy + Send + Sync {
    fn name(self) -> &'static str;

    fn key_of(self, row: &Row) -> Row;

    /// Returns what identifies the store that a row belongs to, if [`Part::identifies_store`].
    fn identity_of(self, row: &Row) -> Option<String>;

    /// Returns whether rows of this part tell one store from another.
    fn identifies_store(self) -> bool;

    /// Returns the maximum number of rows per page.
    fn max_page_rows(self) -> usize {
        MAX_PAGE_ROWS
    }
}
