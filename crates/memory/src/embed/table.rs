//! The built-in table: what each term says, as the direction it points to. Made by `scripts/train-table`,
//! which writes down where it comes from.

/// Magic, rows, width, neighbours of each row; then, for all rows: where the word ends, the scale, the
/// neighbours (row and nearness), the words, the numbers.
const BYTES: &[u8] = include_bytes!("../../data/table.bin");
const MAGIC: &[u8] = b"hobtab02";
const HEADER: usize = MAGIC.len() + 12;

/// A table in the form that the script writes. Nothing is unpacked: it costs what is looked up.
pub(crate) struct Table {
    width: usize,
    kept: usize,
    ends: &'static [u8],
    scales: &'static [u8],
    near: &'static [u8],
    words: &'static [u8],
    numbers: &'static [u8],
}

impl Table {
    pub(crate) fn built_in() -> Table {
        Table::read(BYTES).unwrap_or(Table {
            width: 0,
            kept: 0,
            ends: &[],
            scales: &[],
            near: &[],
            words: &[],
            numbers: &[],
        })
    }

    fn read(bytes: &'static [u8]) -> Option<Table> {
        let head = bytes.get(..HEADER)?.strip_prefix(MAGIC)?;
        let (rows, width) = (number(head, 0)?, number(head, 1)?);
        let kept = number(head, 2)?;
        let (ends, rest) = bytes[HEADER..].split_at_checked(rows * 4)?;
        let (scales, rest) = rest.split_at_checked(rows * 4)?;
        let (near, rest) = rest.split_at_checked(rows * kept * 3)?;
        let letters = rows.checked_sub(1).and_then(|last| number(ends, last)).unwrap_or_default();
        let (words, numbers) = rest.split_at_checked(letters)?;
        (numbers.len() == rows * width).then_some(Table {
            width,
            kept,
            ends,
            scales,
            near,
            words,
            numbers,
        })
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// The row of a term. The words are in order.
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

    /// Adds a row to a sum.
    pub(crate) fn add(&self, row: usize, weight: f32, sum: &mut [f32]) {
        let scale = self.scales.get(row * 4..row * 4 + 4).unwrap_or_default();
        let scale = weight * f32::from_le_bytes(scale.try_into().unwrap_or_default());
        let numbers = &self.numbers[row * self.width..(row + 1) * self.width];
        for (sum, number) in sum.iter_mut().zip(numbers) {
            *sum += scale * f32::from(number.cast_signed());
        }
    }

    /// The rows that point nearest the same way, nearest first, and how near: up to 1.
    pub(crate) fn neighbours(&self, row: usize) -> impl Iterator<Item = (usize, f32)> {
        let all = &self.near[row * self.kept * 3..(row + 1) * self.kept * 3];
        all.chunks_exact(3)
            .map(|one| {
                (usize::from(u16::from_le_bytes([one[0], one[1]])), f32::from(one[2]) / 255.0)
            })
            .take_while(|(_, near)| *near > 0.0)
    }
}

/// The n-th whole number of four bytes.
fn number(bytes: &[u8], place: usize) -> Option<usize> {
    let four = bytes.get(place * 4..place * 4 + 4)?;
    Some(u32::from_le_bytes(four.try_into().ok()?) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_table_is_whole() {
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
