//! The constants of the ranking.
//!
//! The weights of the features and of the scores are fitted on four groups of data: chats, histories of
//! assistants, long mixed histories and coding sessions. Those of the features come from a simulation
//! outside Hob, those of the scores from features that Hob gave; `bench/recall/fit.py` fits both.
//! docs/recall.md has the figures. The other constants are the field's usual ones, or were chosen on
//! the same data.

use hob_index::bm25::Bm25;

use crate::recall::features::Features;

/// How many of the best candidates are read and reranked by their texts, whatever the limit: a
/// question gets the same first hits for every limit.
pub(crate) const RERANKED_RECORDS: usize = 60;
/// How many more records than the limit are read. Some are duplicates or do not fit the budget.
pub(crate) const SPARE_RECORDS: usize = 40;

/// The weights and thresholds in use.
pub(crate) const WEIGHTS: Weights = Weights {
    features: Features {
        lexical: 0.81,
        dense: 0.59,
        lexical_if_paraphrased: -0.63,
        dense_if_paraphrased: 0.73,
        coverage: 1.5,
        best_lexical_nearby: 2.09,
        best_cosine_nearby: 4.72,
        similar_surroundings: -1.93,
        in_period: 5.22,
        length: 0.75,
        excess_length: -1.53,
        first_named_speaker: 4.0,
        other_named_speaker: 2.0,
        asks: -1.78,
        says_changed: 0.3,
        boilerplate: -1.5,
    },
    score: ScoreWeights {
        constant: -4.99,
        coverage: 2.16,
        best_cosine_nearby: 1.79,
        place: 1.20,
        lead: 1.21,
    },
    compared_hits: 5,
    max_lead: 6.0,
    min_score: 0.01,
    min_score_candidates: 40,
    turn_bm25: Bm25::<f64>::TURN,
    session_bm25: Bm25 { k1: 1.2, b: 0.75 },
    lexical_previous: [0.5, 0.2],
    lexical_next: [0.1, 0.05],
    lexical_session: 0.7,
    dense_previous: 0.15,
    dense_session: 0.2,
    dense_session_turns: 3,
    min_model_vectors: 8,
    paraphrase_threshold: 0.2,
    nearby_turns: 6,
    surrounding_turns: 8,
    surroundings_decay: 0.8,
    best_length_terms: 40.0,
    full_length_candidates: 40.0,
    similar_table_cosine: 0.35,
    similar_model_cosine: 0.45,
    related_term: 0.7,
    related_term_coverage: 0.9,
    max_related_terms: 40,
    work_term: 0.3,
    single_ideograph: 0.7,
    katakana_part: 0.1,
    expected_time: 0.3,
    expected_number: 0.2,
    common_name_share: 0.2,
    candidates: 40,
    min_speaker_turns: 3,
    min_address_share: 0.8,
    max_question_words: 25,
    compared_statements: 5,
    statement_tokens: 60,
    max_statement_gap: 5.5,
    min_shared_terms: 0.33,
    min_shared_query_terms: 0.5,
};

/// The weights of everything that speaks for or against a turn, and the thresholds that go with
/// them.
pub(crate) struct Weights {
    pub(crate) features: Features,
    pub(crate) score: ScoreWeights,
    /// How many of the next hits a hit is compared with.
    pub(crate) compared_hits: usize,
    /// A greater lead over the next hits says no more.
    pub(crate) max_lead: f64,
    /// A turn with a lower score is not a hit, unless the caller asks for it.
    pub(crate) min_score: f64,
    /// Among fewer candidates no turn is left out for its score.
    pub(crate) min_score_candidates: usize,
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
    /// How many candidates need a vector of the model before their cosines have a meaningful mean.
    pub(crate) min_model_vectors: usize,
    /// The share of words without any turn up to which nothing changes. A few such words say
    /// little.
    pub(crate) paraphrase_threshold: f64,
    /// How many turns before a turn, and after it, are nearby.
    pub(crate) nearby_turns: usize,
    /// How many turns before a turn, and after it, are its surroundings.
    pub(crate) surrounding_turns: usize,
    /// How much each of the surrounding turns counts relative to the one that is nearer.
    pub(crate) surroundings_decay: f64,
    /// The length of the turns that answer best, in terms: shorter ones ask and agree, longer ones
    /// match by chance.
    pub(crate) best_length_terms: f64,
    /// The number of candidates from which on length counts fully.
    pub(crate) full_length_candidates: f64,
    /// The table's cosine from which on a reason names "similar meaning".
    pub(crate) similar_table_cosine: f64,
    /// The model's cosine from which on a reason names "similar meaning".
    pub(crate) similar_model_cosine: f64,
    /// A related term, times its squared cosine, relative to a term of the query.
    pub(crate) related_term: f32,
    /// How much of a term a related one covers, times its cosine.
    pub(crate) related_term_coverage: f64,
    /// How many related terms a query gets.
    pub(crate) max_related_terms: usize,
    /// A term of the work after a turn, relative to a term that the turn has.
    pub(crate) work_term: f32,
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
    /// How many turns the store returns for their terms, and as many for their vectors. Ranking
    /// compares candidates with each other, so their number must not depend on the limit: a
    /// question gets the same first hits whatever its limit.
    pub(crate) candidates: usize,
    /// How many turns must begin with a name and a colon, or address somebody by a name, before the
    /// name is a speaker. A name with fewer turns is a heading ("Summary: …") or was mentioned.
    pub(crate) min_speaker_turns: usize,
    /// The share of the turns that address somebody by a name which one role must have, so that the
    /// other role is taken for that person.
    pub(crate) min_address_share: f64,
    /// How many words a turn that only asks may have. Longer ones state something and ask as well.
    pub(crate) max_question_words: usize,
    /// How many of the first hits are compared with each other, so that the newest of those on one
    /// subject comes first.
    pub(crate) compared_statements: usize,
    /// How many tokens of a hit are compared.
    pub(crate) statement_tokens: usize,
    /// By how much the sum of a hit may be lower than that of the older one which it replaces.
    pub(crate) max_statement_gap: f64,
    /// The share of the shorter statement's terms that both have.
    pub(crate) min_shared_terms: f64,
    /// The share of the query's terms that both have, of those that either has.
    pub(crate) min_shared_query_terms: f64,
}

/// The logistic regression that turns what is known of a hit into the probability that it answers.
pub(crate) struct ScoreWeights {
    pub(crate) constant: f64,
    /// The share of the query's terms that the turn has.
    pub(crate) coverage: f64,
    /// The greatest cosine of the turn and the turns nearby.
    pub(crate) best_cosine_nearby: f64,
    /// The place of the turn: 1 for the first hit, 1/2 for the second.
    pub(crate) place: f64,
    /// The logarithm of 1 plus the turn's lead.
    pub(crate) lead: f64,
}
