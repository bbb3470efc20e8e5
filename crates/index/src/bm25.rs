//! BM25, the ranking function of term matches.
//!
//! The stores use it in `f32` to choose candidates among a hundred thousand postings; the memory
//! uses it in `f64` to rank those candidates. Both must agree on the formula and on [`K1`] and
//! [`B`]: a store that preferred other turns would hide the best ones from the ranking.

use std::ops::{Add, Div, Mul, Sub};

/// Term saturation of turns: how soon more occurrences of a term add nothing.
pub const K1: f64 = 1.0;
/// Length normalisation of turns: how much a turn that is longer than the average pays for it.
pub const B: f64 = 0.5;

/// The two floating-point types BM25 is computed in.
pub trait Real:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    const ONE: Self;
    const HALF: Self;

    fn from_count(count: u64) -> Self;

    fn ln(self) -> Self;
}

impl Real for f32 {
    const ONE: f32 = 1.0;
    const HALF: f32 = 0.5;

    #[inline]
    fn from_count(count: u64) -> f32 {
        count as f32
    }

    #[inline]
    fn ln(self) -> f32 {
        f32::ln(self)
    }
}

impl Real for f64 {
    const ONE: f64 = 1.0;
    const HALF: f64 = 0.5;

    #[inline]
    fn from_count(count: u64) -> f64 {
        count as f64
    }

    #[inline]
    fn ln(self) -> f64 {
        f64::ln(self)
    }
}

/// Returns the inverse document frequency of a term that `having` of `all` documents have.
///
/// It is never negative. Counts that contradict each other are taken for a term that all documents
/// have.
pub fn idf<F: Real>(all: u64, having: u64) -> F {
    let (all, having) = (F::from_count(all.max(having)), F::from_count(having));
    ((all - having + F::HALF) / (having + F::HALF) + F::ONE).ln()
}

/// The two parameters of BM25 for one kind of document.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bm25<F> {
    pub k1: F,
    pub b: F,
}

impl Bm25<f32> {
    /// The parameters of turns, for choosing candidates.
    pub const TURN: Bm25<f32> = Bm25 { k1: K1 as f32, b: B as f32 };
}

impl Bm25<f64> {
    /// The parameters of turns, for ranking.
    pub const TURN: Bm25<f64> = Bm25 { k1: K1, b: B };
}

impl<F: Real> Bm25<F> {
    /// Returns what a document's length adds to the denominator, given its length as a multiple of
    /// the average length.
    #[inline]
    pub fn length_norm(self, relative_length: F) -> F {
        self.k1 * (F::ONE - self.b + self.b * relative_length)
    }

    /// Returns what `frequency` occurrences of a term count in a document of this relative length,
    /// before the term's idf and weight.
    #[inline]
    pub fn saturation(self, frequency: F, relative_length: F) -> F {
        frequency * (self.k1 + F::ONE) / (frequency + self.length_norm(relative_length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idf_falls_with_document_frequency_and_stays_positive() {
        let idfs: Vec<f64> = [0, 1, 10, 99, 100].map(|having| idf(100, having)).to_vec();
        assert!(idfs.windows(2).all(|pair| pair[0] > pair[1]), "{idfs:?}");
        assert!(idfs[4] > 0.0);
        assert_eq!(idf::<f64>(3, 5), idf::<f64>(5, 5));
        assert_eq!(idf::<f64>(10, 2), (1.0 + (10.0 - 2.0 + 0.5) / 2.5_f64).ln());
    }

    #[test]
    fn saturation_grows_ever_less_and_falls_with_length() {
        let turn = Bm25::<f64>::TURN;
        let at = |frequency| turn.saturation(frequency, 1.0);
        assert_eq!(at(1.0), 1.0);
        assert!(at(2.0) - at(1.0) > at(3.0) - at(2.0) && at(1000.0) < K1 + 1.0);
        assert!(turn.saturation(1.0, 4.0) < at(1.0));
    }

    #[test]
    fn parameters_are_the_same_in_both_precisions() {
        assert_eq!((Bm25::<f32>::TURN.k1, Bm25::<f32>::TURN.b), (1.0_f32, 0.5_f32));
    }
}
