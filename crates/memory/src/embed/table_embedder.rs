//! The built-in embedder: a text's vector is the sum of its terms' vectors, from a table.

use crate::embed::quantize::quantized;
use crate::embed::table::Table;
use crate::text::analyse::{Analyser, truncated};

/// How many bytes of a text are embedded. The beginning of a longer text says what it is about.
const MAX_TEXT_BYTES: usize = 32 << 10;

/// Makes vectors from the built-in table. Texts of similar meaning get vectors of similar
/// direction.
pub struct TableEmbedder {
    analyser: Analyser,
    table: Table,
}

impl TableEmbedder {
    pub fn new() -> TableEmbedder {
        TableEmbedder { analyser: Analyser::default(), table: Table::built_in() }
    }

    /// Returns the vector of a text; all zero if the table has none of its terms.
    pub(crate) fn embed(&self, text: &str) -> Vec<i8> {
        let terms = self.analyser.terms(truncated(text, MAX_TEXT_BYTES));
        self.sum_of_terms(terms.iter().map(String::as_str))
    }

    /// Returns the vector of a text whose terms the caller has already.
    pub(crate) fn embed_terms_of(&self, text: &str, terms: &[String]) -> Vec<i8> {
        if text.len() > MAX_TEXT_BYTES {
            return self.embed(text);
        }
        self.sum_of_terms(terms.iter().map(String::as_str))
    }

    /// Returns the vector of a query from its terms and their weights.
    pub(crate) fn embed_query(&self, weighted_terms: &[(&str, f32)]) -> Vec<i8> {
        self.weighted_sum(weighted_terms.iter().copied())
    }

    /// Returns whether the table has a vector for a term.
    pub(crate) fn has_term(&self, term: &str) -> bool {
        self.table.find(term).is_some()
    }

    /// Returns terms of similar meaning with their cosines, the nearest first.
    pub(crate) fn related_terms(&self, term: &str) -> Vec<(&str, f32)> {
        let Some(row) = self.table.find(term) else { return Vec::new() };
        self.table.neighbours(row).map(|(other, near)| (self.table.word(other), near)).collect()
    }

    /// Sums the vectors of terms. Each repetition of a term adds less than the one before.
    fn sum_of_terms<'a>(&self, terms: impl Iterator<Item = &'a str>) -> Vec<i8> {
        let mut terms: Vec<&str> = terms.filter(|term| !self.analyser.is_stop_word(term)).collect();
        terms.sort_unstable();
        let groups = terms.chunk_by(|a, b| a == b);
        self.weighted_sum(groups.map(|same| (same[0], 1.0 + (same.len() as f32).ln())))
    }

    fn weighted_sum<'a>(&self, terms: impl Iterator<Item = (&'a str, f32)>) -> Vec<i8> {
        let mut sum = vec![0_f32; self.table.width()];
        for (term, weight) in terms {
            if let Some(row) = self.table.find(term) {
                self.table.add(row, weight, &mut sum);
            }
        }
        quantized(&sum)
    }
}

impl Default for TableEmbedder {
    fn default() -> TableEmbedder {
        TableEmbedder::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embed::quantize::cosines;

    fn near(a: &str, b: &str) -> f64 {
        let embedder = TableEmbedder::new();
        let (a, b) = (embedder.embed(a), embedder.embed(b));
        cosines(&a, [&*b].into_iter())[0].unwrap_or_default()
    }

    #[test]
    fn similar_texts_have_near_vectors() {
        let text = "the deployment failed because the certificate expired";
        assert!(
            near(text, "rollout broke, the TLS cert was out of date")
                > near(text, "a bowl of apples")
        );
        assert!(near("my daughter plays the violin", "the kid has music lessons") > 0.3);
        assert!(near("my daughter plays the violin", "the kernel driver crashed") < 0.2);
        let text = "сервер не отвечает, соединение закрыто";
        assert!(near(text, "время ожидания подключения истекло") > near(text, "новый цвет кнопки"));
        assert!(near(text, "connection to the host timed out") > near(text, "a bowl of apples"));
        assert!(near("服务器没有响应", "连接超时") > near("服务器没有响应", "按钮的颜色"));
        assert!(near("予約の通知を送信", "お知らせのメール") > near("予約の通知を送信", "背景色"));
        assert!(TableEmbedder::new().embed("the of and").iter().all(|value| *value == 0));
    }

    #[test]
    fn related_terms_are_in_the_language_of_the_term() {
        let embedder = TableEmbedder::new();
        let related: Vec<&str> =
            embedder.related_terms("car").iter().map(|(term, _)| *term).collect();
        assert!(related.contains(&"automobil") || related.contains(&"vehicl"), "{related:?}");
        assert!(embedder.related_terms("qzxv").is_empty());
        // Those of another language are words of that language.
        for (word, other, script) in
            [("удал", "убра", 'а'..='я'), ("休日", "祝日", '\u{3040}'..='\u{9FFF}')]
        {
            let related: Vec<&str> =
                embedder.related_terms(word).iter().map(|(term, _)| *term).collect();
            assert!(related.contains(&other), "{word}: {related:?}");
            assert!(
                related.iter().all(|term| term.chars().all(|c| script.contains(&c))),
                "{related:?}"
            );
        }
        assert!(embedder.has_term("car") && !embedder.has_term("qzxv"));
    }
}
