//! Samples of secrets in their text. The files are in `crates/memory/src/redact/samples`.

use std::ops::Range;

/// A text, and where its secrets are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretSample {
    pub name: String,
    pub text: String,
    pub secrets: Vec<Range<usize>>,
}

impl SecretSample {
    /// Returns the longest parts of the secrets that are outside of the masked ranges, without signs and blanks at
    /// their ends.
    pub fn clear_parts(&self, masked: &[Range<usize>]) -> Vec<&str> {
        let is_masked = |at: usize| masked.iter().any(|range| range.contains(&at));
        let mut parts = Vec::new();
        for secret in &self.secrets {
            let mut from = secret.start;
            for at in secret.clone().chain([secret.end]) {
                if at == secret.end || is_masked(at) {
                    parts.extend(self.text.get(from..at));
                    from = at + 1;
                }
            }
        }
        let parts = parts.into_iter().map(|part| part.trim_matches(|c: char| !c.is_alphanumeric()));
        parts.filter(|part| !part.is_empty()).collect()
    }

    /// Returns the texts of the secrets.
    pub fn needles(&self) -> impl Iterator<Item = &str> {
        self.secrets.iter().filter_map(|range| self.text.get(range.clone()))
    }
}

/// Reads a file of samples. `== NAME` begins a sample, `⟦` and `⟧` enclose a secret, `¦` is nothing, and `⟨200B⟩` is the
/// character with that code. Lines before the first sample are comments.
pub fn parse_secret_samples(file: &str) -> Vec<SecretSample> {
    let mut samples = Vec::new();
    for block in format!("\n{file}").split("\n==").skip(1) {
        let (name, written) = block.split_once('\n').unwrap_or((block, ""));
        let mut sample =
            SecretSample { name: name.trim().to_owned(), text: String::new(), secrets: Vec::new() };
        let mut from = 0;
        let mut rest = written.strip_suffix('\n').unwrap_or(written).chars();
        while let Some(c) = rest.next() {
            match c {
                '⟦' => from = sample.text.len(),
                '⟧' => sample.secrets.push(from..sample.text.len()),
                '¦' => {}
                '⟨' => {
                    let code: String = rest.by_ref().take_while(|&c| c != '⟩').collect();
                    let code = u32::from_str_radix(&code, 16).ok().and_then(char::from_u32);
                    sample.text.extend(code);
                }
                c => sample.text.push(c),
            }
        }
        samples.push(sample);
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_with_the_ranges_of_their_secrets() {
        let file = "# a comment\n== one\na ⟦b¦c⟨200B⟩d⟧ e\n== two\nx\ny\n";
        let samples = parse_secret_samples(file);
        assert_eq!(samples.len(), 2);
        assert_eq!(samples[0].text, "a bc\u{200b}d e");
        assert_eq!(samples[0].needles().collect::<Vec<_>>(), ["bc\u{200b}d"]);
        assert_eq!((samples[1].text.as_str(), samples[1].secrets.len()), ("x\ny", 0));
        assert_eq!(samples[0].clear_parts(&[0..1, 2..4]), ["d"]);
        assert!(samples[0].clear_parts(&[0..1, 2..9]).is_empty());
    }
}
