//! Runs of postings, packed: which turns have a term, how often, in which session.
//!
//! Each posting is the distance to the turn before (LEB128), the distance to its session (zigzag,
//! LEB128), how often the term occurs (a byte, 255 is "or more") and about how long the turn is (a
//! byte, see [`length_class`]). Most postings take four bytes.

/// A run is split before it grows beyond this: four fit a page, and none spills over to another. In this crate's own tests
/// most terms have several.
pub(crate) const LONGEST_RUN: usize = if cfg!(test) { 60 } else { 900 };

/// One turn that has a term. A question reads a hundred thousand of them, so that they must not take more room than this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Posting {
    pub(crate) seq: i64,
    /// The lower half of its number: no memory has four billion sessions.
    pub(crate) session: u32,
    pub(crate) times: u8,
    pub(crate) length: u8,
}

/// How common a term is in a project, beside its runs: told before they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Header {
    pub(crate) turns: u64,
    /// How often a turn is of another session than the one before it.
    pub(crate) sessions: u64,
}

impl Header {
    pub(crate) fn packed(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, self.turns);
        put(&mut bytes, self.sessions);
        bytes
    }

    /// One that is damaged says nothing.
    pub(crate) fn unpacked(mut bytes: &[u8]) -> Header {
        let turns = take(&mut bytes).unwrap_or_default();
        Header { turns, sessions: take(&mut bytes).unwrap_or_default() }
    }
}

/// Packs postings that are in order, after those that end in `last`.
pub(crate) fn pack(mut last: (i64, u32), postings: &[Posting], run: &mut Vec<u8>) {
    for posting in postings {
        put(run, posting.seq.wrapping_sub(last.0).cast_unsigned());
        let session = i64::from(posting.session) - i64::from(last.1);
        put(run, ((session << 1) ^ (session >> 63)).cast_unsigned());
        run.extend([posting.times, posting.length]);
        last = (posting.seq, posting.session);
    }
}

/// Unpacks a run, which starts at the turn `first`. What is damaged ends it.
pub(crate) fn unpack(first: i64, run: &[u8], mut each: impl FnMut(Posting)) {
    let mut last = (first, 0_i64);
    let mut rest = run;
    while !rest.is_empty() {
        let (seq, session, times, length);
        if let [a, b, c, d, behind @ ..] = rest
            && (a | b) & 0x80 == 0
        {
            // As most are.
            (seq, session, times, length, rest) = (u64::from(*a), u64::from(*b), *c, *d, behind);
        } else {
            let (Some(a), Some(b)) = (take(&mut rest), take(&mut rest)) else { return };
            let [c, d, behind @ ..] = rest else { return };
            (seq, session, times, length, rest) = (a, b, *c, *d, behind);
        }
        let session = (session >> 1).cast_signed() ^ -((session & 1).cast_signed());
        last = (last.0.wrapping_add(seq.cast_signed()), last.1.wrapping_add(session));
        each(Posting { seq: last.0, session: last.1 as u32, times, length });
    }
}

fn put(run: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        run.push(value as u8 | 0x80);
        value >>= 7;
    }
    run.push(value as u8);
}

fn take(rest: &mut &[u8]) -> Option<u64> {
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

/// A length as a byte: exact up to 127, then in steps of a twelfth.
pub(crate) fn length_class(length: u32) -> u8 {
    if length < 128 {
        return length as u8;
    }
    let class = 128.0 + 8.0 * (f64::from(length) / 128.0).log2();
    class.min(255.0) as u8
}

/// The length that a class stands for.
pub(crate) fn length_of(class: u8) -> f32 {
    if class < 128 {
        return f32::from(class);
    }
    128.0 * ((f32::from(class) - 128.0) / 8.0).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(first: i64, postings: &[Posting]) -> Vec<Posting> {
        let mut run = Vec::new();
        pack((first, 0), postings, &mut run);
        let mut found = Vec::new();
        unpack(first, &run, |posting| found.push(posting));
        found
    }

    #[test]
    fn what_is_packed_comes_out_again() {
        let posting = |seq, session, times, length| Posting { seq, session, times, length };
        let all = [
            posting(7, 3, 1, 20),
            posting(8, 3, 255, 255),
            posting(1_000_000, 900, 2, 0),
            posting(i64::MAX, 1, 1, 1),
        ];
        assert_eq!(round(7, &all), all);
        assert_eq!(round(7, &[]), []);
    }

    #[test]
    fn headers_too() {
        let header = Header { turns: 70_000, sessions: 300 };
        assert_eq!(Header::unpacked(&header.packed()), header);
        assert_eq!(Header::unpacked(&[0xFF]), Header::default());
    }

    #[test]
    fn damage_ends_a_run_and_nothing_else() {
        let mut run = Vec::new();
        pack((1, 0), &[Posting { seq: 300, session: 500, times: 1, length: 9 }], &mut run);
        for end in 0..run.len() {
            unpack(1, &run[..end], |posting| panic!("{posting:?}"));
        }
        unpack(1, &[0xFF; 40], |posting| panic!("{posting:?}"));
    }

    #[test]
    fn lengths_are_about_right() {
        for length in [0, 5, 127, 128, 1000, 60_000] {
            let about = length_of(length_class(length));
            assert!((about - length as f32).abs() <= length as f32 * 0.1, "{length}: {about}");
        }
    }
}
