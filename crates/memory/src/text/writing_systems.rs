//! Folding of letters, and terms of writing systems without spaces between words.

/// Folds a word to lower case, without accents and in one width: "Café" becomes "cafe", "Ё" becomes
/// "е".
pub(crate) fn folded(word: &str) -> String {
    if word.is_ascii() {
        return word.to_ascii_lowercase();
    }
    let lower = |c: char| half_width(c).to_lowercase();
    // Combining marks follow their letter as characters of their own.
    let is_letter = |c: &char| !matches!(u32::from(*c), 0x300..=0x36F);
    word.chars().flat_map(lower).filter(is_letter).map(without_accent).collect()
}

/// Returns the usual form of a full-width letter or digit.
fn half_width(c: char) -> char {
    match u32::from(c) {
        code @ 0xFF01..=0xFF5E => char::from_u32(code - 0xFEE0).unwrap_or(c),
        _ => c,
    }
}

fn without_accent(c: char) -> char {
    match c {
        'à'..='å' | 'ā' | 'ă' | 'ą' => 'a',
        'ç' | 'ć' | 'č' => 'c',
        'è'..='ë' | 'ē' | 'ė' | 'ę' | 'ě' => 'e',
        'ì'..='ï' | 'ī' | 'į' | 'ı' => 'i',
        'ñ' | 'ń' | 'ň' => 'n',
        'ò'..='ö' | 'ø' | 'ō' | 'ő' => 'o',
        'ù'..='ü' | 'ū' | 'ů' | 'ű' => 'u',
        'ý' | 'ÿ' => 'y',
        'ß' | 'ś' | 'š' | 'ş' => 's',
        'ź' | 'ż' | 'ž' => 'z',
        'ğ' => 'g',
        'ł' => 'l',
        'ř' => 'r',
        'ť' => 't',
        'ď' => 'd',
        'ё' => 'е',
        c => c,
    }
}

/// Returns whether a character belongs to a writing system without spaces between words: Han, kana,
/// Hangul, Thai.
pub(crate) fn is_ideograph(c: char) -> bool {
    matches!(u32::from(c),
        0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xAC00..=0xD7AF | 0xF900..=0xFAFF
        | 0x0E00..=0x0E7F | 0x20000..=0x3FFFF)
}

/// Japanese particles of one character.
const PARTICLES: &str = "はのをがにでともへやかな";

/// Returns whether a term is made of hiragana alone, or is the edge of a word together with a
/// particle. Hiragana write endings and particles, which say as little as "of" and "the".
pub(crate) fn is_particle(term: &str) -> bool {
    let hiragana = |c: char| matches!(u32::from(c), 0x3040..=0x309F);
    let mut characters = term.chars();
    match (characters.next(), characters.next(), characters.next()) {
        (Some(one), None, _) => hiragana(one),
        (Some(one), Some(two), None) => {
            let joined = PARTICLES.contains(one) || PARTICLES.contains(two);
            (hiragana(one) && hiragana(two)) || joined
        }
        _ => false,
    }
}

/// One of the scripts of Japanese. Chinese has ideographs only.
#[derive(Clone, Copy, PartialEq)]
enum Script {
    Hiragana,
    Katakana,
    Ideograph,
}

fn script(c: char) -> Script {
    match u32::from(c) {
        0x3040..=0x309F => Script::Hiragana,
        0x30A0..=0x30FF => Script::Katakana,
        _ => Script::Ideograph,
    }
}

/// A katakana word of at least this many characters may be a compound.
const MIN_COMPOUND_CHARS: usize = 5;
/// How many characters a part of a katakana compound has.
const COMPOUND_PART_CHARS: usize = 3;

/// Adds the terms of a text without spaces: pairs of neighbouring ideographs, and each ideograph by
/// itself, because words of similar meaning share it; an ideograph with the first character of its
/// ending; katakana words as a whole, and long ones in parts as well; pairs of hiragana.
pub(crate) fn add_terms(run: &str, terms: &mut Vec<String>) {
    let characters: Vec<char> = run.chars().collect();
    let before = terms.len();
    let mut end = 0;
    for word in characters.chunk_by(|a, b| script(*a) == script(*b)) {
        end += word.len();
        match script(word[0]) {
            Script::Katakana => add_katakana(word, terms),
            Script::Hiragana => add_windows(word, 2, terms),
            Script::Ideograph => {
                add_windows(word, 2, terms);
                let ending = characters.get(end).filter(|next| script(**next) == Script::Hiragana);
                terms.extend(ending.map(|next| [word[word.len() - 1], *next].iter().collect()));
            }
        }
    }
    let single = |c: &&char| matches!(u32::from(**c), 0x3400..=0x4DBF | 0x4E00..=0x9FFF);
    terms.extend(characters.iter().filter(single).map(char::to_string));
    if terms.len() == before {
        terms.push(run.to_owned());
    }
}

fn add_windows(word: &[char], length: usize, terms: &mut Vec<String>) {
    terms.extend(word.windows(length).map(|part| part.iter().collect::<String>()));
}

/// Adds a katakana word. The final long vowel mark is dropped: "サーバー" is also written "サーバ".
fn add_katakana(word: &[char], terms: &mut Vec<String>) {
    let word = if word.len() > 2 { word.strip_suffix(&['ー']).unwrap_or(word) } else { word };
    if word.len() > 1 {
        terms.push(word.iter().collect());
    }
    if word.len() >= MIN_COMPOUND_CHARS {
        add_windows(word, COMPOUND_PART_CHARS, terms);
    }
}

/// Returns whether a term is part of a longer katakana word among these terms.
pub(crate) fn is_katakana_part<'a>(term: &str, mut among: impl Iterator<Item = &'a str>) -> bool {
    let word = |term: &str| term.chars().all(|c| script(c) == Script::Katakana);
    word(term) && among.any(|other| other.len() > term.len() && word(other) && other.contains(term))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_folded_and_particles_recognised() {
        assert_eq!(folded("Résumé"), "resume");
        assert_eq!(folded("ЁЖ"), "еж");
        assert_eq!(folded("ＡＢＣ１"), "abc1");
        assert!(is_particle("です") && is_particle("続は") && is_particle("と"));
        assert!(is_katakana_part("ンセル", ["取消", "キャンセル"].into_iter()));
        assert!(
            !is_katakana_part("ンセル", ["ンセル", "取消"].into_iter())
                && !is_katakana_part("a", ["ab"].into_iter())
        );
        assert!(!is_particle("接続") && !is_particle("換え") && !is_particle(""));
    }
}
