//! From text to a vector.

use crate::embed::table::Table;
use crate::text::analyse::{Analyser, beginning};

/// Makes vectors: texts of like meaning get vectors that point the same way.
pub trait Embedder: Send + Sync {
    /// The text's direction; all zero when it says nothing.
    fn embed(&self, text: &str) -> Vec<i8>;

    /// The same of a text whose terms are known already.
    fn embed_analysed(&self, text: &str, _terms: &[String]) -> Vec<i8> {
        self.embed(text)
    }

    /// The direction of a question, of which it is known what each term is worth. Without such a
    /// thing, that of its text.
    fn embed_question(&self, text: &str, _worth: &[(&str, f32)]) -> Vec<i8> {
        self.embed(text)
    }

    /// Whether a term of a question has a part in its vector.
    fn knows(&self, _term: &str) -> bool {
        true
    }

    /// Terms that mean about the same as this one, nearest first, and how near: up to 1.
    fn like(&self, _term: &str) -> Vec<(&str, f32)> {
        Vec::new()
    }
}

/// The built-in one: a text is the sum of what a table says about its terms.
pub struct TableEmbedder {
    analyser: Analyser,
    table: Table,
}

/// How much of a text counts.
const MOST: usize = 32 << 10;

impl TableEmbedder {
    pub fn new() -> TableEmbedder {
        TableEmbedder { analyser: Analyser::default(), table: Table::built_in() }
    }

    /// What terms say together: more of the same adds less and less.
    fn of_terms<'a>(&self, terms: impl Iterator<Item = &'a str>) -> Vec<i8> {
        let mut telling: Vec<&str> = terms.filter(|term| !self.analyser.is_stop(term)).collect();
        telling.sort_unstable();
        let each = telling.chunk_by(|a, b| a == b);
        self.sum(each.map(|same| (same[0], 1.0 + (same.len() as f32).ln())))
    }

    fn sum<'a>(&self, terms: impl Iterator<Item = (&'a str, f32)>) -> Vec<i8> {
        let mut sum = vec![0_f32; self.table.width()];
        for (term, weight) in terms {
            if let Some(row) = self.table.find(term) {
                self.table.add(row, weight, &mut sum);
            }
        }
        rounded(&sum)
    }
}

impl Default for TableEmbedder {
    fn default() -> TableEmbedder {
        TableEmbedder::new()
    }
}

impl Embedder for TableEmbedder {
    fn embed(&self, text: &str) -> Vec<i8> {
        // What a very long text is about is told by its beginning as well as it can be.
        let terms = self.analyser.terms(beginning(text, MOST));
        self.of_terms(terms.iter().map(String::as_str))
    }

    fn embed_analysed(&self, text: &str, terms: &[String]) -> Vec<i8> {
        if text.len() > MOST {
            return self.embed(text);
        }
        self.of_terms(terms.iter().map(String::as_str))
    }

    fn embed_question(&self, _text: &str, worth: &[(&str, f32)]) -> Vec<i8> {
        self.sum(worth.iter().copied())
    }

    fn knows(&self, term: &str) -> bool {
        self.table.find(term).is_some()
    }

    fn like(&self, term: &str) -> Vec<(&str, f32)> {
        let Some(row) = self.table.find(term) else { return Vec::new() };
        self.table.neighbours(row).map(|(other, near)| (self.table.word(other), near)).collect()
    }
}

/// As whole numbers from -127 to 127; only the direction counts.
pub(crate) fn rounded(sum: &[f32]) -> Vec<i8> {
    let largest = sum.iter().fold(0_f32, |largest, value| largest.max(value.abs()));
    if largest == 0.0 {
        return vec![0; sum.len()];
    }
    sum.iter().map(|value| (value / largest * 127.0).round() as i8).collect()
}

/// The cosines of a vector with many others; none with those that are not of one kind or point nowhere.
pub(crate) fn cosines<'a>(of: &[i8], others: impl Iterator<Item = &'a [i8]>) -> Vec<Option<f64>> {
    let length = |squares: i32| f64::from(squares).sqrt();
    let own = length(of.iter().map(|value| i32::from(*value) * i32::from(*value)).sum());
    let with = |other: &[i8]| {
        let (mut dot, mut squares) = (0_i32, 0_i32);
        for (a, b) in of.iter().zip(other) {
            let (a, b) = (i32::from(*a), i32::from(*b));
            dot += a * b;
            squares += b * b;
        }
        let lengths = own * length(squares);
        (of.len() == other.len() && lengths > 0.0).then(|| f64::from(dot) / lengths)
    };
    others.map(with).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: &str, b: &str) -> f64 {
        let embedder = TableEmbedder::new();
        let (a, b) = (embedder.embed(a), embedder.embed(b));
        cosines(&a, [&*b].into_iter())[0].unwrap_or_default()
    }

    #[test]
    fn like_texts_are_near() {
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
    fn like_words_are_known() {
        let embedder = TableEmbedder::new();
        let like: Vec<&str> = embedder.like("car").iter().map(|(term, _)| *term).collect();
        assert!(like.contains(&"automobil") || like.contains(&"vehicl"), "{like:?}");
        assert!(embedder.like("qzxv").is_empty());
        // Those of another language are words of that language.
        for (word, other, script) in
            [("удал", "убра", 'а'..='я'), ("休日", "祝日", '\u{3040}'..='\u{9FFF}')]
        {
            let like: Vec<&str> = embedder.like(word).iter().map(|(term, _)| *term).collect();
            assert!(like.contains(&other), "{word}: {like:?}");
            assert!(like.iter().all(|term| term.chars().all(|c| script.contains(&c))), "{like:?}");
        }
        assert!(embedder.knows("car") && !embedder.knows("qzxv"));
    }

    #[test]
    fn a_cosine_needs_two_of_a_kind() {
        let others = [&[2, 0][..], &[0, 3], &[1], &[0, 0], &[]];
        let expect = [Some(1.0), Some(0.0), None, None, None];
        assert_eq!(cosines(&[1, 0], others.into_iter()), expect);
        assert_eq!(cosines(&[0, 0], others.into_iter()), [None; 5]);
    }
}
