//! The words of a sentence, as far as a value may be among them.

use std::ops::Range;

/// How far a sentence is read, in bytes and words.
const MAX_BYTES: usize = 160;
const MAX_LIST_BYTES: usize = 600;
const MAX_WORDS: usize = 10;
const MAX_LIST_WORDS: usize = 60;
/// The longest value between quotes.
const MAX_QUOTED_BYTES: usize = 100;

/// A word without the punctuation around it.
pub struct Word {
    pub range: Range<usize>,
    pub is_quoted: bool,
    /// Whether it is in a script without spaces.
    pub is_wide: bool,
    /// Whether a colon or an equals sign precedes it.
    pub follows_sign: bool,
    /// Whether a colon or an equals sign follows it.
    pub has_sign: bool,
}

/// Iterates over the words from a position to the end of the sentence.
pub struct Sentence<'a> {
    text: &'a str,
    at: usize,
    limit: usize,
    words: usize,
    crosses_lines: bool,
}

impl<'a> Sentence<'a> {
    pub fn new(text: &'a str, from: usize) -> Sentence<'a> {
        Sentence { text, at: from, limit: from + MAX_BYTES, words: MAX_WORDS, crosses_lines: false }
    }

    /// Also reads the lines after it.
    pub fn with_lines(text: &'a str, from: usize) -> Sentence<'a> {
        let limit = from + MAX_LIST_BYTES;
        Sentence { text, at: from, limit, words: MAX_LIST_WORDS, crosses_lines: true }
    }

    /// Returns the text between quotes that begins here.
    fn quoted(&self) -> Option<Range<usize>> {
        let mut chars = self.text[self.at..].chars();
        let close = match chars.next()? {
            quote @ ('"' | '\'' | '`') => [quote, quote],
            '“' => ['”', '“'],
            '„' => ['“', '”'],
            '‘' => ['’', '‘'],
            '«' => ['»', '»'],
            '»' => ['«', '«'],
            '「' => ['」', '」'],
            '『' => ['』', '』'],
            _ => return None,
        };
        let start = self.at + self.text[self.at..].chars().next().map_or(0, char::len_utf8);
        for (offset, c) in self.text[start..].char_indices().take(MAX_QUOTED_BYTES) {
            if c == '\n' {
                return None;
            }
            if close.contains(&c) {
                return (offset > 0).then_some(start..start + offset);
            }
        }
        None
    }
}

impl Iterator for Sentence<'_> {
    type Item = Word;

    fn next(&mut self) -> Option<Word> {
        let bytes = self.text.as_bytes();
        let mut follows_sign = false;
        while let Some(&byte) = bytes.get(self.at).filter(|_| self.at < self.limit) {
            match byte {
                b' ' | b'\t' | b'(' | b'*' | b',' | b')' => {}
                b':' | b'=' => follows_sign = true,
                b'\n' | b'\r' if self.crosses_lines => {}
                _ => break,
            }
            self.at += 1;
        }
        self.words = self.words.checked_sub(1)?;
        if self.at >= bytes.len().min(self.limit) || matches!(bytes[self.at], b'\n' | b'\r' | b'.')
        {
            return None;
        }
        if let Some(range) = self.quoted() {
            let close = self.text[range.end..].chars().next().map_or(0, char::len_utf8);
            self.at = range.end + close;
            return Some(Word {
                range,
                is_quoted: true,
                is_wide: false,
                follows_sign,
                has_sign: false,
            });
        }
        let start = self.at;
        let mut is_wide = false;
        for (offset, c) in self.text[start..].char_indices() {
            if offset == 0 {
                is_wide = is_wide_char(c);
            }
            if c.is_whitespace() || is_wide_char(c) != is_wide || c == ',' {
                break;
            }
            // A longer word is no value, and a long text without spaces must not be read from each of its words.
            if start + offset > self.limit {
                return None;
            }
            self.at = start + offset + c.len_utf8();
        }
        if self.at == start {
            self.at = start + self.text[start..].chars().next().map_or(1, char::len_utf8);
        }
        let mut end = self.at;
        let mut has_sign = false;
        let mut ends_sentence = false;
        let mut floor = start;
        while floor < end && matches!(bytes[floor], b'"' | b'`' | b'_') {
            floor += 1;
        }
        while end > floor + 1 {
            match bytes[end - 1] {
                b':' | b'=' => has_sign = true,
                b'.' | b'?' | b';' => ends_sentence = true,
                b')' | b'*' | b'"' | b'\'' | b'`' | b'_' | b'>' | b']' => {}
                _ => break,
            }
            end -= 1;
        }
        // An abbreviation does not end a sentence, but nothing is lost after it.
        if ends_sentence && !self.crosses_lines {
            self.words = 0;
        }
        Some(Word { range: floor..end, is_quoted: false, is_wide, follows_sign, has_sign })
    }
}

/// Returns whether a character belongs to a script that is written without spaces, or to its punctuation.
fn is_wide_char(c: char) -> bool {
    let code = c as u32;
    (0x2e80..=0xd7ff).contains(&code)
        || (0xf900..=0xfaff).contains(&code)
        || (0xff00..=0xffef).contains(&code)
}
