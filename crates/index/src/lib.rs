//! The retrieval engine of the memory: how postings are packed, how terms are scored, how vectors
//! are compared, and when new postings are merged.
//!
//! Everything here is pure: no I/O, no async, no clock. The two stores read rows and write rows;
//! what the bytes in them mean and which turns they select is decided here, once for both.
//!
//! The documents of this index are turns. A turn is named by its `seq`, a number that grows with
//! every stored turn, and belongs to a session and a project. Every project has its own posting
//! lists.

pub mod bm25;
pub mod merge_policy;
pub mod postings;
pub mod selection;
pub mod sign_codes;
pub mod terms;
pub mod top_k;
