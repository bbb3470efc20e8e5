//! Word lists in text files, split at compile time: a hook has no time to parse them at start.

/// Returns the words of a file as a constant slice, one word a line. Lines that begin with `# ` are
/// comments.
macro_rules! word_list {
    ($file:literal) => {{
        const TEXT: &str = include_str!($file);
        const WORDS: [&[u8]; $crate::redact::word_list::count(TEXT)] =
            $crate::redact::word_list::split(TEXT);
        &WORDS
    }};
}
pub(super) use word_list;

/// Counts the words of a list.
pub const fn count(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut count = 0;
    let mut start = 0;
    while start < bytes.len() {
        let end = line_end(bytes, start);
        if is_word(bytes, start, end) {
            count += 1;
        }
        start = end + 1;
    }
    count
}

/// Splits a list into its words. `N` must be their count.
pub const fn split<const N: usize>(text: &'static str) -> [&'static [u8]; N] {
    let bytes = text.as_bytes();
    let mut words: [&[u8]; N] = [&[]; N];
    let mut count = 0;
    let mut start = 0;
    while start < bytes.len() {
        let end = line_end(bytes, start);
        if is_word(bytes, start, end) {
            words[count] = bytes.split_at(end).0.split_at(start).1;
            count += 1;
        }
        start = end + 1;
    }
    words
}

const fn line_end(bytes: &[u8], start: usize) -> usize {
    let mut end = start;
    while end < bytes.len() && bytes[end] != b'\n' {
        end += 1;
    }
    end
}

const fn is_word(bytes: &[u8], start: usize, end: usize) -> bool {
    let is_comment = end - start >= 2 && bytes[start] == b'#' && bytes[start + 1] == b' ';
    end > start && !is_comment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_split_into_lines_without_comments() {
        const TEXT: &str = "# a list\none\n\n#two\nthree";
        assert_eq!(count(TEXT), 3);
        assert_eq!(split::<3>(TEXT), [&b"one"[..], b"#two", b"three"]);
    }
}
