//! Texts that people and agents have said.

use hob_memory::Analyser;
use hob_memory::redact::{find, mask, unmask};

/// The length to which a short text is repeated, in bytes.
const REPEATED_BYTES: usize = 96 << 10;

/// Returns bytes as text. `¦` is nothing: it keeps scanners from taking a corpus for a leak.
fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('¦', "")
}

/// Masks the secrets of a text.
pub fn redaction(bytes: &[u8]) {
    let text = text_of(bytes);
    let mut end = 0;
    for finding in find(&text) {
        assert!(finding.range.start >= end && !finding.range.is_empty(), "{finding:?}");
        assert!(text.get(finding.range.clone()).is_some(), "not at a character: {finding:?}");
        end = finding.range.end;
    }
    let masked = mask(&text);
    assert_eq!(find(&masked.text), [], "masking twice equals once: {:?}", masked.text);
    assert_eq!(unmask(&masked.text, &masked.originals).as_deref(), Some(text.as_str()));
}

/// Masks a text that repeats itself. In more than linear time that takes longer than the fuzzer waits.
pub fn redaction_time(bytes: &[u8]) {
    let text = text_of(bytes);
    if text.is_empty() {
        return;
    }
    let long = text.repeat(REPEATED_BYTES.div_ceil(text.len()));
    let masked = mask(&long);
    assert_eq!(unmask(&masked.text, &masked.originals), Some(long));
}

/// Finds the terms of a text.
pub fn text_analysis(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let analyser = Analyser::default();
    let terms = analyser.terms(&text);
    assert!(terms.iter().all(|term| !term.is_empty() && !term.contains(char::is_whitespace)));
    assert_eq!(analyser.terms(&text), terms);
    let content = analyser.content_terms(&text);
    assert!(content.len() <= terms.len());
    let query = analyser.query_terms(&text);
    assert!(query.len() <= terms.len().max(1));
}
