//! From text to tokens, as BERT's models were trained: words, and pieces of words that are not known.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use unicode_normalization::UnicodeNormalization;
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

use super::{ModelError, read_json};

/// How much of a text is looked at: no text needs more for as many tokens as a model takes.
const MOST: usize = 16 << 10;

/// What `tokenizer.json` says.
pub(crate) struct Tokenizer {
    vocabulary: HashMap<String, u32>,
    prefix: String,
    longest_word: usize,
    unknown: u32,
    start: u32,
    end: u32,
    lowercase: bool,
    strip_accents: bool,
    split_ideographs: bool,
}

#[derive(Deserialize)]
struct File {
    normalizer: Option<Normalizer>,
    model: Model,
}

#[derive(Deserialize)]
struct Normalizer {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    lowercase: bool,
    strip_accents: Option<bool>,
    #[serde(default = "yes")]
    handle_chinese_chars: bool,
}

fn yes() -> bool {
    true
}

fn hundred() -> usize {
    100
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    unk_token: String,
    #[serde(default)]
    continuing_subword_prefix: String,
    #[serde(default = "hundred")]
    max_input_chars_per_word: usize,
    vocab: serde_json::Value,
}

impl Tokenizer {
    pub(crate) fn load(path: &Path) -> Result<Tokenizer, ModelError> {
        let File { normalizer, model } = read_json(path)?;
        let wrong = |what: &str| ModelError::wrong(path, what);
        // Files of the first versions don't name the kind, but have what only this kind has.
        if model.kind != "WordPiece" && !(model.kind.is_empty() && model.vocab.is_object()) {
            return Err(wrong("it is not of the kind WordPiece, which is the one that is known"));
        }
        let vocabulary: HashMap<String, u32> = serde_json::from_value(model.vocab)
            .map_err(|_| wrong("its vocabulary can't be read"))?;
        let normalizer = normalizer.filter(|normalizer| normalizer.kind == "BertNormalizer");
        let normalizer = normalizer.ok_or_else(|| wrong("it does not normalise as BERT does"))?;
        let known = |word: &str| vocabulary.get(word).copied();
        let special = |word: &str| known(word).ok_or_else(|| wrong("[CLS] or [SEP] is missing"));
        Ok(Tokenizer {
            unknown: known(&model.unk_token).ok_or_else(|| wrong("its unk_token is missing"))?,
            start: special("[CLS]")?,
            end: special("[SEP]")?,
            prefix: model.continuing_subword_prefix,
            longest_word: model.max_input_chars_per_word,
            lowercase: normalizer.lowercase,
            strip_accents: normalizer.strip_accents.unwrap_or(normalizer.lowercase),
            split_ideographs: normalizer.handle_chinese_chars,
            vocabulary,
        })
    }

    /// The greatest number a token has.
    pub(crate) fn greatest(&self) -> u32 {
        self.vocabulary.values().copied().max().unwrap_or_default()
    }

    /// The tokens of a text between start and end, at most so many in all.
    pub(crate) fn tokens(&self, text: &str, most: usize) -> Vec<u32> {
        let mut tokens = vec![self.start];
        let inner = most.saturating_sub(1).max(1);
        for word in self.words(crate::text::analyse::beginning(text, MOST)) {
            self.pieces(&word, &mut tokens);
            if tokens.len() >= inner {
                tokens.truncate(inner);
                break;
            }
        }
        tokens.push(self.end);
        tokens
    }

    /// Words and single signs, as they are looked up.
    fn words(&self, text: &str) -> Vec<String> {
        let mut clean = String::with_capacity(text.len());
        for letter in text.chars() {
            if is_blank(letter) {
                clean.push(' ');
            } else if self.split_ideographs && is_ideograph(letter) {
                clean.extend([' ', letter, ' ']);
            } else if letter != '\u{fffd}' && !is_control(letter) {
                clean.push(letter);
            }
        }
        if self.strip_accents {
            let plain =
                |letter: &char| letter.general_category() != GeneralCategory::NonspacingMark;
            clean = clean.nfd().filter(plain).collect();
        }
        if self.lowercase {
            // Letter by letter: what a letter becomes does not depend on where it stands.
            clean = clean.chars().flat_map(char::to_lowercase).collect();
        }
        let mut words = Vec::new();
        let mut word = String::new();
        for letter in clean.chars() {
            let sign = is_sign(letter);
            if (sign || letter.is_whitespace()) && !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            if sign {
                words.push(letter.to_string());
            } else if !letter.is_whitespace() {
                word.push(letter);
            }
        }
        words.push(word);
        words.retain(|word| !word.is_empty());
        words
    }

    /// The longest known beginning, then the longest known of the rest, and so on.
    fn pieces(&self, word: &str, tokens: &mut Vec<u32>) {
        if word.chars().count() > self.longest_word {
            tokens.push(self.unknown);
            return;
        }
        let before = tokens.len();
        let mut from = 0;
        let mut piece = String::new();
        while from < word.len() {
            let ends =
                word[from..].char_indices().map(|(at, letter)| from + at + letter.len_utf8());
            let mut ends: Vec<usize> = ends.collect();
            let found = loop {
                let Some(to) = ends.pop() else { break None };
                piece.clear();
                if from > 0 {
                    piece.push_str(&self.prefix);
                }
                piece.push_str(&word[from..to]);
                if let Some(token) = self.vocabulary.get(&piece) {
                    break Some((*token, to));
                }
            };
            let Some((token, to)) = found else {
                tokens.truncate(before);
                tokens.push(self.unknown);
                return;
            };
            tokens.push(token);
            from = to;
        }
    }
}

fn is_blank(letter: char) -> bool {
    matches!(letter, '\t' | '\n' | '\r') || letter.is_whitespace()
}

fn is_control(letter: char) -> bool {
    letter.general_category_group() == GeneralCategoryGroup::Other
}

fn is_sign(letter: char) -> bool {
    letter.is_ascii_punctuation()
        || letter.general_category_group() == GeneralCategoryGroup::Punctuation
}

fn is_ideograph(letter: char) -> bool {
    matches!(u32::from(letter),
        0x4E00..=0x9FFF | 0x3400..=0x4DBF | 0x20000..=0x2A6DF | 0x2A700..=0x2B73F
        | 0x2B740..=0x2B81F | 0x2B920..=0x2CEAF | 0xF900..=0xFAFF | 0x2F800..=0x2FA1F)
}
