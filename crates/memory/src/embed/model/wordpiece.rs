//! The WordPiece tokenizer of BERT: words, and pieces of words that the vocabulary lacks.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use unicode_normalization::UnicodeNormalization;
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

use super::error::{ModelError, read_json};
use crate::text::analyse::truncated;

/// How many bytes of a text are tokenized. They give more tokens than any model takes.
const MAX_TEXT_BYTES: usize = 16 << 10;

/// The tokenizer that `tokenizer.json` describes.
pub(crate) struct Tokenizer {
    vocabulary: HashMap<String, u32>,
    /// Marks a piece that continues a word: `##`.
    continuation_prefix: String,
    max_word_chars: usize,
    unknown: u32,
    cls: u32,
    sep: u32,
    lowercase: bool,
    strip_accents: bool,
    split_ideographs: bool,
}

#[derive(Deserialize)]
struct TokenizerFile {
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

fn default_max_word_chars() -> usize {
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
    #[serde(default = "default_max_word_chars")]
    max_input_chars_per_word: usize,
    vocab: serde_json::Value,
}

impl Tokenizer {
    pub(crate) fn load(path: &Path) -> Result<Tokenizer, ModelError> {
        let TokenizerFile { normalizer, model } = read_json(path)?;
        let unsupported = |reason: &str| ModelError::unsupported(path, reason);
        // The first versions of the format do not name the type. Only WordPiece has its vocabulary
        // as an object.
        if model.kind != "WordPiece" && !(model.kind.is_empty() && model.vocab.is_object()) {
            return Err(unsupported("only tokenizers of type WordPiece are supported"));
        }
        let vocabulary: HashMap<String, u32> = serde_json::from_value(model.vocab)
            .map_err(|_| unsupported("cannot parse its vocabulary"))?;
        let normalizer = normalizer.filter(|normalizer| normalizer.kind == "BertNormalizer");
        let normalizer =
            normalizer.ok_or_else(|| unsupported("only BertNormalizer is supported"))?;
        let token = |word: &str| vocabulary.get(word).copied();
        let special =
            |word: &str| token(word).ok_or_else(|| unsupported("[CLS] or [SEP] is missing"));
        Ok(Tokenizer {
            unknown: token(&model.unk_token)
                .ok_or_else(|| unsupported("its unk_token is missing"))?,
            cls: special("[CLS]")?,
            sep: special("[SEP]")?,
            continuation_prefix: model.continuing_subword_prefix,
            max_word_chars: model.max_input_chars_per_word,
            lowercase: normalizer.lowercase,
            strip_accents: normalizer.strip_accents.unwrap_or(normalizer.lowercase),
            split_ideographs: normalizer.handle_chinese_chars,
            vocabulary,
        })
    }

    /// Returns the greatest token of the vocabulary.
    pub(crate) fn max_token(&self) -> u32 {
        self.vocabulary.values().copied().max().unwrap_or_default()
    }

    /// Returns the tokens of a text between `[CLS]` and `[SEP]`, at most `max_tokens` in all.
    pub(crate) fn tokens(&self, text: &str, max_tokens: usize) -> Vec<u32> {
        let mut tokens = vec![self.cls];
        let before_sep = max_tokens.saturating_sub(1).max(1);
        for word in self.words(truncated(text, MAX_TEXT_BYTES)) {
            self.add_pieces(&word, &mut tokens);
            if tokens.len() >= before_sep {
                tokens.truncate(before_sep);
                break;
            }
        }
        tokens.push(self.sep);
        tokens
    }

    /// Normalises a text and splits it into words and single punctuation marks.
    fn words(&self, text: &str) -> Vec<String> {
        let mut clean = String::with_capacity(text.len());
        for letter in text.chars() {
            if is_space(letter) {
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
            // Character by character, as the reference does: no rules for the end of a word.
            clean = clean.chars().flat_map(char::to_lowercase).collect();
        }
        let mut words = Vec::new();
        let mut word = String::new();
        for letter in clean.chars() {
            let punctuation = is_punctuation(letter);
            if (punctuation || letter.is_whitespace()) && !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            if punctuation {
                words.push(letter.to_string());
            } else if !letter.is_whitespace() {
                word.push(letter);
            }
        }
        words.push(word);
        words.retain(|word| !word.is_empty());
        words
    }

    /// Adds the pieces of a word: the longest prefix in the vocabulary, then the longest of the
    /// rest, and so on.
    fn add_pieces(&self, word: &str, tokens: &mut Vec<u32>) {
        if word.chars().count() > self.max_word_chars {
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
                    piece.push_str(&self.continuation_prefix);
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

fn is_space(letter: char) -> bool {
    matches!(letter, '\t' | '\n' | '\r') || letter.is_whitespace()
}

fn is_control(letter: char) -> bool {
    letter.general_category_group() == GeneralCategoryGroup::Other
}

fn is_punctuation(letter: char) -> bool {
    letter.is_ascii_punctuation()
        || letter.general_category_group() == GeneralCategoryGroup::Punctuation
}

fn is_ideograph(letter: char) -> bool {
    matches!(u32::from(letter),
        0x4E00..=0x9FFF | 0x3400..=0x4DBF | 0x20000..=0x2A6DF | 0x2A700..=0x2B73F
        | 0x2B740..=0x2B81F | 0x2B920..=0x2CEAF | 0xF900..=0xFAFF | 0x2F800..=0x2FA1F)
}
