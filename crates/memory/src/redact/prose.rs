//! Finds secrets by the words before them: "the password is …", "Das Passwort lautet …", "my API key: …".

use std::ops::Range;

use super::account_numbers;
use super::announced::{Announced, announced_at, may_begin, may_begin_wide};
use super::bytes::{holds, line_start};
use super::distant_names::next_line;
use super::finding::Finding;
use super::key_bytes;
use super::names::strength;
use super::prose_values::{
    is_code, is_generated, is_password, is_quoted_password, is_random, is_strong,
};
use super::sentence::{Sentence, Word};
use super::values::NameStrength;
use super::word_list::word_list;

const LOGIN_HINTS: &[&[u8]] = word_list!("data/login_hints.txt");
const LINK_WORDS: &[&[u8]] = word_list!("data/link_words.txt");
const LIST_WORDS: &[&[u8]] = &[
    b"and",
    b"or",
    b"und",
    b"oder",
    b"et",
    b"ou",
    b"y",
    b"e",
    b"o",
    b"en",
    b"of",
    b"i",
    b"og",
    b"och",
    "и".as_bytes(),
    b"/",
    b"&",
];

/// Finds the secrets that the word at `word` announces, or a listed word in it. Returns where to continue.
#[inline]
pub fn at(text: &str, word: &Range<usize>, seen: u16, found: &mut Vec<Finding>) -> usize {
    let bytes = text.as_bytes();
    if seen == u16::MAX {
        return scan_wide(text, word, found);
    }
    if may_begin(bytes, word.start) && begins_word(bytes, word.start) {
        return announce(text, word.start, found).max(word.end);
    }
    if matches!(bytes[word.end - 1], b't' | b'd') && word.len() > MIN_COMPOUND_BYTES {
        // A word for a password ends a compound, such as `Serverpasswort`.
        for part in COMPOUND_ENDS {
            if bytes[word.clone()].ends_with(part) {
                return announce(text, word.end - part.len(), found).max(word.end);
            }
        }
    }
    word.end
}

const MIN_COMPOUND_BYTES: usize = 8;
const COMPOUND_ENDS: &[&[u8]] = &[b"passwort", b"password", b"kennwort", b"wachtwoord", b"passord"];

/// Searches a word with characters that are not ASCII, and a whole sentence of a script without spaces, at every
/// character.
fn scan_wide(text: &str, word: &Range<usize>, found: &mut Vec<Finding>) -> usize {
    let bytes = text.as_bytes();
    for at in word.clone() {
        if may_begin_wide(bytes, at) || at == word.start && may_begin(bytes, at) {
            let end = announce(text, at, found);
            if end > at {
                return end;
            }
        }
    }
    word.end
}

/// Finds what the listed word at `at` announces. Returns the end of the last finding, or that of the word.
fn announce(text: &str, at: usize, found: &mut Vec<Finding>) -> usize {
    let Some((announced, end)) = announced_at(text, at) else { return at };
    let before = found.len();
    search(text, at, end, announced, found);
    found[before..].last().map_or(end, |finding| finding.range.end.max(end))
}

/// Returns whether a word may begin at `at`, and is not the last part of a name.
fn begins_word(bytes: &[u8], at: usize) -> bool {
    at.checked_sub(1).is_none_or(|before| !matches!(bytes[before], b'_' | b'$'))
}

