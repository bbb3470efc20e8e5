//! From text to a vector.

use crate::analyse::{Analyser, beginning, is_stop};

/// Makes vectors: texts of like meaning get vectors that point the same way.
pub trait Embedder: Send + Sync {
    /// The text's direction; all zero when it says nothing.
    fn embed(&self, text: &str) -> Vec<i8>;
}

/// Needs no model: a text is the sum of its terms and of their pieces of three letters, each thrown
/// to a place by its hash. It forgives misspellings and other endings, which the index does not.
pub struct PiecesEmbedder {
    analyser: Analyser,
}

const DIMENSIONS: usize = 256;
/// How much of a text counts.
const MOST: usize = 32 << 10;

impl PiecesEmbedder {
    pub fn new() -> PiecesEmbedder {
        PiecesEmbedder { analyser: Analyser::default() }
    }
}

impl Default for PiecesEmbedder {
    fn default() -> PiecesEmbedder {
        PiecesEmbedder::new()
    }
}

impl Embedder for PiecesEmbedder {
    fn embed(&self, text: &str) -> Vec<i8> {
        // What a very long text is about is told by its beginning as well as it can be.
        let mut terms = self.analyser.terms(beginning(text, MOST));
        terms.retain(|term| !is_stop(term));
        terms.sort_unstable();
        let mut sum = [0_f32; DIMENSIONS];
        for group in terms.chunk_by(|a, b| a == b) {
            let weight = 1.0 + (group.len() as f32).ln();
            add_term(&mut sum, &group[0], weight);
        }
        let largest = sum.iter().fold(0_f32, |largest, value| largest.max(value.abs()));
        if largest == 0.0 {
            return vec![0; DIMENSIONS];
        }
        sum.iter().map(|value| (value / largest * 127.0).round() as i8).collect()
    }
}

fn add_term(sum: &mut [f32; DIMENSIONS], term: &str, weight: f32) {
    add(sum, term.bytes(), weight);
    let characters: Vec<char> = std::iter::once('^').chain(term.chars()).chain(['$']).collect();
    if characters.len() < 5 {
        return;
    }
    let pieces = characters.len() - 2;
    let each = weight / (pieces as f32).sqrt();
    for piece in characters.windows(3) {
        let text: String = piece.iter().collect();
        add(sum, text.bytes().chain([0]), each);
    }
}

/// FNV-1a, then one more mix: its low bits alone are poor.
fn add(sum: &mut [f32; DIMENSIONS], bytes: impl Iterator<Item = u8>, weight: f32) {
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let sign = if hash >> 63 == 0 { 1.0 } else { -1.0 };
    sum[(hash >> 32) as usize % DIMENSIONS] += sign * weight;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cosine(a: &str, b: &str) -> f64 {
        let embedder = PiecesEmbedder::new();
        let (a, b) = (embedder.embed(a), embedder.embed(b));
        let dot = |x: &[i8], y: &[i8]| -> f64 {
            x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum()
        };
        dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt()
    }

    #[test]
    fn like_texts_are_near() {
        let text = "the deployment failed because the certificate expired";
        assert!(cosine(text, "deploymnt certificates expiring") > 0.4);
        assert!(cosine(text, "bananas and apples in a bowl") < 0.25);
        assert!(PiecesEmbedder::new().embed("the of and").iter().all(|value| *value == 0));
    }
}
