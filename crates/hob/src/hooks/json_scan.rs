//! Finds the offsets of the parts of a JSON document, so that its text can be edited.
//!
//! A parser that builds a tree loses white space, the spelling of numbers and duplicate keys. Here
//! `serde_json` only checks that the text is valid JSON. A small scanner, which relies on that,
//! then walks one container at a time. Neither is recursive, so deep nesting cannot overflow the
//! stack.

use std::ops::Range;

use serde_json::value::RawValue;

/// One element of a list or one member of an object.
#[derive(Debug, Clone)]
pub struct JsonItem {
    /// The range of the key, with its quotes; `None` in a list.
    pub key: Option<Range<usize>>,
    pub value: Range<usize>,
}

impl JsonItem {
    pub fn start(&self) -> usize {
        self.key.as_ref().map_or(self.value.start, |key| key.start)
    }

    pub fn end(&self) -> usize {
        self.value.end
    }
}

/// An object or a list: the offsets of its brackets and the ranges of its items.
#[derive(Debug, Clone)]
pub struct Container {
    pub open: usize,
    pub close: usize,
    pub items: Vec<JsonItem>,
}

impl Container {
    /// Returns the indices of the members called `name`.
    pub fn members(&self, text: &str, name: &str) -> Vec<usize> {
        let is_named = |item: &JsonItem| item.key.clone().and_then(|key| string(text, key));
        (0..self.items.len())
            .filter(|&index| is_named(&self.items[index]).as_deref() == Some(name))
            .collect()
    }
}

/// Checks that the text, without a byte order mark, is one JSON value.
pub fn validate(text: &str) -> Result<(), serde_json::Error> {
    serde_json::from_str::<&RawValue>(&text[body_start(text)..]).map(|_| ())
}

/// Returns the offset of the document: after a byte order mark, which some editors write.
pub fn body_start(text: &str) -> usize {
    if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 }
}

/// Returns whether the text holds only white space.
pub fn is_blank(text: &str) -> bool {
    skip_blanks(text, body_start(text)) == text.len()
}

/// Returns the object at the top of a validated document, if it is an object.
pub fn root(text: &str) -> Option<Container> {
    object(text, skip_blanks(text, body_start(text)))
}

/// Returns the object that starts at `at` in a validated document.
pub fn object(text: &str, at: usize) -> Option<Container> {
    (text.as_bytes().get(at) == Some(&b'{')).then(|| container(text, at))
}

/// Returns the list that starts at `at` in a validated document.
pub fn list(text: &str, at: usize) -> Option<Container> {
    (text.as_bytes().get(at) == Some(&b'[')).then(|| container(text, at))
}

/// Returns the string in a range, without quotes and escapes. Returns `None` for half a surrogate
/// pair, which is valid JSON but not text.
pub fn string(text: &str, place: Range<usize>) -> Option<String> {
    serde_json::from_str(&text[place]).ok()
}

/// Returns the first offset from `at` on that is not JSON white space.
pub fn skip_blanks(text: &str, at: usize) -> usize {
    let blanks = text.as_bytes()[at..].iter().take_while(|byte| is_blank_byte(**byte)).count();
    at + blanks
}

/// Returns the white space that ends at `at`.
pub fn blanks_before(text: &str, at: usize) -> &str {
    let bytes = text.as_bytes()[..at].iter().rev();
    &text[at - bytes.take_while(|byte| is_blank_byte(**byte)).count()..at]
}

fn is_blank_byte(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn container(text: &str, open: usize) -> Container {
    let bytes = text.as_bytes();
    let in_object = bytes[open] == b'{';
    let mut items = Vec::new();
    let mut at = skip_blanks(text, open + 1);
    while !matches!(bytes[at], b'}' | b']') {
        let mut key = None;
        if in_object {
            let end = value_end(bytes, at);
            key = Some(at..end);
            let colon = skip_blanks(text, end);
            at = skip_blanks(text, colon + 1);
        }
        let end = value_end(bytes, at);
        items.push(JsonItem { key, value: at..end });
        at = skip_blanks(text, end);
        if bytes[at] == b',' {
            at = skip_blanks(text, at + 1);
        }
    }
    Container { open, close: at, items }
}

fn value_end(bytes: &[u8], start: usize) -> usize {
    match bytes[start] {
        b'"' => string_end(bytes, start),
        b'{' | b'[' => {
            let mut depth = 0_usize;
            let mut at = start;
            loop {
                match bytes[at] {
                    b'"' => {
                        at = string_end(bytes, at);
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                at += 1;
                if depth == 0 {
                    return at;
                }
            }
        }
        _ => {
            let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']') || is_blank_byte(*byte);
            bytes[start..].iter().position(is_end).map_or(bytes.len(), |length| start + length)
        }
    }
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}
