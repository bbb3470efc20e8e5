//! The size of the posting blocks that both stores write.

use hob_index::postings::BlockLimit;

/// This crate's own tests use small blocks, so that most terms have several.
pub(super) const BLOCK_LIMIT: BlockLimit =
    if cfg!(test) { BlockLimit::bytes(60) } else { BlockLimit::QUARTER_PAGE };
