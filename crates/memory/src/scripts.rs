//! What scripts other than English need before their words meet.

/// Small letters, without accents and in one width: "Café" is "cafe", "Ё" is "е".
pub fn folded(word: &str) -> String {
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
pub fn is_ideograph(c: char) -> bool {
    matches!(u32::from(c),
        0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xAC00..=0xD7AF | 0xF900..=0xFAFF
        | 0x0E00..=0x0E7F | 0x20000..=0x3FFFF)
}

/// Japanese words that only join others.
const PARTICLES: &str = "はのをがにでともへやかな";

/// Whether a term is made of hiragana alone, endings and particles, which say as little as "of" and
/// "the", or is a word's edge with the particle behind or before it.
pub fn is_particle(term: &str) -> bool {
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

/// The pairs of neighbouring characters of a run, and its ideographs one by one, which other words of
/// like meaning share.
pub fn pairs(run: &str, terms: &mut Vec<String>) {
    let characters: Vec<char> = run.chars().collect();
    terms.extend(characters.windows(2).map(|pair| pair.iter().collect::<String>()));
    let alone = characters.len() == 1;
    let single = |c: &&char| alone || matches!(u32::from(**c), 0x3400..=0x4DBF | 0x4E00..=0x9FFF);
    terms.extend(characters.iter().filter(single).map(char::to_string));
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
        assert!(!is_particle("接続") && !is_particle("換え") && !is_particle(""));
    }
}
