//! The signs of vectors: a bit for each dimension tells about which way a vector points.

/// Bytes in a code of the table's vectors and of a model's, a bit for each dimension; a longer vector is
/// told by its beginning.
pub(crate) const TABLE_BYTES: usize = 32;
pub(crate) const MODEL_BYTES: usize = 48;
/// So many times more than asked for are looked at closely.
pub(crate) const CLOSER: usize = 8;

/// So many codes are compared in one go, which takes half the time of one by one.
const MANY: usize = 512;

/// Tells of each of some codes, by its place, in how many bits it differs from this one.
pub(crate) fn differences<const WORDS: usize>(
    code: &[u64; WORDS],
    others: &[[u64; WORDS]],
    mut tell: impl FnMut(usize, u16),
) {
    let mut differ = [0; MANY];
    for (number, part) in others.chunks(MANY).enumerate() {
        count_differences(code, part, &mut differ);
        let places = number * MANY..;
        places.zip(&differ[..part.len()]).for_each(|(place, differ)| tell(place, *differ));
    }
}

fn count_differences<const WORDS: usize>(
    code: &[u64; WORDS],
    others: &[[u64; WORDS]],
    differ: &mut [u16],
) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("popcnt") {
        // SAFETY: the instruction is there, as was just asked.
        unsafe { differences_by_popcnt(code, others, differ) };
        return;
    }
    differences_by_words(code, others, differ);
}

/// All x86-64 machines since 2009 have an instruction that counts bits, but a program that must run on older ones too is
/// not compiled to use it. It takes a fifth of the time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt")]
fn differences_by_popcnt<const WORDS: usize>(
    code: &[u64; WORDS],
    others: &[[u64; WORDS]],
    differ: &mut [u16],
) {
    differences_by_words(code, others, differ);
}

#[inline(always)]
fn differences_by_words<const WORDS: usize>(
    code: &[u64; WORDS],
    others: &[[u64; WORDS]],
    differ: &mut [u16],
) {
    for (differ, other) in differ.iter_mut().zip(others) {
        let mut bits = 0;
        for word in 0..WORDS {
            bits += (code[word] ^ other[word]).count_ones();
        }
        *differ = bits as u16;
    }
}

/// How far a vector goes along with the signs of many others: the sums of eight signs at a time are made
/// once.
pub(crate) struct Agreement(Vec<[i32; 256]>);

impl Agreement {
    pub(crate) fn new(vector: &[i8], words: usize) -> Agreement {
        let part = |eight: &[i8]| {
            let mut sums = [0; 256];
            sums[0] = -eight.iter().map(|value| i32::from(*value)).sum::<i32>();
            for signs in 1_usize..256 {
                // One sign turned about from a sum that is known.
                let value = eight.get(signs.trailing_zeros() as usize).copied().unwrap_or_default();
                sums[signs] = sums[signs & (signs - 1)] + 2 * i32::from(value);
            }
            sums
        };
        let told = &vector[..vector.len().min(words * 64)];
        Agreement(told.chunks(8).map(part).collect())
    }

    pub(crate) fn with(&self, code: &[u64]) -> i32 {
        let bytes = code.iter().flat_map(|word| word.to_le_bytes());
        self.0.iter().zip(bytes).map(|(sums, byte)| sums[usize::from(byte)]).sum()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// How far a vector goes along with the signs of another.
    fn agreement(vector: &[i8], code: &[u64]) -> i32 {
        let one = |(place, value): (usize, &i8)| {
            let same = code[place / 64] >> (place % 64) & 1 == 1;
            if same { i32::from(*value) } else { -i32::from(*value) }
        };
        vector.iter().take(code.len() * 64).enumerate().map(one).sum()
    }

    #[test]
    fn counted_at_once_is_what_is_counted_bit_by_bit() {
        let vector: Vec<i8> = (0..256).map(|place| ((place * 37 + 11) % 255 - 127) as i8).collect();
        let codes: Vec<[u64; 4]> = (0_u64..2 * MANY as u64 + 50)
            .map(|seed| [1, 2, 3, 5].map(|n: u64| (seed + n).wrapping_mul(0x9E37_79B9_7F4A_7C15)))
            .collect();
        let at_once = Agreement::new(&vector, 4);
        let mut differ = Vec::new();
        differences(&codes[7], &codes, |place, bits| differ.push((place, bits)));
        assert!(differ.iter().map(|(place, _)| *place).eq(0..codes.len()));
        for (code, (_, differ)) in codes.iter().zip(differ) {
            assert_eq!(at_once.with(code), agreement(&vector, code));
            let bits = (0..256).filter(|bit| {
                (codes[7][bit / 64] >> (bit % 64) ^ code[bit / 64] >> (bit % 64)) & 1 == 1
            });
            assert_eq!(usize::from(differ), bits.count());
        }
        // A vector that is shorter than its code, and one that is longer.
        let (short, code) = (&vector[..100], &codes[3]);
        assert_eq!(Agreement::new(short, 4).with(code), agreement(short, code));
        assert_eq!(Agreement::new(&vector, 2).with(&code[..2]), agreement(&vector, &code[..2]));
    }
}
