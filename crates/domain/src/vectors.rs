//! Vectors of a model that the user has chosen. Every turn has a vector of the built-in table from
//! the start; a background task adds one of the model. Vectors of two kinds are never compared.

use async_trait::async_trait;

use crate::store_error::StoreError;

/// The kind of a vector: the model that made it, by the number that the store has given to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VectorKind(pub i64);

/// A vector of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindVector {
    pub kind: VectorKind,
    pub vector: Vec<i8>,
}

/// A turn that has no vector of a kind yet, and the text that one is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unembedded {
    pub seq: i64,
    pub text: String,
    pub cue: Option<String>,
}

/// A page of turns without a vector, on the way from the newest turn to the oldest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnembeddedPage {
    /// Newest first.
    pub turns: Vec<Unembedded>,
    /// The next page begins below this turn. `None` if this is the last page.
    pub below: Option<i64>,
}

/// How many of all turns have a vector of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Embedded {
    pub done: u64,
    pub turns: u64,
    /// The number of the newest turn.
    pub newest: i64,
}

/// Storage of models' vectors, for all principals. A vector is removed with its turn.
#[async_trait]
pub trait VectorStore: Send + Sync {
    /// Returns the kind of a model, which is created if there is none.
    async fn vector_kind(&self, name: &str, width: usize) -> Result<VectorKind, StoreError>;

    /// Returns turns without a vector of a kind whose numbers are between `above` and `below`: at
    /// most `limit`. One page looks at a bounded number of turns, so it may be empty and not the
    /// last.
    async fn without_vector(
        &self,
        kind: VectorKind,
        below: i64,
        above: i64,
        limit: usize,
    ) -> Result<UnembeddedPage, StoreError>;

    /// Stores vectors of turns, by their numbers. Turns that are gone by now are left out.
    async fn save_vectors(
        &self,
        kind: VectorKind,
        vectors: Vec<(i64, Vec<i8>)>,
    ) -> Result<(), StoreError>;

    /// Counts the turns that have a vector of a kind.
    async fn embedded(&self, kind: VectorKind) -> Result<Embedded, StoreError>;

    /// Removes at most `limit` vectors of all other kinds. Returns how many were removed.
    async fn drop_other_vectors(&self, kind: VectorKind, limit: usize)
    -> Result<usize, StoreError>;
}