/// Searches the rest of a sentence for what a word announces.
fn search(text: &str, start: usize, end: usize, announced: Announced, found: &mut Vec<Finding>) {
    let bytes = text.as_bytes();
    if announced == Announced::Code {
        return search_codes(text, start, end, found);
    }
    if announced == Announced::AccountNumber
        || announced == Announced::Account && account_numbers::is_at_bank(bytes, start)
    {
        found.extend(account_numbers::after_name(bytes, start, end));
        return;
    }
    if announced == Announced::Password
        && let Some(finding) = router_password(bytes, end)
    {
        found.push(finding);
        return;
    }
    // What a sign assigns is the subject of `assign`, which knows settings from code.
    let sign = bytes[end..].iter().take(4).find(|byte| !b" \t\"'`*".contains(byte));
    if matches!(sign, Some(b'=' | b':'))
        && announced == Announced::Password
        && strength(&bytes[start..end]).is_some()
    {
        return;
    }
    let is_word = |at: Option<&u8>| at.is_none_or(|&byte| byte <= b' ');
    if announced == Announced::Login
        && !(is_word(start.checked_sub(1).map(|at| &bytes[at])) && is_word(bytes.get(end)))
    {
        return;
    }
    if matches!(announced, Announced::Password | Announced::Account) {
        search_before(text, start, found);
    }
    if announced == Announced::Key && names_public_part(bytes, end) {
        return;
    }
    if announced == Announced::Key
        && let Some(finding) = key_bytes::after_word(bytes, end)
    {
        found.push(finding);
        return;
    }
    let name =
        if announced == Announced::Key { NameStrength::Token } else { NameStrength::Password };
    if announced != Announced::Login
        && let Some(finding) = value_on_next_line(bytes, end, name)
    {
        found.push(finding);
        return;
    }
    let mut link = Link::None;
    let mut is_first = true;
    let mut was_found = false;
    let mut is_negated = false;
    for mut word in Sentence::new(text, end) {
        if word.follows_sign {
            link = Link::Direct;
        }
        let is_linked = link == Link::Direct;
        if announced == Announced::Key {
            cut_key(bytes, &mut word);
        }
        let value = &bytes[word.range.clone()];
        let fits = match announced {
            Announced::Password if word.is_quoted => {
                (is_linked || is_first) && is_quoted_password(value)
            }
            Announced::Password if is_linked => is_password(value),
            Announced::Password if is_first => is_strong(value) || is_apart(value),
            Announced::Password => is_strong(value),
            Announced::Key => match is_linked || is_first || word.is_quoted {
                true => is_generated(value),
                false => is_random(value),
            },
            Announced::Login => is_strong(value) || is_apart(value) && is_login(bytes, start),
            // `root:` and `Root=` are fields of versions and traces.
            Announced::Account => {
                let is_tight = matches!(bytes[word.range.start - 1], b':' | b'=');
                is_strong(value) || is_first && !is_tight && is_generated(value)
            }
            Announced::Code | Announced::AccountNumber => false,
        };
        if fits {
            let kind = if announced == Announced::Key { "assigned-secret" } else { "password" };
            found.push(Finding { range: word.range.clone(), kind });
            was_found = true;
        } else if announced == Announced::Login {
            return;
        }
        let role = match role(&word, value) {
            // "must not contain" is about all passwords.
            Role::Link if is_negated && holds(value, b"contain") => Role::Other,
            role => role,
        };
        is_negated |= value == b"not" || value == b"never";
        if was_found && !fits && role != Role::List {
            return;
        }
        link = link.after(role);
        is_first = false;
    }
}

/// Returns the value of `password 7 0822455D0A16`: Cisco's routers hide passwords in a way that anyone can undo.
fn router_password(bytes: &[u8], end: usize) -> Option<Finding> {
    let start = end + b" 7 ".len();
    if bytes.get(end..start) != Some(b" 7 ") {
        return None;
    }
    let length = bytes[start..].iter().take(80).take_while(|byte| byte.is_ascii_hexdigit()).count();
    let range = start..start + length;
    (length >= 8 && length.is_multiple_of(2)).then_some(Finding { range, kind: "password" })
}

/// Returns whether the next word says that what follows is only about a key: "key fingerprint", "token id".
fn names_public_part(bytes: &[u8], end: usize) -> bool {
    const PARTS: &[&[u8]] = &[
        b"id",
        b"ids",
        b"fingerprint",
        b"fingerprints",
        b"hash",
        b"checksum",
        b"digest",
        b"name",
        b"type",
    ];
    let Some(next) = bytes.get(end..).and_then(|rest| rest.strip_prefix(b" ")) else {
        return false;
    };
    let length = next.iter().take(16).take_while(|byte| byte.is_ascii_alphabetic()).count();
    PARTS.iter().any(|part| part.eq_ignore_ascii_case(&next[..length]))
}

/// How a word is linked to the one that announces a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    None,
    /// "is" is before it.
    Direct,
    /// "is" and a word are before it, as in "are admin and …".
    Earlier,
}

impl Link {
    fn after(self, role: Role) -> Link {
        match (self, role) {
            (_, Role::Link) => Link::Direct,
            (Link::Direct | Link::Earlier, Role::List) => Link::Direct,
            (Link::Direct, Role::Other) => Link::Earlier,
            _ => Link::None,
        }
    }
}

/// What a word does in a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It links a value to its name: "is".
    Link,
    /// It separates two values: "and".
    List,
    Other,
}

fn role(word: &Word, value: &[u8]) -> Role {
    match () {
        () if is_link(word, value) => Role::Link,
        () if LIST_WORDS.contains(&value) => Role::List,
        () => Role::Other,
    }
}

/// Ends a key at a sign that no key contains.
fn cut_key(bytes: &[u8], word: &mut Word) {
    let value = &bytes[word.range.clone()];
    if let Some(length) = value.iter().position(|byte| b"&;@\"'<>#?".contains(byte)) {
        word.range.end = word.range.start + length;
    }
}

