//! The features that turns are ranked by.

/// Declares [`Features`], so that every feature has its name and place in one list only.
macro_rules! features {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What speaks for and against a turn. A turn's sum is the sum of its features, each times its
        /// weight; the weights have the same form.
        #[derive(Debug, Clone, Copy, PartialEq, Default)]
        pub(crate) struct Features {
            $($(#[$doc])* pub(crate) $name: f64,)*
        }

        impl Features {
            /// Returns all features with their names.
            pub(crate) fn named(&self) -> Vec<(&'static str, f64)> {
                vec![$((stringify!($name), self.$name),)*]
            }

            /// Returns the sum of the features, each times its weight.
            pub(crate) fn dot(&self, weights: &Features) -> f64 {
                0.0 $(+ self.$name * weights.$name)*
            }
        }
    };
}

features! {
    /// The BM25 of the turn with that of its neighbours and its session, as a z-score among the
    /// candidates.
    lexical,
    /// The cosine of the turn's vector with that of its neighbour and its session, as a z-score.
    dense,
    /// `lexical`, times the share of the query's words that no turn has.
    lexical_if_paraphrased,
    /// `dense`, times the share of the query's words that no turn has.
    dense_if_paraphrased,
    /// The share of the query's own terms that the turn has, from 0 to 1. A related term counts by
    /// its cosine.
    coverage,
    /// The greatest BM25 of the turn and the turns nearby, relative to what the query can give.
    best_lexical_nearby,
    /// The greatest cosine of the turn and the turns nearby.
    best_cosine_nearby,
    /// By how much the turns around it are more similar to the query than the average candidate.
    /// Where all turns are about the subject, none stands out.
    similar_surroundings,
    /// How near the turn is to a period that the query asks for, from 0 to 1.
    in_period,
    /// The logarithm of the turn's length, up to the best length.
    length,
    /// The logarithm of the turn's length relative to the best length, if it is longer.
    excess_length,
    /// Whether the turn is spoken by the person whom the query names first. This feature and those
    /// below are known once the turn's text is read.
    first_named_speaker,
    /// Whether the turn is spoken by another person whom the query names.
    other_named_speaker,
    /// Whether the turn is a short question. The query looks for the answer.
    asks,
    /// Whether the turn says that something changed: it states what applies now.
    says_changed,
    /// The share of the turn's phrases that turns of other sessions have as well.
    boilerplate,
}
