//! Posting lists, packed into blocks: which turns have a term, how often, and in which session.
//!
//! A posting list belongs to one term of one project. It is a sequence of [`PostingBlock`]s in the
//! order of their turns. In a block each posting is four values:
//!
//! - the distance to the turn before it (LEB128); the first is relative to the block's first turn
//! - the distance to the session before it (zigzag, LEB128)
//! - how often the term occurs (a byte; 255 means 255 or more)
//! - the turn's length as a class (a byte, see [`length_class`])
//!
//! Most postings take four bytes. A list of several blocks also has a [`TermHeader`], which is
//! stored as the block of turn 0, so that a reader knows how long a list is before it reads the
//! list.

use std::ops::AddAssign;

/// A posting is assumed to take this many bytes when a block's capacity is estimated.
const POSTING_BYTES: usize = 6;

/// The turn number under which a list's [`TermHeader`] is stored. Turns count from 1.
pub const HEADER_SEQ: i64 = 0;

/// A turn that has a term.
///
/// A query reads a hundred thousand postings, so their size in memory matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Posting {
    pub seq: i64,
    /// The lower half of the session's number: no memory has four billion sessions.
    pub session: u32,
    /// The number of occurrences; 255 means 255 or more.
    pub frequency: u8,
    pub length_class: u8,
}

impl Posting {
    /// A posting of a turn that has `length` terms in all, and this one `frequency` times.
    #[inline]
    pub fn new(seq: i64, session: i64, frequency: u32, length: u32) -> Posting {
        let frequency = u8::try_from(frequency).unwrap_or(u8::MAX);
        Posting { seq, session: session as u32, frequency, length_class: length_class(length) }
    }
}

/// The document frequency of a term in a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TermHeader {
    /// The number of turns that have the term.
    pub turns: u64,
    /// How often a turn with the term is of another session than the one before it. Turns of a
    /// session mostly follow each other, so this is about the number of sessions.
    pub sessions: u64,
}

impl TermHeader {
    /// Counts postings that follow one of the session `before`.
    pub fn of(mut before: Option<u32>, postings: &[Posting]) -> TermHeader {
        let mut sessions = 0;
        for posting in postings {
            sessions += u64::from(before.replace(posting.session) != Some(posting.session));
        }
        TermHeader { turns: postings.len() as u64, sessions }
    }

    pub fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, self.turns);
        put_varint(&mut bytes, self.sessions);
        bytes
    }

    /// Reads a header. A damaged one counts nothing.
    pub fn decode(mut bytes: &[u8]) -> TermHeader {
        let turns = take_varint(&mut bytes).unwrap_or_default();
        TermHeader { turns, sessions: take_varint(&mut bytes).unwrap_or_default() }
    }
}

impl AddAssign for TermHeader {
    fn add_assign(&mut self, other: TermHeader) {
        self.turns += other.turns;
        self.sessions += other.sessions;
    }
}

/// The size at which a list goes on in a new block.
#[derive(Debug, Clone, Copy)]
pub struct BlockLimit {
    max_bytes: usize,
}

impl BlockLimit {
    /// Four blocks fit a database page, and none spills over to another.
    pub const QUARTER_PAGE: BlockLimit = BlockLimit::bytes(900);

    pub const fn bytes(max_bytes: usize) -> BlockLimit {
        BlockLimit { max_bytes }
    }

    /// Returns how many postings fit an empty block.
    pub fn capacity(self) -> usize {
        self.capacity_after(0)
    }

    /// Returns how many postings fit a block that already has this many bytes.
    pub fn capacity_after(self, bytes: usize) -> usize {
        self.max_bytes.saturating_sub(bytes) / POSTING_BYTES
    }

    /// Packs postings, which are in order, into as many blocks as they need.
    pub fn blocks(self, postings: &[Posting]) -> impl Iterator<Item = PostingBlock> {
        postings.chunks(self.capacity()).map(PostingBlock::encode)
    }
}

/// Postings of one list, packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostingBlock {
    /// The first turn of the block when it was written. Later that turn may have been removed.
    pub first_seq: i64,
    pub bytes: Vec<u8>,
}

impl PostingBlock {
    /// Packs postings, which are in order and at least one.
    pub fn encode(postings: &[Posting]) -> PostingBlock {
        let first_seq = postings.first().map_or(HEADER_SEQ, |first| first.seq);
        PostingBlock::encode_from(first_seq, postings)
    }

    /// Packs postings into a block that begins at a turn which need not have a posting any more.
    pub fn encode_from(first_seq: i64, postings: &[Posting]) -> PostingBlock {
        let mut block = PostingBlock { first_seq, bytes: Vec::new() };
        block.put((first_seq, 0), postings);
        block
    }

    /// Appends postings that are newer than `last`, which is the last posting of this block.
    pub fn append(&mut self, last: Option<Posting>, postings: &[Posting]) {
        self.put(last.map_or((self.first_seq, 0), |last| (last.seq, last.session)), postings);
    }

    fn put(&mut self, mut last: (i64, u32), postings: &[Posting]) {
        for posting in postings {
            put_varint(&mut self.bytes, posting.seq.wrapping_sub(last.0).cast_unsigned());
            let session = i64::from(posting.session) - i64::from(last.1);
            put_varint(&mut self.bytes, ((session << 1) ^ (session >> 63)).cast_unsigned());
            self.bytes.extend([posting.frequency, posting.length_class]);
            last = (posting.seq, posting.session);
        }
    }

