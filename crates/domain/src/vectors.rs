//! Vectors of a model that the user has chosen. Every turn has one of the built-in table from the
//! start; those of a model come in time, beside it. Vectors of two kinds are never compared.

use async_trait::async_trait;

use crate::store_error::StoreError;

/// The number a store has given to what vectors are made by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VectorKind(pub i64);

/// A vector of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindVector {
    pub kind: VectorKind,
    pub vector: Vec<i8>,
}

/// A turn that has no vector of a kind yet, and what it is found by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unembedded {
    pub seq: i64,
    pub text: String,
    pub cue: Option<String>,
}

/// A step of the way from the newest turn to the oldest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnembeddedPage {
    /// Newest first.
    pub turns: Vec<Unembedded>,
    /// All turns from here on were looked at, but those of this page; `None` at the end of the way.
    pub below: Option<i64>,
}

/// How many of all turns have a vector of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Embedded {
    pub done: u64,
    pub turns: u64,
    /// The number of the latest turn.
    pub newest: i64,
}

/// Storage of such vectors, of all principals. They are gone with their turns.
#[async_trait]
pub trait VectorStore: Send + Sync {
    /// The kind of this name; a new one where it is not known yet.
    async fn vector_kind(&self, name: &str, width: usize) -> Result<VectorKind, StoreError>;

    /// Turns without a vector of a kind whose numbers are below one and above another: at most so
    /// many, and only as many are looked at as make a small step.
    async fn without_vector(
        &self,
        kind: VectorKind,
        below: i64,
        above: i64,
        limit: usize,
    ) -> Result<UnembeddedPage, StoreError>;

    /// Keeps vectors of turns, by their numbers. Those of turns that are gone by now are left out.
    async fn save_vectors(
        &self,
        kind: VectorKind,
        vectors: Vec<(i64, Vec<i8>)>,
    ) -> Result<(), StoreError>;

    async fn embedded(&self, kind: VectorKind) -> Result<Embedded, StoreError>;

    /// Removes vectors of all other kinds, at most so many. Returns how many there were.
    async fn drop_other_vectors(&self, kind: VectorKind, limit: usize)
    -> Result<usize, StoreError>;
}