/// Returns the value that is alone on the line after a word and a colon.
fn value_on_next_line(bytes: &[u8], end: usize, name: NameStrength) -> Option<Finding> {
    let length = bytes[end..].iter().take(4).take_while(|byte| b" *:".contains(byte)).count();
    let has_sign = bytes[end..end + length].contains(&b':');
    let is_end = matches!(bytes.get(end + length), Some(b'\n' | b'\r'));
    (has_sign && is_end).then(|| next_line(bytes, end + length, name))?
}

/// Finds a password before the word for it: "… is the password", "log in as root, …, on the new host".
fn search_before(text: &str, start: usize, found: &mut Vec<Finding>) {
    const MAX_REACH_BYTES: usize = 80;
    const MAX_FILLERS: usize = 4;
    const FILLERS: &[&[u8]] = &[
        b"as", b"is", b"the", b"my", b"your", b"our", b"a", b"als", b"ist", b"das", b"mein",
        b"est", b"le", b"es", b"la", b"root", b"admin",
    ];
    let bytes = text.as_bytes();
    let floor = line_start(bytes, start, MAX_REACH_BYTES);
    let mut end = start;
    let mut fillers = 0;
    let mut is_near = true;
    while end > floor && fillers < 12 {
        let stop = end;
        let word_start = bytes[floor..stop]
            .iter()
            .rposition(|&byte| byte <= b' ')
            .map_or(floor, |at| floor + at + 1);
        if word_start < stop {
            let trim = |byte: &u8| b"\"'`,;:()*".contains(byte);
            let word = &bytes[word_start..stop];
            let from = word_start + word.iter().take_while(|byte| trim(byte)).count();
            let to = stop - word.iter().rev().take_while(|byte| trim(byte)).count();
            if let Some(value) = bytes.get(from..to.max(from))
                && (is_strong(value) || is_near && fillers > 0 && is_apart(value))
                && word_start > floor
            {
                found.push(Finding { range: from..to, kind: "password" });
                return;
            }
            is_near &= fillers < MAX_FILLERS && FILLERS.contains(&word);
            fillers += 1;
        }
        end = word_start.saturating_sub(1).max(floor);
        if word_start == floor {
            return;
        }
    }
}

/// Returns whether a password that no word links must be one: letters and digits alternate.
fn is_apart(value: &[u8]) -> bool {
    is_password(value) && super::entropy::look(value).digit_changes >= 2
}

fn is_link(word: &Word, value: &[u8]) -> bool {
    word.is_wide || word.has_sign || LINK_WORDS.iter().any(|link| link.eq_ignore_ascii_case(value))
}

/// Returns whether the words before say that somebody logs in.
fn is_login(bytes: &[u8], start: usize) -> bool {
    const MAX_REACH_BYTES: usize = 80;
    let floor = line_start(bytes, start, MAX_REACH_BYTES);
    LOGIN_HINTS.iter().any(|hint| holds(&bytes[floor..start], hint))
}

/// Finds the codes after a word that announces them: on its line, or one a line.
fn search_codes(text: &str, start: usize, end: usize, found: &mut Vec<Finding>) {
    const MAX_FILLERS: usize = 5;
    const MAX_CODES: usize = 24;
    let bytes = text.as_bytes();
    // In small letters, a pin is one of many things.
    if bytes[start..end].eq_ignore_ascii_case(b"pin") && bytes[start..end] != *b"PIN" {
        return;
    }
    let mut fillers = 0;
    let mut codes = 0;
    // The code of a card follows its name without a word between them.
    let is_card_code =
        matches!(bytes[start..end].to_ascii_lowercase().as_slice(), b"cvv" | b"cvc" | b"cvv2");
    let mut is_linked = is_card_code;
    for word in Sentence::with_lines(text, end) {
        let value = &bytes[word.range.clone()];
        is_linked |= word.follows_sign;
        if (is_linked || codes > 0) && is_code(value) {
            codes += 1;
            match found.last_mut() {
                // Two halves of one code.
                Some(last) if codes > 1 && last.range.end + 1 == word.range.start => {
                    last.range.end = word.range.end;
                }
                _ => found.push(Finding { range: word.range.clone(), kind: "one-time-code" }),
            }
            if codes == MAX_CODES {
                return;
            }
            continue;
        }
        let is_number = value.iter().all(|&byte| byte.is_ascii_digit()) && value.len() <= 2;
        if codes > 0 && !is_number && !LIST_WORDS.contains(&value) && value != b"-" && value != b"*"
        {
            return;
        }
        is_linked = is_link(&word, value) && !word.is_quoted;
        fillers += 1;
        if fillers > MAX_FILLERS && codes == 0 {
            return;
        }
    }
}
