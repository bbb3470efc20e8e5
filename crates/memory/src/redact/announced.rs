//! The words that announce a secret, and what kind of secret it is.

use super::word_list::word_list;

const PASSWORD_WORDS: &[&[u8]] = word_list!("data/password_words.txt");
const KEY_WORDS: &[&[u8]] = word_list!("data/key_words.txt");
const CODE_WORDS: &[&[u8]] = word_list!("data/code_words.txt");
const LOGIN_WORDS: &[&[u8]] = word_list!("data/login_words.txt");
const ACCOUNT_WORDS: &[&[u8]] = word_list!("data/account_words.txt");
const ACCOUNT_NUMBER_WORDS: &[&[u8]] = word_list!("data/account_number_words.txt");

/// What a word announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Announced {
    Password,
    Key,
    Code,
    Login,
    /// Something that has a password, which is nearby if it is there at all.
    Account,
    AccountNumber,
}

const LISTS: &[(&[&[u8]], Announced)] = &[
    (PASSWORD_WORDS, Announced::Password),
    (KEY_WORDS, Announced::Key),
    (CODE_WORDS, Announced::Code),
    (LOGIN_WORDS, Announced::Login),
    (ACCOUNT_WORDS, Announced::Account),
    (ACCOUNT_NUMBER_WORDS, Announced::AccountNumber),
];

/// Words that do not begin with an ASCII letter are in the last bucket, since their capitals may begin with other bytes.
const WIDE_BUCKET: usize = 26;
const WORDS: usize = PASSWORD_WORDS.len()
    + KEY_WORDS.len()
    + CODE_WORDS.len()
    + LOGIN_WORDS.len()
    + ACCOUNT_WORDS.len()
    + ACCOUNT_NUMBER_WORDS.len();

/// All words by their first letter: those of bucket `b` are `words[starts[b]..starts[b + 1]]`.
struct Index {
    starts: [usize; WIDE_BUCKET + 2],
    words: [(&'static [u8], Announced); WORDS],
}

const INDEX: &Index = &index();

const fn index() -> Index {
    let mut index =
        Index { starts: [0; WIDE_BUCKET + 2], words: [(b"", Announced::Password); WORDS] };
    let mut filled = 0;
    let mut bucket = 0;
    while bucket <= WIDE_BUCKET {
        index.starts[bucket] = filled;
        let mut list = 0;
        while list < LISTS.len() {
            let (words, announced) = LISTS[list];
            let mut word = 0;
            while word < words.len() {
                if bucket_of(words[word][0]) == bucket {
                    index.words[filled] = (words[word], announced);
                    filled += 1;
                }
                word += 1;
            }
            list += 1;
        }
        bucket += 1;
    }
    index.starts[bucket] = filled;
    index
}

const BUCKETS: &[u8; 256] = &buckets();

const fn buckets() -> [u8; 256] {
    let mut table = [WIDE_BUCKET as u8; 256];
    let mut letter = 0;
    while letter < 26 {
        table[(b'a' + letter) as usize] = letter;
        table[(b'A' + letter) as usize] = letter;
        letter += 1;
    }
    table
}

const fn bucket_of(first: u8) -> usize {
    BUCKETS[first as usize] as usize
}

/// For three letters, whether a word begins with them. Two letters count with every third, and anything but a letter is
/// the 27th letter.
const BEGINNINGS: &[bool; 27 * 27 * 27] = &beginnings();

const fn beginnings() -> [bool; 27 * 27 * 27] {
    let mut table = [false; 27 * 27 * 27];
    let mut at = 0;
    while at < INDEX.starts[WIDE_BUCKET] {
        let word = INDEX.words[at].0;
        let start = bucket_of(word[0]) * 27 + bucket_of(word[1]);
        if word.len() > 2 {
            table[start * 27 + bucket_of(word[2])] = true;
        } else {
            let mut third = 0;
            while third < 27 {
                table[start * 27 + third] = true;
                third += 1;
            }
        }
        at += 1;
    }
    table
}

/// For the first two bytes of a character that is not ASCII, whether a word begins with them.
const WIDE_BEGINNINGS: &[[bool; 64]; 64] = &wide_beginnings();

const fn wide_beginnings() -> [[bool; 64]; 64] {
    let mut table = [[false; 64]; 64];
    let mut at = INDEX.starts[WIDE_BUCKET];
    while at < WORDS {
        let word = INDEX.words[at].0;
        table[(word[0] & 63) as usize][(word[1] & 63) as usize] = true;
        at += 1;
    }
    table
}

/// Returns whether a listed word may begin at an ASCII letter: a look-up that spares nearly all words the comparison.
#[inline]
pub fn may_begin(bytes: &[u8], at: usize) -> bool {
    let letter = |at: usize| bytes.get(at).map_or(WIDE_BUCKET, |&byte| bucket_of(byte));
    BEGINNINGS[(letter(at) * 27 + letter(at + 1)) * 27 + letter(at + 2)]
}

/// Returns whether a listed word may begin at a character that is not ASCII.
pub fn may_begin_wide(bytes: &[u8], at: usize) -> bool {
    bytes[at] >= 0xc3
        && bytes
            .get(at + 1)
            .is_some_and(|&next| WIDE_BEGINNINGS[(bytes[at] & 63) as usize][(next & 63) as usize])
}

/// Returns what the longest listed word at `at` announces, and its end.
pub fn announced_at(text: &str, at: usize) -> Option<(Announced, usize)> {
    let bytes = text.as_bytes();
    let mut best: Option<(Announced, usize)> = None;
    let bucket = bucket_of(bytes[at]);
    let rest = &bytes[at..];
    let [_, second, third, ..] = *rest else { return None };
    for (word, announced) in &INDEX.words[INDEX.starts[bucket]..INDEX.starts[bucket + 1]] {
        // Two bytes rule out nearly all words.
        if word[1] | 32 != second | 32 || word.len() > 2 && word[2] | 32 != third | 32 {
            continue;
        }
        let end = at + word.len();
        if rest.len() >= word.len()
            && rest[..word.len()].eq_ignore_ascii_case(word)
            && best.is_none_or(|(_, known)| known < end)
        {
            best = Some((*announced, end));
        }
    }
    best.filter(|&(_, end)| is_separate(bytes, end))
}

/// Returns whether a word ends here, and is not the first part of a name or of code.
fn is_separate(bytes: &[u8], end: usize) -> bool {
    let Some(&next) = bytes.get(end) else { return false };
    let then = bytes.get(end + 1).copied().unwrap_or(b' ');
    match next {
        b'-' | b'.' | b'?' | b'!' => then <= b' ',
        b'\'' => then <= b' ' || bytes[end..].starts_with(b"'s "),
        b' ' | b'\t' | b'\r' | b'\n' | b':' | b'=' | b'"' | b'`' | b')' | b',' | b'*' | b'|' => {
            true
        }
        next => next >= 128,
    }
}
