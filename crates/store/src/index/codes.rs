//! The signs of vectors: a bit for each dimension tells about which way a vector points.

/// Bytes in a code of the table's vectors and of a model's, a bit for each dimension; a longer vector is
/// told by its beginning.
pub(crate) const TABLE_BYTES: usize = 32;
pub(crate) const MODEL_BYTES: usize = 48;
/// So many times more than asked for are looked at closely.
pub(crate) const CLOSER: usize = 8;

/// How far a vector goes along with the signs of another.
pub(crate) fn agreement(vector: &[i8], code: &[u64]) -> i32 {
    let one = |(place, value): (usize, &i8)| {
        let same = code[place / 64] >> (place % 64) & 1 == 1;
        if same { i32::from(*value) } else { -i32::from(*value) }
    };
    vector.iter().take(code.len() * 64).enumerate().map(one).sum()
}

/// The signs of a vector in so many bytes. `None` of one that points nowhere.
pub(crate) fn code(vector: &[i8], bytes: usize) -> Option<Vec<u8>> {
    if vector.iter().all(|value| *value == 0) {
        return None;
    }
    let mut code = vec![0_u8; bytes];
    for (place, value) in vector.iter().take(bytes * 8).enumerate() {
        code[place / 8] |= u8::from(*value > 0) << (place % 8);
    }
    Some(code)
}

pub(crate) fn words<const WORDS: usize>(bytes: &[u8]) -> [u64; WORDS] {
    let mut code = [0; WORDS];
    for (word, bytes) in code.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    }
    code
}
