/// Estimates the number of tokens of a text: four ASCII characters are one token, other characters
/// nearly one each.
pub(crate) fn estimated_tokens(text: &str) -> usize {
    let ascii = text.bytes().filter(u8::is_ascii).count();
    let other = text.chars().filter(|c| !c.is_ascii()).count();
    ascii.div_ceil(4) + (other * 2).div_ceil(3)
}
