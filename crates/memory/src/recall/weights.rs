//! The constants of the ranking.
//!
//! All of them were chosen on LoCoMo conversations 26, 30 and 41 (383 questions) and on the tuning
//! half of `bench/coding-history` (151 questions), and on nothing else. Leaving one conversation
//! out of the choice changes the result by less than a point, so that no constant is known more
//! precisely than that. docs/recall.md shows what each idea adds on these data and on the half that
//! was held out.

use hob_index::bm25::Bm25;

/// The weights and thresholds in use.
pub(crate) const WEIGHTS: Weights = Weights {
    turn_bm25: Bm25::<f64>::TURN,
    session_bm25: Bm25 { k1: 1.2, b: 0.75 },
    lexical_previous: [0.5, 0.2],
    lexical_next: [0.1, 0.05],
    lexical_session: 0.7,
    dense_previous: 0.15,
    dense_session: 0.2,
    dense_session_turns: 3,
    table: DenseWeight { base: 0.2, uncovered: 0.5 },
    model: DenseWeight { base: 0.2, uncovered: 0.9 },
    min_model_vectors: 8,
    dense_paraphrase: 1.5,
    lexical_paraphrase_loss: 0.85,
    paraphrase_threshold: 0.2,
    length: 0.9,
    max_length_terms: 40.0,
    full_length_candidates: 40.0,
    period: 4.0,
    best_of_session: 0.5,
    similar_table_cosine: 0.35,
    similar_model_cosine: 0.45,
    related_term: 0.7,
    max_related_terms: 40,
    single_ideograph: 0.7,
    katakana_part: 0.1,
    expected_time: 0.3,
    expected_number: 0.2,
    common_name_share: 0.2,
    min_candidates: 40,
    first_named_speaker: 3.0,
    other_named_speaker: 1.5,
    min_speaker_turns: 3,
    asks: 0.6,
    says_changed: 0.8,
    boilerplate: 3.0,
    same_session: 0.3,
    max_same_session: 3,
};

/// The weights of everything that speaks for or against a turn, and the thresholds that go with
/// them.
///
/// Lexical and dense values are compared with the other candidates of the same query (z-scores)
/// before they are weighted, because neither has a scale of its own.
pub(crate) struct Weights {
    /// BM25 of a turn. The stores choose candidates with the same parameters.
    pub(crate) turn_bm25: Bm25<f64>,
    /// BM25 of a whole session.
    pub(crate) session_bm25: Bm25<f64>,
    /// The lexical value of the two turns before a turn, the nearest first. The answer to a
    /// question is found by the question's words.
    pub(crate) lexical_previous: [f64; 2],
    /// The lexical value of the two turns after a turn, the nearest first.
    pub(crate) lexical_next: [f64; 2],
    /// The lexical value of the turn's session.
    pub(crate) lexical_session: f64,
    /// The cosine of the turn before.
    pub(crate) dense_previous: f64,
    /// The mean cosine of the session's nearest turns.
    pub(crate) dense_session: f64,
    /// How many of the session's nearest turns that mean is of.
    pub(crate) dense_session_turns: usize,
    /// The vectors of the built-in table.
    pub(crate) table: DenseWeight,
    /// The vectors of a configured model, for turns that have them.
    pub(crate) model: DenseWeight,
    /// How many candidates need a vector of the model before their cosines have a meaningful mean.
    pub(crate) min_model_vectors: usize,
    /// Added to the weight of vectors, times the share of the query's words that no turn has: the
    /// answer must then use other words.
    pub(crate) dense_paraphrase: f64,
    /// Taken from the weight of terms, times the share of the query's words that no turn has.
    pub(crate) lexical_paraphrase_loss: f64,
    /// The share of words without any turn up to which nothing changes. A few such words say
    /// little.
    pub(crate) paraphrase_threshold: f64,
    /// The logarithm of a turn's length relative to the average: short turns ask and agree, longer
    /// ones answer.
    pub(crate) length: f64,
    /// The length beyond which a turn gains nothing, in terms.
    pub(crate) max_length_terms: f64,
    /// The number of candidates from which on length counts fully. Among few candidates none is far
    /// from the mean, and a match must not lose to a turn that is merely long.
    pub(crate) full_length_candidates: f64,
    /// A turn within a period that the query asks for; less around it.
    pub(crate) period: f64,
    /// The value of the best turn of the session, added to all its turns.
    pub(crate) best_of_session: f64,
    /// The table's cosine from which on a reason names "similar meaning".
    pub(crate) similar_table_cosine: f64,
    /// The model's cosine from which on a reason names "similar meaning".
    pub(crate) similar_model_cosine: f64,
    /// A related term, times its squared cosine, relative to a term of the query.
    pub(crate) related_term: f32,
    /// How many related terms a query gets.
    pub(crate) max_related_terms: usize,
    /// A single ideograph relative to the pairs it is part of.
    pub(crate) single_ideograph: f32,
    /// A part of a katakana word relative to the whole.
    pub(crate) katakana_part: f32,
    /// A word for a time, in the answer to a question for a time.
    pub(crate) expected_time: f32,
    /// A word for a number, in the answer to a question for a number.
    pub(crate) expected_number: f32,
    /// The share of turns from which on a name does not tell them apart.
    pub(crate) common_name_share: f64,
    /// How many turns the store returns at least for their terms, and as many for their vectors.
    pub(crate) min_candidates: usize,
    /// A turn spoken by the person whom the query names first.
    pub(crate) first_named_speaker: f64,
    /// A turn spoken by another person whom the query names.
    pub(crate) other_named_speaker: f64,
    /// How many turns must begin with a name and a colon before the name is a speaker. A name with
    /// fewer turns is a heading: "Summary: …".
    pub(crate) min_speaker_turns: usize,
    /// Taken from a turn that asks, because the query looks for the answer.
    pub(crate) asks: f64,
    /// A turn that says that something changed: it states what applies now.
    pub(crate) says_changed: f64,
    /// Taken from a turn, times the share of its phrases that turns of other sessions have as well.
    pub(crate) boilerplate: f64,
    /// Taken from a turn for each better turn of its session: other sessions may know the answer,
    /// too.
    pub(crate) same_session: f64,
    /// How many better turns of the session count at most.
    pub(crate) max_same_session: u8,
}

/// The weight of cosines.
pub(crate) struct DenseWeight {
    /// The weight if one turn has all terms of the query. Where the very words are found, they
    /// decide.
    pub(crate) base: f64,
    /// Added, times the share of the query's terms that the best turn lacks.
    pub(crate) uncovered: f64,
}
