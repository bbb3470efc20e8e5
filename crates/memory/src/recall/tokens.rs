/// The numbers of ASCII and of other characters in a text.
#[derive(Default)]
pub(crate) struct CharacterCounts {
    ascii: usize,
    other: usize,
}

impl CharacterCounts {
    pub(crate) fn add(&mut self, character: char) {
        if character.is_ascii() {
            self.ascii += 1;
        } else {
            self.other += 1;
        }
    }

    /// Four ASCII characters are one token, other characters nearly one each.
    pub(crate) fn estimated_tokens(&self) -> usize {
        self.ascii.div_ceil(4) + (self.other * 2).div_ceil(3)
    }
}

/// Estimates the number of tokens of a text.
pub(crate) fn estimated_tokens(text: &str) -> usize {
    let mut counts = CharacterCounts::default();
    text.chars().for_each(|character| counts.add(character));
    counts.estimated_tokens()
}
