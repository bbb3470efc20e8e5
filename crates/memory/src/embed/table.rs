//! The built-in table of word vectors. `scripts/train-table` makes it and records its sources.

/// The table's file: the magic bytes, the number of rows, the width of a vector, the number of
/// neighbours of a row, and the levels; then, each for all rows, the ends of the words, the scales of
/// the vectors, the neighbours (row and cosine), the words, and the vectors. A number of a vector is
/// the index of a level, in four bits, the first of two numbers in the lower ones.
const BYTES: &[u8] = include_bytes!("../../data/table.bin");
const MAGIC: &[u8] = b"hobtab03";
/// How many levels there are.
const LEVELS: usize = 16;
const HEADER_BYTES: usize = MAGIC.len() + 12 + LEVELS * 4;

/// A table of word vectors, read in place: only the levels are unpacked, and a lookup touches only its
/// rows.
pub(crate) struct Table {
    width: usize,
    neighbours_per_row: usize,
    levels: [f32; LEVELS],
    ends: &'static [u8],
    scales: &'static [u8],
    neighbours: &'static [u8],
    words: &'static [u8],
    vectors: &'static [u8],
}

impl Table {
    pub(crate) fn built_in() -> Table {
        Table::read(BYTES).unwrap_or(Table {
            width: 0,
            neighbours_per_row: 0,
            levels: [0.0; LEVELS],
            ends: &[],
            scales: &[],
            neighbours: &[],
            words: &[],
            vectors: &[],
        })
    }

    fn read(bytes: &'static [u8]) -> Option<Table> {
        let head = bytes.get(..HEADER_BYTES)?.strip_prefix(MAGIC)?;
        let (rows, width) = (number(head, 0)?, number(head, 1)?);
        let neighbours_per_row = number(head, 2)?;
        let mut levels = [0.0; LEVELS];
        for (level, value) in levels.iter_mut().zip(head[12..].chunks_exact(4)) {
            *level = f32::from_le_bytes(value.try_into().ok()?);
        }
        let (ends, rest) = bytes[HEADER_BYTES..].split_at_checked(rows * 4)?;
        let (scales, rest) = rest.split_at_checked(rows * 4)?;
        let (neighbours, rest) = rest.split_at_checked(rows * neighbours_per_row * 3)?;
        let word_bytes =
            rows.checked_sub(1).and_then(|last| number(ends, last)).unwrap_or_default();
        let (words, vectors) = rest.split_at_checked(word_bytes)?;
        (width.is_multiple_of(2) && vectors.len() == rows * width / 2).then_some(Table {
            width,
            neighbours_per_row,
            levels,
            ends,
            scales,
            neighbours,
            words,
            vectors,
        })
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Finds the row of a term by binary search.
    pub(crate) fn find(&self, term: &str) -> Option<usize> {
        let (mut low, mut high) = (0, self.ends.len() / 4);
        while low < high {
            let middle = low.midpoint(high);
            match self.word(middle).cmp(term) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(middle),
            }
        }
        None
    }

    pub(crate) fn word(&self, row: usize) -> &'static str {
        let start = row.checked_sub(1).and_then(|before| number(self.ends, before));
        let end = number(self.ends, row).unwrap_or_default();
        let word = self.words.get(start.unwrap_or_default()..end).unwrap_or_default();
        std::str::from_utf8(word).unwrap_or_default()
    }

    /// Adds the weighted vector of a row to a sum.
    pub(crate) fn add(&self, row: usize, weight: f32, sum: &mut [f32]) {
        let scale = self.scales.get(row * 4..row * 4 + 4).unwrap_or_default();
        let scale = weight * f32::from_le_bytes(scale.try_into().unwrap_or_default());
        let bytes = self.width / 2;
        let vector = &self.vectors[row * bytes..(row + 1) * bytes];
        for (pair, byte) in sum.chunks_exact_mut(2).zip(vector) {
            pair[0] += scale * self.levels[usize::from(byte & 15)];
            pair[1] += scale * self.levels[usize::from(byte >> 4)];
        }
    }

    /// Returns the rows with the nearest vectors and their cosines, the nearest first.
    pub(crate) fn neighbours(&self, row: usize) -> impl Iterator<Item = (usize, f32)> {
        let bytes = self.neighbours_per_row * 3;
        let all = &self.neighbours[row * bytes..(row + 1) * bytes];
        all.chunks_exact(3)
            .map(|one| {
                (usize::from(u16::from_le_bytes([one[0], one[1]])), f32::from(one[2]) / 255.0)
            })
            .take_while(|(_, near)| *near > 0.0)
    }
}

/// Reads the little-endian number of four bytes at an index.
fn number(bytes: &[u8], index: usize) -> Option<usize> {
    let four = bytes.get(index * 4..index * 4 + 4)?;
    Some(u32::from_le_bytes(four.try_into().ok()?) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_table_is_complete() {
        let table = Table::read(BYTES).unwrap();
        let rows = table.ends.len() / 4;
        assert!(rows > 10_000 && table.width() == 256);
        for row in (0..rows).step_by(97) {
            assert_eq!(table.find(table.word(row)), Some(row));
            assert!(table.neighbours(row).all(|(other, near)| other < rows && near <= 1.0));
        }
        assert!(Table::read(&BYTES[..BYTES.len() - 1]).is_none());
        assert!(Table::read(b"").is_none());
    }
}
