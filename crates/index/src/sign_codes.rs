//! Sign codes of vectors (binary quantisation): one bit for each dimension says whether it is
//! positive.
//!
//! Near vectors have codes with a small Hamming distance. A search counts bits over all codes
//! first, takes [`OVERSAMPLING`] times as many as it needs, and orders those by the dot product of
//! the query vector with their signs.

/// The size of a code of the built-in table's vectors, in bytes.
pub const TABLE_BYTES: usize = 32;
/// The size of a code of a model's vectors, in bytes. The dimensions beyond it are left out.
pub const MODEL_BYTES: usize = 48;
/// A search by Hamming distance selects this many times as many codes as are asked for.
pub const OVERSAMPLING: usize = 8;

/// Codes are compared in chunks of this many, which takes half the time of one by one.
const CHUNK_CODES: usize = 512;

/// A sign code as words, for counting bits.
pub type SignCode<const WORDS: usize> = [u64; WORDS];

/// Returns the sign code of a vector in this many bytes, or `None` if the vector is zero.
pub fn sign_code(vector: &[i8], bytes: usize) -> Option<Vec<u8>> {
    if vector.iter().all(|value| *value == 0) {
        return None;
    }
    let mut code = vec![0_u8; bytes];
    for (place, value) in vector.iter().take(bytes * 8).enumerate() {
        code[place / 8] |= u8::from(*value > 0) << (place % 8);
    }
    Some(code)
}

/// Returns a stored code as words.
pub fn code_words<const WORDS: usize>(bytes: &[u8]) -> SignCode<WORDS> {
    let mut code = [0; WORDS];
    for (word, bytes) in code.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    }
    code
}

/// Calls `each` with the place of every code in `others` and its Hamming distance from `code`.
pub fn hamming_distances<const WORDS: usize>(
    code: &SignCode<WORDS>,
    others: &[SignCode<WORDS>],
    mut each: impl FnMut(usize, u16),
) {
    let mut distances = [0; CHUNK_CODES];
    for (number, chunk) in others.chunks(CHUNK_CODES).enumerate() {
        chunk_distances(code, chunk, &mut distances);
        let places = number * CHUNK_CODES..;
        let distances = &distances[..chunk.len()];
        places.zip(distances).for_each(|(place, distance)| each(place, *distance));
    }
}

fn chunk_distances<const WORDS: usize>(
    code: &SignCode<WORDS>,
    others: &[SignCode<WORDS>],
    distances: &mut [u16],
) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("popcnt") {
        // SAFETY: the line above has checked that this processor has the instruction.
        unsafe { distances_by_popcnt(code, others, distances) };
        return;
    }
    distances_by_words(code, others, distances);
}

/// Counts bits with the `popcnt` instruction, in a fifth of the time. Every x86-64 processor since
/// 2009 has it, but the compiler may not use it in a program that must run on older ones, too.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt")]
fn distances_by_popcnt<const WORDS: usize>(
    code: &SignCode<WORDS>,
    others: &[SignCode<WORDS>],
    distances: &mut [u16],
) {
    distances_by_words(code, others, distances);
}

#[inline(always)]
fn distances_by_words<const WORDS: usize>(
    code: &SignCode<WORDS>,
    others: &[SignCode<WORDS>],
    distances: &mut [u16],
) {
    for (distance, other) in distances.iter_mut().zip(others) {
        let mut bits = 0;
        for word in 0..WORDS {
            bits += (code[word] ^ other[word]).count_ones();
        }
        *distance = bits as u16;
    }
}

/// Dot products of one vector with ±1 sign codes, by a table of 256 sums for every byte of a code.
pub struct DotProductTable(Vec<[i32; 256]>);

impl DotProductTable {
    /// Makes the table of a vector for codes of this many words.
    pub fn new(vector: &[i8], words: usize) -> DotProductTable {
        let sums_of = |eight: &[i8]| {
            let mut sums = [0; 256];
            sums[0] = -eight.iter().map(|value| i32::from(*value)).sum::<i32>();
            for signs in 1_usize..256 {
                // It differs in one sign from a sum that is there already.
                let value = eight.get(signs.trailing_zeros() as usize).copied().unwrap_or_default();
                sums[signs] = sums[signs & (signs - 1)] + 2 * i32::from(value);
            }
            sums
        };
        let coded = &vector[..vector.len().min(words * 64)];
        DotProductTable(coded.chunks(8).map(sums_of).collect())
    }

    #[inline]
    pub fn dot(&self, code: &[u64]) -> i32 {
        let bytes = code.iter().flat_map(|word| word.to_le_bytes());
        self.0.iter().zip(bytes).map(|(sums, byte)| sums[usize::from(byte)]).sum()
    }
}

/// Returns the turns with the greatest dot products, given as pairs: greatest first, of equals the
/// newest.
pub fn nearest_by_dot_product(mut turns: Vec<(i32, i64)>, limit: usize) -> Vec<i64> {
    turns.sort_unstable_by(|a, b| b.cmp(a));
    turns.into_iter().take(limit).map(|(_, seq)| seq).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dot_product(vector: &[i8], code: &[u64]) -> i32 {
        let one = |(place, value): (usize, &i8)| {
            let is_positive = code[place / 64] >> (place % 64) & 1 == 1;
            if is_positive { i32::from(*value) } else { -i32::from(*value) }
        };
        vector.iter().take(code.len() * 64).enumerate().map(one).sum()
    }

    #[test]
    fn distances_and_dot_products_equal_those_computed_bit_by_bit() {
        let vector: Vec<i8> = (0..256).map(|place| ((place * 37 + 11) % 255 - 127) as i8).collect();
        let codes: Vec<[u64; 4]> = (0_u64..2 * CHUNK_CODES as u64 + 50)
            .map(|seed| [1, 2, 3, 5].map(|n: u64| (seed + n).wrapping_mul(0x9E37_79B9_7F4A_7C15)))
            .collect();
        let table = DotProductTable::new(&vector, 4);
        let mut distances = Vec::new();
        hamming_distances(&codes[7], &codes, |place, bits| distances.push((place, bits)));
        assert!(distances.iter().map(|(place, _)| *place).eq(0..codes.len()));
        for (code, (_, distance)) in codes.iter().zip(distances) {
            assert_eq!(table.dot(code), dot_product(&vector, code));
            let bits = (0..256).filter(|bit| {
                (codes[7][bit / 64] >> (bit % 64) ^ code[bit / 64] >> (bit % 64)) & 1 == 1
            });
            assert_eq!(usize::from(distance), bits.count());
        }
        // A vector that is shorter than its code, and one that is longer.
        let (short, code) = (&vector[..100], &codes[3]);
        assert_eq!(DotProductTable::new(short, 4).dot(code), dot_product(short, code));
        let long = DotProductTable::new(&vector, 2);
        assert_eq!(long.dot(&code[..2]), dot_product(&vector, &code[..2]));
    }

    #[test]
    fn zero_vector_has_no_code() {
        assert_eq!(sign_code(&[0; 8], 1), None);
        assert_eq!(sign_code(&[1, -1, 0, 5], 1), Some(vec![0b1001]));
        assert_eq!(code_words::<1>(&[1, 0, 0, 0, 0, 0, 0, 2]), [1 | 2 << 56]);
    }
}
