//! Terms and vectors of texts, as the index stores them and as queries look for them.

use crate::embed::table_embedder::TableEmbedder;
use crate::text::analyse::Analyser;
use crate::text::indexed_text::{indexed_text, indexed_work};
use crate::text::work::work_term;

/// Makes the index entries of turns, and the terms and vectors of queries.
///
/// Creating one builds the stemmers and reads the table of word vectors. Create it once and share
/// it.
#[derive(Default)]
pub struct TextIndexer {
    pub(crate) analyser: Analyser,
    pub(crate) embedder: TableEmbedder,
}

/// The part of a turn that the index stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexEntry {
    /// The turn's terms in the index's spelling, separated by spaces.
    pub terms: String,
    pub vector: Vec<i8>,
}

impl TextIndexer {
    /// Returns the index entry of a turn with this text and, if it has one, this cue.
    pub fn entry(&self, text: &str, cue: Option<&str>) -> IndexEntry {
        let text = indexed_text(text, cue);
        let mut terms = self.analyser.content_terms(&text);
        let vector = self.embedder.embed_terms_of(&text, &terms);
        let work = self.analyser.query_terms(&indexed_work(cue));
        terms.extend(work.iter().map(|term| work_term(term)));
        IndexEntry { terms: terms.join(" "), vector }
    }
}