    pub fn decode(&self) -> Vec<Posting> {
        let mut postings = Vec::new();
        decode_block(self.first_seq, &self.bytes, |posting| postings.push(posting));
        postings
    }
}

/// Unpacks a block that begins at the turn `first_seq`. Decoding ends where the bytes are damaged.
pub fn decode_block(first_seq: i64, bytes: &[u8], mut each: impl FnMut(Posting)) {
    let mut last = (first_seq, 0_i64);
    let mut rest = bytes;
    while !rest.is_empty() {
        let (seq, session, frequency, length_class);
        if let [a, b, c, d, tail @ ..] = rest
            && (a | b) & 0x80 == 0
        {
            // The usual posting of four bytes.
            (seq, session, frequency, length_class, rest) =
                (u64::from(*a), u64::from(*b), *c, *d, tail);
        } else {
            let (Some(a), Some(b)) = (take_varint(&mut rest), take_varint(&mut rest)) else {
                return;
            };
            let [c, d, tail @ ..] = rest else { return };
            (seq, session, frequency, length_class, rest) = (a, b, *c, *d, tail);
        }
        let session = (session >> 1).cast_signed() ^ -((session & 1).cast_signed());
        last = (last.0.wrapping_add(seq.cast_signed()), last.1.wrapping_add(session));
        each(Posting { seq: last.0, session: last.1 as u32, frequency, length_class });
    }
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[inline]
fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, tail) = rest.split_first()?;
        *rest = tail;
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Returns a turn's length as a byte: exact up to 127 terms, then in steps of a twelfth.
#[inline]
pub fn length_class(length: u32) -> u8 {
    if length < 128 {
        return length as u8;
    }
    let class = 128.0 + 8.0 * (f64::from(length) / 128.0).log2();
    class.min(255.0) as u8
}

/// Returns the length in terms that a class stands for.
pub fn length_of_class(class: u8) -> f32 {
    if class < 128 {
        return f32::from(class);
    }
    128.0 * ((f32::from(class) - 128.0) / 8.0).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posting(seq: i64, session: u32, frequency: u8, length_class: u8) -> Posting {
        Posting { seq, session, frequency, length_class }
    }

    #[test]
    fn encoded_postings_decode_to_themselves() {
        let all = [
            posting(7, 3, 1, 20),
            posting(8, 3, 255, 255),
            posting(1_000_000, 900, 2, 0),
            posting(i64::MAX, 1, 1, 1),
        ];
        assert_eq!(PostingBlock::encode_from(7, &all).decode(), all);
        assert_eq!(PostingBlock::encode_from(7, &[]).decode(), []);
    }

    #[test]
    fn appended_postings_decode_like_those_encoded_at_once() {
        let all = [posting(7, 3, 1, 20), posting(9, 2, 1, 1), posting(300, 70, 4, 9)];
        let mut block = PostingBlock::encode(&all[..1]);
        block.append(Some(all[0]), &all[1..]);
        assert_eq!(block, PostingBlock::encode(&all));
    }

    #[test]
    fn blocks_hold_as_many_postings_as_the_limit_allows() {
        let all: Vec<Posting> = (1..=25).map(|seq| posting(seq, 1, 1, 1)).collect();
        let limit = BlockLimit::bytes(60);
        assert_eq!((limit.capacity(), limit.capacity_after(48)), (10, 2));
        let blocks: Vec<PostingBlock> = limit.blocks(&all).collect();
        assert_eq!(blocks.iter().map(|block| block.first_seq).collect::<Vec<i64>>(), [1, 11, 21]);
        let decoded: Vec<Posting> = blocks.iter().flat_map(PostingBlock::decode).collect();
        assert_eq!(decoded, all);
    }

    #[test]
    fn headers_decode_to_themselves() {
        let header = TermHeader { turns: 70_000, sessions: 300 };
        assert_eq!(TermHeader::decode(&header.encode()), header);
        assert_eq!(TermHeader::decode(&[0xFF]), TermHeader::default());
    }

    #[test]
    fn header_counts_changes_of_session() {
        let all = [posting(1, 5, 1, 1), posting(2, 5, 1, 1), posting(3, 6, 1, 1)];
        assert_eq!(TermHeader::of(None, &all), TermHeader { turns: 3, sessions: 2 });
        assert_eq!(TermHeader::of(Some(5), &all), TermHeader { turns: 3, sessions: 1 });
    }

    #[test]
    fn damaged_block_ends_early() {
        let block = PostingBlock::encode_from(1, &[posting(300, 500, 1, 9)]);
        for end in 0..block.bytes.len() {
            decode_block(1, &block.bytes[..end], |posting| panic!("{posting:?}"));
        }
        decode_block(1, &[0xFF; 40], |posting| panic!("{posting:?}"));
    }

    #[test]
    fn length_classes_are_within_a_tenth() {
        for length in [0, 5, 127, 128, 1000, 60_000] {
            let about = length_of_class(length_class(length));
            assert!((about - length as f32).abs() <= length as f32 * 0.1, "{length}: {about}");
        }
    }
}
