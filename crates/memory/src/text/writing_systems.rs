//! What scripts other than English need before their words meet.

/// Small letters, without accents and in one width: "Café" is "cafe", "Ё" is "е".
pub(crate) fn folded(word: &str) -> String {
    if word.is_ascii() {
        return word.to_ascii_lowercase();
    }
    let small = |c: char| narrow(c).to_lowercase();
    // Marks that stand by themselves after their letter.
    let marks = |c: &char| !matches!(u32::from(*c), 0x300..=0x36F);
    word.chars().flat_map(small).filter(marks).map(plain).collect()
}

/// The usual width of a wide letter or digit.
fn narrow(c: char) -> char {
    match u32::from(c) {
        code @ 0xFF01..=0xFF5E => char::from_u32(code - 0xFEE0).unwrap_or(c),
        _ => c,
    }
}

fn plain(c: char) -> char {
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

/// Whether a character belongs to a script without blanks between words.
pub(crate) fn is_ideograph(c: char) -> bool {
    matches!(u32::from(c),
        0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xAC00..=0xD7AF | 0xF900..=0xFAFF
        | 0x0E00..=0x0E7F | 0x20000..=0x3FFFF)
}

/// Japanese words that only join others.
const PARTICLES: &str = "はのをがにでともへやかな";

/// Whether a term is made of hiragana alone, endings and particles, which say as little as "of" and
/// "the", or is a word's edge with the particle behind or before it.
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

/// What a character of a script without blanks is written for.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Hiragana,
    Katakana,
    Ideograph,
}

fn kind(c: char) -> Kind {
    match u32::from(c) {
        0x3040..=0x309F => Kind::Hiragana,
        0x30A0..=0x30FF => Kind::Katakana,
        _ => Kind::Ideograph,
    }
}

/// Katakana words of at least so many characters may be made of several, which are found by parts of
/// this length.
const COMPOUND: usize = 5;
const PART: usize = 3;

/// The terms of a run without blanks: pairs of neighbouring ideographs, and each by itself, which other
/// words of like meaning share; an ideograph with the first letter of its ending; words in katakana
/// whole, long ones in parts too; pairs of hiragana.
pub(crate) fn pairs(run: &str, terms: &mut Vec<String>) {
    let characters: Vec<char> = run.chars().collect();
    let before = terms.len();
    let mut end = 0;
    for word in characters.chunk_by(|a, b| kind(*a) == kind(*b)) {
        end += word.len();
        match kind(word[0]) {
            Kind::Katakana => katakana(word, terms),
            Kind::Hiragana => of_length(word, 2, terms),
            Kind::Ideograph => {
                of_length(word, 2, terms);
                let ending = characters.get(end).filter(|next| kind(**next) == Kind::Hiragana);
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

fn of_length(word: &[char], length: usize, terms: &mut Vec<String>) {
    terms.extend(word.windows(length).map(|part| part.iter().collect::<String>()));
}

/// "サーバー" is also written "サーバ".
fn katakana(word: &[char], terms: &mut Vec<String>) {
    let word = if word.len() > 2 { word.strip_suffix(&['ー']).unwrap_or(word) } else { word };
    if word.len() > 1 {
        terms.push(word.iter().collect());
    }
    if word.len() >= COMPOUND {
        of_length(word, PART, terms);
    }
}

/// Whether a term is only a part of a longer word in katakana among these terms.
pub(crate) fn is_part<'a>(term: &str, mut among: impl Iterator<Item = &'a str>) -> bool {
    let word = |term: &str| term.chars().all(|c| kind(c) == Kind::Katakana);
    word(term) && among.any(|other| other.len() > term.len() && word(other) && other.contains(term))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_folded() {
        assert_eq!(folded("Résumé"), "resume");
        assert_eq!(folded("ЁЖ"), "еж");
        assert_eq!(folded("ＡＢＣ１"), "abc1");
        assert!(is_particle("です") && is_particle("続は") && is_particle("と"));
        assert!(is_part("ンセル", ["取消", "キャンセル"].into_iter()));
        assert!(
            !is_part("ンセル", ["ンセル", "取消"].into_iter()) && !is_part("a", ["ab"].into_iter())
        );
        assert!(!is_particle("接続") && !is_particle("換え") && !is_particle(""));
    }
}
